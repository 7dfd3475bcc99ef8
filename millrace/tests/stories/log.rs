//! The daemon's log: levels are changed while it runs, lines can be JSON, and the journal gets
//! priorities.

use crate::sandbox::{Need, story};
use crate::switch::{FILE, Switch, cli, complaint, millrace};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, pipe};
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

/// Waits for a line with this text. Returns the lines up to it since the log had this length, and
/// updates the length.
fn up_to(text: &str, before: &mut usize) -> Vec<String> {
    waiting::until("the line is in the log", || {
        let log = fs::read_to_string(LOG).unwrap();
        let new = &log[*before..];
        let at = new.find(text).ok_or(new)?;
        let end = new[at..].find('\n').ok_or(new)? + at;
        *before += end + 1;
        Ok::<_, String>(new[..end].lines().map(str::to_owned).collect())
    })
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
        let lines = up_to("serving the API", &mut at);
        assert!(line(&lines, "port a is open").starts_with("<6>"), "{lines:#?}");
        assert!(line(&lines, "port lost is broken").starts_with("<3>"), "{lines:#?}");
        assert_eq!(ask("log level"), "info");
        assert_eq!(ask("log level control=error"), "info\ncontrol=error");
        ask("rsc off a");
        assert_eq!(ask("log level debug"), "debug");
        ask("rsc on a");
        let lines = up_to("PUT /v1/ports/a/rsc", &mut at);
        assert!(line(&lines, "PUT /v1/ports/a/rsc").starts_with("<6>"));
        // The line of `rsc off` would have been found first.
        assert!(lines.iter().any(|line| line.contains("PUT /v1/log")), "{lines:#?}");
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
        ask("rsc off a");
        let lines = up_to("PUT /v1/ports/a/rsc", &mut at);
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

/// The daemon waited forever for the reader of its log: also requests, the poll and SIGTERM.
#[test]
fn a_reader_that_stops_reading_stops_nothing() {
    story(&[Need::Tap], || {
        fs::write(FILE, PORTS).unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let room = rustix::pipe::fcntl_setpipe_size(&writer, 4096).unwrap();
        let mut command = millrace();
        command.args(["run", "-c", FILE]).env_remove("MILLRACE_LOG").stderr(writer);
        let switch = Switch::by(command, ());
        // Each is a line of more than a hundred bytes.
        (0..room / 100).for_each(|_| drop(ask("rsc off a")));
        assert_eq!(switch.end(Signal::TERM).code(), Some(0));
        let mut log = String::new();
        reader.read_to_string(&mut log).unwrap();
        assert!(log.contains("port a is open") && log.len() <= room, "{} bytes", log.len());
    });
}
