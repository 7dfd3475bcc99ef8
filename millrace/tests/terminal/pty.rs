//! A program on a pseudo-terminal of its own, whose screen a test reads.

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Columns and rows of the terminal.
const SIZE: (u16, u16) = (80, 24);

/// The terminal, and the program that runs on it. The program is killed on drop.
pub(crate) struct Pty {
    keys: File,
    /// The program's side, kept open so that the terminal outlives it.
    inside: OwnedFd,
    seen: Arc<Mutex<Seen>>,
    pub(crate) child: Child,
    before: Termios,
}

/// What the program wrote, also as a screen.
struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

impl Pty {
    /// Starts a program on a new terminal, which is the controlling one of its session.
    pub(crate) fn start(program: &Command) -> Pty {
        let outside = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&outside).unwrap();
        unlockpt(&outside).unwrap();
        let name = ptsname(&outside, Vec::new()).unwrap();
        let inside = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let (ws_col, ws_row) = SIZE;
        tcsetwinsize(&inside, Winsize { ws_col, ws_row, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let before = tcgetattr(&inside).unwrap();
        let end = || inside.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command.arg("--ctty").arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(directory) = program.get_current_dir() {
            command.current_dir(directory);
        }
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let parser = vt100::Parser::new(ws_row, ws_col, 0);
        let seen = Arc::new(Mutex::new(Seen { parser, bytes: Vec::new() }));
        let mut output = File::from(outside.try_clone().unwrap());
        let reader = seen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read) = output.read(&mut bytes) {
                let mut seen = reader.lock().unwrap();
                seen.parser.process(&bytes[..read]);
                seen.bytes.extend(&bytes[..read]);
            }
        });
        Pty { keys: File::from(outside), inside, seen, child, before }
    }

    /// Types keys.
    pub(crate) fn press(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    /// Returns the screen as text.
    pub(crate) fn screen(&self) -> String {
        self.seen.lock().unwrap().parser.screen().contents()
    }

    /// Returns everything that the program wrote.
    pub(crate) fn written(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap().bytes).into_owned()
    }

    /// Waits until the screen has this text.
    pub(crate) fn shows(&self, text: &str) {
        self.until(text, || self.screen().contains(text));
    }

    /// Waits until the program has ended. Returns how.
    pub(crate) fn ends(&mut self) -> ExitStatus {
        let patience = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < patience, "it does not end:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until the terminal is as it was: lines and echo, the first screen, and a cursor.
    pub(crate) fn is_as_before(&self) {
        let modes = |it: &Termios| (it.input_modes, it.output_modes, it.local_modes);
        self.until("the terminal is as before", || {
            let seen = self.seen.lock().unwrap();
            let screen = seen.parser.screen();
            modes(&tcgetattr(&self.inside).unwrap()) == modes(&self.before)
                && !screen.alternate_screen()
                && !screen.hide_cursor()
        });
    }

    fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let patience = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < patience, "not: {what}\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
