//! vhost-user ports: a virtual machine, a DPDK application or a user-mode Linux behind a Unix
//! socket.
//!
//! Frames lie in the guest's own memory. Ingress lends them from there; egress copies them into the
//! buffers that the guest made available. So each byte is copied once, from one guest's memory into
//! the other's.
//!
//! What the guest accepts is known once its driver is ready, and changes with each reset: the
//! session writes it into the port's [`Capabilities`]. While the guest is absent the port's queues
//! are empty and its deliveries fail with `Down`. What its driver sets by commands about the frames
//! that it receives is there too, for the switch to read.

mod copy;
mod egress;
mod ingress;

pub use egress::{Absent, VhostEgress};
pub use ingress::VhostIngress;
pub use vhost_user::{
    Access, Compat, Features, GuestHash, GuestSettings, GuestTable, Inherited, LONGEST_HOLD_NS,
    LogLimit, Milestone, Negotiated, REGIONS_OWN, REGIONS_SHARED, ReceiveFilter, Session,
    SessionError, SocketRole, State, Status, Step, dock, permit,
};

use crate::{Capabilities, Device, EgressQueue, IngressQueue, Offloads};
use std::path::PathBuf;
use std::sync::Arc;
use wire::Mac;

/// Options of [`open`].
#[derive(Clone, Debug)]
pub struct VhostOptions {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Which side opens the connection.
    pub role: SocketRole,
    /// Permissions and owner of the socket, if this side creates it.
    pub access: Access,
    /// Most queue pairs, 1 to 64.
    pub queues: u16,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// The guest's address, told to a front end that asks for it.
    pub mac: Option<Mac>,
    /// Most bytes of memory that the front end may map.
    pub memory_limit: u64,
    /// The speed that the guest reads at first, in Mb/s, if the port has a rate.
    pub speed: Option<u32>,
    /// The back end to offer the same features as.
    pub compat: Option<Compat>,
}

impl VhostOptions {
    /// Returns options for one queue pair, an MTU of 1500 and as much memory as this host has,
    /// listening.
    pub fn new(socket: impl Into<PathBuf>) -> VhostOptions {
        VhostOptions {
            socket: socket.into(),
            role: SocketRole::Server,
            access: Access::default(),
            queues: 1,
            mtu: 1500,
            mac: None,
            memory_limit: host_memory(),
            speed: None,
            compat: None,
        }
    }
}

/// Returns the bytes of this host's memory, `MemTotal` of proc_meminfo(5); no limit if it cannot be
/// read.
fn host_memory() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = total.and_then(|total| total.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(u64::MAX, |kibibytes| kibibytes.saturating_mul(1024))
}

/// An opened vhost-user port.
pub struct Opened {
    /// The port.
    pub device: Device,
    /// The session that serves the front end; it ends when dropped.
    pub session: Session,
}

/// Opens a vhost-user port. The guest may connect later, go, and come again.
///
/// # Errors
///
/// Fails if the session cannot start: see [`SessionError`].
pub fn open(options: &VhostOptions) -> Result<Opened, SessionError> {
    open_kept(options, Inherited::default())
}

/// Opens a vhost-user port like [`open`], and takes over what an earlier process left, as far as it
/// can be used.
///
/// # Errors
///
/// Fails if the session cannot start: see [`SessionError`].
pub fn open_kept(options: &VhostOptions, inherited: Inherited) -> Result<Opened, SessionError> {
    let live = Arc::new(Capabilities::new(Offloads::empty(), 0));
    let session = Session::open_with(session_options(options, &live), inherited)?;
    let (mut ingress, mut egress) = (Vec::new(), Vec::new());
    for (receive, send) in (0..options.queues).filter_map(|pair| session.pair(pair)) {
        ingress.push(IngressQueue::Vhost(VhostIngress::new(send)));
        egress.push(EgressQueue::Vhost(VhostEgress::new(receive)));
    }
    let device = Device { ingress, egress, live, mtu: options.mtu, mac: options.mac, hook: None };
    Ok(Opened { device, session })
}

fn session_options(options: &VhostOptions, live: &Arc<Capabilities>) -> vhost_user::Options {
    let (told, asked, left, set) = (live.clone(), live.clone(), live.clone(), live.clone());
    vhost_user::Options {
        socket: options.socket.clone(),
        role: options.role,
        access: options.access,
        pairs: options.queues,
        mtu: options.mtu,
        mac: options.mac.map(|mac| mac.0),
        memory_limit: options.memory_limit,
        speed: options.speed,
        compat: options.compat,
        changed: Box::new(move |negotiated| {
            told.set_offloads(offloads(negotiated.features));
            told.set_queues(negotiated.pairs);
        }),
        commanded: Box::new(move |settings| set.set_guest_settings(settings.clone())),
        replaced: Box::new(move || left.replace_guest()),
        announcement: Box::new(move |mac| asked.announced().frames(Mac(mac))),
    }
}

/// Returns the offloads that a guest with these features accepts. All of them need unfinished
/// checksums (virtio 1.2, section 5.1.3.1).
fn offloads(features: Features) -> Offloads {
    if !features.contains(Features::GUEST_CSUM) {
        return Offloads::empty();
    }
    let mut offloads = Offloads::CSUM;
    offloads.set(Offloads::TSO4, features.contains(Features::GUEST_TSO4));
    offloads.set(Offloads::TSO6, features.contains(Features::GUEST_TSO6));
    offloads.set(Offloads::ECN, features.contains(Features::GUEST_ECN));
    offloads.set(Offloads::USO, features.contains(Features::GUEST_USO4 | Features::GUEST_USO6));
    offloads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_as_much_memory_as_this_host_at_most() {
        let limit = VhostOptions::new("s").memory_limit;
        assert!((1 << 20..1 << 50).contains(&limit), "{limit}");
    }

    #[test]
    fn without_unfinished_checksums_a_guest_takes_nothing() {
        assert_eq!(offloads(Features::GUEST_TSO4 | Features::GUEST_ECN), Offloads::empty());
        let taken = Features::GUEST_CSUM | Features::GUEST_TSO6 | Features::GUEST_USO4;
        assert_eq!(offloads(taken), Offloads::CSUM | Offloads::TSO6);
    }
}
