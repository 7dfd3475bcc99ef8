//! The daemon's log: levels are changed while it runs, lines can be JSON, and the journal gets
//! priorities.

use crate::sandbox::{Need, story};
use crate::switch::{FILE, Switch, cli, complaint, millrace};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

const LOG: &str = "/run/log";
/// One port is open, and one has no device.
const PORTS: &str =
    "[[port]]\nname = 'a'\ntap = 'a'\n[[port]]\nname = 'lost'\npacket = 'nowhere'\n";

/// Starts a daemon that logs to a file. Its environment says that the file is the journal.
fn start() -> Switch {
    let log = File::create(LOG).unwrap();
    let stat = log.metadata().unwrap();
    let mut command = millrace();
    command.args(["run", "-c", FILE]).env_remove("MILLRACE_LOG").stderr(log);
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino()));
    Switch::by(command, ())
}

fn ask(line: &str) -> String {
    let output = cli(line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Returns the lines since the log had this length, and updates the length.
fn since(before: &mut usize) -> Vec<String> {
    let log = fs::read_to_string(LOG).unwrap();
    let new = log[*before..].lines().map(str::to_owned).collect();
    *before = log.len();
    new
}

fn line<'l>(lines: &'l [String], text: &str) -> &'l str {
    lines.iter().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{text}: {lines:#?}"))
}

#[test]
fn levels_of_the_log_are_priorities_of_the_journal_and_change_at_run_time() {
    story(&[Need::Tap], || {
        fs::write(FILE, PORTS).unwrap();
        let _switch = start();
        let mut at = 0;
        let lines = since(&mut at);
        assert!(line(&lines, "port a is open").starts_with("<6>"), "{lines:#?}");
        assert!(line(&lines, "port lost is broken").starts_with("<3>"), "{lines:#?}");
        assert_eq!(ask("log level"), "info");
        assert_eq!(ask("log level control=error"), "info\ncontrol=error");
        since(&mut at);
        ask("rsc off a");
        assert_eq!(since(&mut at), Vec::<String>::new());
        assert_eq!(ask("log level debug"), "debug");
        ask("rsc on a");
        assert!(line(&since(&mut at), "PUT /v1/ports/a/rsc").starts_with("<6>"));
        let (code, told) = complaint("log level elsewhere=debug");
        assert!(code == 1 && told.contains("control or vhost_user"), "{code}: {told}");
        assert_eq!(complaint("log level loud").0, 2);
    });
}

#[test]
fn lines_are_json_objects_as_soon_as_the_file_says_so() {
    story(&[Need::Tap], || {
        fs::write(FILE, PORTS).unwrap();
        let _switch = start();
        fs::write(FILE, format!("[switch]\nlog = 'json'\n{PORTS}")).unwrap();
        ask("config reload");
        let mut at = 0;
        since(&mut at);
        ask("rsc off a");
        let lines = since(&mut at);
        let told = line(&lines, "PUT /v1/ports/a/rsc");
        let told: Value = serde_json::from_str(told.strip_prefix("<6>").unwrap()).unwrap();
        let word = |key: &str| told[key].as_str().unwrap_or_default().to_owned();
        assert_eq!([word("level"), word("target")], ["info", "control::api::guard"]);
        assert!(word("time").ends_with('Z') && !word("by").is_empty(), "{told}");
        assert_eq!(
            (word("message").as_str(), &told["status"]),
            ("PUT /v1/ports/a/rsc", &200.into())
        );
    });
}
