//! The load of a point: bulk connections or round trips, and their way through the switch.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;

/// Which way the load runs through the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub enum Way {
    /// The sender is on the wire, the receiver is the guest.
    #[serde(rename = "receive")]
    ToVnic,
    /// The sender is the guest, the receiver is on the wire.
    #[serde(rename = "send")]
    FromVnic,
    /// The sender is a second guest at the wire's place, the receiver is the guest.
    #[serde(rename = "between")]
    BetweenVnics,
}

impl Way {
    /// Returns the words of the report.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Way::ToVnic => "guest receives",
            Way::FromVnic => "guest sends",
            Way::BetweenVnics => "guest to guest",
        }
    }

    /// Whether the guest at the vNIC sends.
    pub(crate) fn guest_sends(self) -> bool {
        self == Way::FromVnic
    }
}

/// Bulk connections: each sends as fast as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bulk {
    /// Connections at once.
    pub connections: u32,
    /// Bytes of one send or receive call (NTttcp's `-l`).
    pub buffer_bytes: u32,
    /// Bytes of the sockets' buffers.
    #[serde(default)]
    pub sockets: Sockets,
    /// Largest TCP segment in bytes, without options; `None` leaves it to TCP. An agent of an
    /// earlier version does not know it.
    #[serde(default)]
    pub segment: Option<u16>,
}

/// Bytes of the sockets' buffers; `None` leaves them to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sockets {
    /// The receiver's (NTttcp's `-rb`).
    pub receive: Option<u32>,
    /// The sender's (NTttcp's `-sb`).
    pub send: Option<u32>,
}

/// Bytes of one call by default, NTttcp's `-l 64k`.
pub(crate) const BUFFER_BYTES: u32 = 64 * 1024;
/// Most threads, and ports, at each end: NTttcp's default on Linux.
const THREADS: u32 = 16;

impl Bulk {
    /// Returns connections with these bytes of one call, and the kernel's buffers.
    pub fn new(connections: u32, buffer_bytes: u32) -> Bulk {
        Bulk { connections, buffer_bytes, sockets: Sockets::default(), segment: None }
    }

    /// Returns the threads at each end, with a port each: the most that share the connections
    /// evenly.
    pub(crate) fn threads(self) -> u32 {
        let even = (1..=THREADS).rev().find(|threads| self.connections.is_multiple_of(*threads));
        even.unwrap_or(1)
    }

    /// Returns the command of the receiver (`r`) or the sender (`s`) in NTttcp's notation.
    pub(crate) fn command(self, role: char, at: SocketAddr) -> String {
        let (threads, bytes) = (self.threads(), self.buffer_bytes);
        let size = match bytes.is_multiple_of(1024) {
            true => format!("{}k", bytes / 1024),
            false => bytes.to_string(),
        };
        let (address, port, each) = (at.ip(), at.port(), self.connections / threads);
        let (option, socket) = match role {
            'r' => ("receive-buffer", self.sockets.receive),
            _ => ("send-buffer", self.sockets.send),
        };
        let socket = socket.map(|bytes| format!(" --{option} {bytes}")).unwrap_or_default();
        // One side's limit holds for both.
        let segment = self.segment.filter(|_| role == 's');
        let segment = segment.map(|bytes| format!(" --mss {bytes}")).unwrap_or_default();
        format!(
            "millrace ntttcp --dialect linux -{role} {address} -p {port} -P {threads} -n 1 -l {each} -b {size}{socket}{segment} -t 0 -N"
        )
    }
}

/// Traffic between sender and receiver while arms change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Load {
    /// Bulk connections.
    Bulk(Bulk),
    /// One byte in each direction on one connection, one request at a time, and bulk connections
    /// beside it, if any.
    RoundTrips(Option<Bulk>),
}

impl Load {
    /// Returns bulk connections with NTttcp's default buffers.
    pub(crate) fn bulk(connections: u32) -> Load {
        Load::Bulk(Bulk::new(connections, BUFFER_BYTES))
    }

    /// Returns the time until the connections have found their rates: all begin at once and lose
    /// frames at first.
    pub(crate) fn gathering(self) -> Duration {
        let connections = self.carried().map_or(0, |bulk| bulk.connections);
        Duration::from_millis(300) + Duration::from_millis(1) * connections
    }

    /// Returns the bulk connections, if the load has any.
    pub(crate) fn carried(self) -> Option<Bulk> {
        match self {
            Load::Bulk(bulk) => Some(bulk),
            Load::RoundTrips(beside) => beside,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_connections_evenly() {
        for (connections, threads) in
            [(1, 1), (10, 10), (16, 16), (17, 1), (1000, 10), (10_000, 16)]
        {
            let bulk = Bulk::new(connections, 1);
            assert_eq!(bulk.threads(), threads);
        }
    }
}
