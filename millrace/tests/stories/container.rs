//! A container that boots a systemd, for stories of the unit and of packages.
//!
//! `scripts/systemd` makes the root that is booted. The host needs no systemd. Control groups of
//! version 2 are mounted here, in the story's own view, so a bare root is enough.

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

/// The container's root, as a writable layer: what is written ends with the story.
pub(crate) const ROOT: &str = "/run/root";

/// The control groups' mount point.
const GROUPS: &str = "/sys/fs/cgroup";

/// A container that boots a systemd as its first process.
pub(crate) struct Container(Child);

impl Container {
    /// Boots the root at [`ROOT`].
    pub(crate) fn boot() -> Container {
        let mut nspawn = Command::new("systemd-nspawn");
        nspawn.args(["--quiet", "--boot", "--private-network", "--register=no", "--keep-unit"]);
        // The device file has the mode that udev gives it, whatever this host's own has: all users
        // may open it.
        run("mknod -m 666 /run/tun c 10 200");
        nspawn.args([
            "--console=pipe",
            "--bind=/run/tun:/dev/net/tun",
            "--capability=all",
            "-D",
            ROOT,
        ]);
        // nspawn must not refuse calls that the unit lets the daemon make.
        let calls = "bpf seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self userfaultfd";
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

    /// Returns the container's systemd. nspawn may start it through another process.
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

    /// Runs a command line inside. Returns its output, also if it fails.
    pub(crate) fn try_to(&self, line: &str) -> Output {
        let first = self.first().unwrap_or(u32::MAX).to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &first, "-m", "-u", "-i", "-n", "-p", "bash", "-c", line]);
        command.heard()
    }

    /// Runs a command line inside, which must succeed. Returns what it printed.
    pub(crate) fn tell(&self, line: &str) -> String {
        let output = self.try_to(line);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {}{told}{}", output.status, self.journal());
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Runs a program of this host in the container's network.
    pub(crate) fn with_its_links(&self, line: &str) {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first().unwrap().to_string(), "-n"]).args(line.split(' '));
        output_of(&mut command);
    }

    /// Returns the container's root, for programs of this host.
    pub(crate) fn root(&self) -> String {
        format!("/proc/{}/root", self.first().unwrap())
    }

    /// Runs a program of this host among the container's processes, with this host's files. Returns
    /// its output.
    pub(crate) fn try_beside(&self, line: &str) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["-t", &self.first().unwrap().to_string(), "-u", "-i", "-n", "-p"]);
        command.args(line.split(' ')).heard()
    }

    pub(crate) fn journal(&self) -> String {
        let journal = self.try_to("journalctl --no-pager -n 100 -u millrace").stdout;
        String::from_utf8_lossy(&journal).into_owned()
    }

    /// Returns a property of the unit.
    pub(crate) fn unit(&self, property: &str) -> String {
        self.tell(&format!("systemctl show --value -p {property} millrace"))
    }

    pub(crate) fn ask(&self, line: &str) -> Value {
        serde_json::from_str(&self.tell(&format!("millrace {line} --json"))).unwrap()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Killing the first process ends nspawn and everything that it has started.
        let first = self.first().and_then(|process| Pid::from_raw(process.try_into().ok()?));
        let _ = first.map(|process| kill_process(process, Signal::KILL));
        let _ = self.0.wait();
        // Control groups are the host's, unlike everything else that a story makes.
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

/// Mounts a directory in memory over the root that `scripts/systemd` has made, at [`ROOT`].
pub(crate) fn lay_out_root() {
    // A bare root has no control groups.
    let _ = Command::new("umount").args(["-R", GROUPS]).stderr(Stdio::null()).status();
    run(&format!("mount -t cgroup2 cgroup2 {GROUPS}"));
    // The groups may be left from a story that has just ended, if its namespace had this number.
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
