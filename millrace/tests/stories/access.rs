//! Local users against a daemon that lets one group see and another one change: strangers can do
//! nothing, readers can see, and admins can do everything.

use crate::heard::Heard;
use crate::sandbox::{Need, run, story};
use crate::switch::{FILE, SOCKET, Switch, millrace};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output};
use waiting::until;

/// Path at which all users may run the binary.
pub(crate) const PROGRAM: &str = "/run/millrace.binary";
/// The group that may see; the next constant is the group that may change.
pub(crate) const READERS: u32 = 4001;
pub(crate) const ADMINS: u32 = 4002;

/// Command lines of millrace, each with whether it works for a stranger, a reader and an admin.
const TRIED: &[(&str, [bool; 3])] = &[
    ("port list", [false, true, true]),
    ("port show vm1", [false, true, true]),
    ("status", [false, true, true]),
    ("flows", [false, true, true]),
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

/// Shell lines that bypass the API. Only root gets what they try.
const BESIDE: &[(&str, &str)] = &[
    ("read the kept ports", "cat /run/millrace.state/ports.json"),
    ("write the kept ports", "echo > /run/millrace.state/ports.json"),
    ("remove the API's socket", "rm -f /run/millrace/api.sock"),
    ("put a socket of one's own there", "mv /run/millrace/api.sock /run/millrace/other.sock"),
    ("write the daemon's file", "echo >> /run/millrace.toml"),
    ("have the file saved over", "/run/millrace.binary config save"),
    ("stop the daemon", "kill $(cat /run/daemon.pid)"),
];

/// Returns a command that runs as a user in these groups alone.
pub(crate) fn as_user(user: u32, groups: &str) -> Command {
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
            "[switch]\nworkers = 1\nsocket-group = {READERS}\nadmin-group = {ADMINS}\n[[port]]\nname = 'vm1'\ntap = 'tap1'\n"
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
                let output = as_user(*user, groups).arg(PROGRAM).args(line.split(' ')).heard();
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
                let output = as_user(user, &groups).args(["sh", "-c", line]).heard();
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

/// Checks that a stranger that holds all its permitted connections keeps out only itself.
fn hold_connections() {
    let script = "use Socket; $| = 1; for (1..200) { socket(my $s, AF_UNIX, SOCK_STREAM, 0); \
                  connect($s, sockaddr_un('/run/millrace/api.sock')) or die; push @held, $s } print 'held'; sleep 60";
    let mut stranger = as_user(3000, "")
        .args(["perl", "-e", script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    stranger.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    let reader = as_user(3001, &READERS.to_string()).args([PROGRAM, "port", "list"]).heard();
    assert!(reader.status.success(), "a reader is kept out");
    until("root is let in", || UnixStream::connect(SOCKET).ok());
    println!("| hold 200 connections | 32 at most; other users get theirs | | |");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

/// Shell lines of a tenant with a front end at the socket of vm1. DAEMON is the daemon and HELPER
/// its namespace helper. The tenant gets none of what they try.
const TENANT: &[(&str, &str)] = &[
    ("list ports", "/run/millrace.binary port list"),
    ("change its own port", "/run/millrace.binary port set vm1 vlan=5"),
    ("remove another's port", "/run/millrace.binary port remove vm2"),
    ("capture at another's port", "/run/millrace.binary capture vm2 -w - --seconds 1"),
    ("take over from the daemon", "/run/millrace.binary run -c /run/millrace.toml --take-over"),
    ("connect to another's socket", "perl -e \"$CONNECT\" /run/vms/vm2.sock"),
    ("ask at the socket of hand-overs", "perl -e \"$CONNECT\" /run/millrace/api.sock.handover"),
    ("remove another's socket", "rm -f /run/vms/vm2.sock"),
    ("put its own in that place", "mv /run/vms/vm1.sock /run/vms/vm2.sock"),
    ("read the kept ports", "cat /run/millrace.state/ports.json"),
    ("read the daemon's memory", "head -c 1 /proc/$DAEMON/mem"),
    ("see what it has open", "ls /proc/$DAEMON/fd"),
    ("limit its descriptors", "prlimit --pid $DAEMON --nofile=16"),
    ("move its threads to one core", "taskset -a -p 1 $DAEMON"),
    ("lower its priority", "renice 19 $DAEMON"),
    ("stop it", "kill -STOP $DAEMON"),
    ("see what the helper has open", "ls /proc/$HELPER/fd"),
    ("use the helper's connection", "test -r /proc/$HELPER/fd/0"),
    ("enter its namespace", "nsenter --net --target $HELPER true"),
    ("stop the helper", "kill -STOP $HELPER"),
    ("make a TAP device", "ip tuntap add mode tap name own0"),
    ("see the host's frames", "perl -e 'socket(my $s, 17, 3, 768) or die'"),
];

/// Sends noise to the tenant's own socket, where the tenant may say anything.
const NOISE: &str = "use Socket; for my $n (1..30) { socket(my $s, AF_UNIX, SOCK_STREAM, 0); \
    connect($s, sockaddr_un('/run/vms/vm1.sock')) or next; $SIG{PIPE} = 'IGNORE'; \
    syswrite($s, pack('L3', $n, 1, 4096) . chr($n) x 4096); } print 'said'";

/// Returns the process of the daemon's namespace helper, the only one in this story.
fn helper() -> u32 {
    let is_one = |process: &u32| {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"namespace-helper")
    };
    let all = std::fs::read_dir("/proc").unwrap();
    let mut all = all.filter_map(|it| it.unwrap().file_name().to_str()?.parse().ok());
    all.find(is_one).unwrap()
}

#[test]
fn a_tenant_has_its_socket_and_nothing_else() {
    story(&[Need::Program("setpriv"), Need::Program("perl"), Need::Root], || {
        run("mkdir -m 755 /run/vms");
        let port = |name: &str, owner: u32| {
            format!(
                "[[port]]\nname = '{name}'\nvhost-user = '/run/vms/{name}.sock'\nsocket-owner = {owner}\nsocket-mode = '0600'\n"
            )
        };
        let groups = format!("[switch]\nsocket-group = {READERS}\nadmin-group = {ADMINS}\n");
        let switch = Switch::start(&(groups + &port("vm1", 5000) + &port("vm2", 5001)));
        std::fs::write(PROGRAM, "").unwrap();
        run(&format!("mount --bind {} {PROGRAM}", millrace().get_program().display()));
        let helper = helper();
        let connect = "use Socket; socket(my \\$s, AF_UNIX, SOCK_STREAM, 0); \
                       connect(\\$s, sockaddr_un(\\$ARGV[0])) or die";
        let as_tenant = |script: &str| {
            let mut command = as_user(5000, "");
            command.env("DAEMON", switch.process().to_string());
            command.env("HELPER", helper.to_string());
            command.args(["sh", "-c", &script.replace("$CONNECT", connect)]).heard()
        };
        let other = switch.state("vm2");
        println!("| a tenant tries to | |\n| --- | --- |");
        for (what, line) in TENANT {
            let output = as_tenant(line);
            println!("| {what} | {} |", word(&output).replace("failed", "refused"));
            assert!(!output.status.success(), "{what}: {output:?}");
        }
        let own = as_tenant("perl -e \"$CONNECT\" /run/vms/vm1.sock");
        assert!(own.status.success(), "{own:?}");
        let said = as_user(5000, "").args(["perl", "-e", NOISE]).heard();
        assert_eq!(said.stdout, b"said", "{said:?}");
        println!("| say at its own socket what is no vhost-user | cut off, others go on |");
        assert_eq!(
            (switch.ask("port list").as_array().unwrap().len(), switch.state("vm2")),
            (2, other)
        );
        assert!(as_tenant("test -S /run/vms/vm2.sock").status.success());
    });
}
