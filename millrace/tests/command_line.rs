//! Tests the command line as people and scripts use it: help, messages, exit codes.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[path = "../../control/daemon/tests/it/test_daemon.rs"]
mod test_daemon;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use test_daemon::Daemon;

fn millrace(socket: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(arguments)
        .env("MILLRACE_SOCKET", socket)
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

const NOBODY: &str = "/nonexistent/api.sock";

/// All commands with a help of their own.
const COMMANDS: &[&[&str]] = &[
    &[],
    &["run"],
    &["setup"],
    &["status"],
    &["top"],
    &["flows"],
    &["page"],
    &["port"],
    &["port", "add"],
    &["port", "remove"],
    &["port", "show"],
    &["port", "set"],
    &["port", "list"],
    &["port", "export"],
    &["port", "import"],
    &["mac"],
    &["mac", "list"],
    &["mac", "flush"],
    &["event"],
    &["log"],
    &["log", "level"],
    &["trace"],
    &["bugreport"],
    &["acl"],
    &["acl", "show"],
    &["acl", "add"],
    &["acl", "remove"],
    &["rsc"],
    &["rsc", "show"],
    &["rsc", "on"],
    &["rsc", "off"],
    &["rss"],
    &["rss", "show"],
    &["rss", "set"],
    &["team"],
    &["team", "show"],
    &["team", "add"],
    &["team", "remove"],
    &["team", "map"],
    &["queue"],
    &["queue", "show"],
    &["queue", "move"],
    &["vmmq"],
    &["vmmq", "explain"],
    &["vmmq", "record"],
    &["config"],
    &["config", "show"],
    &["config", "diff"],
    &["config", "apply"],
    &["config", "reload"],
    &["config", "save"],
    &["config", "schema"],
    &["capture"],
    &["cni"],
    &["check"],
    &["migrate"],
    &["migrate", "check"],
    &["migrate", "export"],
    &["mtu"],
    &["mtu", "check"],
    &["mtu", "responder"],
    &["guide"],
    &["ladder"],
    &["sweep"],
    &["connections"],
    &["report"],
    &["report", "compare"],
    &["report", "schema"],
    &["openapi"],
    &["completions"],
    &["man"],
];

#[test]
fn help_has_an_example_for_each_command() {
    let mut page = COMMANDS_PAGE.to_owned();
    for command in COMMANDS {
        let arguments: Vec<&str> = command.iter().copied().chain(["--help"]).collect();
        let output = millrace(Path::new(NOBODY), &arguments);
        let help = text(&output.stdout);
        assert!(output.status.success(), "{command:?}");
        assert!(
            ["Example", "Commands:", "Measure:"].iter().any(|it| help.contains(it)),
            "{command:?}\n{help}"
        );
        page.push_str(&section(command, &help));
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{command:?}\n{help}");
        insta::assert_snapshot!(format!("help_{}", command.join("_")), help);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/commands.md");
    if std::env::var_os("MILLRACE_UPDATE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page, "docs/commands.md is not what the commands say: set MILLRACE_UPDATE=1");
}

const COMMANDS_PAGE: &str = "\
# Commands

The help of every command, as `millrace COMMAND --help` prints it. [using.md](using.md) has the
commands of a day, by task.

This file is generated from the program. `millrace man` prints manual pages.
";

/// Returns the part of `docs/commands.md` about a command; verbs are below their command.
fn section(command: &[&str], help: &str) -> String {
    let level = if command.len() > 1 { "###" } else { "##" };
    let words: Vec<&str> = ["millrace"].into_iter().chain(command.iter().copied()).collect();
    let lines: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    format!("\n{level} {}\n\n```\n{}```\n", words.join(" "), lines)
}

/// The help named other exit codes than the book.
#[test]
fn help_and_book_have_the_same_exit_codes() {
    let help = text(&millrace(Path::new(NOBODY), &["--help"]).stdout);
    let book = include_str!("../../docs/using.md").replace('\n', " ");
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let codes = plain(help.split_once("Exit codes: ").unwrap().1);
    let codes = codes.trim_end_matches('.');
    assert!(codes.contains("3 no daemon answers"), "{codes}");
    assert!(plain(&book).contains(codes), "docs/using.md lacks: {codes}");
}

/// People type these by custom.
#[test]
fn words_of_custom_mean_what_they_mean_elsewhere() {
    let daemon = Daemon::start(TWO);
    let run = |line: &str| {
        let output = millrace(&daemon.socket(), &line.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let pairs = [
        ("help", "--help"),
        ("help port add", "port add --help"),
        ("version", "--version"),
        ("ls", "port list"),
        ("port ls", "port list"),
        ("port show", "port list"),
        ("logs", "event"),
        ("mac ls", "mac list"),
    ];
    for (typed, meant) in pairs {
        assert_eq!(run(typed), run(meant), "{typed}");
    }
    assert!(run("logs").contains("port vm1 is open"), "{}", run("logs"));
}

/// `validate rcs` was answered with `vrss`, and `port show wbe` with the names of sixty ports.
#[test]
fn the_word_that_was_meant_is_suggested_and_no_other() {
    let ports: String = (0..60)
        .map(|number| format!("[[port]]\nname = \"vm{number}\"\ntap = \"tap{number}\"\n"))
        .collect();
    let daemon = Daemon::start(&format!("[[port]]\nname = \"web\"\ntap = \"web\"\n{ports}"));
    let told =
        |line: &str| text(&millrace(&daemon.socket(), &line.split(' ').collect::<Vec<_>>()).stderr);
    for (line, meant) in [
        ("validate rcs", "'rsc'"),
        ("prot list", "'port'"),
        ("port lst", "'list'"),
        ("guide rcs", "'rsc'"),
        ("completions bahs", "'bash'"),
    ] {
        assert!(told(line).contains(&format!(": {meant}")), "{line}: {}", told(line));
        assert!(!told(line).contains("vrss"), "{line}: {}", told(line));
    }
    let message = told("port show wbe");
    assert!(message.contains("did you mean `web`?"), "{message}");
    assert!(message.contains("one of 61 ports") && !message.contains("vm50"), "{message}");
}

/// Five hundred ports were 3,001 lines.
#[test]
fn many_ports_in_the_same_state_are_one_line() {
    let ports: String = (1..=100)
        .map(|number| format!("[[port]]\nname = \"vm{number}\"\ntap = \"tap{number}\"\n"))
        .collect();
    let daemon = Daemon::start(&format!(
        "{TWO}{}",
        ports.replace("vm1\"", "first\"").replace("tap1\"", "tap0\"")
    ));
    let run =
        |line: &str| text(&millrace(&daemon.socket(), &line.split(' ').collect::<Vec<_>>()).stdout);
    let status = run("status");
    assert!(status.contains("and 97 more  up     100 x tap"), "{status}");
    assert!(status.contains("\nuplink0 "), "{status}");
    assert!(status.lines().count() < 24 && !status.contains("\n\n\n"), "{status}");
    let all = run("status --all");
    assert!(all.contains("\nvm77 ") && all.lines().count() > 102, "{all}");
    let vms: Vec<_> = (2..=100).map(|number| format!("tap{number}")).collect();
    vms.iter().for_each(|device| daemon.devices.set(device, test_devices::Fate::Gone));
    let check = test_daemon::eventually("all are broken", || {
        let check = run("check");
        check.contains("and 95 more; `--all` shows each").then_some(check)
    });
    assert!(check.lines().count() < 24 && check.contains("99 errors"), "{check}");
    assert!(run("check --all").contains("error: port vm77 is broken"));
}

/// "Where is web?" had no answer until web had sent a frame, and then only without `mac`.
#[test]
fn addresses_of_ports_are_listed_beside_learned_ones() {
    let daemon =
        Daemon::start(&TWO.replace("vlan = 10\n", "vlan = 10\nmac = \"52:54:00:00:00:01\"\n"));
    let run =
        |line: &str| text(&millrace(&daemon.socket(), &line.split(' ').collect::<Vec<_>>()).stdout);
    assert!(
        run("mac list vm1").contains("52:54:00:00:00:01  access 10  vm1   own"),
        "{}",
        run("mac list")
    );
    assert!(run("mac list --vlan 10").contains("52:54:00:00:00:01"));
    assert!(!run("mac list --vlan 11").contains("52:54:00:00:00:01"));
    let json: serde_json::Value = serde_json::from_str(&run("mac list vm1 --json")).unwrap();
    assert_eq!((&json[0]["origin"], &json[0]["age_s"]), (&"own".into(), &serde_json::Value::Null));
}

/// A trace without `eth` invented an address, and said that the frame leaves through all ports.
#[test]
fn a_trace_takes_names_of_ports_and_claims_nothing_about_an_unknown_destination() {
    let daemon = Daemon::start(
        "[[port]]\nname = \"web\"\ntap = \"web\"\nip-guard = [\"10.0.0.1\"]\n\
         [[port]]\nname = \"db\"\ntap = \"db\"\nip-guard = [\"10.0.0.2\"]\n\
         [[port]]\nname = \"other\"\ntap = \"other\"\n",
    );
    let run = |arguments: &[&str]| {
        let output = millrace(&daemon.socket(), arguments);
        text(&output.stdout) + &text(&output.stderr)
    };
    let between = run(&["trace", "--from", "web", "--to", "db"]);
    assert!(between.contains("leaves through db (") && between.contains("10.0.0.1"), "{between}");
    assert!(!between.contains("through other") && !between.contains("VLAN 0"), "{between}");
    let known = run(&["trace", "web", "icmp 10.0.0.1 > 10.0.0.2"]);
    assert!(
        known.contains("leaves through db (") && known.contains("by ip-guard of port db"),
        "{known}"
    );
    let unknown = run(&["trace", "--from", "web", "icmp 10.0.0.1 > 10.0.0.9"]);
    assert!(unknown.contains("destination unknown, may leave through other"), "{unknown}");
    assert!(!unknown.contains("\nleaves through"), "{unknown}");
    assert!(unknown.starts_with("note: no `eth MAC > MAC`"), "{unknown}");
    let named = run(&["trace", "web", "icmp 10.0.0.1 > 10.0.0.9", "--to", "db"]);
    assert!(named.contains("leaves through db (") && !named.contains("note:"), "{named}");
    let twice =
        millrace(&daemon.socket(), &["trace", "--from", "web", "web", "arp 10.0.0.1 > 10.0.0.2"]);
    assert_eq!(twice.status.code(), Some(2));
    assert!(run(&["trace", "--from", "web"]).contains("no frame was given"));
}

#[test]
fn words_of_rules_devices_and_workers_are_completed() {
    let daemon = Daemon::start(TWO);
    let completes = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .args([&["--", "millrace"], &words[..]].concat())
            .env("MILLRACE_COMPLETE", "bash")
            .env("MILLRACE_SOCKET", daemon.socket())
            .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
            .env("_CLAP_COMPLETE_COMP_TYPE", "9")
            .env("_CLAP_COMPLETE_SPACE", "true")
            .env("_CLAP_IFS", "\n")
            .output()
            .unwrap();
        text(&output.stdout)
    };
    assert!(completes("acl add vm1 de").contains("deny"), "{}", completes("acl add vm1 de"));
    assert!(completes("acl add vm1 deny in ").contains("udp"));
    assert!(completes("port add up --packet l").contains("lo"));
    assert!(completes("queue move vm1 0 --worker ").contains('0'));
    assert!(completes("trace --from vm").contains("vm1"));
}

/// Wrong command lines, each with what standard error must say and the exit code. `%` is a
/// directory of the test.
const BAD: &[(&[&str], &[&str], i32)] = &[
    (&[], &["Usage: millrace"], 2),
    (&["stauts"], &["unrecognized subcommand", "status"], 2),
    (&["flows", "--limit", "0"], &["0 is not in 1..=4096"], 2),
    (&["port", "add", "vm1"], &["--tap", "--packet"], 2),
    (&["port", "add", "vm 1", "--tap", "t"], &["not a port name", "vm 1", "letters"], 2),
    (
        &["port", "add", "vm1", "--tap", "t", "--mtu", "20"],
        &["out of range", "20", "68 to 65535"],
        2,
    ),
    (&["port", "add", "vm1", "--tap", "t", "--vlan", "4095"], &["out of range", "4095", "4094"], 2),
    (&["port", "add", "vm1", "--tap", "t", "--rate", "fast"], &["not a rate", "fast", "1Gbit"], 2),
    (
        &["port", "add", "vm1", "--tap", "t", "--mac", "ff:ff:ff:ff:ff:ff"],
        &["not a station's address", "unicast"],
        2,
    ),
    (&["port", "add", "vm1", "--tap", "t", "--packet", "e"], &["cannot be used with"], 2),
    (&["port", "add", "vm1", "--tap", "t"], &["no daemon answers", NOBODY, "millrace run"], 3),
    (&["port", "add", "vm1", "mtu=9000"], &["port vm1 has no device", "--tap", "--vhost-user"], 2),
    (&["port", "add", "vm1", "--tap", "t", "vlan=4099"], &["port vm1", "4099", "4094"], 2),
    (&["port", "add", "vm1", "--tap", "t", "vlna=1"], &["port vm1", "did you mean `vlan`?"], 2),
    (&["port", "add", "vm1", "--tap", "t", "--timeout", "3"], &["--wait"], 2),
    (&["port", "set", "vm1", "mtu=1", "--wait", "upp"], &["invalid value 'upp'", "up"], 2),
    (&["rsc", "off"], &["<PORT|--all|--switch>"], 2),
    (&["mac", "flush"], &["<PORT|--all>"], 2),
    (&["trace", "vm1"], &["<FRAME>"], 2),
    (&["trace", "vm1", "-r", "%/none.pcap"], &["none.pcap cannot be read", "No such file"], 1),
    (&["trace", "vm1", "-r", "%/load.json"], &["load.json cannot be read", "pcapng"], 1),
    (&["stauts", "--json"], &[r#"{"error":"unrecognized subcommand 'stauts'""#, "status"], 2),
    (&["port", "set", "vm1", "mtu"], &["not a key with a value", "mtu", "KEY=VALUE"], 2),
    (&["rss", "set", "vm1"], &["--entry", "--equal", "--key", "--types"], 2),
    (&["rss", "set", "vm1", "--entry", "5=2", "--equal", "4"], &["cannot be used with"], 2),
    (&["rss", "set", "vm1", "--entry", "5"], &["'5'", "such as 5=2"], 2),
    (&["rss", "set", "vm1", "--key", "6d5a"], &["not an RSS key", "6d5a", "80 digits"], 2),
    (&["rss", "set", "vm1", "--types", "tcp"], &["not RSS types", "tcp", "tcpv4"], 2),
    (&["team", "add", "uplink0"], &["<DEVICES>"], 2),
    (&["team", "map", "uplink0", "vm1"], &["<MEMBER|--any>"], 2),
    (&["team", "map", "uplink0", "vm1", "eth1", "--any"], &["cannot be used with"], 2),
    (&["team", "show"], &["no daemon answers", NOBODY, "millrace run"], 3),
    (&["queue", "move", "vm1", "0"], &["--worker <N>"], 2),
    (&["queue", "move", "vm1", "first", "--worker", "0"], &["'first'", "invalid digit"], 2),
    (&["port", "import", "%/none.json"], &["none.json cannot be read", "No such file"], 2),
    (&["port", "import", "%/load.json"], &["another schema", "millrace-port/1", "port export"], 1),
    (&["migrate", "check", "%/none.json", "%/load.json"], &["none.json cannot be read"], 2),
    (
        &["migrate", "check", "%/load.json", "%/load.json"],
        &["another schema", "millrace-host/1", "migrate export"],
        2,
    ),
    (
        &["migrate", "check", "a", "b", "--network", "lan"],
        &["invalid value 'lan'", "NAME=TOKEN@ADDRESS:PORT"],
        2,
    ),
    (&["migrate", "check", "a", "b", "--mtu", "9000"], &["--responder", "--network"], 2),
    (&["mtu", "check", "--network", "lan=10.0.0.1:5910"], &["\"10.0.0.1:5910\"", "TOKEN@"], 2),
    (&["vmmq", "record"], &["--seconds <N>"], 2),
    (&["vmmq", "record", "--seconds", "0"], &["1..=3600"], 2),
    (&["vmmq", "record", "--seconds", "9", "--interval", "5"], &["20..=1000"], 2),
    (&["lab", "vmmq", "--sim", "--real", "%/load.json"], &["--recorded <FILE>"], 2),
    (
        &["lab", "vmmq", "--sim", "--recorded", "%/cut.json"],
        &["cut.json", "no recorded load", "EOF"],
        1,
    ),
    (
        &["lab", "vmmq", "--sim", "--recorded", "%/load.json", "--real", "%/cut.json"],
        &["cut.json", "no recorded load"],
        1,
    ),
    (
        &["lab", "vmmq", "--sim", "--recorded", "%/load.json", "--real", "%/load.json"],
        &["load.json", "no workers", "millrace vmmq record"],
        1,
    ),
    (&["config", "apply"], &["<FILE>"], 2),
    (&["config", "show"], &["no daemon answers"], 3),
    (&["capture", "vm1"], &["--write"], 2),
    (&["capture", "vm1", "-w", "x", "--snaplen", "1"], &["14..=262144"], 2),
    (&["top", "--interval", "0"], &["1..=3600"], 2),
    (&["status"], &["no daemon answers", NOBODY, "systemctl start millrace"], 3),
    (&["status", "--json"], &["{\"error\":\"no daemon answers", "\"remedy\":"], 3),
    (&["check"], &["no daemon answers"], 3),
    (
        &["check", "-c", "%/none.toml"],
        &["none.toml cannot be read", "No such file", "correct the path"],
        1,
    ),
    (&["check", "%/none.toml"], &["none.toml cannot be read", "No such file"], 1),
    (&["check", "%/a.toml", "-c", "%/a.toml"], &["cannot be used with"], 2),
    (&["check", "%/bad.toml"], &["bad.toml:3:7: out of range", "20", "68 to 65535"], 1),
    (
        &["check", "%/worse.toml"],
        &[
            "worse.toml:2:8: not a port name",
            "name = \"a b\"\n                 ^^^^^",
            "worse.toml:3:7: out of range",
            "worse.toml:6:1: unknown key",
            "did you mean `tap`?",
        ],
        1,
    ),
    (
        &["check", "%/quotes.toml"],
        &["quotes.toml:3:7: a text without quotes", "write tap = \"t0\""],
        1,
    ),
    (&["run", "-c", "%/quotes.toml"], &["a text without quotes", "write tap = \"t0\""], 1),
    (&["check", "-c", "%/bad.toml"], &["bad.toml:3:7: out of range", "20", "68 to 65535"], 1),
    (&["run", "-c", "%/bad.toml"], &["bad.toml:3:7: out of range", "20", "68 to 65535"], 1),
    (&["run", "-c", "%/binary.toml"], &["binary.toml cannot be read", "UTF-8"], 1),
    (&["run", "--socket", "%/bad.toml"], &["exists and is not a socket", "--socket"], 1),
    (
        &["validate", "rsc", "--fail-if", "throughput < 2"],
        &["\"2\" is not a ratio", "throughput < 2.0x"],
        2,
    ),
    (
        &["validate", "rsc", "--fail-if", "speed < 2x"],
        &["no figure `speed`", "cycles_per_byte", "throughput"],
        2,
    ),
    (&["sweep", "--fail-if", "throughput < 2x"], &["compares nothing"], 2),
    (&["guide", "rcs"], &["invalid value 'rcs'", "rsc"], 2),
    (&["guide", "rsc", "--wait", "soon"], &["\"soon\" is not a time", "10min"], 2),
    (
        &["guide", "rsc", "--receiver", "00112233445566778899aabbccddeeff@127.0.0.1:1"],
        &["--sender"],
        2,
    ),
    (&["guide", "rsc"], &["no daemon answers", NOBODY, "millrace run"], 3),
    (&["completions", "tcsh"], &["invalid value 'tcsh'", "bash"], 2),
    (&["man", "%/none"], &["writing manual pages", "No such file", "create the directory"], 1),
];

#[test]
fn bad_input_is_answered_with_a_message_and_an_exit_code() {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().to_str().unwrap();
    std::fs::write(directory.path().join("bad.toml"), "[[port]]\nname = \"a\"\nmtu = 20\n")
        .unwrap();
    let worse = "[[port]]\nname = \"a b\"\nmtu = 20\n[[port]]\nname = \"c\"\ntpa = \"t\"\n";
    std::fs::write(directory.path().join("worse.toml"), worse).unwrap();
    let quotes = "[[port]]\nname = \"a\"\ntap = t0\n";
    std::fs::write(directory.path().join("quotes.toml"), quotes).unwrap();
    let load = r#"{"interval_ms": 20, "items": [{"vnic": "vm1", "busy": [0.1]}]}"#;
    std::fs::write(directory.path().join("load.json"), load).unwrap();
    std::fs::write(directory.path().join("cut.json"), &load[..40]).unwrap();
    std::fs::write(directory.path().join("binary.toml"), [0xff, 0xfe]).unwrap();
    for (arguments, parts, code) in BAD {
        let arguments: Vec<String> = arguments.iter().map(|word| word.replace('%', own)).collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let output = millrace(Path::new(NOBODY), &arguments);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}\n{message}");
        for part in *parts {
            assert!(message.contains(part), "{arguments:?} lacks {part}\n{message}");
        }
    }
}

#[test]
fn how_an_option_of_ntttcp_is_served_is_told_before_the_run() {
    let line = "ntttcp -s -ns -m 1,*,127.0.0.1 -a 6 -t 1 -p 9 --connect-attempts 1";
    let words: Vec<&str> = line.split(' ').collect();
    let told = "-a 6 is served by epoll";
    let count =
        |words: &[&str]| text(&millrace(Path::new(NOBODY), words).stderr).matches(told).count();
    assert_eq!((count(&words), count(&[&words[..5], &words[7..]].concat())), (1, 0));
}

const TWO: &str = "\
[[port]]
name = \"vm1\"
tap = \"tap1\"
mtu = 9000
vlan = 10

[[port]]
name = \"uplink0\"
packet = \"eth1\"
trunk = \"10\"
";

#[test]
fn commands_print_what_the_daemon_says() {
    let daemon = Daemon::start(TWO);
    let socket = daemon.socket();
    let run = |arguments: &[&str]| {
        let output = millrace(&socket, arguments);
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        text(&output.stdout)
    };
    insta::assert_snapshot!("port_list", run(&["port", "list"]));
    insta::assert_snapshot!("port_show", run(&["port", "show", "vm1"]));
    insta::assert_snapshot!("rsc_show", run(&["rsc", "show"]));
    insta::assert_snapshot!("rsc_off", run(&["rsc", "off", "vm1"]));
    insta::assert_snapshot!("queue_show", run(&["queue", "show"]));
    run(&["port", "add", "vm4", "--vhost-user", "/run/vm4", "--queues", "4"]);
    run(&["rss", "set", "vm4", "--key", "microsoft"]);
    insta::assert_snapshot!("rss_set", run(&["rss", "set", "vm4", "--entry", "0=3,17=2"]));
    insta::assert_snapshot!("rss_show", run(&["rss", "show"]));
    run(&["port", "remove", "vm4"]);
    assert!(run(&["queue", "move", "vm1", "0", "--worker", "0"]).contains("access 10"));
    insta::assert_snapshot!("check", run(&["check"]));
    assert!(run(&["status"]).contains("2 of 2 ports up, 1 worker, 0 addresses"));
    assert!(run(&["top", "-n", "1"]).contains("BUSY TURNS"));
    assert!(run(&["flows", "--port", "vm1", "--drops"]).starts_with("FROM  TO"));
    run(&["port", "add", "vm2", "--tap", "tap2", "--vlan", "20"]);
    run(&["port", "set", "vm2", "vlan=", "trunk=10,20-30", "isolated=true"]);
    assert!(run(&["port", "list"]).contains("trunk 10,20-30"));
    run(&["port", "remove", "vm2"]);
    // A name or a mode that looks like a number or a boolean stays text.
    for name in ["007", "true", "1e3"] {
        run(&["port", "add", name, "--tap", name]);
        run(&["port", "set", "vm1", &format!("mirror-to={name}")]);
        assert_eq!(daemon.client.port("vm1").unwrap().config.mirror_to.unwrap().as_str(), name);
        run(&["port", "remove", name]);
    }
    run(&["port", "add", "vm3", "--vhost-user", "/run/vm3", "--socket-mode", "0660"]);
    run(&["port", "set", "vm3", "socket-mode=0600"]);
    let mode = daemon.client.port("vm3").unwrap().config.socket_mode;
    assert_eq!(mode, Some("0600".parse().unwrap()));
    run(&["port", "remove", "vm3"]);
    let status: serde_json::Value = serde_json::from_str(&run(&["status", "--json"])).unwrap();
    assert_eq!(status["ports"].as_array().map(Vec::len), Some(2));
}

#[test]
fn verbs_suit_scripts() {
    let daemon = Daemon::start(TWO);
    let socket = daemon.socket();
    let run = |line: &str, code| {
        let output = millrace(&socket, &line.split(' ').collect::<Vec<_>>());
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        said
    };
    let add = "port add vm2 --tap tap2 vlan=10 storm=off mac-spoofing=allow --may-exist --wait up";
    run(add, 0);
    assert_eq!(run(add, 0), run("port set vm2 mtu=1500 --wait up --timeout 9", 0));
    let other = run("port add vm2 --tap tap2 --vlan 20 --may-exist", 1);
    assert!(other.contains("vlan: 10") && other.contains("vlan: 20"), "{other}");
    let late = run("port set vm2 mtu=1500 --wait broken --timeout 0", 1);
    assert!(late.contains("port vm2 is not broken after 0 s"), "{late}");
    run("port set vm9 mtu=1500 --if-exists", 0);
    run("port set vm9 mtu=1500", 1);
    let frame = [[0xff; 6], [2, 0, 0, 0, 0, 9]].concat();
    let sends = || {
        let peer = daemon.devices.peer("tap2").unwrap();
        assert!(peer.send(Default::default(), &[&frame[..], &[0x88, 0xb5], &[0; 46]].concat()));
        test_daemon::eventually("it is learned", || {
            let listed = run("mac list vm2", 0);
            let learned =
                |line: &str| line.split_whitespace().take(3).eq(["02:00:00:00:00:09", "10", "vm2"]);
            listed.lines().any(learned).then_some(())
        });
    };
    sends();
    assert!(!run("mac list vm1", 0).contains("00:00:00:09"));
    run("mac flush vm1", 0);
    assert!(run("mac list --vlan 10", 0).contains("02:00:00:00:00:09"));
    run("mac flush vm2", 0);
    assert!(!run("mac list", 0).contains("00:00:00:09"));
    assert!(run("mac flush vm9", 1).contains("there is no port vm9"));
    run("port remove vm2 --if-exists", 0);
    run("port remove vm2 --if-exists", 0);
    let lines = run("event --json", 0);
    let events: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = events.iter().map(|event| event["id"].as_u64().unwrap()).collect();
    assert!(!ids.is_empty() && ids.is_sorted(), "{lines}");
}

/// The report is a tar file without the key that the API shows to readers.
#[test]
fn a_bug_report_has_all_but_secrets() {
    let daemon = Daemon::start(TWO);
    let key = "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa";
    let socket = daemon.socket();
    assert!(millrace(&socket, &["port", "set", "vm1", &format!("rss-key={key}")]).status.success());
    let file = daemon.path("report.tar");
    let name = file.to_str().unwrap();
    let run = || millrace(&socket, &["bugreport", "-w", name]);
    assert!(run().status.success());
    assert_eq!(run().status.code(), Some(1), "an existing file is not overwritten");
    let tar = |arguments: &[&str]| {
        let output = Command::new("tar").args(arguments).arg("-f").arg(&file).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let listed = tar(&["-t"]);
    for name in [
        "config.json",
        "ports.json",
        "counters/vm1.json",
        "events.json",
        "metrics.txt",
        "kernel-proc-version",
    ] {
        assert!(listed.contains(name), "{name}: {listed}");
    }
    let all = tar(&["-xO"]);
    assert!(all.contains("uplink0") && all.contains("(left out)"));
    assert!(!all.contains(key) && !all.contains("\"microsoft\""));
    let without = millrace(Path::new(NOBODY), &["bugreport", "-w", "-"]);
    assert!(String::from_utf8_lossy(&without.stdout).contains("no daemon answers"));
}

/// The shell asks the program, which asks the daemon.
#[test]
fn completions_know_the_ports() {
    let daemon = Daemon::start(TWO);
    let complete = |words: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_millrace"))
            .env("MILLRACE_SOCKET", daemon.socket())
            .env("MILLRACE_COMPLETE", "bash")
            .env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string())
            .env("_CLAP_IFS", "\n")
            .arg("--")
            .args(words)
            .output()
            .unwrap();
        text(&output.stdout)
    };
    let names = complete(&["millrace", "port", "show", ""]);
    assert!(names.contains("uplink0") && names.contains("vm1"), "{names}");
    assert!(complete(&["millrace", "port", "set", "vm1", "mac-l"]).contains("mac-limit="));
    assert!(complete(&["millrace", "tr"]).contains("trace"));
}

#[test]
fn a_trace_reads_as_steps() {
    let daemon = Daemon::start(&TWO.replace("vlan = 10", "vlan = 10\nmac = \"52:54:00:00:00:01\""));
    let run = |arguments: &[&str]| {
        let output = millrace(&daemon.socket(), arguments);
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        text(&output.stdout)
    };
    let words = "tcp 10.0.0.1:1 > 10.0.0.2:80 len 10";
    insta::assert_snapshot!("trace", run(&["trace", "vm1", words]));
    let dropped = run(&["trace", "vm1", &format!("{words} vlan 30")]);
    assert!(dropped.contains("dropped at vm1: vlan_not_allowed"), "{dropped}");
}

#[test]
fn the_configuration_is_shown_compared_applied_and_saved() {
    let daemon = Daemon::start(TWO);
    let socket = daemon.socket();
    let run = |arguments: &[&str], code| {
        let output = millrace(&socket, &[&["config"], arguments].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        said
    };
    assert_eq!(run(&["diff"], 0), "nothing to do\n");
    assert!(millrace(&socket, &["port", "add", "vm2", "--tap", "tap2"]).status.success());
    assert!(millrace(&socket, &["port", "set", "vm1", "mtu=1500"]).status.success());
    let shown = run(&["show"], 0);
    assert!(shown.contains("# added through the API\n[[port]]\nname = \"vm2\""), "{shown}");
    assert_eq!(run(&["diff"], 1), "change port vm1: mtu\n", "vm2 is none of the file's business");
    let new = daemon.path("new.toml");
    let file = new.to_str().unwrap();
    std::fs::write(&new, TWO.replace("tap1", "tap3")).unwrap();
    let planned = run(&["apply", file, "--dry-run"], 0);
    for step in ["remove port vm2", "close port vm1 for mtu, tap", "reopen port vm1"] {
        assert!(planned.contains(step), "{planned}");
    }
    assert_eq!(run(&["diff", file], 1), planned);
    daemon.devices.set("tap3", test_devices::Fate::Gone);
    let done = run(&["apply", file], 1);
    assert!(done.contains("reopen port vm1: failed: there is no such device"), "{done}");
    daemon.devices.set("tap3", test_devices::Fate::Up);
    assert!(millrace(&socket, &["port", "add", "vm2", "--tap", "tap2"]).status.success());
    run(&["save", file], 0);
    assert!(std::fs::read_to_string(daemon.path("new.toml~")).unwrap().contains("tap3"));
    assert_eq!(daemon.client.port("vm2").unwrap().origin, api::body::Origin::Api);
    run(&["save"], 0);
    assert_eq!(daemon.client.port("vm2").unwrap().origin, api::body::Origin::File);
    assert_eq!(run(&["diff"], 0), "nothing to do\n");
    std::fs::write(daemon.path("switch.toml"), "[[port]]").unwrap();
    assert!(run(&["reload"], 1).contains("switch.toml"));
    assert_eq!(daemon.client.ports().unwrap().len(), 3);
}

#[test]
fn findings_and_refusals_exit_with_1() {
    let daemon = Daemon::start(TWO);
    let check = |arguments: &[&str]| {
        let output = millrace(&daemon.socket(), &[&["check"], arguments].concat());
        (output.status.code(), text(&output.stdout))
    };
    let (code, told) = check(&[]);
    assert_eq!((code, told.ends_with("\n1 warning\n")), (Some(0), true), "{told}");
    assert_eq!(check(&["--strict"]).0, Some(1));
    daemon.devices.set("eth1", test_devices::Fate::Gone);
    test_daemon::eventually("it is an error", || (check(&[]).0 == Some(1)).then_some(()));
    assert!(check(&[]).1.starts_with("error: port uplink0 is broken"));
    let status = text(&millrace(&daemon.socket(), &["status"]).stdout);
    assert!(status.contains("  error    port uplink0 is broken"), "{status}");
    let refusal = millrace(&daemon.socket(), &["port", "show", "vm2"]);
    assert_eq!(refusal.status.code(), Some(1));
    assert!(text(&refusal.stderr).contains("did you mean `vm1`?"));
    let file = daemon.path("switch.toml");
    for arguments in [&["check"][..], &["check", "-c"]] {
        let arguments = [arguments, &[file.to_str().unwrap()]].concat();
        let offline = millrace(Path::new(NOBODY), &arguments);
        // The daemon of the test has devices of its own.
        let told = text(&offline.stdout);
        assert_eq!((offline.status.code(), told.lines().count()), (Some(0), 5), "{told}");
        let error = "warning: port uplink0: this host has no network device eth1\n";
        assert!(told.starts_with(error), "{told}");
    }
}

#[test]
fn a_device_that_goes_is_seen_at_a_glance() {
    let daemon = Daemon::start(TWO);
    daemon.devices.set("tap1", test_devices::Fate::Gone);
    // `status` makes three requests, so one output may still mix two moments.
    test_daemon::eventually("vm1 is broken in all parts of the picture", || {
        let status = text(&millrace(&daemon.socket(), &["status"]).stdout);
        let parts = ["1 of 2 ports up", "vm1      broken", "ago: port vm1 is broken"];
        parts.iter().all(|part| status.contains(part)).then_some(())
    });
}

#[test]
fn an_interrupt_ends_the_capture_and_not_its_file() {
    let daemon = Daemon::start(TWO);
    let file = daemon.path("vm1.pcapng");
    let capture = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["capture", "vm1", "-w", file.to_str().unwrap()])
        .env("MILLRACE_SOCKET", daemon.socket())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    test_daemon::eventually("the capture runs", || daemon.client.capture("vm1").ok());
    let id = rustix::process::Pid::from_child(&capture);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = capture.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("0 frames"), "{}", text(&output.stdout));
    assert!(file.exists());
}

/// Starts `vmmq record` for an hour, to this file.
fn recorder(socket: &Path, file: &str) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["vmmq", "record", "--seconds", "3600", "--output", file, "--json"])
        .env("MILLRACE_SOCKET", socket)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

/// Returns the number of incomplete files beside a path.
fn partial(beside: &Path) -> usize {
    let names = beside.parent().unwrap().read_dir().unwrap();
    names
        .filter(|entry| entry.as_ref().unwrap().path().extension() == Some("part".as_ref()))
        .count()
}

/// A recording of idle queues is whole and readable, and predicts nothing.
#[test]
fn an_interrupt_does_not_cut_a_recording_and_an_idle_one_predicts_nothing() {
    let daemon = Daemon::start(TWO);
    let path = daemon.path("load.json");
    std::fs::write(&path, "an older one").unwrap();
    let file = path.to_str().unwrap();
    let record = recorder(&daemon.socket(), file);
    test_daemon::eventually("it records", || (partial(&path) == 1).then_some(()));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "an older one");
    let id = rustix::process::Pid::from_child(&record);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let output = record.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(partial(&path), 0);
    let written: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&written["items"], &written["workers"]), (&2.into(), &1.into()));
    let replay = ["lab", "vmmq", "--sim", "--recorded", file, "--real", file, "--json"];
    let replay = millrace(Path::new(NOBODY), &replay);
    assert_eq!(replay.status.code(), Some(1), "{}", text(&replay.stdout));
    assert!(text(&replay.stderr).contains("is idle"), "{}", text(&replay.stderr));
}

#[test]
fn a_recording_whose_daemon_ends_is_kept() {
    // The daemon may end before the first interval does: then nothing is recorded.
    let kept = [50, 500, 5000].into_iter().any(|wait_ms| {
        let mut daemon = Daemon::start(TWO);
        let path = daemon.path("load.json");
        let record = recorder(&daemon.socket(), path.to_str().unwrap());
        test_daemon::eventually("it records", || (partial(&path) == 1).then_some(()));
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        daemon.stop().unwrap();
        let output = record.wait_with_output().unwrap();
        assert_eq!((output.status.code(), partial(&path)), (Some(3), 0));
        // The daemon ends between two requests, or in one.
        let told = text(&output.stderr);
        let ends = ["no daemon answers", "closed the connection"];
        assert!(ends.iter().any(|end| told.contains(end)), "{told}");
        path.exists() && simulator::Recording::read(&std::fs::read_to_string(path).unwrap()).is_ok()
    });
    assert!(kept);
}

#[test]
fn a_recording_that_cannot_be_written_is_refused_at_once() {
    let daemon = Daemon::start(TWO);
    let missing = daemon.path("none/load.json");
    for path in [missing.as_path(), missing.parent().unwrap().parent().unwrap()] {
        let path = path.to_str().unwrap();
        let output =
            millrace(&daemon.socket(), &["vmmq", "record", "--seconds", "3600", "-o", path]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains(path), "{said}");
        assert!(said.contains("cannot be written") && said.contains("--output"), "{said}");
    }
}

#[test]
fn a_replay_whose_cost_is_off_by_30_percent_exits_with_1() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, busy: &str| {
        let item = |worker: &str| {
            format!(
                r#"{{"vnic": "vm{worker}", "busy": [{busy}, {busy}], "worker": [{worker}, {worker}]}}"#
            )
        };
        let worker = format!(r#"{{"busy": [{busy}, {busy}]}}"#);
        let json = format!(
            r#"{{"version": 1, "interval_ms": 20, "workers": [{worker}, {worker}], "items": [{}, {}]}}"#,
            item("0"),
            item("1")
        );
        let path = directory.path().join(name);
        std::fs::write(&path, json).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let real = write("real.json", "0.4");
    let replay = |load: &str| {
        let arguments = ["lab", "vmmq", "--sim", "--recorded", load, "--real", &real];
        let output = millrace(Path::new(NOBODY), &arguments);
        (output.status.code(), text(&output.stdout))
    };
    let (code, said) = replay(&write("near.json", "0.44"));
    assert!(code == Some(0) && said.contains("+10.0 %") && said.contains("✓"), "{said}");
    let (code, said) = replay(&write("far.json", "0.52"));
    assert!(code == Some(1) && said.contains("+30.0 %") && said.contains("✗"), "{said}");
}

#[test]
fn the_daemon_stops_at_sigterm_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("api.sock");
    let mut running = Command::new(env!("CARGO_BIN_EXE_millrace"))
        .args(["run", "--socket", socket.to_str().unwrap()])
        .env("MILLRACE_LOG", "off")
        .spawn()
        .unwrap();
    test_daemon::eventually("the daemon answers", || api::client::Client::connect(&socket).ok());
    let id = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
}

#[test]
fn manual_and_completions_are_made() {
    let directory = tempfile::tempdir().unwrap();
    let own = directory.path().to_str().unwrap();
    assert!(millrace(Path::new(NOBODY), &["man", own]).status.success());
    assert!(directory.path().join("millrace-port-add.1").exists());
    let script = millrace(Path::new(NOBODY), &["completions", "bash"]);
    assert!(text(&script.stdout).contains("_millrace"));
    let document = millrace(Path::new(NOBODY), &["openapi"]);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document["info"]["title"], "Millrace");
}

/// Documents call NTttcp by its own names.
#[test]
fn ntttcp_is_this_program_under_its_own_names() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["ntttcp", "ntttcp.exe", "NTttcp.exe"] {
        let link = directory.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_millrace"), &link).unwrap();
        let help = Command::new(link).arg("--help").output().unwrap();
        let text = String::from_utf8_lossy(&help.stdout);
        assert!(help.status.success() && text.contains("--connect-attempts"), "{text}");
    }
}
