//! What a session is opened with.

use crate::{Compat, Features, Negotiated};
use std::path::PathBuf;

/// Which side opens the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SocketRole {
    /// We listen at the socket.
    #[default]
    Server,
    /// The front end listens; we connect, and again whenever the connection is lost.
    Client,
}

/// Permissions and owner of a socket that we make; `None` leaves them as the kernel sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access {
    /// Permission bits, as 0o660.
    pub mode: Option<u32>,
    /// User number.
    pub owner: Option<u32>,
    /// Group number.
    pub group: Option<u32>,
}

/// One vNIC.
pub struct Options {
    /// Where the socket is.
    pub socket: PathBuf,
    /// Which side opens the connection.
    pub role: SocketRole,
    /// Permissions of the socket.
    pub access: Access,
    /// Most queue pairs, 1 to 64.
    pub pairs: u16,
    /// Largest IP packet in bytes, told to the guest.
    pub mtu: u16,
    /// The guest's address, where it is ours to say.
    pub mac: Option<[u8; 6]>,
    /// Most bytes of memory that the front end may have mapped.
    pub memory_limit: u64,
    /// The back end as which it presents itself; `None`: as what it is.
    pub compat: Option<Compat>,
    /// Told of whatever was negotiated, before a ring of it runs. Called from the session's thread.
    pub changed: Box<dyn Fn(&Negotiated) + Send + Sync>,
    /// The frames that announce an address as the guest's. Called from the session's thread.
    pub announcement: Box<dyn Fn([u8; 6]) -> Vec<Vec<u8>> + Send + Sync>,
}

impl Options {
    /// Most queue pairs of a vNIC.
    pub const PAIRS: u16 = 64;

    /// What is offered to the guest.
    pub fn offered(&self) -> Features {
        let mut offered = self.compat.map_or(Features::OWN, Compat::offered);
        offered.set(Features::MAC, self.mac.is_some() && self.compat.is_none());
        offered.set(Features::MQ, self.pairs > 1);
        offered
    }
}
