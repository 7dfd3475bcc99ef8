//! Millrace's NTttcp against the real ntttcp-for-linux, in both roles: the figures of both sides
//! agree within 1 %.
//!
//! The real one is not part of this repository. `MILLRACE_NTTTCP=PATH` names it; otherwise `ntttcp`
//! of the PATH is used, if it is of that kind.

use crate::heard::Heard;
use crate::sandbox::{Need, story};
use crate::switch::millrace;
use serde_json::Value;
use std::env;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use waiting::until;

/// Seconds of each run. The two ends' clocks start a moment apart, which must not matter.
const SECONDS: &str = "4";
/// Most runs until one agrees. Each end measures a window of its own, and if other programs use the
/// machine, the rate differs between the windows. A wrong count is wrong in each run.
const TRIES: usize = 4;
/// Largest difference between the two ends' figures, as a part of one.
const TOLERANCE: f64 = 0.01;
/// Seconds after which the real receiver has hung: sometimes it does not notice that its time is
/// over, even with its own sender.
const HUNG: &str = "15";

#[test]
fn a_real_ntttcp_sends_to_us_and_receives_from_us() {
    story(&[Need::Program("timeout")], || {
        let Some(real) = real() else {
            println!(
                "skipped: needs ntttcp-for-linux: MILLRACE_NTTTCP=PATH, or ntttcp in the PATH"
            );
            return;
        };
        // Number of ports, of threads per port, and of connections per thread.
        for shape in [["1", "1", "1"], ["4", "2", "3"]] {
            agree("they send", || we_receive(&real, shape));
            agree("we send", || we_send(&real, shape));
        }
    });
}

/// Returns ntttcp-for-linux, if it is installed. Other programs of that name do not know its `-V`
/// banner.
fn real() -> Option<PathBuf> {
    let named = env::var_os("MILLRACE_NTTTCP").map(PathBuf::from);
    let in_path = || {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|place| place.join("ntttcp")).find(|file| file.is_file())
    };
    named.or_else(in_path).filter(|file| {
        let help = Command::new(file).arg("-h").output();
        help.is_ok_and(|help| String::from_utf8_lossy(&help.stdout).contains("NTTTCP for Linux"))
    })
}

fn we_receive(real: &PathBuf, [ports, threads, connections]: [&str; 3]) -> f64 {
    let ours = millrace()
        .args(["ntttcp", "--json", "-r", "127.0.0.1", "-P", ports, "-t", SECONDS, "-W", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("our receiver listens", || listens().then_some(()));
    let theirs = Command::new(real)
        .args(["-s127.0.0.1", "-P", ports, "-n", threads, "-l", connections])
        .args(["-t", SECONDS, "-W", "1", "-j/run/theirs.json"])
        .heard();
    apart(&ours.heard(), &theirs)
}

fn we_send(real: &PathBuf, [ports, threads, connections]: [&str; 3]) -> f64 {
    let mut theirs: Child = Command::new("timeout")
        .args(["--foreground", HUNG])
        .arg(real)
        .args(["-r127.0.0.1", "-P", ports, "-t", SECONDS, "-W", "1", "-j/run/theirs.json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    until("their receiver listens", || {
        assert!(theirs.try_wait().unwrap().is_none(), "their receiver has ended");
        listens().then_some(())
    });
    let ours = millrace()
        .args(["ntttcp", "--json", "-s", "127.0.0.1", "-P", ports, "-n", threads])
        .args(["-l", connections, "-t", SECONDS, "-W", "1"])
        .heard();
    let theirs = theirs.heard();
    // `timeout` returns 124 if it has ended the program. Then there is no figure to compare with.
    if theirs.status.code() == Some(124) { f64::INFINITY } else { apart(&ours, &theirs) }
}

/// Returns whether the port for synchronisation is open. Connecting to it would count as a sender.
fn listens() -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // 127.0.0.1 or any address, port 5000, state LISTEN.
    table.lines().any(|line| line.contains(":1388 ") && line.contains(" 0A "))
}

/// Runs until the two ends' figures agree.
fn agree(who: &str, run: impl Fn() -> f64) {
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        let apart = run();
        println!("{who}: {:+.3} % apart", 100.0 * apart);
        if apart.abs() <= TOLERANCE {
            return;
        }
        seen.push(apart);
    }
    panic!("{who}: apart by {seen:?} in {TRIES} runs");
}

/// Returns the difference of our figure from theirs, as a part of theirs.
fn apart(ours: &Output, theirs: &Output) -> f64 {
    let said = String::from_utf8_lossy(&ours.stderr);
    assert!(ours.status.success(), "{said}\n{}", String::from_utf8_lossy(&theirs.stdout));
    let ours: Value = serde_json::from_slice(&ours.stdout).expect(&said);
    assert_eq!((&ours["ending"], &ours["peer_kind"]), (&"complete".into(), &"ntttcp".into()));
    let text = std::fs::read_to_string("/run/theirs.json").unwrap();
    let theirs = bits_per_s(&serde_json::from_str(&text).unwrap());
    ours["own"]["throughput"]["megabits_per_s"].as_f64().unwrap() * 1e6 / theirs - 1.0
}

/// Returns the total of their JSON, in which numbers are strings.
fn bits_per_s(report: &Value) -> f64 {
    let report = report.as_object().unwrap().values().next().unwrap();
    let throughputs = report["throughputs"].as_array().unwrap();
    let mbps = throughputs.iter().find(|one| one["metric"] == "mbps").unwrap();
    mbps["value"].as_str().unwrap().trim().parse::<f64>().unwrap() * 1e6
}
