//! A virtual machine: QEMU with the guest that `scripts/guests qemu` brings, emulated, and its monitor (QMP).

use super::place::Place;
use super::{GUEST, MAC, PORT, STREAM};
use crate::LabError;
use crate::experiments::migration::Transport;
use crate::host::Request;
use crate::interrupt::Interrupt;
use rustix::net::sockopt::socket_peercred;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An emulated kernel has booted by then, also beside much else.
const BOOT: Duration = Duration::from_secs(120);
/// A monitor answers by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// Memory that does not get along with the guest's writes for so long never will.
const MOVE: Duration = Duration::from_secs(60);
/// Bytes of the guest's memory.
const MEMORY: &str = "256M";
/// What begins the word that ends a command's output at the console: see tests/stories/guest/init.
const END: &str = "\x1e";
/// No limit of QEMU's own, in bytes a second.
const BANDWIDTH: u64 = 100 << 30;

/// Where the guest's kernel, its world and QEMU are.
#[derive(Clone, Debug)]
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn find(directory: &Path) -> Result<Files, LabError> {
        let wanted = ["vmlinuz", "initramfs", "usr/bin/qemu-system-x86_64"];
        match wanted.into_iter().find(|file| !directory.join(file).exists()) {
            Some(lacks) => Err(LabError::NoGuest { directory: directory.to_owned(), lacks }),
            None => Ok(Files(directory.canonicalize().map_err(LabError::io("finding the guest"))?)),
        }
    }

    /// A line of plain words that becomes the emulator, but for the vNIC, the console and the monitor.
    fn emulator(&self) -> String {
        let at = |path: &str| self.0.join(path).display().to_string();
        let firmware = ["usr/share/qemu", "usr/share/seabios"].map(at).map(|at| format!("-L {at}"));
        format!(
            "env LD_LIBRARY_PATH={}:{} {} -machine q35 -accel tcg,thread=multi -cpu max -nodefaults -no-user-config -display none \
             {} -kernel {} -initrd {} -append console=ttyS0 -global virtio-net-pci.romfile= -m {MEMORY} \
             -object memory-backend-memfd,id=memory,size={MEMORY},share=on -machine memory-backend=memory",
            at("lib/x86_64-linux-gnu"),
            at("usr/lib/x86_64-linux-gnu"),
            at("usr/bin/qemu-system-x86_64"),
            firmware.join(" "),
            at("vmlinuz"),
            at("initramfs"),
        )
    }
}

/// See the module. It ends with its place.
pub(super) struct Machine {
    monitor: BufReader<UnixStream>,
    /// The emulator's process.
    pub(super) process: u32,
    /// What happened while answers were waited for.
    events: Vec<Value>,
}

impl Machine {
    /// Boots the guest at a place, with an address and with what sends a stream back.
    pub(super) fn boot(
        files: &Files,
        place: &mut Place,
        interrupt: &Interrupt,
    ) -> Result<Machine, LabError> {
        let path = place.file("console");
        let console = format!("socket,id=console,path={},server=on,wait=on", path.display());
        start(files, place, &console)?;
        let mut console = connect(&path, interrupt)?;
        until(&mut console, &format!("{END}ready"), interrupt)?;
        let line = format!(
            "ip address add {GUEST}/24 dev eth0; ip link set eth0 up; \
             while :; do nc -l -p {STREAM} -e cat; done >/dev/null 2>&1 &\n"
        );
        console.write_all(line.as_bytes()).map_err(LabError::io("telling the guest"))?;
        until(&mut console, &format!("{END}0"), interrupt)?;
        Machine::reach(place, interrupt)
    }

    /// Starts a machine into which the guest may move.
    pub(super) fn wait(
        files: &Files,
        place: &mut Place,
        interrupt: &Interrupt,
    ) -> Result<Machine, LabError> {
        start(files, place, "null,id=console -incoming defer")?;
        Machine::reach(place, interrupt)
    }

    fn reach(place: &Place, interrupt: &Interrupt) -> Result<Machine, LabError> {
        let stream = connect(&place.file("qmp"), interrupt)?;
        let failed = || LabError::io("reaching QEMU's monitor");
        stream.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
        let peer = socket_peercred(&stream).map_err(|error| failed()(error.into()))?;
        let process = u32::try_from(peer.pid.as_raw_nonzero().get()).unwrap_or_default();
        let mut machine = Machine { monitor: BufReader::new(stream), process, events: Vec::new() };
        machine.read()?;
        machine.tell("qmp_capabilities", &json!({}))?;
        Ok(machine)
    }

    /// Moves the guest to a machine that waits for it. What QEMU says of it (`query-migrate`), and the seconds since 1970 of
    /// STOP here and of RESUME there.
    pub(super) fn migrate(
        &mut self,
        other: &mut Machine,
        to: &str,
        by: Transport,
        interrupt: &Interrupt,
    ) -> Result<(Value, [f64; 2]), LabError> {
        let wish = |name: &str, on: bool| json!({ "capability": name, "state": on });
        let wishes = [wish("return-path", true), wish("multifd", by.channels > 1)];
        let limits = json!({ "multifd-channels": by.channels, "max-bandwidth": BANDWIDTH });
        for (machine, command) in [(&mut *other, "migrate-incoming"), (&mut *self, "migrate")] {
            machine.tell("migrate-set-capabilities", &json!({ "capabilities": wishes }))?;
            machine.tell("migrate-set-parameters", &limits)?;
            machine.tell(command, &json!({ "uri": format!("tcp:{to}") }))?;
        }
        let done = interrupt.wait_for(MOVE, || {
            let state = self.tell("query-migrate", &json!({}))?;
            match state["status"].as_str() {
                Some("completed") => Ok(Some(state)),
                Some("failed" | "cancelled") => Err(LabError::Machine(state.to_string())),
                _ => Ok(None),
            }
        })?;
        let late = || LabError::Machine(format!("the guest has not moved in {MOVE:?}"));
        let moments = [self.when("STOP", interrupt)?, other.when("RESUME", interrupt)?];
        Ok((done.ok_or_else(late)?, moments))
    }

    /// When something happened last, in seconds since 1970.
    fn when(&mut self, event: &str, interrupt: &Interrupt) -> Result<f64, LabError> {
        let found = interrupt.wait_for(PATIENCE, || {
            self.tell("query-status", &json!({}))?;
            let last = self.events.iter().rev().find(|one| one["event"] == event);
            let number = |key: &str| last?["timestamp"][key].as_f64();
            Ok(number("seconds").zip(number("microseconds")))
        })?;
        let (seconds, us) =
            found.ok_or_else(|| LabError::Machine(format!("it never said {event}")))?;
        Ok(seconds + us / 1e6)
    }

    /// Ends it, and waits until it has ended.
    pub(super) fn quit(mut self) -> Result<(), LabError> {
        self.tell("quit", &json!({}))?;
        let mut rest = Vec::new();
        match self.monitor.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                Err(LabError::io("waiting until QEMU has ended")(error))
            }
            _ => Ok(()),
        }
    }

    /// A command of the monitor, which must succeed; its answer.
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

/// Starts QEMU in a place, with a console and a vNIC at the place's port.
fn start(files: &Files, place: &mut Place, console: &str) -> Result<(), LabError> {
    let [socket, monitor] = ["vm", "qmp"].map(|name| place.file(name).display().to_string());
    let line = format!(
        "{} -chardev {console} -serial chardev:console -qmp unix:{monitor},server=on,wait=off \
         -chardev socket,id={PORT}-socket,path={socket},reconnect=1 \
         -netdev vhost-user,id={PORT}-net,chardev={PORT}-socket \
         -device virtio-net-pci,id={PORT},netdev={PORT}-net,rx_queue_size=1024,tx_queue_size=1024,mac={MAC}",
        files.emulator()
    );
    let mut words = line.split_ascii_whitespace().map(str::to_owned);
    let program = words.next().unwrap_or_default();
    place.host.order(&Request::Start { program, arguments: words.collect() }, &line)
}

/// A socket of a machine that has just been started.
fn connect(path: &Path, interrupt: &Interrupt) -> Result<UnixStream, LabError> {
    let connected = interrupt.wait_for(PATIENCE, || Ok(UnixStream::connect(path).ok()))?;
    connected.ok_or_else(|| {
        LabError::Machine(format!(
            "it does not listen at {}: QEMU may not run here",
            path.display()
        ))
    })
}

/// Reads a console until these words come.
fn until(console: &mut UnixStream, words: &str, interrupt: &Interrupt) -> Result<(), LabError> {
    console.set_nonblocking(true).map_err(LabError::io("reading the guest's console"))?;
    let (mut said, mut bytes) = (String::new(), [0; 4096]);
    let found = interrupt.wait_for(BOOT, || match console.read(&mut bytes) {
        Ok(0) => Err(LabError::Machine(format!("it has ended; its console: {said}"))),
        Ok(count) => {
            said += &String::from_utf8_lossy(bytes.get(..count).unwrap_or_default());
            Ok(said.contains(words).then_some(()))
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(LabError::io("reading the guest's console")(error)),
    })?;
    found.ok_or_else(|| LabError::Machine(format!("it does not boot; its console: {said}")))
}
