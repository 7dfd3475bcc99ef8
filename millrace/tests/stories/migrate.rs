//! Before a guest moves: `millrace migrate check` finds nothing between two hosts that are alike,
//! and finds each mismatch that is seeded. A port goes to the other host by `export` and `import`.

use crate::heard::Heard;
use crate::host::Host;
use crate::sandbox::{Need, output_of, run, story};
use crate::switch::millrace;
use ports::vhost::Features;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use test_guest::Guest;
use waiting::{eventually, until};

const NEEDS: [Need; 1] = [Need::Tap];
const MAC: &str = "52:54:00:00:00:01";
/// Keys of the guest's port.
const KEYS: &str = "vlan = 10\nmtu = 9000\nqueues = 2\nrate = '1Gbit'\nip-guard = ['10.9.0.1']\n";

/// A host with a guest's port, one beside it, and a team of two members as its uplink.
struct Place {
    host: Host,
    name: &'static str,
    daemon: Child,
}

impl Place {
    fn new(name: &'static str) -> Place {
        let host = Host::new(name);
        for member in ["w0", "w1"] {
            run(&format!(
                "ip link add {name}-{member} mtu 9000 type veth peer name {member} mtu 9000 netns {name}"
            ));
            run(&format!("ip link set {name}-{member} up"));
            host.run(&format!("ip link set {member} up"));
        }
        let file = format!("/run/{name}.toml");
        let text = format!(
            "[[port]]\nname = 'vm'\nvhost-user = '/run/{name}.vm'\nmac = '{MAC}'\n{KEYS}\
             [[port]]\nname = 'beside'\ntap = 'beside'\nvlan = 10\n\
             [[port]]\nname = 'up'\nteam = ['w0', 'w1']\ntrunk = '10,20'\nmtu = 9000\n"
        );
        std::fs::write(&file, text).unwrap();
        let mut daemon = host.command(millrace().get_program().to_str().unwrap());
        daemon.args(["run", "-c", &file, "--socket", &socket(name)]);
        daemon.args(["--state-dir", &format!("/run/{name}.state")]);
        let daemon = daemon.env("MILLRACE_LOG", "warn").spawn().unwrap();
        let place = Place { host, name, daemon };
        until("the uplink is up", || (place.show("up")?["state"] == "up").then_some(()));
        place
    }

    fn command(&self, line: &str) -> Command {
        let mut command = millrace();
        command.args(["--socket", &socket(self.name)]).args(line.split(' '));
        command
    }

    fn tell(&self, line: &str) {
        output_of(&mut self.command(line));
    }

    fn show(&self, port: &str) -> Option<Value> {
        let output = self.command(&format!("port show {port} --json")).heard();
        serde_json::from_slice(&output.stdout).ok()
    }

    /// Runs `port import` with this text.
    fn import(&self, text: &str, more: &[&str]) -> Output {
        let mut command = self.command("port import --json");
        let command = command.args(more).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.heard()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

fn socket(name: &str) -> String {
    format!("/run/{name}.api")
}

/// Connects a guest with two queue pairs that does not announce itself.
fn connect(place: &str) -> Guest {
    let taken = Features::VERSION_1 | Features::MRG_RXBUF | Features::MQ | Features::GUEST_ECN;
    let wanted = taken | Features::CSUM | Features::HOST_TSO4 | Features::PROTOCOL_FEATURES;
    Guest::connect(Path::new(&format!("/run/{place}.vm")), wanted.bits(), 2).unwrap()
}

/// Returns what a check from the first host to the second finds, and its exit code.
fn check(source: &str, destination: &str) -> (Vec<(String, String)>, i32) {
    let mut command = millrace();
    let output = command.args(["migrate", "check", "--json", source, destination]).heard();
    let error = String::from_utf8_lossy(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
    let found = report["findings"].as_array().unwrap().iter().map(|it| {
        let word = |key: &str| it[key].as_str().unwrap();
        assert!(!word("wanted").is_empty() && !word("remedy").is_empty(), "{it}");
        (word("about").to_owned(), format!("{}: {}", word("error"), word("seen")))
    });
    (found.collect(), output.status.code().unwrap())
}

/// Two hosts, and the guest at the first.
struct Pair {
    from: Place,
    to: Place,
    guest: Guest,
}

impl Pair {
    fn new() -> Pair {
        let (from, to) = (Place::new("from"), Place::new("to"));
        let guest = connect("from");
        until("the guest runs", || (from.show("vm")?["state"] == "up").then_some(()));
        Pair { from, to, guest }
    }

    fn found(&self) -> (Vec<(String, String)>, i32) {
        check(&socket(self.from.name), &socket(self.to.name))
    }

    fn is_healthy(&self) {
        let healthy = || (self.found() == (vec![], 0)).then_some(());
        assert!(eventually(healthy).is_some(), "{:?}", self.found());
    }

    /// Seeds a mismatch at the destination, waits until it is the only finding, and mends it.
    fn finds(&self, (about, words): (&str, &str), seed: impl Fn(&Place), mend: impl Fn(&Place)) {
        seed(&self.to);
        let is_found = || {
            let (found, code) = self.found();
            let [(found_about, text)] = &found[..] else { return None };
            (found_about == about && text.contains(words) && code == 1).then(|| text.clone())
        };
        let text = eventually(is_found);
        let text = text.unwrap_or_else(|| panic!("{about} {words}: {:#?}", self.found()));
        println!("    found {about}: {text}");
        mend(&self.to);
        self.is_healthy();
    }

    /// Seeds and mends a mismatch by keys of the guest's port, as [`finds`](Self::finds) does.
    fn finds_keys(&self, finding: (&str, &str), seed: &str, mend: &str) {
        let set = |to: &Place, keys: &str| to.tell(&format!("port set vm {keys}"));
        self.finds(finding, |to| set(to, seed), |to| set(to, mend));
    }
}

#[test]
fn each_mismatch_of_two_hosts_is_found_before_a_guest_moves() {
    story(&NEEDS, || {
        let pair = Pair::new();
        pair.is_healthy();
        pair.finds_keys(("mtu", "1500"), "mtu=1500", "mtu=9000");
        pair.finds_keys(("queues", "1"), "queues=1", "queues=2");
        pair.finds_keys(("features", "csum"), "compat=ovs-dpdk", "compat=");
        pair.finds_keys(("memory-limit", "4096"), "memory-limit=4KiB", "memory-limit=");
        pair.finds_keys(("mac", "00:99"), "mac=52:54:00:00:00:99", &format!("mac={MAC}"));
        pair.finds_keys(("rate", "10Mbit"), "rate=10Mbit", "rate=1Gbit");
        pair.finds_keys(("storm", "100/s"), "storm=100/s", "storm=");
        pair.finds_keys(("rsc", "off"), "rsc=off", "rsc=");
        pair.finds_keys(("ip-guard", "10.9.0.7"), "ip-guard=10.9.0.7", "ip-guard=10.9.0.1");
        pair.finds_keys(("mac-spoofing", "allow"), "mac-spoofing=allow", "mac-spoofing=");
        let tell = |line: &'static str| move |to: &Place| to.tell(line);
        pair.finds(
            ("vlan", "VLAN 10"),
            tell("port set up trunk=20"),
            tell("port set up trunk=10,20"),
        );
        let link = |words: &'static str| {
            move |to: &Place| drop(to.host.run(&format!("ip link set {words}")))
        };
        pair.finds(("uplink-mtu", "1500"), link("w1 mtu 1500"), link("w1 mtu 9000"));
        pair.finds(
            ("uplink", "down"),
            |to| {
                ["w0", "w1"]
                    .into_iter()
                    .for_each(|it| drop(to.host.run(&format!("ip link set {it} down"))))
            },
            |to| {
                ["w0", "w1"]
                    .into_iter()
                    .for_each(|it| drop(to.host.run(&format!("ip link set {it} up"))))
            },
        );
        pair.finds(
            ("mirror-to", "not set"),
            |_| pair.from.tell("port set vm mirror-to=beside"),
            |_| pair.from.tell("port set vm mirror-to="),
        );
        drop(pair.guest);
    });
}

/// A responder of a host; it ends with this.
struct Responder(Child, String);

impl Responder {
    fn start(host: Host, address: &str) -> Responder {
        let mut command = host.command(millrace().get_program().to_str().unwrap());
        command.args(["mtu", "responder", "--listen", address]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Responder(child, line.trim().to_owned())
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// The cause of seed 004, which a check of the migration network alone does not see: members of the
/// management network's team with different MTUs.
#[test]
fn a_check_of_all_networks_finds_the_management_networks_mixed_mtus() {
    story(&NEEDS, || {
        let pair = Pair::new();
        let mut options = Vec::new();
        let mut responders = Vec::new();
        for (name, network, device) in [("management", 66, "mgmt"), ("migration", 67, "lm")] {
            run(&format!(
                "ip link add {device} mtu 9000 netns from type veth peer name {device} mtu 9000 netns to"
            ));
            let mut all = Vec::new();
            for (place, number) in [(&pair.from, 1), (&pair.to, 2)] {
                place.host.run(&format!("ip address add 10.{network}.0.{number}/24 dev {device}"));
                place.host.run(&format!("ip link set {device} up"));
                let at = format!("10.{network}.0.{number}:5910");
                let responder = Responder::start(place.host, &at);
                all.push(responder.1.clone());
                responders.push(responder);
            }
            options.push(format!("--network={name}={}", all.join(",")));
        }
        let found = |options: &[String]| {
            let program = millrace().get_program().to_owned();
            let mut command = pair.from.host.command(program.to_str().unwrap());
            command.args(["migrate", "check", "--json", &socket("from"), &socket("to")]);
            let output = command.args(options).heard();
            let error = String::from_utf8_lossy(&output.stderr);
            let report: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"));
            report["findings"].as_array().unwrap().clone()
        };
        assert_eq!(found(&options), Vec::<Value>::new());
        pair.to.host.run("ip link set mgmt mtu 1500");
        // As docs/migration.md advised: nothing.
        assert_eq!(found(&options[1..]), Vec::<Value>::new());
        let all = found(&options);
        assert_eq!(all.len(), 1, "{all:#?}");
        assert_eq!((&all[0]["about"], &all[0]["network"]), (&"path".into(), &"management".into()));
        let error = all[0]["error"].as_str().unwrap();
        assert!(error.contains("10.66.0.2:5910: mgmt has MTU 1500"), "{error}");
        println!("    found path in management: {error}");
        pair.to.host.run("ip link set mgmt mtu 9000");
        // A team's member by which no probe passes, on the host that the guest leaves.
        pair.from.host.run("ip link set w1 mtu 1500");
        let error = until("the member is named", || {
            let all = found(&options);
            let member = all.iter().find(|it| it["about"] == "member-mtu")?;
            Some(format!("{}: {}", member["error"].as_str()?, member["seen"].as_str()?))
        });
        assert_eq!(error, "the source: members of team up have different MTUs: w0: 9000, w1: 1500");
    });
}

/// Returns the changes that an import reports.
fn changes(output: &Output) -> Value {
    let error = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{error}"))
}

/// Checks that an import changes only this socket's port and this guest's, whatever the file says,
/// and only while no guest runs there. Leaves no port `vm`.
fn is_held_to_its_terms(to: &Place, text: &str) {
    let lacks = |more: &[&str]| {
        let refused = to.import(text, more);
        assert_eq!(refused.status.code(), Some(1));
        changes(&refused)["lacks"][0]["about"].as_str().unwrap().to_owned()
    };
    assert_eq!(lacks(&["--mac", "52:54:00:00:00:02"]), "mac");
    assert_eq!(lacks(&["--vhost-user", "/run/other.vm"]), "kind");
    let guest = connect("to");
    until("it runs", || (to.show("vm")?["guest"]["queues"] == 2).then_some(()));
    assert_eq!(lacks(&[]), "state");
    assert_eq!(changes(&to.import(text, &["--force"]))["refused"], false);
    drop(guest);
    to.tell("port remove vm");
    let device = text.replace("\"vhost-user\": \"/run/from.vm\"", "\"packet\": \"w0\"");
    assert_ne!(device, text);
    let held = ["--as", "other", "--vhost-user", "/run/to.vm", "--mac", MAC];
    assert_eq!(changes(&to.import(&device, &held))["created"], true);
    let config = to.show("other").unwrap()["config"].clone();
    assert_eq!((&config["vhost-user"], config.get("packet")), (&"/run/to.vm".into(), None));
    to.tell("port remove other");
}

#[test]
fn a_port_goes_to_another_host_or_is_refused_by_name() {
    story(&NEEDS, || {
        let pair = Pair::new();
        let (from, to) = (&pair.from, &pair.to);
        from.tell("acl add vm deny in tcp to 10.0.0.0/8 port 22");
        from.tell("rss set vm --entry 5=0");
        let text = output_of(&mut from.command("port export vm"));
        // An existing port keeps its own socket.
        let asked = changes(&to.import(&text, &["--dry-run"]));
        assert_eq!((&asked["created"], &asked["table"]), (&false.into(), &true.into()), "{asked}");
        assert!(to.show("vm").unwrap()["config"].get("acl").is_none(), "a dry run");
        let done = to.import(&text, &[]);
        assert_eq!(done.status.code(), Some(0), "{}", changes(&done));
        let config = to.show("vm").unwrap()["config"].clone();
        assert_eq!(config["acl"].as_array().unwrap().len(), 1);
        assert_eq!(config["vhost-user"], "/run/to.vm");
        let rss = |place: &Place| -> Value {
            serde_json::from_str(&output_of(&mut place.command("rss show vm --json"))).unwrap()
        };
        let spread = |place: &Place| {
            let rss = &rss(place)[0];
            (rss["configured"].clone(), rss["key_in_force"].clone())
        };
        assert_eq!(spread(from), spread(to));
        let again = changes(&to.import(&text, &[]));
        assert_eq!(
            (&again["changes"], &again["table"]),
            (&Value::Object([].into_iter().collect()), &false.into())
        );
        is_held_to_its_terms(to, &text);
        // A missing port is made, as a port of the API.
        let text_to = text.replace("/run/from.vm", "/run/to.vm");
        assert_eq!(changes(&to.import(&text_to, &[]))["created"], true);
        assert_eq!(to.show("vm").unwrap()["origin"], "api");
        // If this host lacks something, that is named, and nothing is changed.
        to.tell("port set up trunk=20");
        let refused = to.import(&text.replace("1Gbit", "2Gbit"), &[]);
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(changes(&refused)["lacks"][0]["about"], "vlan");
        assert_eq!(to.show("vm").unwrap()["config"]["rate"], "1Gbit");
        let unknown = to.import(&text.replacen("\"rate\"", "\"raet\"", 1), &[]);
        let message = String::from_utf8_lossy(&unknown.stderr);
        assert!(unknown.status.code() == Some(1) && message.contains("raet"), "{message}");
    });
}
