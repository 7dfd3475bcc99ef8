//! A service manager for stories: it keeps the descriptors that the daemon stores there, and passes
//! them to the next daemon. For what systemd itself does see sd_notify(3) and sd_listen_fds(3).

use crate::switch::{FILE, Switch, millrace};
use rustix::fs::ftruncate;
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, pwrite};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;
use std::fmt::Write;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use waiting::until;

const SOCKET: &str = "/run/notify";

type Store = Arc<Mutex<Vec<(String, OwnedFd)>>>;

/// The manager, with the descriptors that it keeps.
pub(crate) struct Systemd {
    store: Store,
}

impl Systemd {
    /// Listens for daemons.
    pub(crate) fn new() -> Systemd {
        let socket = UnixDatagram::bind(SOCKET).unwrap();
        let store = Store::default();
        let systemd = Systemd { store: store.clone() };
        thread::spawn(move || {
            loop {
                hear(&socket, &store);
            }
        });
        systemd
    }

    /// Returns the names of the kept descriptors, in alphabetical order.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> =
            self.store.lock().unwrap().iter().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Writes this text into a memory file that is kept.
    pub(crate) fn rewrite(&self, name: &str, text: &str) {
        let store = self.store.lock().unwrap();
        let (_, file) = store.iter().find(|(kept, _)| kept == name).unwrap();
        ftruncate(file, 0).unwrap();
        pwrite(file, text.as_bytes(), 0).unwrap();
    }

    /// Starts a daemon, which gets the kept descriptors.
    pub(crate) fn start(&self) -> Switch {
        // A child inherits descriptors without the flag. It then moves them to the numbers at which
        // the daemon expects them.
        let store = self.store.lock().unwrap();
        let passed: Vec<OwnedFd> = store
            .iter()
            .map(|(_, file)| {
                let copy = fcntl_dupfd_cloexec(file, 100).unwrap();
                fcntl_setfd(&copy, FdFlags::empty()).unwrap();
                copy
            })
            .collect();
        let names: Vec<&str> = store.iter().map(|(name, _)| name.as_str()).collect();
        let mut line = String::new();
        for (place, file) in passed.iter().enumerate() {
            write!(line, "exec {}<&{}-; ", 3 + place, file.as_raw_fd()).unwrap();
        }
        line.push_str("export LISTEN_PID=$$; exec \"$@\"");
        let daemon = millrace();
        let mut command = Command::new("bash");
        command.args(["-c", &line, "bash"]).arg(daemon.get_program()).args(["run", "-c", FILE]);
        command.env_remove("MILLRACE_SOCKET").env("MILLRACE_LOG", "warn");
        command.env("NOTIFY_SOCKET", SOCKET);
        if !names.is_empty() {
            command.env("LISTEN_FDS", passed.len().to_string());
            command.env("LISTEN_FDNAMES", names.join(":"));
        }
        drop(store);
        Switch::by(command, passed)
    }

    /// Ends the daemon by a signal and starts the next one.
    pub(crate) fn restart(&self, switch: Switch, signal: Signal) -> Switch {
        switch.end(signal);
        self.start()
    }

    /// Waits until exactly these descriptors are kept.
    pub(crate) fn wait_for(&self, names: &[&str]) {
        until("the descriptors are kept", || (self.names() == names).then_some(()));
    }
}

fn hear(socket: &UnixDatagram, store: &Store) {
    let mut bytes = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let heard = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags).unwrap();
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let text = String::from_utf8(bytes[..heard.bytes].to_vec()).unwrap();
    let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
    let is = |word| text.lines().any(|line| line == word);
    let mut store = store.lock().unwrap();
    match (file, name) {
        (Some(file), Some(name)) if is("FDSTORE=1") => store.push((name.to_owned(), file)),
        (None, Some(name)) if is("FDSTOREREMOVE=1") => store.retain(|(kept, _)| kept != name),
        // A barrier's pipe is closed here.
        _ => {}
    }
}
