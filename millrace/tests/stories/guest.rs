//! A guest: a Linux kernel as a process of this story, which gets its commands over its console.
//!
//! Its process 1 is `guest/init`, which reads commands, one line each. After a command's output it
//! prints the byte 0x1e and the exit code. `uml` and `qemu` start guests; `cargo xtask guests`
//! brings the files for them.

use crate::sandbox::GUESTS;
use crate::shell::Shell;
use std::collections::BTreeSet;
use std::env;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Ends the output of a command.
const END: char = '\x1e';
/// Longest time for a guest to boot, or for one command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the directory in which `cargo xtask guests` put a kind of guest.
pub(crate) fn directory(kind: &str) -> PathBuf {
    env::var_os(GUESTS)
        .map_or_else(
            || PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/../guests")),
            PathBuf::from,
        )
        .join(kind)
}

/// Returns the directory in which `scripts/systemd` put a root that boots.
pub(crate) fn systemd() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/../systemd"))
}

/// Returns the directories of the libraries of the guest's programs. Debian's packages use both
/// directories, and only a merged system makes them one.
pub(crate) fn libraries(kind: &str) -> [PathBuf; 2] {
    ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"]
        .map(|folder| directory(kind).canonicalize().unwrap().join(folder))
}

/// A guest with a process 1 that listens to its console.
pub(crate) struct Guest {
    name: String,
    child: Child,
    input: ChildStdin,
    output: Receiver<Vec<u8>>,
    /// Output that came and was not read yet.
    pending: String,
}

impl Guest {
    /// Starts a guest with its console at standard input and output, and waits until it is ready.
    pub(crate) fn boot(name: &str, command: &mut Command) -> Guest {
        let mut guest = Guest::spawn(name, command);
        guest.wait_until_ready();
        guest
    }

    /// Starts a guest without waiting: it boots later, or not at all.
    pub(crate) fn spawn(name: &str, command: &mut Command) -> Guest {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (sender, output) = channel();
        let console = child.stdout.take().unwrap();
        thread::spawn(move || pass_on(console, &sender));
        let input = child.stdin.take().unwrap();
        let name = name.to_owned();
        Guest { name, child, input, output, pending: String::new() }
    }

    /// Reboots the guest from within and waits until it is ready.
    pub(crate) fn reboot(&mut self) {
        self.write("reboot -f");
        self.wait_until_ready();
    }

    /// Ends the guest as a power cut does.
    pub(crate) fn kill(mut self) {
        self.cut();
    }

    /// Assigns both addresses to a device, `10.9.0.N` and `fd09::N`, and brings it up.
    pub(crate) fn assign_addresses(&mut self, device: &str, number: u8) {
        self.run(&format!("ip address add 10.9.0.{number}/24 dev {device}"));
        self.run(&format!("ip address add fd09::{number}/64 dev {device}"));
        self.run(&format!("ip link set {device} up"));
    }

    /// Runs a command. Returns its exit code and what it printed.
    pub(crate) fn attempt(&mut self, line: &str) -> (i32, String) {
        self.write(line);
        let (printed, code) = self.read_to_end(line);
        (code.parse().unwrap_or(-1), printed)
    }

    fn wait_until_ready(&mut self) {
        while self.read_to_end("boot").1 != "ready" {}
    }

    fn write(&mut self, line: &str) {
        let sent = self.input.write_all(format!("{line}\n").as_bytes());
        sent.unwrap_or_else(|error| panic!("guest {}: {line}: {error}", self.name));
    }

    /// Returns what was printed until a command ended, and the line of its exit code.
    fn read_to_end(&mut self, doing: &str) -> (String, String) {
        let start = Instant::now();
        loop {
            if let Some((printed, rest)) = self.pending.split_once(END)
                && let Some((word, rest)) = rest.split_once('\n')
            {
                let result = (printed.replace('\r', ""), word.trim().to_owned());
                self.pending = rest.to_owned();
                return result;
            }
            let left = COMMAND_TIMEOUT.saturating_sub(start.elapsed());
            match self.output.recv_timeout(left) {
                Ok(bytes) => self.pending += &String::from_utf8_lossy(&bytes),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("guest {}: {doing}: no end to it: {}", self.name, self.pending)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("guest {}: {doing}: it has ended: {}", self.name, self.pending)
                }
            }
        }
    }

    /// Returns the sockets that the guest's process has.
    pub(crate) fn sockets(&self) -> BTreeSet<PathBuf> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).collect()
    }

    fn cut(&mut self) {
        // The guest may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Shell for Guest {
    fn run(&mut self, line: &str) -> String {
        let (code, printed) = self.attempt(line);
        assert_eq!(code, 0, "guest {}: {line}: {printed}", self.name);
        printed
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Passes on the console's output, until the console is closed or the listener is gone.
fn pass_on(mut console: ChildStdout, listener: &Sender<Vec<u8>>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = console.read(&mut bytes) {
        if listener.send(bytes[..count].to_vec()).is_err() {
            return;
        }
    }
}
