//! QEMU: an emulated machine, connected with the options that `millrace port show --qemu` prints.

use crate::guest::{Guest, directory, libraries};
use crate::sandbox::output_of;
use crate::switch::millrace;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use waiting::until;

/// A QEMU guest and the connection to its monitor (QMP).
pub(crate) struct Machine {
    pub(crate) guest: Guest,
    monitor: BufReader<UnixStream>,
    /// Events that came while waiting for answers.
    events: Vec<Value>,
}

impl Machine {
    /// Boots a machine with a vNIC at each of these ports, and room for one more.
    pub(crate) fn boot(name: &str, ports: &[&str]) -> Machine {
        Machine::boot_wide(name, ports, 1)
    }

    /// Boots a machine as [`boot`](Machine::boot) does, with this number of processors.
    pub(crate) fn boot_wide(name: &str, ports: &[&str], processors: u8) -> Machine {
        let world = directory("qemu").canonicalize().unwrap().join("initramfs");
        let mut command = qemu();
        command.arg("-initrd").arg(world).args(["-smp", &processors.to_string()]);
        Machine::start(name, ports, command)
    }

    /// Boots a machine with another initramfs.
    pub(crate) fn boot_with(name: &str, ports: &[&str], world: &Path) -> Machine {
        let mut command = qemu();
        command.arg("-initrd").arg(world);
        Machine::start(name, ports, command)
    }

    fn start(name: &str, ports: &[&str], mut command: Command) -> Machine {
        let mut once = Vec::new();
        for port in ports {
            // Options that a guest has once come with its first vNIC.
            for option in options_of(port) {
                if !once.contains(&option) {
                    once.push(option);
                }
            }
        }
        Machine::start_with(name, &once, &mut command)
    }

    /// Boots a machine with these options of its vNICs, or one that waits for an incoming
    /// migration.
    fn start_with(name: &str, options: &[String], command: &mut Command) -> Machine {
        let monitor = format!("/run/{name}.qmp");
        command.args(["-m", "256M", "-qmp", &format!("unix:{monitor},server=on,wait=off")]);
        command.args(["-device", "pcie-root-port,id=spare,chassis=1,slot=1"]);
        options.iter().for_each(|option| {
            command.args(option.split(' '));
        });
        let waits = command.get_args().any(|argument| argument == "-incoming");
        let guest = if waits { Guest::spawn(name, command) } else { Guest::boot(name, command) };
        Machine { guest, monitor: connect(&monitor), events: Vec::new() }
    }

    /// Boots a machine that can move, with a vNIC of these options. With `waits` it waits for an
    /// incoming migration.
    pub(crate) fn boot_movable(name: &str, options: &[String], waits: bool) -> Machine {
        let world = directory("qemu").canonicalize().unwrap().join("initramfs");
        let mut command = qemu();
        command.arg("-initrd").arg(world);
        if waits {
            command.args(["-incoming", "defer"]);
        }
        Machine::start_with(name, options, &mut command)
    }

    /// Moves the guest to a machine that waits for it. Returns the downtime that QEMU reports, in
    /// milliseconds.
    pub(crate) fn migrate_to(&mut self, other: &mut Machine) -> u64 {
        let wish = json!({"capabilities": [{"capability": "return-path", "state": true}]});
        let way = json!({"uri": "unix:/run/migration"});
        for (machine, command) in [(other, "migrate-incoming"), (&mut *self, "migrate")] {
            machine.tell("migrate-set-capabilities", &wish);
            machine.tell(command, &way);
        }
        let done = until("the guest has moved", || {
            let state = self.tell("query-migrate", &json!({}));
            assert_ne!(state["status"], "failed", "{state}");
            (state["status"] == "completed").then_some(state)
        });
        done["downtime"].as_u64().unwrap()
    }

    /// Moves the guest to a machine that waits for it, before most of its memory. Calls `meanwhile`
    /// once it runs there and its memory follows. Returns the downtime that QEMU reports, in
    /// milliseconds.
    pub(crate) fn follow_to(&mut self, other: &mut Machine, meanwhile: impl FnOnce()) -> u64 {
        let on = |capability| json!({"capability": capability, "state": true});
        let wish = json!({"capabilities": [on("return-path"), on("postcopy-ram")]});
        let way = json!({"uri": "unix:/run/migration"});
        // Slow enough that it takes seconds, also for the few pages of such a guest.
        let pace = json!({"max-bandwidth": 4 << 20, "max-postcopy-bandwidth": 16 << 20});
        for machine in [&mut *other, &mut *self] {
            machine.tell("migrate-set-capabilities", &wish);
        }
        self.tell("migrate-set-parameters", &pace);
        other.tell("migrate-incoming", &way);
        self.tell("migrate", &way);
        self.await_migration("active");
        self.tell("migrate-start-postcopy", &json!({}));
        self.await_migration("postcopy-active");
        meanwhile();
        self.await_migration("completed")["downtime"].as_u64().unwrap()
    }

    /// Waits until the migration is in this state. Returns what QEMU says of it.
    fn await_migration(&mut self, wanted: &str) -> Value {
        until(wanted, || {
            let state = self.tell("query-migrate", &json!({}));
            assert_ne!(state["status"], "failed", "{state}");
            (state["status"] == wanted).then_some(state)
        })
    }

    /// Adds a port's vNIC to the running machine, by the lines that `millrace port show` prints.
    pub(crate) fn plug(&mut self, port: &str) {
        for line in lines_of(port, "# By QMP, to add") {
            self.tell_line(&line);
        }
    }

    /// Removes a port's vNIC by the lines that `millrace port show` prints, once the guest has let
    /// go of it.
    pub(crate) fn unplug(&mut self, port: &str) {
        for line in lines_of(port, "# By QMP, to remove") {
            self.tell_line(&line);
            if line.contains("device_del") {
                self.wait_for_release(port);
            }
        }
    }

    /// Adds and removes a port's vNIC as [`plug`](Machine::plug) does, by the lines for the monitor
    /// that people type in.
    pub(crate) fn plug_as_typed(&mut self, port: &str) {
        for line in lines_of(port, "# In QEMU's monitor, to add") {
            self.type_line(&line);
        }
    }

    /// Removes a port's vNIC as [`unplug`](Machine::unplug) does, by the lines for the monitor.
    pub(crate) fn unplug_as_typed(&mut self, port: &str) {
        for line in lines_of(port, "# In QEMU's monitor, to remove") {
            self.type_line(&line);
            if line.starts_with("device_del") {
                self.wait_for_release(port);
            }
        }
    }

    fn wait_for_release(&mut self, id: &str) {
        until("the guest lets go of the vNIC", || {
            self.tell("query-status", &json!({}));
            let gone =
                |event: &Value| event["event"] == "DEVICE_DELETED" && event["data"]["device"] == id;
            let place = self.events.iter().position(gone)?;
            self.events.remove(place);
            Some(())
        });
    }

    /// Types a line into the monitor, which prints an error if the command fails, or warnings.
    fn type_line(&mut self, line: &str) {
        let printed = self.tell("human-monitor-command", &json!({ "command-line": line }));
        let fails = printed.as_str().is_none_or(|text| text.contains("Error"));
        assert!(!fails, "{line}: {printed}");
    }

    /// Sends a line of QMP, which must succeed.
    fn tell_line(&mut self, line: &str) {
        let wish: Value = serde_json::from_str(line).unwrap();
        self.tell(wish["execute"].as_str().unwrap(), &wish["arguments"]);
    }

    /// Runs a command of the monitor, which must succeed. Returns its answer.
    fn tell(&mut self, command: &str, arguments: &Value) -> Value {
        let wish = json!({"execute": command, "arguments": arguments});
        self.monitor.get_mut().write_all(format!("{wish}\n").as_bytes()).unwrap();
        loop {
            let answer = read(&mut self.monitor);
            if answer.get("event").is_some() {
                self.events.push(answer);
            } else {
                return answer.get("return").unwrap_or_else(|| panic!("{wish}: {answer}")).clone();
            }
        }
    }
}

/// Returns the emulator with the guest's kernel, and its console at standard input and output as
/// the only device.
fn qemu() -> Command {
    let directory = directory("qemu").canonicalize().unwrap();
    let place = |path: &str| directory.join(path).display().to_string();
    let mut command = complete();
    // With a thread for each processor, QEMU sometimes aborts while a guest with several boots (its
    // issue 1921).
    command.args(["-machine", "q35", "-accel", "tcg,thread=single", "-cpu", "max"]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
    command.args(["-kernel", &place("vmlinuz")]);
    command.args(["-append", "console=ttyS0 quiet"]);
    command.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    command
}

/// Returns the emulator with its firmware, except what the system has.
fn complete() -> Command {
    let directory = directory("qemu").canonicalize().unwrap();
    let mut command = emulator();
    for firmware in ["usr/share/qemu", "usr/share/seabios"] {
        let firmware = directory.join(firmware);
        if firmware.exists() {
            command.arg("-L").arg(firmware);
        }
    }
    command.args(["-global", "virtio-net-pci.romfile="]);
    if old() {
        // An old QEMU crashes with a vhost-user vNIC that has interrupt vectors.
        command.args(["-global", "virtio-net-pci.vectors=0"]);
    }
    command
}

/// Puts into a directory the files that the reader of a tutorial has: the guest's files, and the
/// emulator by its name in `bin`.
pub(crate) fn lay_out(at: &Path) {
    let directory = directory("qemu").canonicalize().unwrap();
    fs::create_dir_all(at.join("bin")).unwrap();
    for file in ["vmlinuz", "initramfs"] {
        symlink(directory.join(file), at.join(file)).unwrap();
    }
    let emulator = complete();
    let words = std::iter::once(emulator.get_program()).chain(emulator.get_args());
    let words: Vec<_> = words.map(|word| format!("'{}'", word.display())).collect();
    let set = emulator.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let set: Vec<_> =
        set.map(|(name, value)| format!("{}='{}'", name.display(), value.display())).collect();
    let script = format!("#!/bin/sh\nexec env {} {} \"$@\"\n", set.join(" "), words.join(" "));
    let program = at.join("bin/qemu-system-x86_64");
    fs::write(&program, script).unwrap();
    fs::set_permissions(program, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Returns the emulator that `cargo xtask guests` brought, with its libraries.
fn emulator() -> Command {
    let directory = directory("qemu").canonicalize().unwrap();
    let mut command = Command::new(directory.join("usr/bin/qemu-system-x86_64"));
    command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries("qemu")).unwrap());
    command
}

/// Returns whether QEMU is older than 8: some of its hot plug does not work reliably.
pub(crate) fn old() -> bool {
    let text = output_of(emulator().arg("--version"));
    let version = text.split_once("version ").unwrap().1;
    version.split('.').next().unwrap().parse::<u32>().unwrap() < 8
}

/// Returns the options that `millrace port show --qemu` prints, one with its value a line, with the
/// memory size of these machines.
fn options_of(port: &str) -> Vec<String> {
    options_as(&output_of(millrace().args(["port", "show", port, "--qemu"])))
}

/// Returns the lines below a heading of `millrace port show --qemu-monitor`, which begins so.
fn lines_of(port: &str, heading: &str) -> Vec<String> {
    let words = ["port", "show", port, "--qemu-monitor", "--bus", "spare"];
    let text = output_of(millrace().args(words));
    let from = text.lines().skip_while(|line| !line.starts_with(heading));
    let from = from.skip_while(|line| line.starts_with('#'));
    from.take_while(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// Returns the options in the output of `millrace port show --qemu`.
pub(crate) fn options_as(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| line.starts_with('-'));
    lines.map(|line| line.replace("size=1G", "size=256M")).collect()
}

/// Connects to a monitor, and waits until it takes commands.
fn connect(path: &str) -> BufReader<UnixStream> {
    let stream = until("the monitor listens", || UnixStream::connect(path).ok());
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut monitor = BufReader::new(stream);
    read(&mut monitor);
    monitor.get_mut().write_all(b"{\"execute\": \"qmp_capabilities\"}\n").unwrap();
    read(&mut monitor);
    monitor
}

fn read(monitor: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    monitor.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}
