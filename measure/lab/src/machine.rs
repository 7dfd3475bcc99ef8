//! A virtual machine with one vNIC and a monitor (QMP). The migration experiment moves it, and RSC
//! is measured toward it.

use crate::LabError;
use crate::guest::{Console, Files, connect, vnic};
use crate::host::Host;
use crate::interrupt::Interrupt;
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Time within which the monitor must answer.
const MONITOR_TIMEOUT: Duration = Duration::from_secs(30);
/// Time within which a migration must end; memory that has not converged by then never will.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(60);
/// MAC address of its vNIC.
pub(crate) const MAC: &str = "52:54:00:00:00:01";
/// Migration bandwidth in bytes per second, so high that QEMU does not limit it.
const BANDWIDTH: u64 = 100 << 30;

/// A running virtual machine. It ends with its host.
pub(crate) struct VirtualMachine {
    monitor: BufReader<UnixStream>,
    /// The emulator's process.
    pub(crate) process: u32,
    /// Events that the monitor sent so far.
    events: Vec<Value>,
}

impl VirtualMachine {
    /// Boots the guest, and runs a line in its shell. Its sockets are at the given path with
    /// extensions of their own; `vm` is the port's.
    pub(crate) fn boot(
        files: &Files,
        (host, path): (&mut Host, &Path),
        line: &str,
        interrupt: &Interrupt,
    ) -> Result<VirtualMachine, LabError> {
        let console = path.with_extension("console");
        start(files, (&mut *host, path), &Console::device(&console), "")?;
        Console::open(&console, interrupt)?.run(line)?;
        VirtualMachine::reach(path, interrupt)
    }

    /// Starts a machine that waits for an incoming migration.
    pub(crate) fn wait(
        files: &Files,
        (host, path): (&mut Host, &Path),
        interrupt: &Interrupt,
    ) -> Result<VirtualMachine, LabError> {
        start(files, (host, path), "null,id=console", " -incoming defer")?;
        VirtualMachine::reach(path, interrupt)
    }

    fn reach(path: &Path, interrupt: &Interrupt) -> Result<VirtualMachine, LabError> {
        let stream = connect(&path.with_extension("qmp"), interrupt)?;
        let failed = || LabError::io("reaching QEMU's monitor");
        stream.set_read_timeout(Some(MONITOR_TIMEOUT)).map_err(failed())?;
        let peer = socket_peercred(&stream).map_err(|error| failed()(error.into()))?;
        let process = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default();
        let mut machine =
            VirtualMachine { monitor: BufReader::new(stream), process, events: Vec::new() };
        machine.read()?;
        machine.tell("qmp_capabilities", &json!({}))?;
        Ok(machine)
    }

    /// Moves the guest to a machine that waits for it. Returns QEMU's figures (`query-migrate`),
    /// and the times of STOP at the source and of RESUME at the destination, in seconds since 1970.
    pub(crate) fn migrate(
        &mut self,
        other: &mut VirtualMachine,
        to: &str,
        channels: u8,
        interrupt: &Interrupt,
    ) -> Result<(Value, [f64; 2]), LabError> {
        let wish = |name: &str, on: bool| json!({ "capability": name, "state": on });
        let wishes = [wish("return-path", true), wish("multifd", channels > 1)];
        let limits = json!({ "multifd-channels": channels, "max-bandwidth": BANDWIDTH });
        for (machine, command) in [(&mut *other, "migrate-incoming"), (&mut *self, "migrate")] {
            machine.tell("migrate-set-capabilities", &json!({ "capabilities": wishes }))?;
            machine.tell("migrate-set-parameters", &limits)?;
            machine.tell(command, &json!({ "uri": format!("tcp:{to}") }))?;
        }
        let done = interrupt.wait_for(MIGRATION_TIMEOUT, || {
            let state = self.tell("query-migrate", &json!({}))?;
            match state["status"].as_str() {
                Some("completed") => Ok(Some(state)),
                Some("failed" | "cancelled") => Err(LabError::Machine(state.to_string())),
                _ => Ok(None),
            }
        })?;
        let late =
            || LabError::Machine(format!("the migration did not end within {MIGRATION_TIMEOUT:?}"));
        let moments = [self.when("STOP", interrupt)?, other.when("RESUME", interrupt)?];
        Ok((done.ok_or_else(late)?, moments))
    }

    /// Waits for an event, and returns the time of its last occurrence in seconds since 1970.
    fn when(&mut self, event: &str, interrupt: &Interrupt) -> Result<f64, LabError> {
        let found = interrupt.wait_for(MONITOR_TIMEOUT, || {
            self.tell("query-status", &json!({}))?;
            let last = self.events.iter().rev().find(|one| one["event"] == event);
            let number = |key: &str| last?["timestamp"][key].as_f64();
            Ok(number("seconds").zip(number("microseconds")))
        })?;
        let (seconds, us) =
            found.ok_or_else(|| LabError::Machine(format!("it did not report {event}")))?;
        Ok(seconds + us / 1e6)
    }

    /// Ends the machine, and waits until it has ended.
    pub(crate) fn quit(mut self) -> Result<(), LabError> {
        self.tell("quit", &json!({}))?;
        let mut rest = Vec::new();
        match self.monitor.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                Err(LabError::io("waiting until QEMU has ended")(error))
            }
            _ => Ok(()),
        }
    }

    /// Runs a command of the monitor, which must succeed, and returns its answer.
    fn tell(&mut self, command: &str, arguments: &Value) -> Result<Value, LabError> {
        let wish = json!({ "execute": command, "arguments": arguments });
        let told = self.monitor.get_mut().write_all(format!("{wish}\n").as_bytes());
        told.map_err(LabError::io("telling QEMU"))?;
        loop {
            let mut answer = self.read()?;
            if answer.get("event").is_some() {
                self.events.push(answer);
            } else if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            } else {
                return Err(LabError::Machine(format!("{command}: {answer}")));
            }
        }
    }

    fn read(&mut self) -> Result<Value, LabError> {
        let mut line = String::new();
        self.monitor.read_line(&mut line).map_err(LabError::io("reading QEMU's monitor"))?;
        let bad = |_| LabError::Machine(format!("it said {line:?} where JSON was wanted"));
        serde_json::from_str(&line).map_err(bad)
    }
}

/// Starts QEMU, with a console and a vNIC at the port's socket.
fn start(
    files: &Files,
    (host, path): (&mut Host, &Path),
    console: &str,
    more: &str,
) -> Result<(), LabError> {
    let monitor = format!("-qmp unix:{},server=on,wait=off", path.with_extension("qmp").display());
    let vnic = vnic("vm", &path.with_extension("vm"), MAC, 1);
    files.start(host, console, &format!("{monitor} {vnic}{more}"))
}
