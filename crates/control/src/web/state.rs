//! What the page shows, in its own short form: with a thousand ports it is sent each second.

use crate::Problem;
use crate::api::Shared;
use crate::body::{
    CountersBody, EventBody, FindingBody, GuestBody, PortBody, QueueBody, RatesBody, SpreadBody,
    StateBody, WorkerBody,
};
use crate::config::{PortRole, RscMode};
use axum::body::Bytes;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer is good: so often it is made at most, however many ask.
const FRESH: Duration = Duration::from_millis(500);

/// The last answer, for all that ask at about the same time.
pub(super) struct Cache {
    started: Instant,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { started: Instant::now(), last: Mutex::default() }
    }
}

impl Cache {
    /// The state as JSON, at most half a second old.
    pub(super) fn text(&self, shared: &Shared, may_change: bool) -> Bytes {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if let Some((_, text)) = last.as_ref().filter(|(at, _)| now.duration_since(*at) < FRESH) {
            return text.clone();
        }
        let state = State::of(shared, now, now.duration_since(self.started), may_change);
        let text = Bytes::from(serde_json::to_vec(&state).unwrap_or_default());
        *last = Some((now, text.clone()));
        text
    }
}

/// The switch at one moment.
#[derive(Serialize)]
struct State {
    version: String,
    uptime_s: u64,
    /// Since the page is served. Differences tell how much time lies between two answers.
    at_ms: u64,
    /// Whether there is a token by which RSC can be toggled.
    may_change: bool,
    macs: usize,
    workers: Vec<WorkerBody>,
    events: Vec<EventBody>,
    findings: Vec<FindingBody>,
    /// Of the depths of trains, shortest first.
    depths: Vec<String>,
    ports: Vec<Port>,
}

/// A port in the list.
#[derive(Serialize)]
struct Port {
    name: String,
    device: String,
    role: PortRole,
    state: StateBody,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    vlan: String,
    rsc: RscMode,
    /// Only at vhost-user ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    guest: Option<bool>,
    rates: RatesBody,
    /// Of those that there are any of.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    drops: BTreeMap<String, u64>,
    coalesced_packets: u64,
    coalescing_events: u64,
    /// Trains by their depth.
    depth: Vec<u64>,
    /// Worker and load in percent of each queue.
    queues: Vec<(usize, f64)>,
}

impl State {
    fn of(shared: &Shared, now: Instant, served: Duration, may_change: bool) -> State {
        let running = shared.lock();
        let (switch, ports) = (running.switch_body(now), running.counted_ports());
        let findings = running.health(now).findings;
        drop(running);
        let depths = ports.first().map(|(_, counters)| &counters.rsc.train_depth);
        State {
            version: switch.version,
            uptime_s: switch.uptime_s,
            at_ms: u64::try_from(served.as_millis()).unwrap_or(u64::MAX),
            may_change,
            macs: switch.macs,
            workers: switch.workers,
            events: switch.events,
            findings,
            depths: depths.into_iter().flatten().map(|depth| depth.segments.clone()).collect(),
            ports: ports.into_iter().map(|(port, counters)| Port::of(port, counters)).collect(),
        }
    }
}

impl Port {
    fn of(port: PortBody, counters: CountersBody) -> Port {
        Port {
            name: port.name,
            device: port.device,
            role: port.role,
            state: port.state,
            reason: port.reason,
            vlan: port.vlan,
            rsc: port.rsc,
            guest: port.guest.map(|guest| guest.connected),
            rates: port.rates,
            drops: counters.drops.into_iter().filter(|(_, count)| *count > 0).collect(),
            coalesced_packets: counters.rsc.coalesced_packets,
            coalescing_events: counters.rsc.coalescing_events,
            depth: counters.rsc.train_depth.iter().map(|depth| depth.trains).collect(),
            queues: port.queues.iter().map(|queue| (queue.worker, queue.load_percent)).collect(),
        }
    }
}

/// A port in detail, without its configuration, in which the key of RSS is.
#[derive(Serialize)]
pub(super) struct Detail {
    name: String,
    mtu: Option<u16>,
    mac: Option<String>,
    held_mac: Option<String>,
    offloads: Vec<String>,
    degraded: Vec<String>,
    spread: Option<SpreadBody>,
    guest: Option<GuestBody>,
    queues: Vec<QueueBody>,
    counters: CountersBody,
}

/// The port of this name.
pub(super) fn of_port(shared: &Shared, name: &str) -> Result<Detail, Problem> {
    let running = shared.lock();
    let (port, counters) = (running.port_body(name)?, running.counters(name)?);
    Ok(Detail {
        name: port.name,
        mtu: port.mtu,
        mac: port.mac,
        held_mac: port.held_mac,
        offloads: port.offloads,
        degraded: port.degraded,
        spread: port.spread,
        guest: port.guest,
        queues: port.queues,
        counters,
    })
}
