//! One end's figures: payload, TCP and host counters, and processor cost.

use crate::host;
use crate::measure::{CpuUsage, Cycles, Figure, KernelDelta, ProcessUsage, TcpTotals};
use crate::plan::{Plan, Role, Transport};
use crate::shared::Shared;
use crate::snapshot::Interval;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;

/// One rate in several units.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// NTttcp's "MB/s": 2^20 bytes per second.
    pub mebibytes_per_s: f64,
    /// 10^6 bits per second.
    pub megabits_per_s: f64,
}

impl Throughput {
    pub(crate) fn of(bytes: u64, seconds: f64) -> Throughput {
        Throughput::at(if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 })
    }

    fn at(bytes_per_s: f64) -> Throughput {
        Throughput {
            bytes_per_s,
            mebibytes_per_s: bytes_per_s / 1_048_576.0,
            megabits_per_s: bytes_per_s * 8.0 / 1e6,
        }
    }
}

/// TCP or UDP counters over the measured interval. For TCP they are sums of TCP_INFO over this
/// run's connections, in segments of the wire; NTttcp shows the whole host's.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segments {
    /// Segments or datagrams sent.
    pub sent: Figure<u64>,
    /// Segments or datagrams received.
    pub received: Figure<u64>,
    /// Retransmitted segments.
    pub retransmits: Figure<u64>,
    /// Mean payload bytes of segments with payload.
    pub average_frame_bytes: Figure<f64>,
    /// Smoothed round-trip time at the end, mean over connections, microseconds.
    pub rtt_us: Figure<f64>,
}

/// One end's figures. All but the `whole_run` fields are of the measured interval.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// Role of this end.
    pub role: Role,
    /// A random number for this end's run: figures with one number come from one end, reached at
    /// two addresses.
    pub end_id: u32,
    /// The host's name.
    pub computer: String,
    /// Connections of the run.
    pub connections: u64,
    /// The measured interval by this end's monotonic clock.
    pub seconds: f64,
    /// Bytes that the application sent or received.
    pub bytes: u64,
    /// The rate of `bytes`.
    pub throughput: Throughput,
    /// Send or receive calls that moved something (for UDP, datagrams).
    pub calls: u64,
    /// NTttcp's buffers: bytes over the buffer length.
    pub buffers: f64,
    /// Calls and connections that failed.
    pub errors: u64,
    /// Bytes from the first connection to the last, including warm-up, cool-down and what was in
    /// flight. With TCP both ends have equal numbers, unless something is wrong.
    pub whole_run_bytes: u64,
    /// Send or receive calls over the whole run.
    pub whole_run_calls: u64,
    /// Bytes of the whole run that were compared and found right; absent without `--verify`.
    pub verified_bytes: Option<u64>,
    /// TCP or UDP counters.
    pub segments: Segments,
    /// Processor use of the whole host.
    pub cpu: Figure<CpuUsage>,
    /// Processor use of this process.
    pub process: Figure<ProcessUsage>,
    /// Processor cycles of the whole host.
    pub cycles: Cycles,
    /// NTttcp's formula: busy share x processors x frequency x seconds / bytes.
    pub cycles_per_byte: Figure<f64>,
    /// Cycles counted by hardware / bytes.
    pub hardware_cycles_per_byte: Figure<f64>,
    /// Kernel counters of the whole host.
    pub kernel: KernelDelta,
}

impl Side {
    pub(crate) fn new(plan: &Plan, shared: &Shared, interval: &Interval, connections: u64) -> Side {
        let sum = |part: fn(&crate::snapshot::Count) -> u64| {
            interval.threads.iter().map(part).sum::<u64>()
        };
        let (bytes, calls) = (sum(|thread| thread.bytes), sum(|thread| thread.calls));
        let seconds = interval.seconds;
        let verified = || {
            shared
                .threads
                .iter()
                .map(|thread| thread.counters.verified.load(Ordering::Relaxed))
                .sum()
        };
        let whole =
            shared.threads.iter().map(|thread| thread.counters.calls.load(Ordering::Relaxed));
        let cycles_per_byte = match &interval.cpu.value {
            Some(usage) => interval.cycles.per_byte_by_formula(usage, seconds, bytes),
            None => Figure::absent_as(&interval.cpu),
        };
        Side {
            role: plan.role,
            end_id: draw(),
            computer: host::name(),
            connections,
            seconds,
            bytes,
            throughput: Throughput::of(bytes, seconds),
            calls,
            buffers: bytes as f64 / plan.buffer_bytes as f64,
            errors: sum(|thread| thread.errors),
            whole_run_bytes: shared.bytes(),
            whole_run_calls: whole.sum(),
            verified_bytes: (plan.verify && plan.role == Role::Receiver).then(verified),
            segments: Segments::of(plan, interval, bytes, calls),
            cpu: interval.cpu.clone(),
            process: interval.process.clone(),
            hardware_cycles_per_byte: interval.cycles.per_byte_by_hardware(bytes),
            cycles: interval.cycles.clone(),
            cycles_per_byte,
            kernel: interval.kernel.clone(),
        }
    }

    /// Adds another peer's payload: several receivers of one sender, or several senders of one
    /// receiver. Host counters stay those of the first one.
    pub(crate) fn add(&mut self, other: &Side) {
        self.connections = self.connections.saturating_add(other.connections);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.calls = self.calls.saturating_add(other.calls);
        self.buffers += other.buffers;
        self.errors = self.errors.saturating_add(other.errors);
        self.whole_run_bytes = self.whole_run_bytes.saturating_add(other.whole_run_bytes);
        self.whole_run_calls = self.whole_run_calls.saturating_add(other.whole_run_calls);
        let (own, more) = (self.throughput.bytes_per_s, other.throughput.bytes_per_s);
        self.throughput = Throughput::at(own + more);
        self.computer = format!("{}, {}", self.computer, other.computer);
    }

    /// Returns a count of the whole host per second of the interval.
    pub(super) fn per_second(&self, count: &Figure<u64>) -> Figure<f64> {
        count.then(|count| (self.seconds > 0.0).then(|| *count as f64 / self.seconds))
    }

    /// Returns received packets per unit of a count of the whole host, a figure of NTttcp.
    pub(super) fn received_per(&self, count: &Figure<u64>) -> Figure<f64> {
        let Some(received) = self.segments.received.value else {
            return Figure::absent_as(&self.segments.received);
        };
        count.then(|count| (*count > 0).then(|| received as f64 / *count as f64))
    }
}

/// Draws a random 32-bit number. The hash keys of the standard library are random enough here.
#[allow(clippy::cast_possible_truncation, reason = "half of the hash's bits are enough")]
fn draw() -> u32 {
    RandomState::new().hash_one(std::process::id()) as u32
}

impl Segments {
    fn of(plan: &Plan, interval: &Interval, bytes: u64, calls: u64) -> Segments {
        match plan.transport {
            Transport::Tcp => Segments::of_tcp(plan.role, &interval.tcp, bytes),
            Transport::Udp => Segments::of_udp(plan.role, bytes, calls),
        }
    }

    fn of_tcp(role: Role, tcp: &TcpTotals, bytes: u64) -> Segments {
        /// Returns `value` as measured if there were any TCP connections.
        fn of<T>(tcp: &TcpTotals, value: T) -> Figure<T> {
            match tcp.connections {
                0 => Figure::absent("no connection was open"),
                _ => Figure::measured(value, "TCP_INFO of this run's connections"),
            }
        }
        let frames = match role {
            Role::Sender => tcp.data_segments_out,
            Role::Receiver => tcp.data_segments_in,
        };
        let mean = |sum: u64, count: u64| (count > 0).then(|| sum as f64 / count as f64);
        Segments {
            sent: of(tcp, tcp.segments_out),
            received: of(tcp, tcp.segments_in),
            retransmits: of(tcp, tcp.retransmits),
            average_frame_bytes: of(tcp, ()).then(|()| mean(bytes, frames)),
            rtt_us: of(tcp, ()).then(|()| mean(tcp.rtt_us_sum, tcp.connections)),
        }
    }

    fn of_udp(role: Role, bytes: u64, calls: u64) -> Segments {
        const SOURCE: &str = "datagrams of this process";
        let other = || "UDP does not tell what the other end sends back".to_string();
        let (sent, received) = match role {
            Role::Sender => (Figure::measured(calls, SOURCE), Figure::absent(other())),
            Role::Receiver => (Figure::absent(other()), Figure::measured(calls, SOURCE)),
        };
        Segments {
            sent,
            received,
            retransmits: Figure::absent("UDP has no retransmissions"),
            average_frame_bytes: Figure::measured((), SOURCE)
                .then(|()| (calls > 0).then(|| bytes as f64 / calls as f64)),
            rtt_us: Figure::absent("UDP measures no round trips; --latency does"),
        }
    }
}
