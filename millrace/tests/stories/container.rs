//! A container that boots a systemd, for stories of the unit and of packages.
//!
//! `scripts/systemd` makes the root that is booted. It takes no systemd outside, and control groups
//! of version 2 are mounted here, in the story's own view, so a bare root will do.

use crate::guest;
use crate::heard::Heard;
use crate::sandbox::{output_of, run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use waiting::{eventually, until};

/// The container's root, where it can be written to: what is written goes with the story.
pub(crate) const ROOT: &str = "/run/root";

/// Where control groups are, all of them and those of this story.
const GROUPS: &str = "/sys/fs/cgroup";

/// A container whose first process is systemd.
pub(crate) struct Container(Child);

impl Container {
    /// Boots what is at [`ROOT`].
    pub(crate) fn boot() -> Container {
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.args(["--quiet", "--boot", "--private-network", "--register=no", "--keep-unit"]);
        // As udev makes it, whatever this host's own is: everybody may open it.
        run("mknod -m 666 /run/tun c 10 200");
        nspawn.args([
            "--console=pipe",
            "--bind=/run/tun:/dev/net/tun",
            "--capability=all",
            "-D",
            ROOT,
        ]);
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
    pub(crate) fn first(&self) -> Option<u32> {
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
    pub(crate) fn try_to(&self, line: &str) -> Output {
        let first = self.first().unwrap_or(u32::MAX).to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &first, "-m", "-u", "-i", "-n", "-p", "bash", "-c", line]);
        command.heard()
    }

    /// What it prints; it must succeed.
    pub(crate) fn tell(&self, line: &str) -> String {
        let output = self.try_to(line);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {}{told}{}", output.status, self.journal());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A program of this host, in the container's network.
    pub(crate) fn with_its_links(&self, line: &str) {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first().unwrap().to_string(), "-n"]).args(line.split(' '));
        output_of(&mut command);
    }

    /// Its root, for programs of this host.
    pub(crate) fn root(&self) -> String {
        format!("/proc/{}/root", self.first().unwrap())
    }

    /// What a program of this host comes to that runs among the container's own, with this host's
    /// files.
    pub(crate) fn try_beside(&self, line: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first().unwrap().to_string(), "-u", "-i", "-n", "-p"]);
        command.args(line.split(' ')).heard()
    }

    pub(crate) fn journal(&self) -> String {
        let journal = self.try_to("journalctl --no-pager -n 100 -u millrace").stdout;
        String::from_utf8_lossy(&journal).into_owned()
    }

    /// A property of the unit.
    pub(crate) fn unit(&self, property: &str) -> String {
        self.tell(&format!("systemctl show --value -p {property} millrace"))
    }

    pub(crate) fn ask(&self, line: &str) -> Value {
        serde_json::from_str(&self.tell(&format!("millrace {line} --json"))).unwrap()
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
        eventually(removed);
    }
}

fn own_groups() -> String {
    let namespace = fs::metadata("/proc/self/ns/mnt").unwrap().ino();
    format!("{GROUPS}/millrace-story-{namespace}")
}

/// Lays a directory in memory over the root that `scripts/systemd` has made, at [`ROOT`].
pub(crate) fn lay_out_root() {
    // In a bare root there are none.
    let _ = Command::new("umount").args(["-R", GROUPS]).stderr(Stdio::null()).status();
    run(&format!("mount -t cgroup2 cgroup2 {GROUPS}"));
    // Of a story that has just ended, whose namespace had this number, they may still be there.
    fs::create_dir_all(own_groups()).unwrap();
    fs::write(format!("{}/cgroup.procs", own_groups()), "0").unwrap();
    let below = guest::systemd().join("root").canonicalize().unwrap();
    run("mkdir -p /run/over /run/root");
    run("mount -t tmpfs tmpfs /run/over");
    run("mkdir /run/over/upper /run/over/work");
    let layers =
        format!("lowerdir={},upperdir=/run/over/upper,workdir=/run/over/work", below.display());
    run(&format!("mount -t overlay -o {layers} overlay {ROOT}"));
}
