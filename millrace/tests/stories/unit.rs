//! The systemd units: their exposure by systemd's own measure.

use crate::heard::Heard;
use crate::sandbox::{Need, story};
use std::process::Command;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/millrace.service");
const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/millrace-fleet.service");
/// The most exposure that the daemon's unit may have, in tenths; below, the agent's.
const MOST: &str = "28";
const MOST_OF_THE_AGENT: &str = "11";

/// A world of its own, because systemd makes a directory below `/run`.
const NEEDS: [Need; 1] = [Need::Program("systemd-analyze")];

fn analyze(unit: &str, most: &str) -> std::process::Output {
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--no-pager", "--threshold", most, unit]);
    command.heard()
}

#[test]
fn the_unit_is_as_hardened_as_it_says() {
    story(&NEEDS, || is_hardened(UNIT, MOST));
}

#[test]
fn the_agents_unit_is_as_hardened_as_it_says() {
    story(&NEEDS, || is_hardened(AGENT, MOST_OF_THE_AGENT));
}

fn is_hardened(unit: &str, most: &str) {
    let output = analyze(unit, most);
    let text = String::from_utf8_lossy(&output.stdout);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{told}");
    assert!(text.contains("Overall exposure level"), "{text}{told}");
    assert!(!told.contains("ignoring"), "a line that systemd does not know: {told}");
    // The threshold can fail.
    let folder = tempfile::tempdir().unwrap();
    let weaker = std::fs::read_to_string(unit).unwrap().replace("ProtectClock=yes", "");
    let path = folder.path().join("millrace.service");
    std::fs::write(&path, weaker).unwrap();
    assert!(!analyze(path.to_str().unwrap(), most).status.success());
}

/// Each remaining capability is explained above its line.
#[test]
fn each_capability_is_named_with_what_needs_it() {
    let unit = std::fs::read_to_string(UNIT).unwrap();
    let set = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    let kept = set("CapabilityBoundingSet=");
    assert_eq!(kept, set("AmbientCapabilities="), "the daemon is not root: it has what is ambient");
    for capability in kept.split(' ') {
        let explained = unit.lines().any(|line| line.starts_with(&format!("#   {capability} ")));
        assert!(explained, "{capability}");
    }
}
