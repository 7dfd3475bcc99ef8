//! Requests to a host and its answers, in JSON.
//!
//! A child is asked for everything. An agent far away is asked for traffic and counters alone: see
//! [`Request::forbidden`].

use crate::load::Bulk;
use crate::plan::Values;
use crate::report::Machine;
use serde::{Deserialize, Serialize};
use serde_json::{Value, to_value};
use std::convert::Infallible;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// What a host can be asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Request {
    /// Say whether the host is ready: what is asked first.
    Ready,
    /// Say what machine this is.
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
    /// Listen for bulk connections, in place of an earlier listening.
    Listen {
        /// The address, or all of its family, and the first port.
        at: SocketAddr,
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
    /// From now on send at most so much on all bulk connections together.
    Limit {
        /// Bits a second; `None`: as fast as it goes.
        bits_per_s: Option<u64>,
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
    /// Become another program; the namespace and the bond with the parent stay. The conversation
    /// ends with that: what is answered is why it cannot.
    Become {
        /// Looked up in PATH.
        program: String,
        /// Its arguments.
        arguments: Vec<String>,
    },
}

/// Most connections that an agent opens or waits for.
const CONNECTIONS_MAX: u32 = 10_000;
/// Largest buffer of an agent, in bytes.
const BUFFER_MAX: u32 = 4 << 20;
/// An agent listens on no port below: those are other programs'.
const PORT_MIN: u16 = 1024;
/// Longest that an agent makes round trips in one go. It hears nothing meanwhile, not even that its
/// peer has gone.
pub(crate) const ROUND_TRIPS_MAX: Duration = Duration::from_secs(60);

impl Request {
    /// Why an agent does not do this for a peer. `None`: it does.
    pub fn forbidden(&self) -> Option<String> {
        let never = |what: &str| Some(format!("an agent does not {what} for a peer"));
        match self {
            Request::Run { .. } => never("run programs"),
            Request::Start { .. } => never("start programs"),
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
    let Bulk { connections, buffer_bytes } = bulk;
    let possible =
        (1..=CONNECTIONS_MAX).contains(&connections) && (1..=BUFFER_MAX).contains(&buffer_bytes);
    (!possible).then(|| {
        format!(
            "{connections} connections of {buffer_bytes} bytes: 1 to {CONNECTIONS_MAX} of 1 to {BUFFER_MAX} are possible"
        )
    })
}

/// What a host answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Reply {
    /// It is done.
    Done {
        /// What was asked for; null where there is nothing to tell.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        value: Value,
    },
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

impl Reply {
    /// It is done, with what was asked for, or it could not be.
    pub(super) fn of<T: Serialize, E: Display>(result: Result<T, E>) -> Reply {
        let value = result.map_err(|error| error.to_string());
        let value = value.and_then(|value| to_value(value).map_err(|error| error.to_string()));
        value.map_or_else(|message| Reply::Error { message }, |value| Reply::Done { value })
    }

    /// It is done, with what was asked for.
    pub(super) fn done<T: Serialize>(value: T) -> Reply {
        Reply::of(Ok::<_, Infallible>(value))
    }
}

/// A machine, and whether it is the same as another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    /// Differs for each kernel and each start of it.
    pub boot: String,
    /// What there is to know of it.
    pub machine: Machine,
}

impl Identity {
    /// This machine.
    pub(crate) fn own() -> Identity {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Identity { boot: boot.trim().to_owned(), machine: Machine::read(None) }
    }
}

/// A host's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// The host's monotonic clock, in nanoseconds. Never to be compared with another host's.
    pub at_ns: u64,
    /// Processor time that all of the host's machine has used, in nanoseconds of any processor.
    pub busy_ns: u64,
    /// Processor time that the process which sends or receives has used, in nanoseconds.
    pub own_ns: u64,
    /// Bytes that bulk connections gave to this host's application.
    pub received_bytes: u64,
    /// Bytes that this host's application gave to bulk connections.
    pub given_bytes: u64,
    /// Of those, bytes that the connections of a stopped sender have not delivered.
    #[serde(default)]
    pub undelivered_bytes: u64,
    /// Bulk connections open now.
    pub connections: u32,
    /// TCP segments made again, by anyone in this namespace.
    pub retransmits: u64,
    /// TCP segments made, those made again not counted, by anyone in this namespace; 0 of an older
    /// agent.
    #[serde(default)]
    pub sent_segments: u64,
    /// Frames the link sent.
    pub sent_frames: u64,
    /// Their bytes, Ethernet header counted.
    pub sent_bytes: u64,
    /// Frames that arrived over the link.
    pub arrived_frames: u64,
    /// Their bytes, Ethernet header counted.
    pub arrived_bytes: u64,
}

impl Reading {
    /// Frames that have arrived over the link since an earlier reading, and their bytes.
    pub(crate) fn arrived_since(&self, earlier: &Reading) -> (u64, u64) {
        (
            self.arrived_frames.saturating_sub(earlier.arrived_frames),
            self.arrived_bytes.saturating_sub(earlier.arrived_bytes),
        )
    }

    /// TCP segments that a sender made since an earlier reading, for the first time and again.
    pub(crate) fn sent_since(&self, earlier: &Reading) -> Values {
        let counts = [
            ("retransmits", self.retransmits, earlier.retransmits),
            ("sent_segments", self.sent_segments, earlier.sent_segments),
        ];
        // An older agent does not count what it sent.
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
            Request::Send {
                to: "[fd00:77::2]:5001".parse().unwrap(),
                bulk: Bulk { connections: 16, buffer_bytes: 512 },
            },
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
