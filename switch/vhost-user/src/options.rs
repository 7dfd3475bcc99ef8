//! Options of a session.

use crate::{Compat, Features, GuestSettings, Negotiated};
use std::path::PathBuf;
use std::sync::Arc;

/// What is called with a guest's settings.
pub type Commanded = Box<dyn Fn(&Arc<GuestSettings>) + Send + Sync>;

/// Which side opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SocketRole {
    /// We listen at the socket.
    #[default]
    Server,
    /// The front end listens. We connect, and reconnect whenever the connection is lost.
    Client,
}

/// Permissions and owner of a socket file that we make; `None` leaves the kernel's default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access {
    /// Permission bits, such as 0o660.
    pub mode: Option<u32>,
    /// User number.
    pub owner: Option<u32>,
    /// Group number.
    pub group: Option<u32>,
}

/// Options of one vNIC's session.
pub struct Options {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Which side opens the connection.
    pub role: SocketRole,
    /// Permissions of the socket.
    pub access: Access,
    /// Most queue pairs, 1 to 64.
    pub pairs: u16,
    /// Largest IP packet in bytes, announced to the guest.
    pub mtu: u16,
    /// The guest's address, if the port has a configured one.
    pub mac: Option<[u8; 6]>,
    /// Most bytes of guest memory that the front end may have mapped here.
    pub memory_limit: u64,
    /// The speed that the guest reads at first, in Mb/s, if the port has a rate.
    pub speed: Option<u32>,
    /// The back end as which the port presents itself; `None` if as itself.
    pub compat: Option<Compat>,
    /// Called with each new result of the negotiation, before a ring uses it, from the session's
    /// thread.
    pub changed: Box<dyn Fn(&Negotiated) + Send + Sync>,
    /// Called with what the guest has set by commands about the frames that it receives, whenever
    /// that changes, from the session's thread.
    pub commanded: Commanded,
    /// Called when a front end has connected, before it has a ring, and when it is gone, after its
    /// last ring has stopped. Not called for a session that is resumed.
    pub replaced: Box<dyn Fn() + Send + Sync>,
    /// Makes the frames that announce the guest's address. Called from the session's thread.
    pub announcement: Box<dyn Fn([u8; 6]) -> Vec<Vec<u8>> + Send + Sync>,
}

impl Options {
    /// Most queue pairs of a vNIC.
    pub const PAIRS: u16 = 64;

    /// Returns the features that are offered to the guest.
    pub fn offered(&self) -> Features {
        let mut offered = self.compat.map_or(Features::OWN, Compat::offered);
        offered.set(Features::MAC, self.mac.is_some() && self.compat.is_none());
        offered.set(Features::MQ, self.pairs > 1);
        if self.pairs == 1 {
            // There is nothing to choose.
            offered.remove(Features::SCALING);
        }
        offered
    }
}
