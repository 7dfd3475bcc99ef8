//! Frames a second of two pinned workers against one, between memory ports:
//! `cargo bench -p millrace-datapath --bench workers`.
//!
//! Two sources send to a sink each, or both to the same. Slices alternate, one worker, two, two,
//! one; between two slices the second source's queue moves to the other worker, and nothing else
//! changes. `-- --json`, `-- --rounds 100`, `-- --only 1518`.
//!
//! The other sides of memory ports need more time than the switch, so they run on the workers'
//! processors, between the workers' turns. Everything has the same real-time priority
//! (`chrt --fifo 1`, which root may ask for): a worker that was woken waits until the generator of
//! its processor yields, and that one until the worker sleeps. So both workers find a full batch,
//! and begin at once. A batch's time is what the turns of the worker took that needed longer.
//!
//! What two processors can do at most is measured in the same rounds: a loop of [`wire::parse`] on
//! each that shares nothing. On siblings of one core, where a hypervisor may put both, that is far
//! from twice what one does.

#![allow(missing_docs, clippy::print_stdout, clippy::print_stderr, reason = "a bench")]
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a bench is a test")]

mod bed;
#[path = "../../tests/common/mod.rs"]
mod common;
mod report;

use bed::{ABBA, Arm};
use report::Outcome;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::env;
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// A load, and what is wanted under it.
struct Case {
    name: &'static str,
    /// TCP payload of a frame, behind 54 bytes of headers. The names count the FCS, which no port
    /// carries.
    payload: u32,
    /// Frames of a batch, from each source: so many that some microseconds between the two workers'
    /// starts do not count.
    batch: u64,
    sinks: usize,
    /// How many times as many frames as one worker two are to carry at least.
    aim: Option<f64>,
}

const CASES: [Case; 4] = [
    Case { name: "64 B, a sink each", payload: 6, batch: 4096, sinks: 2, aim: Some(1.85) },
    Case { name: "1518 B, a sink each", payload: 1460, batch: 1024, sinks: 2, aim: Some(1.85) },
    Case { name: "64 B, one sink", payload: 6, batch: 4096, sinks: 1, aim: None },
    Case { name: "1518 B, one sink", payload: 1460, batch: 1024, sinks: 1, aim: Some(1.5) },
];

/// Frames that a processor parses in a slice that shares nothing.
const PARSED: u64 = 256 * 1024;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("workers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    at_real_time()?;
    // Threads spin for one another, and at this priority nothing would end one that spins for a
    // thread that has panicked.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("workers: {panic}");
        std::process::abort();
    }));
    let cpus = two_processors()?;
    let only = option("--only").unwrap_or_default();
    let rounds = option("--rounds").map_or(Ok(100), |rounds| rounds.parse::<usize>());
    let rounds = rounds.ok().filter(|rounds| *rounds > 0);
    let rounds = rounds.ok_or("--rounds takes a number from 1 on, such as 100")?;
    let is_json = env::args().any(|argument| argument == "--json");
    let mut lines = Vec::new();
    for case in CASES.iter().filter(|case| case.name.contains(&only)) {
        let outcome = case.measure(cpus, rounds);
        if is_json {
            lines.push(outcome.json(case));
        } else {
            println!("{}", outcome.text(case));
        }
    }
    if is_json {
        println!("{{\"cases\":[{}]}}", lines.join(","));
    }
    Ok(())
}

fn option(name: &str) -> Option<String> {
    env::args().skip_while(|argument| argument != name).nth(1)
}

/// Runs this program once more at a real-time priority, which its threads inherit.
fn at_real_time() -> Result<(), String> {
    const HAS_PRIORITY: &str = "MILLRACE_HAS_PRIORITY";
    if env::var_os(HAS_PRIORITY).is_some() {
        return Ok(());
    }
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut again = Command::new("chrt");
    again.args(["--fifo", "1"]).arg(program).args(env::args_os().skip(1)).env(HAS_PRIORITY, "1");
    Err(format!("chrt, of the package util-linux, cannot be run: {}", again.exec()))
}

fn two_processors() -> Result<[usize; 2], String> {
    let allowed = sched_getaffinity(None).map_err(|error| error.to_string())?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let two = cpus.next().zip(cpus.next()).map(|(first, second)| [first, second]);
    two.ok_or("this process may use one processor, it needs two: see taskset(1)".to_owned())
}

fn pin(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).unwrap();
}

impl Case {
    fn measure(&self, cpus: [usize; 2], rounds: usize) -> Outcome {
        let frame = self.frame(0);
        self.on_bed(cpus, |bed| {
            let mut outcome = Outcome::default();
            for round in 0..=rounds {
                let [one, two] = bed.round();
                let bare = bare(&frame.bytes, cpus);
                // The first one warms up.
                if round > 0 {
                    outcome.one.push(one);
                    outcome.two.push(two);
                    outcome.bare.push(bare);
                }
            }
            bed.check();
            outcome
        })
    }
}

/// How many times as many frames as one processor two parse in the same time, where they share
/// nothing.
fn bare(frame: &[u8], cpus: [usize; 2]) -> f64 {
    let (mut times, both) = ([0.0; 2], &Barrier::new(2));
    for arm in ABBA {
        times[arm as usize] += match arm {
            Arm::One => parse(frame, 2 * PARSED),
            Arm::Two => thread::scope(|scope| {
                let other = scope.spawn(move || {
                    pin(cpus[1]);
                    both.wait();
                    parse(frame, PARSED)
                });
                both.wait();
                parse(frame, PARSED).max(other.join().unwrap())
            }),
        };
    }
    times[0] / times[1]
}

/// Seconds for so many frames.
fn parse(frame: &[u8], count: u64) -> f64 {
    let frame = frame.to_vec();
    let start = Instant::now();
    for _ in 0..count {
        let _ = black_box(wire::parse(black_box(&frame), frame.len()));
    }
    start.elapsed().as_secs_f64()
}
