//! What parent and child say to each other.

use crate::experiments::Bulk;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// From the parent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub(crate) enum Request {
    /// Run a program to its end.
    Run {
        /// Looked up in PATH.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Turn segmentation (TSO and GSO) and coalescing (GRO) of a link on or off.
    Offload {
        /// The link.
        link: String,
        /// TSO and GSO.
        segmentation: bool,
        /// GRO.
        coalescing: bool,
    },
    /// Start a program that runs until this host ends or the program does.
    Start {
        /// Looked up in PATH.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Listen for bulk connections on all addresses, in place of an earlier listening.
    Listen {
        /// The first port.
        port: u16,
        /// What will come.
        bulk: Bulk,
    },
    /// Answer round trips, on all addresses.
    Answer {
        /// The port.
        port: u16,
    },
    /// Open bulk connections and send until told to stop.
    Send {
        /// The receiver's first bulk port.
        to: SocketAddr,
        /// What to send.
        bulk: Bulk,
    },
    /// End all bulk connections.
    StopSending,
    /// Read all counters.
    Read {
        /// The link whose counters are wanted.
        link: String,
    },
    /// Round trips of one byte.
    RoundTrips {
        /// The receiver's port for them.
        to: SocketAddr,
        /// How long, in milliseconds.
        milliseconds: u64,
    },
    /// Become another program; the namespace, the standard streams and the bond with the parent stay.
    Become {
        /// Looked up in PATH.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
}

/// From the child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub(crate) enum Reply {
    /// It is done.
    Done,
    /// The program ended well and said this.
    Output {
        /// Its standard output.
        text: String,
    },
    /// The counters.
    Reading(Reading),
    /// The round trips.
    RoundTrips(RoundTrips),
    /// The program is not installed.
    Missing {
        /// What was looked for.
        program: String,
    },
    /// It could not be done.
    Error {
        /// Why.
        message: String,
    },
}

/// A host's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// The host's monotonic clock, in nanoseconds.
    pub at_ns: u64,
    /// Bytes that bulk connections gave to this host's application.
    pub received_bytes: u64,
    /// Bytes that this host's application gave to bulk connections.
    pub given_bytes: u64,
    /// Bulk connections open now.
    pub connections: u32,
    /// TCP segments sent again, by anyone in this namespace.
    pub retransmits: u64,
    /// Frames the link sent.
    pub sent_frames: u64,
    /// Their bytes, Ethernet header counted.
    pub sent_bytes: u64,
    /// Frames that arrived over the link.
    pub arrived_frames: u64,
    /// Their bytes, Ethernet header counted.
    pub arrived_bytes: u64,
}

/// Round trips of one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RoundTrips {
    /// How many.
    pub count: u64,
    /// Half were faster.
    pub median_ns: f64,
    /// 99 of 100 were faster.
    pub p99_ns: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_is_one_line_and_comes_back_the_same() {
        let requests = [
            Request::Run { program: "ip".into(), arguments: vec!["a\nb".into()] },
            Request::Send {
                to: "[fd00:77::2]:5001".parse().unwrap(),
                bulk: Bulk { connections: 16, buffer_bytes: 512 },
            },
            Request::StopSending,
        ];
        for request in requests {
            let line = serde_json::to_string(&request).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Request>(&line).unwrap(), request);
        }
        let reply = Reply::Reading(Reading { at_ns: u64::MAX, ..Reading::default() });
        let line = serde_json::to_string(&reply).unwrap();
        assert_eq!(serde_json::from_str::<Reply>(&line).unwrap(), reply);
    }
}
