//! The unit under a systemd that boots, in a container of its own: what the unit lets the daemon do, and what systemd does with it.
//!
//! Long, since it takes a root with a systemd: `scripts/systemd` makes one.

use crate::guest;
use crate::patience::until;
use crate::sandbox::{Need, run, story};
use crate::switch::millrace;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The container's root, where it can be written to: what is written goes with the story.
const ROOT: &str = "/run/root";
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging");
const FILE: &str = "/run/root/etc/millrace/millrace.toml";

/// Two ports in namespaces of their own.
const PORTS: &str = "[[port]]\nname = 'a'\ntap = 'tap-a'\nnetns = 'a'\n[[port]]\nname = 'b'\ntap = 'tap-b'\nnetns = 'b'\n";

/// A container whose first process is systemd.
struct Container {
    nspawn: Child,
    first: u32,
}

impl Container {
    /// With the unit and all that goes with it, as a package has them.
    fn boot() -> Container {
        let below = guest::systemd().join("root").canonicalize().unwrap();
        run("mkdir -p /run/over /run/root");
        run("mount -t tmpfs tmpfs /run/over");
        run("mkdir /run/over/upper /run/over/work");
        let layers =
            format!("lowerdir={},upperdir=/run/over/upper,workdir=/run/over/work", below.display());
        run(&format!("mount -t overlay -o {layers} overlay {ROOT}"));
        let program = millrace().get_program().to_owned();
        run(&format!("install -D {} {ROOT}/usr/bin/millrace", Path::new(&program).display()));
        for (file, place) in [
            ("millrace.service", "etc/systemd/system/millrace.service"),
            ("millrace.sysusers", "usr/lib/sysusers.d/millrace.conf"),
            ("millrace.tmpfiles", "usr/lib/tmpfiles.d/millrace.conf"),
        ] {
            run(&format!("install -D -m 644 {PACKAGING}/{file} {ROOT}/{place}"));
        }
        run(&format!("mkdir -p {ROOT}/etc/millrace"));
        fs::write(FILE, PORTS).unwrap();
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.args(["--quiet", "--boot", "--private-network", "--register=no", "--keep-unit"]);
        nspawn.args(["--console=pipe", "--bind=/dev/net/tun", "--capability=all", "-D", ROOT]);
        let nspawn = nspawn.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", nspawn.id());
        let first = until("the container has a first process", || {
            fs::read_to_string(&children).ok()?.split(' ').next()?.parse().ok()
        });
        let container = Container { nspawn, first };
        until("systemd has started", || {
            let state = container.try_to("systemctl is-system-running");
            (String::from_utf8_lossy(&state.stdout).trim() == "running").then_some(())
        });
        container
    }

    /// What a command line comes to inside.
    fn try_to(&self, line: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args([
            "-t",
            &self.first.to_string(),
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "sh",
            "-c",
            line,
        ]);
        command.output().unwrap()
    }

    /// What it prints; it must succeed.
    fn tell(&self, line: &str) -> String {
        let output = self.try_to(line);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {}{told}{}", output.status, self.journal());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn journal(&self) -> String {
        let journal = self.try_to("journalctl --no-pager -n 30 -u millrace").stdout;
        String::from_utf8_lossy(&journal).into_owned()
    }

    /// A property of the unit.
    fn unit(&self, property: &str) -> String {
        self.tell(&format!("systemctl show --value -p {property} millrace"))
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.tell("millrace status --json")).unwrap()
    }

    /// Waits until another daemon runs than this, with all ports up. Returns its process.
    fn another(&self, than: &str) -> String {
        until("the next daemon runs", || {
            let now = self.unit("MainPID");
            let up = self.try_to("millrace status | grep -q '2 of 2 ports up'").status.success();
            (now != than && now != "0" && up).then_some(now)
        })
    }

    /// Packets go from one port to the other, both ways, and none is lost.
    fn carries(&self) {
        let line = "ip netns exec a ping -q -i 0.005 -c 200 -s 1400 10.9.0.2";
        assert!(self.tell(line).contains(" 200 received"), "{}", self.tell(line));
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The world that it is in ends right after.
        let _ = self.nspawn.kill();
        let _ = self.nspawn.wait();
    }
}

#[test]
fn the_unit_runs_reloads_restarts_and_is_watched_under_a_systemd() {
    if std::env::var_os("MILLRACE_LONG").is_none() {
        return println!("skipped: needs MILLRACE_LONG=1, since it boots a systemd");
    }
    story(&[Need::Root, Need::Tap, Need::Program("systemd-nspawn"), Need::Systemd], || {
        let container = Container::boot();
        for host in ["a", "b"] {
            container.tell(&format!("ip netns add {host}"));
        }
        container.tell("systemctl start millrace");
        let first = container.another("");
        for (host, address) in [("a", 1), ("b", 2)] {
            let device = format!("ip -n {host} address add 10.9.0.{address}/24 dev tap-{host}");
            container.tell(&format!("{device} && ip -n {host} link set tap-{host} up"));
        }
        container.carries();
        is_confined(&container, &first);
        reloads(&container, &first);
        let second = restarts(&container, &first);
        is_watched(&container, &second);
        container.tell("systemctl stop millrace");
        assert!(!container.try_to("ip -n a link show tap-a").status.success(), "its device stays");
    });
}

/// Not root, with the unit's filter and its own.
fn is_confined(container: &Container, process: &str) {
    assert_eq!(container.tell(&format!("stat -c %U /proc/{process}")), "millrace");
    let status = container.status();
    for what in ["files", "system_calls"] {
        println!("measured: {what}: {}", status["switch"]["sandbox"][what]);
        assert_eq!(status["switch"]["sandbox"][what]["in_force"], true, "{status}");
    }
    assert!(container.unit("StatusText").starts_with("2 of 2 ports up"));
}

fn reloads(container: &Container, process: &str) {
    fs::write(FILE, format!("{PORTS}[[port]]\nname = 'c'\ntap = 'tap-c'\n")).unwrap();
    container.tell("systemctl reload millrace");
    container.tell("ip link show tap-c");
    fs::write(FILE, "[[port]]\nnonsense = 1\n").unwrap();
    assert!(
        !container.try_to("systemctl reload millrace").status.success(),
        "a file that is refused"
    );
    fs::write(FILE, PORTS).unwrap();
    container.tell("systemctl reload millrace");
    assert_eq!(container.unit("MainPID"), process);
    container.carries();
}

/// The devices stay, with their addresses, however the daemon ends.
fn restarts(container: &Container, process: &str) -> String {
    let device = container.tell("ip -n a -o link show tap-a | cut -d : -f 1");
    container.tell("systemctl restart millrace");
    let next = container.another(process);
    container.carries();
    container.tell(&format!("kill -KILL {next}"));
    let last = container.another(&next);
    container.carries();
    assert_eq!(container.tell("ip -n a -o link show tap-a | cut -d : -f 1"), device);
    last
}

/// A daemon that says nothing any more is replaced.
fn is_watched(container: &Container, process: &str) {
    container.tell("mkdir -p /run/systemd/system/millrace.service.d");
    let sooner =
        "printf '[Service]\\nWatchdogSec=3\\n' >/run/systemd/system/millrace.service.d/sooner.conf";
    container.tell(sooner);
    container.tell("systemctl daemon-reload && systemctl restart millrace");
    let watched = container.another(process);
    container.tell(&format!("kill -STOP {watched}"));
    container.another(&watched);
    assert!(container.journal().contains("Watchdog timeout"), "{}", container.journal());
    container.carries();
}
