//! All counters at the two ends of the measured interval.
//!
//! Slow readings (TCP_INFO of every connection, /proc) are taken before the interval begins and
//! after it ends. The payload counters and the clock are read last at the begin and first at the
//! end, so that reading costs no throughput.

use crate::host;
use crate::measure::{
    CpuSample, CpuUsage, CycleCounter, CycleSample, Cycles, Figure, KernelCounters, KernelDelta,
    ProcessSample, ProcessUsage, Stress, TcpInfo, TcpTotals, counters,
};
use crate::plan::{Plan, Transport};
use crate::shared::Shared;
use crate::thread::{ThreadState, lock};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// The sources of a snapshot.
#[derive(Debug)]
pub(crate) struct Probes<'p> {
    plan: &'p Plan,
    cycles: CycleCounter,
    stress: Stress,
}

/// All counters at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    at: Instant,
    threads: Vec<Count>,
    cycles: CycleSample,
    cpu: Result<CpuSample, String>,
    process: Result<ProcessSample, String>,
    slow: Slow,
}

/// Counters that are slow to read.
#[derive(Debug)]
struct Slow {
    kernel: KernelCounters,
    tcp: Vec<Vec<Option<TcpInfo>>>,
    frequency_mhz: Option<(f64, f64)>,
    stress: Stress,
}

counters! {
    /// A thread's counters.
    pub(crate) struct Count {
        bytes,
        calls,
        errors,
    }
}

/// The difference of two snapshots.
#[derive(Debug)]
pub(crate) struct Interval {
    pub(crate) seconds: f64,
    pub(crate) threads: Vec<Count>,
    pub(crate) cpu: Figure<CpuUsage>,
    pub(crate) process: Figure<ProcessUsage>,
    pub(crate) cycles: Cycles,
    pub(crate) kernel: KernelDelta,
    pub(crate) tcp: TcpTotals,
    /// Lowest and highest frequency, at the begin and at the end.
    pub(crate) frequency_mhz: [Option<(f64, f64)>; 2],
    /// Counted from the run's begin, because connections are refused before the interval.
    pub(crate) stress: Stress,
}

impl<'p> Probes<'p> {
    /// Opens the sources. Call this before the first connection.
    pub(crate) fn new(plan: &'p Plan) -> Probes<'p> {
        Probes { plan, cycles: CycleCounter::open(), stress: Stress::read() }
    }

    pub(crate) fn begin(&self, shared: &Shared) -> Snapshot {
        let slow = Slow { stress: self.stress, ..self.slow(shared) };
        let process = text(ProcessSample::read_own());
        let cpu = text(CpuSample::read());
        let cycles = self.cycles.sample();
        let threads = counts(shared);
        let at = Instant::now();
        Snapshot { at, threads, cycles, cpu, process, slow }
    }

    pub(crate) fn end(&self, shared: &Shared) -> Snapshot {
        let at = Instant::now();
        let threads = counts(shared);
        let cycles = self.cycles.sample();
        let cpu = text(CpuSample::read());
        let process = text(ProcessSample::read_own());
        Snapshot { at, threads, cycles, cpu, process, slow: self.slow(shared) }
    }

    fn slow(&self, shared: &Shared) -> Slow {
        Slow {
            kernel: KernelCounters::read(
                self.plan.interface.as_deref(),
                self.plan.interrupts.as_deref(),
            ),
            tcp: self.tcp(shared),
            frequency_mhz: host::frequency_mhz(),
            stress: Stress::read(),
        }
    }

    fn tcp(&self, shared: &Shared) -> Vec<Vec<Option<TcpInfo>>> {
        if self.plan.transport == Transport::Udp {
            return Vec::new();
        }
        let of_thread = |thread: &ThreadState| {
            let sockets = lock(&thread.sockets).clone();
            sockets.iter().map(|socket| TcpInfo::read(socket).ok()).collect()
        };
        shared.threads.iter().map(of_thread).collect()
    }
}

impl Snapshot {
    /// Returns the difference between `self` and a later snapshot.
    pub(crate) fn until(&self, end: &Snapshot) -> Interval {
        let threads = end.threads.iter().zip(&self.threads).map(|(now, then)| now.since(then));
        Interval {
            seconds: end.at.duration_since(self.at).as_secs_f64(),
            threads: threads.collect(),
            cpu: difference(&end.cpu, &self.cpu, "/proc/stat, all processors", CpuSample::since),
            process: difference(&end.process, &self.process, "/proc/self/stat", |now, then| {
                now.since(then)
            }),
            cycles: end.cycles.since(&self.cycles),
            kernel: end.slow.kernel.since(&self.slow.kernel),
            tcp: self.tcp_until(end),
            frequency_mhz: [self.slow.frequency_mhz, end.slow.frequency_mhz],
            stress: end.slow.stress.since(&self.slow.stress),
        }
    }

    /// Sums TCP_INFO over connections. One that opened after the begin counts from its own begin.
    fn tcp_until(&self, end: &Snapshot) -> TcpTotals {
        let mut totals = TcpTotals::default();
        for (now, then) in end.slow.tcp.iter().zip(&self.slow.tcp) {
            for (place, info) in now.iter().enumerate() {
                let then = then.get(place).copied().flatten().unwrap_or_default();
                totals += info.map_or(TcpTotals::default(), |now| now.since(&then));
            }
        }
        totals
    }
}

fn counts(shared: &Shared) -> Vec<Count> {
    let read = |thread: &ThreadState| Count {
        bytes: thread.counters.bytes.load(Ordering::Relaxed),
        calls: thread.counters.calls.load(Ordering::Relaxed),
        errors: thread.counters.errors.load(Ordering::Relaxed),
    };
    shared.threads.iter().map(read).collect()
}

fn text<T>(result: std::io::Result<T>) -> Result<T, String> {
    result.map_err(|error| error.to_string())
}

fn difference<S, U>(
    now: &Result<S, String>,
    then: &Result<S, String>,
    source: &str,
    since: impl FnOnce(&S, &S) -> U,
) -> Figure<U> {
    match (now, then) {
        (Ok(now), Ok(then)) => Figure::measured(since(now, then), source),
        (Err(reason), _) | (_, Err(reason)) => Figure::absent(format!("{source}: {reason}")),
    }
}
