// UNSAFETY: sets signals aside and closes descriptors by number, at the start of a process that has
// nothing else yet.
//! The helper that enters the network namespaces of ports: a process of the daemon's own, so that
//! the daemon gives up CAP_SYS_ADMIN.
//!
//! The daemon starts its own program again, before it restricts itself, with a hidden command and
//! the helper's end of a socket as standard input. The helper gives up what it does not need, and
//! then serves the requests of [`ports::namespace::helper`].
#![allow(unsafe_code)]

use super::{calls, files, privilege};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::thread::CapabilitySet;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What entering namespaces takes.
pub(super) const ENTERING: CapabilitySet = CapabilitySet::SYS_ADMIN;

/// What the helper keeps of what the daemon has: to enter namespaces, to make packet and AF_XDP
/// sockets there, and, which the unit does not have, to open the namespaces of other users and of
/// processes with more capabilities.
const KEPT: CapabilitySet = ENTERING
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::SYS_PTRACE);

/// Starts it by these arguments of this program, behind which it gets the directories with
/// namespaces. From then on it enters namespaces for this process, which asks nothing else of it.
pub(super) fn start(arguments: &[&str], directories: &[PathBuf]) -> io::Result<u32> {
    let flags = SocketFlags::CLOEXEC;
    let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    let mut helper = Command::new("/proc/self/exe");
    // The environment has what is systemd's and the daemon's: the socket to notify, descriptors.
    helper.args(arguments).args(directories).env_clear();
    let process = helper.stdin(its).stdout(Stdio::null()).spawn()?;
    let number = process.id();
    ports::namespace::helper::use_for_all(ours, process);
    Ok(number)
}

/// Runs it, until the daemon ends. Without directories it opens any file that its user may: the
/// daemon then has a port in a process's namespace, which Landlock would close to it.
pub fn run(directories: &[PathBuf]) -> io::Result<()> {
    leave_the_daemon_s()?;
    rustix::thread::set_name(c"millrace-netns")?;
    privilege::keep(KEPT)?;
    if !directories.is_empty() {
        // As at the daemon: a kernel without Landlock serves as well, and `status` says so.
        let _ = files::allow_namespaces(directories);
    }
    calls::refuse(calls::Role::Helper).map_err(|error| io::Error::other(error.to_string()))?;
    ports::namespace::helper::when_closed(io::stdin(), || std::process::exit(0))?;
    ports::namespace::helper::serve(io::stdin())
}

/// Closes descriptors that the daemon left open, such as those that systemd passed: a device is
/// busy as long as anybody has one of it. And ignores the signals that end or reload a daemon,
/// which reach both from a terminal or from systemd.
fn leave_the_daemon_s() -> io::Result<()> {
    // SAFETY: this process has opened nothing but its standard streams, and has one thread.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if closed == -1 {
        return Err(io::Error::last_os_error());
    }
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: no handler is set, so none can run at a wrong time.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    Ok(())
}
