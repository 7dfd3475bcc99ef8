//! The unit under a systemd that boots, in a container of its own: what the unit lets the daemon do, and what systemd does with it.
//!
//! `scripts/systemd` makes the root that is booted. It takes no systemd outside, and control groups of version 2 are mounted here, in
//! the story's own view, so a bare root will do.

use crate::guest;
use crate::patience::{patiently, until};
use crate::sandbox::{Need, output_of, run, story};
use crate::sessions::{Guests, Traffic};
use crate::switch::millrace;
use crate::unprivileged;
use ports::vhost::Features;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The container's root, where it can be written to: what is written goes with the story.
const ROOT: &str = "/run/root";
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");
const FILE: &str = "/run/root/etc/millrace/millrace.toml";
const DROP_INS: &str = "/run/root/etc/systemd/system/millrace.service.d";

/// Ports of two guests in the story's own process, metrics and page, beside those of [`unprivileged::PORTS`].
const MORE: &str = "\
    [metrics]\nlisten = '127.0.0.1:9477'\n[web]\nlisten = '127.0.0.1:9478'\n\
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

/// Where control groups are, all of them and those of this story.
const GROUPS: &str = "/sys/fs/cgroup";

/// A container whose first process is systemd.
struct Container(Child);

impl Container {
    /// With the unit and all that goes with it, as a package has them.
    fn boot() -> Container {
        lay_out_root();
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.args(["--quiet", "--boot", "--private-network", "--register=no", "--keep-unit"]);
        nspawn.args(["--console=pipe", "--bind=/dev/net/tun", "--capability=all", "-D", ROOT]);
        // What the unit lets the daemon do, nspawn must not refuse.
        let calls = "bpf seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self";
        nspawn.args(["--machine=millrace", &format!("--system-call-filter={calls}")]);
        let container =
            Container(nspawn.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        until("systemd has started", || {
            let state = container.try_to("systemctl is-system-running").stdout;
            let state = String::from_utf8_lossy(&state);
            matches!(state.trim(), "running" | "degraded").then_some(())
        });
        container
    }

    /// Its first process. Another one that goes before it makes the container.
    fn first(&self) -> Option<u32> {
        let below = |process: u32| {
            let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
            let list = list.unwrap_or_default();
            list.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        };
        let all = below(self.0.id()).into_iter();
        let mut all = all.flat_map(|process| [vec![process], below(process)].concat());
        all.find(|process| {
            let name = fs::read_to_string(format!("/proc/{process}/comm"));
            name.is_ok_and(|name| name.trim() == "systemd")
        })
    }

    /// What a command line comes to inside.
    fn try_to(&self, line: &str) -> Output {
        let first = self.first().unwrap_or(u32::MAX).to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &first, "-m", "-u", "-i", "-n", "-p", "bash", "-c", line]);
        command.output().unwrap()
    }

    /// What it prints; it must succeed.
    fn tell(&self, line: &str) -> String {
        let output = self.try_to(line);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {}{told}{}", output.status, self.journal());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A program of this host, in the container's network.
    fn with_its_links(&self, line: &str) {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first().unwrap().to_string(), "-n"]).args(line.split(' '));
        output_of(&mut command);
    }

    fn journal(&self) -> String {
        let journal = self.try_to("journalctl --no-pager -n 40 -u millrace").stdout;
        String::from_utf8_lossy(&journal).into_owned()
    }

    /// A property of the unit.
    fn unit(&self, property: &str) -> String {
        self.tell(&format!("systemctl show --value -p {property} millrace"))
    }

    fn ask(&self, line: &str) -> Value {
        serde_json::from_str(&self.tell(&format!("millrace {line} --json"))).unwrap()
    }

    /// Waits until another daemon runs than this, with all ports open. Returns its process.
    fn another(&self, than: &str) -> String {
        let now = until("the next daemon runs", || {
            let now = self.unit("MainPID");
            let answers = self.try_to("millrace status").status.success();
            (now != than && now != "0" && answers).then_some(now)
        });
        assert_eq!(unprivileged::lacking(&self.ask("port list")), [], "{}", self.journal());
        now
    }

    /// Packets go from a host behind an uplink to a TAP in another namespace and back, and none is lost.
    fn carries(&self) {
        until("the way is learned", || {
            let tried = self.try_to("ip netns exec far ping -q -c 1 -W 1 10.9.0.2");
            tried.status.success().then_some(())
        });
        let told = self.tell("ip netns exec far ping -q -i 0.005 -c 200 -s 1400 10.9.0.2");
        assert!(told.contains(" 200 received"), "{told}");
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // nspawn ends with it, and all that it has started.
        let first = self.first().and_then(|process| Pid::from_raw(process.try_into().ok()?));
        let _ = first.map(|process| kill_process(process, Signal::KILL));
        let _ = self.0.wait();
        // Unlike all else a story makes, control groups are the host's.
        let _ = fs::write(format!("{GROUPS}/cgroup.procs"), "0");
        let own = own_groups();
        let removed = || {
            let _ = Command::new("find")
                .args([&own, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"])
                .output();
            (!Path::new(&own).exists()).then_some(())
        };
        patiently(removed);
    }
}

fn own_groups() -> String {
    let namespace = fs::metadata("/proc/self/ns/mnt").unwrap().ino();
    format!("{GROUPS}/millrace-story-{namespace}")
}

fn lay_out_root() {
    // In a bare root there are none.
    let _ = Command::new("umount").args(["-R", GROUPS]).stderr(Stdio::null()).status();
    run(&format!("mount -t cgroup2 cgroup2 {GROUPS}"));
    fs::create_dir(own_groups()).unwrap();
    fs::write(format!("{}/cgroup.procs", own_groups()), "0").unwrap();
    let below = guest::systemd().join("root").canonicalize().unwrap();
    run("mkdir -p /run/over /run/root");
    run("mount -t tmpfs tmpfs /run/over");
    run("mkdir /run/over/upper /run/over/work");
    let layers =
        format!("lowerdir={},upperdir=/run/over/upper,workdir=/run/over/work", below.display());
    run(&format!("mount -t overlay -o {layers} overlay {ROOT}"));
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
    // As the unit says of xdp ports.
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

/// Not root, with the unit's filter and its own.
fn is_confined(container: &Container, process: &str) {
    assert_eq!(container.tell(&format!("stat -c %U /proc/{process}")), "millrace");
    let status = container.ask("status");
    for what in ["files", "system_calls"] {
        let seen = &status["switch"]["sandbox"][what];
        // A kernel without Landlock says so.
        println!("measured: {what} under the unit: {seen}");
        assert!(seen["in_force"] == true || what == "files", "{seen}");
    }
    let filters = container.tell(&format!("grep Seccomp_filters /proc/{process}/status"));
    let count: u32 = filters.split_whitespace().last().unwrap().parse().unwrap();
    assert!(count > 2, "systemd's and its own: {filters}");
    assert!(container.unit("StatusText").contains("ports up"));
}

/// What takes no port.
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

/// Guests under load notice nothing of a restart; devices stay, with their addresses, however the daemon ends.
fn restarts(container: &Container, process: &str) -> String {
    let first = container.first().unwrap();
    for guest in ["a", "b"] {
        run(&format!("ln -s /proc/{first}/root/run/millrace/{guest}.sock /run/{guest}.sock"));
    }
    let features = Features::VERSION_1 | Features::MRG_RXBUF;
    let traffic = Traffic::start(Guests::connect(features.bits()));
    let device = container.tell("ip -n guest -o link show tap1 | cut -d : -f 1");
    let mut last = process.to_owned();
    for _ in 0..3 {
        let outage = traffic.arrivals.outage_ms(|| {
            container.tell("systemctl restart millrace");
            last = container.another(&last);
        });
        println!("measured: a guest under load, systemctl restart: {outage:.1} ms");
        container.carries();
    }
    drop(traffic.end());
    container.tell(&format!("kill -KILL {last}"));
    last = container.another(&last);
    container.carries();
    assert_eq!(container.tell("ip -n guest -o link show tap1 | cut -d : -f 1"), device);
    container.tell("millrace port show kept");
    last
}

/// A daemon that says nothing any more is replaced.
fn is_watched(container: &Container, process: &str) {
    fs::write(format!("{DROP_INS}/sooner.conf"), "[Service]\nWatchdogSec=3\n").unwrap();
    container.tell("systemctl daemon-reload && systemctl restart millrace");
    let watched = container.another(process);
    container.tell(&format!("kill -STOP {watched}"));
    container.another(&watched);
    assert!(container.journal().contains("Watchdog timeout"), "{}", container.journal());
    container.carries();
}
