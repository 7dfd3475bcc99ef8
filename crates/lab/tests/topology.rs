//! The whole validation on real hosts, short. This program is its own `lab-host` and its own daemon, so it has no test
//! harness: it looks at its arguments first, as the binary does.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this main is the test's own harness"
)]

use lab::Interrupt;
use lab::validate::{Options, run};
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(lab::host::COMMAND) => done(lab::host::serve().map_err(|error| error.to_string())),
        Some("run") => done(daemon(arguments.get(3).map_or("", String::as_str))),
        // What a test runner asks of any test program.
        Some("--list") => ExitCode::SUCCESS,
        _ => done(validate()),
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn daemon(file: &str) -> Result<(), String> {
    let options = control::daemon::Options {
        file: Some(file.into()),
        socket: None,
        tcp: None,
        tcp_anyone: false,
    };
    control::daemon::run(&options, Box::new(control::devices::HostDevices))
        .map_err(|problem| problem.to_string())
}

fn validate() -> Result<(), String> {
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let options = Options {
        repetitions: 2,
        interval: Duration::from_millis(200),
        output: Some(place.path().join("report")),
        ..Options::new(program)
    };
    let outcome = run(&options, &Interrupt::default()).map_err(|error| error.to_string())?;
    if outcome.report.bench.in_process {
        println!("skipped: {}", outcome.report.notes.join(" "));
        return Ok(());
    }
    print!("{}", lab::report::terminal(&outcome.report));
    let first = &outcome.report.first;
    let median =
        |arm: &str, key: &str| first.arms.get(arm).and_then(|arm| arm.median(key)).unwrap_or(-1.0);
    let rules = [
        ("every check passes", outcome.exit_code() == 0),
        ("traffic flows with RSC on", median("on", "throughput_bps") > 1e6),
        ("traffic flows with RSC off", median("off", "throughput_bps") > 1e6),
        ("RSC coalesces", median("on", "segments_per_train") > 1.0),
        ("no RSC does not", median("off", "segments_per_train") == 1.0),
        ("round trips come back", outcome.report.latency.is_some()),
        ("the bridge carries the same load", outcome.report.peer.is_some()),
    ];
    let broken: Vec<&str> =
        rules.iter().filter(|(_, holds)| !holds).map(|(rule, _)| *rule).collect();
    if broken.is_empty() { Ok(()) } else { Err(format!("not so: {}", broken.join(", "))) }
}
