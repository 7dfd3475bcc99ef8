//! What local users can do to a daemon that lets one group see and another one change: nothing, see, and everything.

use crate::patience::until;
use crate::sandbox::{Need, run, story};
use crate::switch::{FILE, SOCKET, Switch, millrace};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};

/// Where the binary is for everybody.
const PROGRAM: &str = "/run/millrace.binary";
/// The group that may see, and the one that may change.
const READERS: u32 = 4001;
const ADMINS: u32 = 4002;

/// What is tried: a command line of millrace, and whether a stranger, a reader and an admin get what they want.
const TRIED: &[(&str, [bool; 3])] = &[
    ("port list", [false, true, true]),
    ("port show vm1", [false, true, true]),
    ("status", [false, true, true]),
    ("config show", [false, true, true]),
    ("config diff", [false, false, true]),
    ("queue show", [false, true, true]),
    ("vmmq explain", [false, true, true]),
    ("port add vm2 --tap tap2", [false, false, true]),
    ("port set vm1 mtu=1400", [false, false, true]),
    ("rsc off vm1", [false, false, true]),
    ("rss set vm1 --equal 1", [false, false, true]),
    ("acl add vm1 deny in tcp", [false, false, true]),
    ("acl remove vm1 1", [false, false, true]),
    ("queue move vm1 0 --worker 0", [false, false, true]),
    ("capture vm1 -w - --seconds 1", [false, false, true]),
    ("capture vm1 --stop", [false, false, true]),
    ("config apply /run/same.toml", [false, false, true]),
    ("config reload", [false, false, true]),
    ("port remove vm1", [false, false, true]),
];

/// What is tried beside the API; the words are a shell's. Nobody but root gets any of it.
const BESIDE: &[(&str, &str)] = &[
    ("read the kept ports", "cat /run/millrace.state/ports.json"),
    ("write the kept ports", "echo > /run/millrace.state/ports.json"),
    ("remove the API's socket", "rm -f /run/millrace/api.sock"),
    ("put a socket of one's own there", "mv /run/millrace/api.sock /run/millrace/other.sock"),
    ("write the daemon's file", "echo >> /run/millrace.toml"),
    ("have the file saved over", "/run/millrace.binary config save"),
    ("stop the daemon", "kill $(cat /run/daemon.pid)"),
];

/// A user in these groups alone.
fn as_user(user: u32, groups: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user.to_string(), "--regid", &user.to_string()]);
    match groups {
        "" => command.arg("--clear-groups"),
        groups => command.args(["--groups", groups]),
    };
    command.env("MILLRACE_LOG", "warn").env_remove("MILLRACE_SOCKET");
    command
}

fn users() -> [(&'static str, u32, String); 3] {
    [
        ("stranger", 3000, String::new()),
        ("reader", 3001, READERS.to_string()),
        ("admin", 3002, ADMINS.to_string()),
    ]
}

fn word(output: &Output) -> &'static str {
    let told = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => "done",
        false if told.contains("this user may not") => "403",
        false => "failed",
    }
}

#[test]
fn a_stranger_gets_nothing_a_reader_sees_and_an_admin_changes() {
    story(&[Need::Tap, Need::Program("setpriv"), Need::Program("perl"), Need::Root], || {
        let text = format!(
            "[switch]\nsocket-group = {READERS}\nadmin-group = {ADMINS}\n[[port]]\nname = 'vm1'\ntap = 'tap1'\n"
        );
        let switch = Switch::start(&text);
        std::fs::write("/run/same.toml", &text).unwrap();
        std::fs::write("/run/daemon.pid", switch.process().to_string()).unwrap();
        std::fs::write(PROGRAM, "").unwrap();
        run(&format!("mount --bind {} {PROGRAM}", millrace().get_program().display()));
        switch.tell("port add kept --tap tap9");
        println!("| tried | stranger | reader | admin |\n| --- | --- | --- | --- |");
        for (line, wanted) in TRIED {
            let mut row = format!("| `{line}` |");
            for ((name, user, groups), may) in users().iter().zip(wanted) {
                let output = as_user(*user, groups).arg(PROGRAM).args(line.split(' ')).output();
                let output = output.unwrap();
                let seen = word(&output);
                row.push_str(&format!(" {seen} |"));
                let told = String::from_utf8_lossy(&output.stderr);
                assert_eq!(seen, if *may { "done" } else { "403" }, "{name}: {line}: {told}");
                let remedy = told.contains("root") && told.contains("group");
                assert!(*may || remedy, "{name}: {line}: no remedy: {told}");
            }
            println!("{row}");
        }
        for (what, line) in BESIDE {
            let mut row = format!("| {what} |");
            for (name, user, groups) in users() {
                let output = as_user(user, &groups).args(["sh", "-c", line]).output().unwrap();
                row.push_str(&format!(" {} |", word(&output)));
                assert!(!output.status.success(), "{name}: {what}");
            }
            println!("{row}");
        }
        hold_connections();
        assert_eq!(
            switch.ask("port list").as_array().map(Vec::len),
            Some(0),
            "as the admin left it"
        );
        assert_eq!(std::fs::read_to_string(FILE).unwrap(), text);
    });
}

/// A stranger that holds all connections that it may have keeps out itself.
fn hold_connections() {
    let script = "use Socket; $| = 1; for (1..200) { socket(my $s, AF_UNIX, SOCK_STREAM, 0); \
                  connect($s, sockaddr_un('/run/millrace/api.sock')) or die; push @held, $s } print 'held'; sleep 60";
    let mut stranger = as_user(3000, "")
        .args(["perl", "-e", script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    stranger.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    let reader = as_user(3001, &READERS.to_string()).args([PROGRAM, "port", "list"]).output();
    assert!(reader.unwrap().status.success(), "a reader is kept out");
    until("root is let in", || UnixStream::connect(SOCKET).ok());
    println!("| hold 200 connections | 32 at most, others get theirs | | |");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}
