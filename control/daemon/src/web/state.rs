//! The state that the page shows, in a short form of its own: with a thousand ports it is sent each
//! second.

use crate::commands::Ended;
use crate::recent::Recent;
use crate::shared::Shared;
use api::body::{
    CountersBody, EventBody, FindingBody, GuestBody, PortBody, QueueBody, RatesBody, SpreadBody,
    StateBody, SwitchBody, WorkerBody,
};
use axum::body::Bytes;
use config::{PortRole, RscMode};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The last reading of the switch, for all requests at about the same time.
pub(super) struct Cache {
    started: Instant,
    may_change: bool,
    last: Recent<Result<Look, Ended>>,
}

/// The answers made from one reading.
struct Look {
    /// The state as JSON.
    state: Bytes,
    ports: BTreeMap<String, Detail>,
}

impl Cache {
    /// Creates the cache of a page that may change something, or not.
    pub(super) fn new(may_change: bool) -> Cache {
        Cache { started: Instant::now(), may_change, last: Recent::default() }
    }

    /// Returns the state as JSON, at most half a second old.
    ///
    /// # Errors
    /// The switch's thread has ended.
    pub(super) async fn state(&self, shared: &Shared) -> Result<Bytes, Ended> {
        let now = Instant::now();
        let state =
            |look: &Result<Look, Ended>| Ok(look.as_ref().map_err(|ended| *ended)?.state.clone());
        self.last.answer(now, async || self.make(shared, now).await, state).await
    }

    /// Returns one port in detail as JSON, at most half a second old; `None` if there is no such
    /// port.
    ///
    /// # Errors
    /// The switch's thread has ended.
    pub(super) async fn port(&self, shared: &Shared, name: &str) -> Result<Option<Vec<u8>>, Ended> {
        let detail = |look: &Result<Look, Ended>| {
            let detail = look.as_ref().map_err(|ended| *ended)?.ports.get(name);
            Ok(detail.and_then(|detail| serde_json::to_vec(detail).ok()))
        };
        let now = Instant::now();
        self.last.answer(now, async || self.make(shared, now).await, detail).await
    }

    async fn make(&self, shared: &Shared, now: Instant) -> Result<Look, Ended> {
        let look = shared.run(move |running| {
            let (switch, ports) = (running.switch_body(now), running.report().counted_ports());
            let unix_ms = running.history.unix_ms(now);
            (switch, ports, running.health(now).findings, unix_ms)
        });
        let (switch, ports, findings, unix_ms) = look.await?;
        let clocks = (now.saturating_duration_since(self.started), unix_ms);
        let state = State::of(switch, findings, &ports, clocks, self.may_change);
        let details = ports
            .into_iter()
            .map(|(port, counters)| (port.name.clone(), Detail::of(port, counters)));
        let state = Bytes::from(serde_json::to_vec(&state).unwrap_or_default());
        Ok(Look { state, ports: details.collect() })
    }
}

/// The switch at one moment.
#[derive(Serialize)]
struct State {
    version: String,
    uptime_s: u64,
    /// Milliseconds since the page is served. The difference of two answers is the time between
    /// them.
    at_ms: u64,
    /// Milliseconds since 1970, by the clock that the history has.
    unix_ms: u64,
    /// Whether RSC can be toggled with a token.
    may_change: bool,
    macs: usize,
    workers: Vec<WorkerBody>,
    events: Vec<EventBody>,
    findings: Vec<FindingBody>,
    /// Names of the train depths, shortest first.
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
    /// Whether a guest is connected; only for vhost-user ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    guest: Option<bool>,
    rates: RatesBody,
    /// Dropped frames by reason, without reasons that never occurred.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    drops: BTreeMap<String, u64>,
    coalesced_packets: u64,
    coalescing_events: u64,
    /// Number of trains of each depth.
    depth: Vec<u64>,
    /// The worker of each queue, and the queue's load in percent.
    queues: Vec<(usize, f64)>,
}

impl State {
    fn of(
        switch: SwitchBody,
        findings: Vec<FindingBody>,
        ports: &[(PortBody, CountersBody)],
        (served, unix_ms): (Duration, u64),
        may_change: bool,
    ) -> State {
        let depths = ports.first().map(|(_, counters)| &counters.rsc.train_depth);
        State {
            version: switch.version,
            uptime_s: switch.uptime_s,
            at_ms: u64::try_from(served.as_millis()).unwrap_or(u64::MAX),
            unix_ms,
            may_change,
            macs: switch.macs,
            workers: switch.workers,
            events: switch.events,
            findings,
            depths: depths.into_iter().flatten().map(|depth| depth.segments.clone()).collect(),
            ports: ports.iter().map(|(port, counters)| Port::of(port, counters)).collect(),
        }
    }
}

impl Port {
    fn of(port: &PortBody, counters: &CountersBody) -> Port {
        let drops = counters.drops.iter().filter(|(_, count)| **count > 0);
        Port {
            name: port.name.clone(),
            device: port.device.clone(),
            role: port.role,
            state: port.state,
            reason: port.reason.clone(),
            vlan: port.vlan.clone(),
            rsc: port.rsc,
            guest: port.guest.as_ref().map(|guest| guest.connected),
            rates: port.rates,
            drops: drops.map(|(reason, count)| (reason.clone(), *count)).collect(),
            coalesced_packets: counters.rsc.coalesced_packets,
            coalescing_events: counters.rsc.coalescing_events,
            depth: counters.rsc.train_depth.iter().map(|depth| depth.trains).collect(),
            queues: port.queues.iter().map(|queue| (queue.worker, queue.load_percent)).collect(),
        }
    }
}

/// A port in detail, without its configuration, which contains the key of RSS.
#[derive(Serialize)]
struct Detail {
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

impl Detail {
    fn of(port: PortBody, counters: CountersBody) -> Detail {
        Detail {
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
        }
    }
}
