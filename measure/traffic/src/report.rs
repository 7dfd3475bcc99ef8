//! The results of a run, as numbers with units in their names.
//!
//! [`Report`] is what `--json` prints: numbers are JSON numbers, and a figure that could not be
//! measured is a [`Figure`](crate::measure::Figure) with a reason. [`Report::to_text`] is NTttcp's
//! familiar table, [`Report::to_xml`] its XML, [`Report::to_linux_json`] ntttcp-for-linux's JSON.

mod condition;
mod layout;
mod side;

use crate::plan::{Family, Length, Plan, Role, Transport};
use crate::schema;
use crate::shared::Shared;
use crate::snapshot::{Count, Interval};
use crate::stopwatch::times;
pub use crate::sync::PeerKind;
use crate::thread::lock;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use side::{Segments, Side, Throughput};

/// Returns the JSON schema of a [`Report`].
pub fn json_schema() -> Value {
    schema::of::<Report>("ntttcp", 1)
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The run went as planned.
    Complete,
    /// This end's user stopped the run; the figures are those until then.
    StoppedByUser,
    /// The other end stopped the run before its time.
    StoppedByPeer,
    /// All connections broke.
    PeerLost,
}

/// One end's report of one run.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Report {
    /// The program and its version.
    pub tool: String,
    /// How the run ended. Anything but `complete` is a partial result.
    pub ending: Ending,
    /// The program at the other end.
    pub peer_kind: PeerKind,
    /// The options of the run.
    pub settings: Settings,
    /// This end's figures.
    pub own: Side,
    /// The other end's figures, if it is Millrace too.
    pub peer: Option<Side>,
    /// End numbers that are already in `peer`: several receivers, or several senders.
    #[serde(skip)]
    pub(crate) peer_ids: Vec<u32>,
    /// Whether MB in the XML are 10^6 bytes.
    #[serde(skip)]
    pub(crate) decimal_megabytes: bool,
    /// This end's threads, in the order of the mappings.
    pub threads: Vec<ThreadFigures>,
    /// Round trips of a latency test.
    pub round_trips: Option<Times>,
    /// Times of bulk data requests, with `-lm`: from the end of a connection's last request to the
    /// end of this one.
    #[serde(default)]
    pub request_times: Option<Times>,
    /// UDP datagrams that were sent and did not arrive, over the whole run; known if both ends are
    /// Millrace.
    pub datagrams_lost: Option<u64>,
    /// Bytes that the sender's application sent and the receiver's never got, over the whole run;
    /// known if both ends are Millrace. The receiver's count is the valid one.
    pub bytes_missing: Option<u64>,
    /// Bytes still in a TCP sender's queues when the run ended, over all connections. The
    /// receiver's figures lack them.
    #[serde(default)]
    pub bytes_undelivered: Option<u64>,
    /// Notes that a reader needs to interpret the figures.
    pub notes: Vec<String>,
    /// Changes on this host during the run that may have changed the figures.
    pub conditions: Vec<String>,
}

/// The options of a run, independent of the dialect they were typed in.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Settings {
    /// TCP or UDP.
    pub transport: Transport,
    /// IPv4 or IPv6.
    pub family: Family,
    /// The first data port.
    pub base_port: u16,
    /// Whether begin and end were agreed with the peer.
    pub sync: bool,
    /// Bytes of one send or receive call.
    pub buffer_bytes: usize,
    /// Calls made for a ready connection before the next one is served (`-a`).
    pub outstanding: u32,
    /// SO_RCVBUF asked for.
    pub receive_socket_bytes: Option<usize>,
    /// SO_SNDBUF asked for.
    pub send_socket_bytes: Option<usize>,
    /// TCP_MAXSEG asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u16>,
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_CONGESTION asked for.
    pub congestion: Option<String>,
    /// Seconds before the measured interval.
    pub warm_up_s: u32,
    /// The measured interval.
    pub length: Length,
    /// Seconds after the measured interval.
    pub cool_down_s: u32,
    /// Whether every byte was checked.
    pub verify: bool,
}

/// One thread's figures over the measured interval.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ThreadFigures {
    /// Bytes that the thread's application moved.
    pub bytes: u64,
    /// Send or receive calls that moved something.
    pub calls: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Throughput of the thread.
    pub throughput: Throughput,
    /// Bytes per call; `None` without calls.
    pub bytes_per_call: Option<f64>,
}

/// Times of round trips or requests, in nanoseconds, three digits exact.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Times {
    /// Number of times recorded.
    pub count: u64,
    /// The shortest time.
    pub min_ns: u64,
    /// The mean time.
    pub mean_ns: f64,
    /// The median.
    pub p50_ns: u64,
    /// The 90th percentile.
    pub p90_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest time.
    pub max_ns: u64,
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        shared: &Shared,
        interval: &Interval,
        ending: Ending,
        connections: u64,
    ) -> Report {
        let times = Times::of_all(shared);
        Report {
            tool: concat!("Millrace ", env!("CARGO_PKG_VERSION")).into(),
            ending,
            peer_kind: PeerKind::Unsynchronised,
            settings: Settings::of(plan),
            own: Side::new(plan, shared, interval, connections),
            peer: None,
            peer_ids: Vec::new(),
            decimal_megabytes: plan.decimal_megabytes,
            threads: interval
                .threads
                .iter()
                .map(|thread| ThreadFigures::of(*thread, interval.seconds))
                .collect(),
            round_trips: times.filter(|_| plan.latency && plan.role == Role::Sender),
            request_times: times.filter(|_| plan.request_times),
            datagrams_lost: None,
            bytes_missing: None,
            bytes_undelivered: None,
            notes: notes(plan, shared),
            conditions: condition::of(plan, interval),
        }
    }

    /// Whether the run went as planned.
    pub fn is_complete(&self) -> bool {
        self.ending == Ending::Complete
    }

    pub(crate) fn add_peer(&mut self, peer: Side) {
        if self.peer_ids.contains(&peer.end_id) {
            return;
        }
        self.peer_ids.push(peer.end_id);
        match &mut self.peer {
            None => self.peer = Some(peer),
            Some(first) => first.add(&peer),
        }
        if let Some((sender, receiver)) = self.ends() {
            let calls = sender.whole_run_calls.saturating_sub(receiver.whole_run_calls);
            let bytes = sender.whole_run_bytes.saturating_sub(receiver.whole_run_bytes);
            self.datagrams_lost = (self.settings.transport == Transport::Udp).then_some(calls);
            self.bytes_missing = Some(bytes);
        }
    }

    /// Records the bytes left in send queues at the end, and the number of connections they belong
    /// to.
    pub(crate) fn add_undelivered(&mut self, (bytes, connections): (u64, usize)) {
        self.bytes_undelivered = Some(bytes);
        if bytes > 0 {
            self.notes.push(format!(
                "{bytes} bytes of {connections} connections were still in the send queues when the run ended: frames that get lost on the way keep them there, and -sb makes the queues smaller"
            ));
        }
    }

    /// Returns the sender's figures and the receiver's, if both are known.
    fn ends(&self) -> Option<(&Side, &Side)> {
        let peer = self.peer.as_ref()?;
        Some(match self.own.role {
            Role::Sender => (&self.own, peer),
            Role::Receiver => (peer, &self.own),
        })
    }
}

impl Settings {
    fn of(plan: &Plan) -> Settings {
        let first = plan.mappings.first();
        Settings {
            transport: plan.transport,
            family: first.map_or(Family::V4, |mapping| Family::of(mapping.host)),
            base_port: plan.base_port,
            sync: plan.sync,
            buffer_bytes: plan.buffer_bytes,
            outstanding: plan.outstanding,
            receive_socket_bytes: plan.receive_socket_bytes,
            send_socket_bytes: plan.send_socket_bytes,
            segment_bytes: plan.segment_bytes,
            no_delay: plan.no_delay,
            congestion: plan.congestion.clone(),
            warm_up_s: plan.warm_up_s,
            length: plan.length,
            cool_down_s: plan.cool_down_s,
            verify: plan.verify,
        }
    }
}

impl ThreadFigures {
    fn of(thread: Count, seconds: f64) -> ThreadFigures {
        ThreadFigures {
            bytes: thread.bytes,
            calls: thread.calls,
            errors: thread.errors,
            throughput: Throughput::of(thread.bytes, seconds),
            bytes_per_call: (thread.calls > 0).then(|| thread.bytes as f64 / thread.calls as f64),
        }
    }
}

impl Times {
    /// Summarises a histogram of nanoseconds; `None` if it is empty.
    pub fn of(times: &Histogram<u64>) -> Option<Times> {
        (!times.is_empty()).then(|| Times {
            count: times.len(),
            min_ns: times.min(),
            mean_ns: times.mean(),
            p50_ns: times.value_at_quantile(0.5),
            p90_ns: times.value_at_quantile(0.9),
            p99_ns: times.value_at_quantile(0.99),
            max_ns: times.max(),
        })
    }

    /// Summarises the times of all threads together.
    pub(crate) fn of_all(shared: &Shared) -> Option<Times> {
        Times::of(&times(shared).ok()?)
    }
}

fn notes(plan: &Plan, shared: &Shared) -> Vec<String> {
    let mut notes = plan.notes.clone();
    for thread in &shared.threads {
        for remark in lock(&thread.remarks).iter() {
            if !notes.contains(remark) {
                notes.push(remark.clone());
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests;
