//! The unit under a systemd that boots, in a container: what the unit lets the daemon do, and what
//! systemd does with it.
//!
//! `container` boots the systemd.

use crate::container::{Container, ROOT, lay_out_root};
use crate::outage::{self, told};
use crate::sandbox::{Need, run, story};
use crate::sessions::{Guests, Traffic};
use crate::switch::millrace;
use crate::unprivileged;
use ports::vhost::Features;
use std::fs;
use std::path::PathBuf;
use waiting::until;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");
const FILE: &str = "/run/root/etc/millrace/millrace.toml";
const DROP_INS: &str = "/run/root/etc/systemd/system/millrace.service.d";

/// Ports of two guests in the story's own process, metrics and page, besides those of
/// [`unprivileged::PORTS`].
const MORE: &str = "\
    [switch]\nworkers = 1\n[metrics]\nlisten = '127.0.0.1:9477'\n[web]\nlisten = '127.0.0.1:9478'\n\
    [[port]]\nname = 'team'\nteam = ['eth4', 'eth5']\n\
    [[port]]\nname = 'a'\nvhost-user = '/run/millrace/a.sock'\nmac = '02:00:00:00:00:01'\n\
    [[port]]\nname = 'b'\nvhost-user = '/run/millrace/b.sock'\nmac = '02:00:00:00:00:02'\n";

/// Links to the other host, `eth1` to `eth5`.
const LINKS: u8 = 5;

fn configuration(more: &str) -> String {
    let ports = unprivileged::PORTS.iter();
    let ports: String =
        ports.map(|(name, keys)| format!("[[port]]\nname = '{name}'\n{keys}")).collect();
    format!("{MORE}{ports}{more}")
}

impl Container {
    /// Waits until another daemon than `than` runs, with all ports open. Returns its process.
    fn another(&self, than: &str) -> String {
        let now = until("the next daemon runs", || {
            let now = self.unit("MainPID");
            let answers = self.try_to("millrace status").status.success();
            (now != than && now != "0" && answers).then_some(now)
        });
        assert_eq!(unprivileged::lacking(&self.ask("port list")), [], "{}", self.journal());
        now
    }

    /// Sends packets from a host behind an uplink to a TAP in another namespace and back. None may
    /// be lost.
    fn carries(&self) {
        until("the way is learned", || {
            let tried = self.try_to("ip netns exec far ping -q -c 1 -W 1 10.9.0.2");
            tried.status.success().then_some(())
        });
        let told = self.tell("ip netns exec far ping -q -i 0.005 -c 200 -s 1400 10.9.0.2");
        assert!(told.contains(" 200 received"), "{told}");
    }
}

/// Installs the unit and everything that a package has with it.
fn lay_out_unit() {
    let program = PathBuf::from(millrace().get_program());
    run(&format!("install -D {} {ROOT}/usr/bin/millrace", program.display()));
    for (file, place) in [
        ("millrace.service", "etc/systemd/system/millrace.service"),
        ("millrace.sysusers", "usr/lib/sysusers.d/millrace.conf"),
        ("millrace.tmpfiles", "usr/lib/tmpfiles.d/millrace.conf"),
    ] {
        run(&format!("install -D -m 644 {PACKAGING}/{file} {ROOT}/{place}"));
    }
    run(&format!("mkdir -p {ROOT}/etc/millrace {DROP_INS}"));
    // The unit's comment says that xdp ports need this.
    let families = "[Service]\nRestrictAddressFamilies=AF_XDP\n";
    fs::write(format!("{DROP_INS}/xdp.conf"), families).unwrap();
    fs::write(FILE, configuration("")).unwrap();
}

fn lay_out_links(container: &Container) {
    for host in ["far", "guest"] {
        container.tell(&format!("ip netns add {host} && ip -n {host} link set lo up"));
    }
    for link in 1..=LINKS {
        container.tell(&format!(
            "ip link add eth{link} type veth peer name far{link} netns far && ip link set eth{link} up && \
             ip -n far link set far{link} up"
        ));
        container.with_its_links(&format!("ethtool -K eth{link} rxvlan off"));
        let namespace = format!("/proc/{}/root/run/netns/far", container.first().unwrap());
        run(&format!("nsenter --net={namespace} ethtool -K far{link} txvlan off"));
    }
    container.tell("ip -n far address add 10.9.0.1/24 dev far1");
}

#[test]
fn the_unit_runs_reloads_restarts_and_is_watched_under_a_systemd() {
    let needs = [
        Need::Root,
        Need::Tap,
        Need::Program("systemd-nspawn"),
        Need::Program("ethtool"),
        Need::Systemd,
    ];
    story(&needs, || {
        lay_out_root();
        lay_out_unit();
        let container = Container::boot();
        lay_out_links(&container);
        container.tell("systemctl start millrace");
        let first = container.another("");
        container
            .tell("ip -n guest address add 10.9.0.2/24 dev tap1 && ip -n guest link set tap1 up");
        container.carries();
        is_confined(&container, &first);
        features_work(&container);
        reloads(&container, &first);
        let second = restarts(&container, &first);
        is_watched(&container, &second);
        container.tell("systemctl stop millrace");
        let device = container.try_to("ip -n guest link show tap1");
        assert!(!device.status.success(), "its device stays");
    });
}

/// Checks that the daemon does not run as root, and has the unit's filter and its own.
fn is_confined(container: &Container, process: &str) {
    assert_eq!(container.tell(&format!("stat -c %U /proc/{process}")), "millrace");
    let status = container.ask("status");
    for what in ["files", "system_calls", "namespaces"] {
        let seen = &status["switch"]["sandbox"][what];
        // A kernel without Landlock has no file restrictions, and `status` says so.
        println!("measured: {what} under the unit: {seen}");
        assert!(seen["in_force"] == true || what == "files", "{seen}");
    }
    let has_it = container.tell(&format!("grep -h CapPrm /proc/{process}/task/*/status"));
    let bits = has_it.split_whitespace().filter_map(|word| u64::from_str_radix(word, 16).ok());
    assert!(
        bits.clone().count() > 2 && bits.into_iter().all(|bits| bits >> 21 & 1 == 0),
        "{has_it}"
    );
    assert_eq!(container.ask("port show steered")["spread"]["by"], "tables");
    let filters = container.tell(&format!("grep Seccomp_filters /proc/{process}/status"));
    let count: u32 = filters.split_whitespace().last().unwrap().parse().unwrap();
    assert!(count > 2, "systemd's and its own: {filters}");
    assert!(container.unit("StatusText").contains("ports up"));
}

/// Checks the features that take no port.
fn features_work(container: &Container) {
    for line in [
        "port add kept --tap tap9",
        "rsc off tap",
        "port set tap mtu=1300",
        "acl add tap deny in tcp",
        "acl remove tap 1",
        "queue move netns 0 --worker 0",
        "config save /run/saved.toml",
        "capture netns -w /run/captured.pcapng --seconds 1",
        "bugreport -w /run/report.tar",
        "trace netns 'tcp 10.9.0.2:1 > 10.9.0.1:80'",
    ] {
        container.tell(&format!("millrace {line}"));
    }
    for (port, path) in [(9477, "/metrics"), (9477, "/healthz"), (9478, "/state")] {
        let answer = container.tell(&format!(
            "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET {path} HTTP/1.1\\r\\nHost: 127.0.0.1\\r\\nConnection: close\\r\\n\\r\\n' >&3; \
             head -n 1 <&3"
        ));
        assert!(answer.contains(" 200 ") || path == "/healthz", "{path}: {answer}");
    }
}

fn reloads(container: &Container, process: &str) {
    fs::write(FILE, configuration("[[port]]\nname = 'c'\ntap = 'tap-c'\n")).unwrap();
    container.tell("systemctl reload millrace");
    container.tell("ip link show tap-c");
    fs::write(FILE, "[[port]]\nnonsense = 1\n").unwrap();
    let refused = container.try_to("systemctl reload millrace");
    assert!(!refused.status.success(), "a file that is refused");
    fs::write(FILE, configuration("")).unwrap();
    container.tell("systemctl reload millrace");
    assert_eq!(container.unit("MainPID"), process);
    container.carries();
}

/// Checks that guests under load notice nothing of a restart. Devices stay, with their addresses,
/// however the daemon ends.
fn restarts(container: &Container, process: &str) -> String {
    let first = container.first().unwrap();
    for guest in ["a", "b"] {
        run(&format!("ln -s /proc/{first}/root/run/millrace/{guest}.sock /run/{guest}.sock"));
    }
    let features = Features::VERSION_1 | Features::MRG_RXBUF;
    let traffic = Traffic::start(Guests::connect(features.bits()));
    let device = container.tell("ip -n guest -o link show tap1 | cut -d : -f 1");
    let mut last = process.to_owned();
    let mut outages = Vec::new();
    for _ in 0..outage::restarts() {
        outages.push(traffic.arrivals.outage_ms(|| {
            container.tell("systemctl restart millrace");
            last = container.another(&last);
        }));
        container.carries();
    }
    println!("measured: a guest under load, systemctl restart: {}", told(outages));
    drop(traffic.end());
    container.tell(&format!("kill -KILL {last}"));
    last = container.another(&last);
    container.carries();
    assert_eq!(container.tell("ip -n guest -o link show tap1 | cut -d : -f 1"), device);
    container.tell("millrace port show kept");
    let resumed = container.tell("journalctl -u millrace | grep -c 'port packet resumes'");
    assert_eq!(resumed, (outage::restarts() + 1).to_string(), "its ring is kept each time");
    last
}

/// Checks that systemd replaces a daemon that no longer responds.
fn is_watched(container: &Container, process: &str) {
    fs::write(format!("{DROP_INS}/sooner.conf"), "[Service]\nWatchdogSec=3\n").unwrap();
    container.tell("systemctl daemon-reload && systemctl restart millrace");
    let watched = container.another(process);
    container.tell(&format!("kill -STOP {watched}"));
    container.another(&watched);
    assert!(container.journal().contains("Watchdog timeout"), "{}", container.journal());
    container.carries();
}
