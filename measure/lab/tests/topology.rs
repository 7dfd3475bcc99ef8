//! A short run of the whole validation on real hosts. This program is its own `lab-host` and its
//! own daemon, so it has no test harness: like the binary, it checks its arguments first.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this main is the test's own harness"
)]

use lab::Interrupt;
use lab::campaign::Campaign;
use lab::experiments::{checksum, hotplug, jumbo, limits, lso};
use lab::options::Options;
use lab::report::Report;
use lab::runner;
use lab::validate;
use rustix::process::Pid;
use rustix::thread::sched_getaffinity;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(lab::host::COMMAND) => done(lab::host::serve().map_err(|error| error.to_string())),
        Some("run") => done(daemon(arguments.get(3).map_or("", String::as_str))),
        // A test runner lists the tests of every test program.
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

/// Returns an error unless the switch has a processor of its own and receives on it, if there are
/// two.
fn is_placed() -> Result<(), String> {
    let parent = i32::try_from(std::os::unix::process::parent_id()).ok().and_then(Pid::from_raw);
    let allowed = sched_getaffinity(parent).map_err(|error| error.to_string())?.count();
    let own = sched_getaffinity(None).map_err(|error| error.to_string())?.count();
    let mask = std::fs::read_to_string("/proc/sys/net/core/rps_default_mask").unwrap_or_default();
    let steered = mask.contains(|digit: char| digit.is_ascii_hexdigit() && digit != '0');
    if allowed < 2 || (own == 1 && steered) {
        return Ok(());
    }
    Err(format!("the switch runs on {own} of {allowed} processors, and receives on {mask:?}"))
}

fn daemon(file: &str) -> Result<(), String> {
    if rustix::process::geteuid().is_root() {
        is_placed()?;
    }
    let options = daemon::server::Options {
        file: Some(file.into()),
        socket: None,
        state_directory: None,
        poll: None,
        take_over: false,
        sandbox: None,
        post_copy: None,
    };
    daemon::server::run(&options, Box::new(devices::HostDevices::default()))
        .map_err(|problem| problem.to_string())
}

/// An experiment's name and its campaign.
type Make = (&'static str, fn(&Options) -> Campaign);

/// Runs every experiment in turn. RSC is first: if it had to run in process, the others cannot run
/// at all.
fn validate() -> Result<(), String> {
    let interrupt = Interrupt::default();
    let report = measured(("rsc", validate::campaign), &interrupt)?;
    if report.bench.in_process {
        println!("skipped: {}", report.notes.join(" "));
        return Ok(());
    }
    rsc_holds(&report)?;
    let others: [Make; 5] = [
        ("lso", lso::campaign),
        ("checksum", checksum::campaign),
        ("limits", limits::campaign),
        ("hotplug", hotplug::campaign),
        ("jumbo", jumbo::campaign),
    ];
    others.into_iter().try_for_each(|other| measured(other, &interrupt).map(drop))
}

/// Runs a feature briefly; every check must pass, and both arms must carry traffic.
fn measured((name, make): Make, interrupt: &Interrupt) -> Result<Report, String> {
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let options = Options {
        repetitions: 2,
        interval: Duration::from_millis(200),
        mtu: if name == "jumbo" { 9000 } else { 1500 },
        output: Some(place.path().join("report")),
        ..Options::new(program)
    };
    let outcome =
        runner::run(&make, &options, interrupt).map_err(|error| format!("{}: {error}", name))?;
    print!("{}", lab::report::terminal(&outcome.report));
    let passed = outcome.exit_code() == 0;
    let report = outcome.report;
    let flows = |arm| median(&report, arm, "throughput_bps") > 1e6;
    let proven = report.checks.iter().any(|check| check.name == "The arms were as labelled");
    let rules = [
        ("every check passes", passed),
        ("the arms are proven", proven || report.bench.in_process),
        ("traffic flows with it on", flows("on")),
        ("traffic flows with it off", flows("off")),
    ];
    all_hold(name, &rules).map(|()| report)
}

fn rsc_holds(report: &Report) -> Result<(), String> {
    let depth = |arm| median(report, arm, "segments_per_train");
    let frames = |arm| report.cases[0].median(arm, "ingress_frame_bytes");
    let uplink = frames("uplink_gro");
    let measured = |arm: &str| {
        let rounds = report.cases[0].peers.get(arm).and_then(|found| found.get("throughput"));
        rounds.is_some_and(|found| found.pairs == 2)
    };
    let named = report.notes.iter().any(|note| note.starts_with("Open vSwitch"));
    let rules = [
        ("RSC coalesces", depth("on") > 1.0),
        ("no RSC does not", depth("off") == 1.0),
        ("each side has its place", report.bench.placement.is_some() || processors() < 2),
        ("round trips come back", !report.latency.is_empty()),
        ("the bridge carries the same load", measured("linux_bridge")),
        ("and without GRO", measured("linux_bridge_no_gro")),
        ("the kernel coalesces at the uplink", uplink > Some(1514.0)),
        ("which is over in the other arms", frames("on") <= Some(1514.0)),
        ("a peer that did not run is named", measured("open_vswitch") || named),
        ("TCP's congestion control is the one that is said", congestion_holds(report)),
    ];
    all_hold("rsc", &rules)
}

/// Returns whether the routes set the reported congestion control at both ends of both switches,
/// and iperf3, if installed, used it.
fn congestion_holds(report: &Report) -> bool {
    let Some(name) = &report.bench.congestion else { return false };
    let (chosen, found) = (format!(" congctl {name}"), format!(" by TCP with {name};"));
    let routes = report.commands.iter().filter(|command| command.command.ends_with(&chosen));
    let mut iperf = report.checks.iter().filter(|check| check.seen.contains(" by TCP with "));
    (routes.count() >= 8 || name != "cubic") && iperf.all(|check| check.seen.contains(&found))
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn median(report: &Report, arm: &str, key: &str) -> f64 {
    report.cases[0].median(arm, key).unwrap_or(-1.0)
}

fn all_hold(feature: &str, rules: &[(&str, bool)]) -> Result<(), String> {
    let broken: Vec<&str> =
        rules.iter().filter(|(_, holds)| !holds).map(|(rule, _)| *rule).collect();
    if broken.is_empty() {
        Ok(())
    } else {
        Err(format!("{feature}: not so: {}", broken.join(", ")))
    }
}
