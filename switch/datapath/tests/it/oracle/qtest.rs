//! QEMU without a guest: over its test protocol we are the machine's driver.

use super::{guests, libraries};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest that QEMU may take for anything.
const QEMU_TIMEOUT: Duration = Duration::from_secs(30);

/// A machine that does nothing by itself.
pub(crate) struct Qtest {
    child: Child,
    socket: BufReader<UnixStream>,
    log: PathBuf,
}

impl Qtest {
    /// Starts it with these options in the caller's network namespace; or what it needs.
    pub(crate) fn start(folder: &Path, options: &[String]) -> Result<Qtest, String> {
        let (socket, log) = (folder.join("qtest"), folder.join("log"));
        let mut command = qemu()?;
        command.args(["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-qtest", &format!("unix:{},server=on,wait=off", socket.display())]);
        command.args(options).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        let start = Instant::now();
        let socket = loop {
            if let Ok(socket) = UnixStream::connect(&socket) {
                break BufReader::new(socket);
            }
            let ended = child.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > QEMU_TIMEOUT {
                child.kill().unwrap();
                panic!("QEMU: {ended:?}: {}", std::fs::read_to_string(log).unwrap());
            }
            sleep(Duration::from_millis(5));
        };
        socket.get_ref().set_read_timeout(Some(QEMU_TIMEOUT)).unwrap();
        Ok(Qtest { child, socket, log })
    }

    /// Reads a word of 32 bits.
    pub(crate) fn read(&mut self, address: u64) -> u32 {
        let answer = self.ask(&format!("readl {address:#x}"));
        let number = answer.trim_start_matches("0x");
        u32::try_from(u64::from_str_radix(number, 16).unwrap()).unwrap()
    }

    /// Writes a word of 32 bits.
    pub(crate) fn write(&mut self, address: u64, word: u32) {
        self.ask(&format!("writel {address:#x} {word:#x}"));
    }

    /// Returns what QEMU printed on its standard error.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    fn ask(&mut self, line: &str) -> String {
        self.socket.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        self.socket.read_line(&mut answer).unwrap();
        let answer = answer.trim().strip_prefix("OK");
        answer.unwrap_or_else(|| panic!("{line}: {}", self.said())).trim().to_owned()
    }
}

impl Drop for Qtest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the emulator that the stories use, with the libraries and firmware beside it.
fn qemu() -> Result<Command, String> {
    let root = guests("qemu").canonicalize().ok().filter(|root| root.join("version").is_file());
    let root = root.ok_or("QEMU: cargo xtask guests qemu")?;
    let mut command = Command::new(root.join("usr/bin/qemu-system-x86_64"));
    command.env("LD_LIBRARY_PATH", libraries(&root));
    for firmware in ["usr/share/qemu", "usr/share/seabios"].map(|folder| root.join(folder)) {
        if firmware.exists() {
            command.arg("-L").arg(firmware);
        }
    }
    Ok(command)
}
