//! Requests to a host and its replies, in JSON.
//!
//! A child executes every request; an agent only those about traffic and counters: see
//! [`Request::forbidden`].

use crate::load::Bulk;
use crate::plan::Values;
use serde::{Deserialize, Serialize};
use serde_json::{Value, to_value};
use std::convert::Infallible;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use traffic::measure::Machine;

/// A request to a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Report whether the host is ready. Always the first request.
    Ready,
    /// Describe the machine.
    Machine,
    /// Name the link that has this address, or that reaches it directly.
    Link {
        /// The address.
        address: IpAddr,
    },
    /// Run a program to its end.
    Run {
        /// Looked up in PATH.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Start a program that runs until this host ends or the program does.
    Start {
        /// Looked up in PATH.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
    /// Listen for bulk connections; replaces an earlier listener.
    Listen {
        /// The address, or all of its family, and the first port.
        at: SocketAddr,
        /// Number and buffer size of the connections to expect.
        bulk: Bulk,
    },
    /// Answer round trips, on all addresses.
    Answer {
        /// The port.
        port: u16,
    },
    /// Make a device from which frames leave over a link, each after the same time.
    Delay {
        /// The device to make; it gets the link's address and MTU.
        device: String,
        /// The link.
        link: String,
        /// The time, in microseconds.
        microseconds: u64,
    },
    /// Open bulk connections and send until told to stop.
    Send {
        /// The receiver's first bulk port.
        to: SocketAddr,
        /// What to send.
        bulk: Bulk,
    },
    /// Limit the sending rate of all bulk connections together from now on.
    Limit {
        /// Bits per second; `None` for no limit.
        bits_per_s: Option<u64>,
    },
    /// End all bulk connections.
    StopSending,
    /// Read all counters.
    Read {
        /// The link whose counters are wanted.
        link: String,
    },
    /// Make round trips of one byte.
    RoundTrips {
        /// The receiver's port for them.
        to: SocketAddr,
        /// How long, in milliseconds.
        milliseconds: u64,
    },
    /// Execute another program in place of this process; the namespace stays, and the process still
    /// ends with its parent. Success ends the conversation; a reply says why it failed.
    Become {
        /// Looked up in PATH.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
}

/// Maximum number of connections that an agent opens or accepts.
const CONNECTIONS_MAX: u32 = 10_000;
/// Maximum buffer size of an agent, in bytes.
const BUFFER_MAX: u32 = 4 << 20;
/// Lowest port on which an agent listens; lower ones are for system services.
const PORT_MIN: u16 = 1024;
/// Maximum length of an agent's round trips in one request. The agent reads nothing from its peer
/// meanwhile, not even that it disconnected.
pub(crate) const ROUND_TRIPS_MAX: Duration = Duration::from_secs(60);

impl Request {
    /// Returns why an agent refuses this request of a peer; `None` if it does not.
    pub fn forbidden(&self) -> Option<String> {
        let never = |what: &str| Some(format!("an agent does not {what} for a peer"));
        match self {
            Request::Run { .. } => never("run programs"),
            Request::Start { .. } => never("start programs"),
            Request::Delay { .. } => never("make devices"),
            Request::Become { .. } => never("become another program"),
            Request::Listen { at, bulk } => low_port(at.port()).or_else(|| too_much(*bulk)),
            Request::Answer { port } => low_port(*port),
            Request::Send { bulk, .. } => too_much(*bulk),
            Request::RoundTrips { milliseconds, .. } => {
                let max = ROUND_TRIPS_MAX.as_millis();
                (u128::from(*milliseconds) > max)
                    .then(|| format!("{milliseconds} ms of round trips: the maximum is {max}"))
            }
            Request::Ready
            | Request::Machine
            | Request::Link { .. }
            | Request::Limit { .. }
            | Request::StopSending
            | Request::Read { .. } => None,
        }
    }
}

fn low_port(port: u16) -> Option<String> {
    (port < PORT_MIN).then(|| format!("an agent listens on ports from {PORT_MIN}, not on {port}"))
}

fn too_much(bulk: Bulk) -> Option<String> {
    let Bulk { connections, buffer_bytes, sockets, .. } = bulk;
    let buffers = [Some(buffer_bytes), sockets.receive, sockets.send];
    let possible = (1..=CONNECTIONS_MAX).contains(&connections)
        && buffers.into_iter().flatten().all(|bytes| (1..=BUFFER_MAX).contains(&bytes));
    (!possible).then(|| {
        format!(
            "{connections} connections of {buffer_bytes} bytes: 1 to {CONNECTIONS_MAX} of 1 to {BUFFER_MAX} are possible"
        )
    })
}

/// A host's reply to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Reply {
    /// The request was executed.
    Done {
        /// The result; null if the request has none.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        value: Value,
    },
    /// The program is not installed.
    Missing {
        /// Name of the program.
        program: String,
    },
    /// The request failed.
    Error {
        /// The reason.
        message: String,
    },
}

impl Reply {
    /// Returns the reply for a result.
    pub(super) fn of<T: Serialize, E: Display>(result: Result<T, E>) -> Reply {
        let value = result.map_err(|error| error.to_string());
        let value = value.and_then(|value| to_value(value).map_err(|error| error.to_string()));
        value.map_or_else(|message| Reply::Error { message }, |value| Reply::Done { value })
    }

    /// Returns the reply for a success with this value.
    pub(super) fn done<T: Serialize>(value: T) -> Reply {
        Reply::of(Ok::<_, Infallible>(value))
    }
}

/// A machine's description, and an id that tells whether two hosts are on the same machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// The kernel's boot id: unique for each boot of each machine.
    pub boot: String,
    /// Hardware and kernel.
    pub machine: Machine,
}

impl Identity {
    /// Returns the identity of this machine.
    pub(crate) fn own() -> Identity {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Identity { boot: boot.trim().to_owned(), machine: Machine::read(None) }
    }
}

/// A host's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// The host's monotonic clock, in nanoseconds; not comparable between hosts.
    pub at_ns: u64,
    /// Processor time used on the host's whole machine, in nanoseconds summed over processors.
    pub busy_ns: u64,
    /// Processor time of the process that sends or receives, in nanoseconds.
    pub own_ns: u64,
    /// Bytes that this host's application received on bulk connections.
    pub received_bytes: u64,
    /// Bytes that this host's application sent on bulk connections.
    pub given_bytes: u64,
    /// Part of `given_bytes` that a stopped sender's connections have not delivered.
    #[serde(default)]
    pub undelivered_bytes: u64,
    /// Bulk connections open now.
    pub connections: u32,
    /// TCP segments retransmitted in this network namespace.
    pub retransmits: u64,
    /// TCP segments sent in this network namespace, without retransmissions; 0 from an older agent.
    #[serde(default)]
    pub sent_segments: u64,
    /// Frames that the link sent.
    pub sent_frames: u64,
    /// Bytes of these frames, Ethernet header included.
    pub sent_bytes: u64,
    /// Frames that arrived over the link.
    pub arrived_frames: u64,
    /// Bytes of these frames, Ethernet header included.
    pub arrived_bytes: u64,
}

impl Reading {
    /// Returns the frames that arrived on the link since `earlier`, and their bytes.
    pub(crate) fn arrived_since(&self, earlier: &Reading) -> (u64, u64) {
        (
            self.arrived_frames.saturating_sub(earlier.arrived_frames),
            self.arrived_bytes.saturating_sub(earlier.arrived_bytes),
        )
    }

    /// Returns the TCP segments sent and retransmitted since `earlier`.
    pub(crate) fn sent_since(&self, earlier: &Reading) -> Values {
        let counts = [
            ("retransmits", self.retransmits, earlier.retransmits),
            ("sent_segments", self.sent_segments, earlier.sent_segments),
        ];
        // An older agent does not count sent segments.
        let known = counts.into_iter().take(if self.sent_segments > 0 { 2 } else { 1 });
        known.map(|(key, now, then)| (key.to_owned(), now.saturating_sub(then) as f64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_comes_back_the_same() {
        let requests = [
            Request::Run { program: "ip".into(), arguments: vec!["a\nb".into()] },
            Request::Send { to: "[fd00:77::2]:5001".parse().unwrap(), bulk: Bulk::new(16, 512) },
            Request::StopSending,
            Request::Limit { bits_per_s: Some(1) },
        ];
        for request in requests {
            let text = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&text).unwrap(), request);
        }
        let reading = Reading { at_ns: u64::MAX, ..Reading::default() };
        let text = serde_json::to_string(&Reply::done(reading)).unwrap();
        let Ok(Reply::Done { value }) = serde_json::from_str(&text) else { panic!("{text}") };
        assert_eq!(serde_json::from_value::<Reading>(value).unwrap(), reading);
        assert_eq!(serde_json::to_string(&Reply::done(())).unwrap(), "{\"is\":\"done\"}");
    }
}
