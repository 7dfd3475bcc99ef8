//! A virtual machine as a guest: QEMU with the kernel and the archives that `cargo xtask guests
//! qemu` downloads, and the console through which the lab gives it commands. It is always emulated:
//! some machines let a process open /dev/kvm but boot no guest with it, as inside other virtual
//! machines.

use crate::LabError;
use crate::host::{Host, Request};
use crate::interrupt::Interrupt;
use crate::shell::word;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timeout of the guest's boot, and of a command, on a loaded machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(120);
/// Timeout of QEMU's start.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Size of the guest's memory.
const MEMORY: &str = "256M";
/// Size of the guest's memory if the archive contains this program.
const MORE_MEMORY: &str = "1G";
/// Character before the word that ends a command's output on the console; see
/// millrace/tests/stories/guest/init.
const END: char = '\x1e';

/// Paths of the guest's kernel, of its archive and of QEMU.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    directory: PathBuf,
    /// The archive that the guest boots with.
    world: PathBuf,
    memory: &'static str,
}

impl Files {
    /// Finds the files in a directory; the guest boots with the archive `world`.
    ///
    /// # Errors
    /// A file is missing: the error names it.
    pub(crate) fn find(directory: &Path, world: &'static str) -> Result<Files, LabError> {
        let wanted = ["vmlinuz", world, "busybox", "usr/bin/qemu-system-x86_64"];
        if let Some(lacks) = wanted.into_iter().find(|file| !directory.join(file).exists()) {
            return Err(LabError::NoGuest { directory: directory.to_owned(), lacks });
        }
        let directory = directory.canonicalize().map_err(LabError::io("finding the guest"))?;
        Ok(Files { world: directory.join(world), directory, memory: MEMORY })
    }

    /// Returns files whose archive also has a program of this machine as `millrace`, and its
    /// libraries.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub(crate) fn with_program(
        self,
        program: &Path,
        host: &mut Host,
        directory: &Path,
    ) -> Result<Files, LabError> {
        let world = directory.join("world.cpio");
        let (parts, busybox) = (directory.join("world"), self.directory.join("busybox"));
        let [program, parts, old, new, busybox] = [program, &parts, &self.world, &world, &busybox]
            .map(|path| word(&path.display().to_string()));
        // The kernel unpacks concatenated archives in turn. Debug information is stripped because
        // it takes memory.
        host.shell(&format!(
            "mkdir -p {parts}/bin {parts}/lib64 && cd {parts} && \
             {{ strip -o bin/millrace {program} 2>/dev/null || cp {program} bin/millrace; }} && \
             ldd {program} | grep -o '/[^ ]*' | xargs -r cp -L -t lib64 && \
             cp {old} {new} && find . | {busybox} cpio -o -H newc -R 0:0 >>{new}"
        ))?;
        Ok(Files { world, memory: MORE_MEMORY, ..self })
    }

    /// Returns the start of a command that runs a program of the directory with its libraries.
    pub(crate) fn program(&self, name: &str) -> String {
        let [one, other, program] =
            ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", &format!("usr/bin/{name}")]
                .map(|path| self.at(path));
        format!("env LD_LIBRARY_PATH={one}:{other} {program}")
    }

    /// Returns QEMU's command line without the vNICs, the console and the monitor.
    fn emulator(&self) -> String {
        let (world, memory) = (self.world.display(), self.memory);
        let firmware = ["qemu", "seabios"].map(|name| self.at(&format!("usr/share/{name}")));
        format!(
            "{} -machine q35 -accel tcg,thread=multi -cpu max -nodefaults -no-user-config -display none \
             -L {} -kernel {} -initrd {world} -append console=ttyS0 -global virtio-net-pci.romfile= -m {memory} \
             -object memory-backend-memfd,id=memory,size={memory},share=on -machine memory-backend=memory",
            self.program("qemu-system-x86_64"),
            firmware.join(" -L "),
            self.at("vmlinuz"),
        )
    }

    fn at(&self, path: &str) -> String {
        self.directory.join(path).display().to_string()
    }

    /// Starts QEMU on a host, with a character device `console` and with further options.
    pub(crate) fn start(&self, host: &mut Host, console: &str, more: &str) -> Result<(), LabError> {
        let line = format!("{} -chardev {console} -serial chardev:console {more}", self.emulator());
        start(host, &line)
    }
}

/// Starts a command, split at spaces, on a host; it runs until the host ends.
pub(crate) fn start(host: &mut Host, line: &str) -> Result<(), LabError> {
    let mut words = line.split_ascii_whitespace().map(str::to_owned);
    let program = words.next().unwrap_or_default();
    host.order(&Request::Start { program, arguments: words.collect() }, line)
}

/// Returns QEMU's options for a vNIC at a port's socket, with at most `pairs` queue pairs.
pub(crate) fn vnic(port: &str, socket: &Path, mac: &str, pairs: u16) -> String {
    // One interrupt vector for each queue, for configuration changes and for the control queue.
    let (several, vectors) = (if pairs > 1 { "on" } else { "off" }, 2 * pairs + 2);
    format!(
        "-chardev socket,id={port}-socket,path={},reconnect=1 \
         -netdev vhost-user,id={port}-net,chardev={port}-socket,queues={pairs} \
         -device virtio-net-pci,id={port},netdev={port}-net,mq={several},vectors={vectors},rx_queue_size=1024,\
         tx_queue_size=1024,mac={mac}",
        socket.display()
    )
}

/// Connects to a socket of a QEMU that has just been started.
///
/// # Errors
/// QEMU does not listen in time, or the interrupt is set.
pub(crate) fn connect(path: &Path, interrupt: &Interrupt) -> Result<UnixStream, LabError> {
    let connected = interrupt.wait_for(START_TIMEOUT, || Ok(UnixStream::connect(path).ok()))?;
    let deaf = || LabError::Machine(format!("QEMU does not listen at {}", path.display()));
    connected.ok_or_else(deaf)
}

/// The console of a booted guest, which runs each line as a command.
pub(crate) struct Console {
    stream: UnixStream,
    pub(crate) interrupt: Interrupt,
}

impl Console {
    /// Returns QEMU's `chardev` option for a console; QEMU waits until [`Console::open`] connects
    /// to it.
    pub(crate) fn device(path: &Path) -> String {
        format!("socket,id=console,path={},server=on,wait=on", path.display())
    }

    /// Connects to the console, and waits until the guest has booted.
    ///
    /// # Errors
    /// The guest does not boot in time, or the interrupt is set.
    pub(crate) fn open(path: &Path, interrupt: &Interrupt) -> Result<Console, LabError> {
        let (stream, interrupt) = (connect(path, interrupt)?, interrupt.clone());
        stream.set_nonblocking(true).map_err(LabError::io("reading the guest's console"))?;
        let mut console = Console { stream, interrupt };
        console.until("ready").map(|_| console)
    }

    /// Runs a command that must succeed, and returns its output.
    ///
    /// # Errors
    /// The command fails or does not end in time, QEMU ends, or the interrupt is set.
    pub(crate) fn run(&mut self, line: &str) -> Result<String, LabError> {
        self.tell(line)?;
        self.until("0")
    }

    /// Starts a command; [`Console::until`] waits for its end.
    ///
    /// # Errors
    /// The console is closed.
    pub(crate) fn tell(&mut self, line: &str) -> Result<(), LabError> {
        let told = self.stream.write_all(format!("{line}\n").as_bytes());
        told.map_err(LabError::io("telling the guest"))
    }

    /// Waits until a command ends, which must be with this word, and returns its output.
    ///
    /// # Errors
    /// It ends with another word or not in time, QEMU ends, or the interrupt is set.
    pub(crate) fn until(&mut self, word: &str) -> Result<String, LabError> {
        let (mut said, mut bytes) = (String::new(), [0; 4096]);
        let ended = self.interrupt.wait_for(BOOT_TIMEOUT, || {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    return Err(LabError::Machine(format!("it ended; its console: {said}")));
                }
                Ok(count) => {
                    said += &String::from_utf8_lossy(bytes.get(..count).unwrap_or_default())
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(LabError::io("reading the guest's console")(error)),
            }
            let (text, end) = said.split_once(END).unwrap_or_default();
            Ok(end.split_once('\n').map(|(end, _)| (text.to_owned(), end.trim() == word)))
        })?;
        match ended {
            Some((text, true)) => Ok(text),
            _ => Err(LabError::Machine(format!(
                "{word} was wanted at its console, which says: {said}"
            ))),
        }
    }
}
