//! The running state as bodies of the API.

use super::desired::Desired;
use super::port::{OpenPort, PortDevice, RunningPort};
use super::ports::Ports;
use crate::guest;
use crate::settings;
use api::body::{
    CountersBody, DepthBody, KernelPathBody, MacBody, PortBody, QueueBody, RscBody,
    RscCountersBody, SpreadBody, StateBody, SwitchRscBody, WaitBody, WaitRangeBody, WorkerBody,
};
use config::{PortConfig, PortName, RscMode};
use datapath::{
    DropReason, MacEntry, PortCounters, PortId, PortInfo, QueueInfo, RscException, RscStatus, Slow,
    Switch, Waits,
};
use ports::packet::Spread;
use ports::{Nanos, Offloads};
use problem::Problem;
use std::collections::BTreeMap;

/// Ranges of [`PortCounters::train_depth`].
const DEPTHS: [&str; 8] = ["1", "2", "3-4", "5-8", "9-16", "17-32", "33-64", "65+"];

/// What reports read: the configuration, the ports, and what the switch says about them.
pub(crate) struct Report<'r> {
    pub(super) desired: &'r Desired,
    pub(super) ports: &'r Ports,
    pub(super) switch: &'r Switch,
    /// The ports in the switch, as it reported them when the report began.
    pub(super) infos: Vec<PortInfo>,
}

impl<'r> Report<'r> {
    /// Reads the switch's ports.
    pub(super) fn new(desired: &'r Desired, ports: &'r Ports, switch: &'r Switch) -> Report<'r> {
        Report { desired, ports, switch, infos: switch.ports() }
    }

    /// Returns all workers.
    pub(crate) fn workers(&self) -> Vec<WorkerBody> {
        let bodies =
            self.switch.workers().into_iter().enumerate().map(|(worker, info)| WorkerBody {
                worker,
                cpu: info.cpu,
                answers: !info.hangs,
                busy_turns: info.busy_rounds,
                idle_turns: info.idle_rounds,
                sleeps: info.sleeps,
                frames: info.frames,
                busy_ns: info.busy.0,
                waited_ns: info.waited.0,
            });
        bodies.collect()
    }

    /// Returns all ports, by name.
    pub(crate) fn ports(&self) -> Vec<PortBody> {
        self.ports.iter().map(|(name, port)| self.body(name, port)).collect()
    }

    /// Returns the ports of the running configuration, by name. While a plan is in work, a port whose
    /// step is still to come has its wanted settings and is down until it is open, and a port that
    /// will be closed is not listed. So a reader finds one whole configuration at any time.
    pub(crate) fn listed_ports(&self) -> Vec<PortBody> {
        if !self.desired.is_in_work() {
            return self.ports();
        }
        let mut wanted: Vec<&PortConfig> = self.desired.config().ports.iter().collect();
        wanted.sort_by(|one, other| one.name.cmp(&other.name));
        wanted.into_iter().map(|wanted| self.wanted_body(wanted)).collect()
    }

    /// Returns one port as [`listed_ports`](Report::listed_ports) has it.
    ///
    /// # Errors
    /// There is no such port.
    pub(crate) fn listed_port(&self, name: &str) -> Result<PortBody, Problem> {
        if !self.desired.is_in_work() {
            return self.port(name);
        }
        let wanted = self.desired.config().port(name).ok_or_else(|| self.ports.no_such(name))?;
        Ok(self.wanted_body(wanted))
    }

    /// Returns a port of the wanted configuration while a plan is in work.
    fn wanted_body(&self, wanted: &PortConfig) -> PortBody {
        let Some(port) = self.ports.get(&wanted.name) else {
            let (reason, denied) = ("the change that adds it is still in work".to_owned(), false);
            let device = PortDevice::Closed { reason, denied };
            let port = RunningPort { config: wanted.clone(), device, first_mac: None };
            return PortBody { state: StateBody::Down, ..self.body(&wanted.name, &port) };
        };
        PortBody {
            role: wanted.role(),
            vlan: wanted.vlan_text(),
            rsc: wanted.rsc(self.desired.config().switch.rsc),
            config: wanted.clone(),
            ..self.body(&wanted.name, port)
        }
    }

    /// Returns all ports with their counters, by name.
    pub(crate) fn counted_ports(&self) -> Vec<(PortBody, CountersBody)> {
        let counted = |(name, port): (&PortName, &RunningPort)| {
            (self.body(name, port), counters_body(&self.counters_of(port)))
        };
        self.ports.iter().map(counted).collect()
    }

    /// Returns one port.
    ///
    /// # Errors
    /// There is no such port.
    pub(crate) fn port(&self, name: &str) -> Result<PortBody, Problem> {
        let (name, port) = self.ports.port(name)?;
        Ok(self.body(name, port))
    }

    /// Returns one port's counters; all zero while its device is not open.
    ///
    /// # Errors
    /// There is no such port.
    pub(crate) fn counters(&self, name: &str) -> Result<CountersBody, Problem> {
        let (_, port) = self.ports.port(name)?;
        Ok(counters_body(&self.counters_of(port)))
    }

    /// Returns the coalescing toward all ports.
    pub(crate) fn all_rsc(&self) -> Vec<RscBody> {
        self.ports.iter().map(|(name, port)| self.rsc_body(name, port)).collect()
    }

    /// Returns coalescing on the host and in the switch.
    pub(crate) fn switch_rsc(&self) -> SwitchRscBody {
        let switch = &self.desired.config().switch;
        let operational = |(_, port): &(&PortName, &RunningPort)| {
            let (ipv4, ipv6) = self.rsc_status(port);
            ipv4.operational || ipv6.operational
        };
        SwitchRscBody {
            receive_segment_coalescing: match switch.rsc {
                RscMode::Off => "Disabled".to_owned(),
                RscMode::Ndis | RscMode::Gro => "Enabled".to_owned(),
            },
            policy: switch.rsc,
            software_rsc_enabled: switch.software_rsc,
            operational_ports: self.ports.iter().filter(operational).count(),
            ports: self.ports.count(),
        }
    }

    /// Returns the coalescing toward one port.
    ///
    /// # Errors
    /// There is no such port.
    pub(crate) fn rsc(&self, name: &str) -> Result<RscBody, Problem> {
        let (name, port) = self.ports.port(name)?;
        Ok(self.rsc_body(name, port))
    }

    /// Returns the learned addresses.
    pub(crate) fn macs(&self) -> Vec<MacBody> {
        let body = |entry: MacEntry| MacBody {
            mac: entry.mac.to_string(),
            vlan: entry.vlan,
            port: self.ports.name_of(entry.port),
            age_s: entry.age_s,
        };
        self.switch.macs().into_iter().map(body).collect()
    }

    /// Returns how many addresses are learned.
    pub(crate) fn learned(&self) -> usize {
        self.switch.macs().len()
    }

    /// Returns a port's counters; all zero while its device is not open.
    pub(super) fn counters_of(&self, port: &RunningPort) -> PortCounters {
        let counters = port.open().and_then(|open| self.switch.counters(open.id));
        counters.unwrap_or_default()
    }

    fn body(&self, name: &PortName, port: &RunningPort) -> PortBody {
        let info = port.info_in(&self.infos);
        let open = port.open();
        let (state, reason) = port.state(info);
        PortBody {
            name: name.to_string(),
            origin: self.desired.origin(name),
            device: device_text(port),
            role: port.config.role(),
            state,
            reason,
            mtu: open.map(|open| open.settings.mtu),
            mac: open.and_then(|open| open.settings.mac.or(open.mac)).map(|mac| mac.to_string()),
            held_mac: info.and_then(|info| info.held_mac).map(|mac| mac.to_string()),
            vlan: port.config.vlan_text(),
            rsc: port.config.rsc(self.desired.config().switch.rsc),
            queues: info.map_or_else(Vec::new, |info| self.queues(name, port, info)),
            offloads: info.map_or_else(Vec::new, |info| offload_names(info.offloads)),
            degraded: open.map_or_else(Vec::new, |open| open.degraded.clone()),
            spread: open.and_then(|open| spread_body(open.watch.spread())),
            guest: open.and_then(|open| {
                Some(guest::body(&open.watch.guest()?, open.watch.memory_limit()))
            }),
            kernel_path: info.map(|info| self.kernel_path(info.id)),
            rates: open.map(|open| open.last.rates()).unwrap_or_default(),
            config: port.config.clone(),
        }
    }

    /// Returns whether the kernel may carry flows of a port.
    fn kernel_path(&self, port: PortId) -> KernelPathBody {
        let [from, to] = self.switch.why_slow(port).unwrap_or([Some(Slow::NoHook); 2]);
        let text = |slow: Option<Slow>| slow.map(|slow| slow.to_string());
        KernelPathBody { carries: to.is_none(), reason: text(to), from_reason: text(from) }
    }

    /// Returns the queues of a port.
    fn queues(&self, name: &PortName, port: &RunningPort, info: &PortInfo) -> Vec<QueueBody> {
        let workers = self.switch.workers();
        let mac = info.settings.mac.or(info.held_mac).map(|mac| mac.to_string());
        let mut vnics = port.open().map_or_else(Vec::new, OpenPort::queue_vnics);
        let body = |queue: QueueInfo| QueueBody {
            port: name.to_string(),
            queue: queue.queue,
            mac: mac.clone(),
            vlan: port.config.vlan_text(),
            worker: queue.worker,
            cpu: workers.get(queue.worker).and_then(|worker| worker.cpu),
            load_percent: port.open().map_or(0.0, |open| open.last.load(queue.queue)),
            entries: queue.entries,
            busy_ns: queue.busy.0,
            frames: queue.frames,
            bytes: queue.bytes,
            wait: wait_body(&queue, port.open()),
            movable: queue.movable,
            vnics: vnics.get_mut(queue.queue).map(std::mem::take).unwrap_or_default(),
        };
        self.switch.queues_of(info.id).into_iter().map(body).collect()
    }

    /// Returns coalescing toward a port for IPv4 and IPv6.
    fn rsc_status(&self, port: &RunningPort) -> (RscStatus, RscStatus) {
        let switch = &self.desired.config().switch;
        let wanted = settings::rsc(&port.config, switch);
        let not_open = || RscStatus::of(&wanted, Offloads::empty());
        let (ipv4, ipv6) = port.info_in(&self.infos).map_or_else(not_open, PortInfo::rsc);
        let in_levels = |status| super::rsc::in_levels(status, &port.config, switch);
        (in_levels(ipv4), in_levels(ipv6))
    }

    fn rsc_body(&self, name: &PortName, port: &RunningPort) -> RscBody {
        let (ipv4, ipv6) = self.rsc_status(port);
        let reason = |status: RscStatus| status.failure_reason.name().to_owned();
        RscBody {
            name: name.to_string(),
            policy: port.config.rsc(self.desired.config().switch.rsc),
            ipv4_enabled: ipv4.enabled,
            ipv6_enabled: ipv6.enabled,
            ipv4_operational: ipv4.operational,
            ipv6_operational: ipv6.operational,
            ipv4_failure_reason: reason(ipv4),
            ipv6_failure_reason: reason(ipv6),
            length_limit: port.config.length_limit.map_or(0, |limit| limit.0),
            ack_limit: port.config.ack_limit.map_or(0, |limit| limit.0),
            statistics: rsc_counters_body(&self.counters_of(port)),
        }
    }
}

/// Its device, with the receive mode if there are several.
fn device_text(port: &RunningPort) -> String {
    let device = port.config.device().to_string();
    match port.open().and_then(|open| open.watch.way()) {
        Some(way) => format!("{device} ({way})"),
        None => device,
    }
}

/// Returns how long a queue's frames waited, if any did that is known.
fn wait_body(queue: &QueueInfo, open: Option<&OpenPort>) -> Option<WaitBody> {
    let lately = open.map(|open| open.last.waits(queue.queue)).unwrap_or_default();
    let bounds = Waits::BOUNDS.into_iter().map(Some).chain([None]);
    let range = |(bound, frames): (Option<Nanos>, u64)| WaitRangeBody {
        up_to_us: bound.map(microseconds),
        frames,
    };
    (queue.waits.count() > 0).then(|| WaitBody {
        mean_us: lately.mean().map(microseconds),
        p99_us: lately.quantile(0.99).map(microseconds),
        sum_ns: queue.waits.sum.0,
        frames: bounds.zip(queue.waits.frames).map(range).collect(),
    })
}

fn microseconds(time: Nanos) -> u64 {
    time.0 / 1000
}

fn spread_body(spread: Spread) -> Option<SpreadBody> {
    match spread {
        Spread::Single => None,
        Spread::Tables(_) => Some(SpreadBody::Tables),
        Spread::Hash(reason) => Some(SpreadBody::KernelHash { reason }),
    }
}

pub(super) fn offload_names(offloads: Offloads) -> Vec<String> {
    offloads.iter_names().map(|(name, _)| name.to_lowercase()).collect()
}

fn counters_body(counters: &PortCounters) -> CountersBody {
    let drops = DropReason::ALL.iter().map(|reason| reason.name().to_owned());
    CountersBody {
        ingress_frames: counters.ingress_frames,
        ingress_bytes: counters.ingress_bytes,
        ingress_trains: counters.ingress_trains,
        ingress_train_segments: counters.ingress_train_segments,
        egress_frames: counters.egress_frames,
        egress_bytes: counters.egress_bytes,
        egress_trains: counters.egress_trains,
        egress_train_segments: counters.egress_train_segments,
        carried_ingress_frames: counters.carried_ingress_frames,
        carried_ingress_bytes: counters.carried_ingress_bytes,
        carried_egress_frames: counters.carried_egress_frames,
        carried_egress_bytes: counters.carried_egress_bytes,
        flooded_frames: counters.flooded_frames,
        mirrored_frames: counters.mirrored_frames,
        segmented_trains: counters.segmented_trains,
        segments: counters.segments,
        unfinished_checksums: counters.unfinished_checksums,
        evicted_addresses: counters.evicted_addresses,
        returned_frames: counters.returned_frames,
        unwanted_frames: counters.unwanted_frames,
        checksums: counters.checksums,
        path_mtu_messages: counters.path_mtu_messages,
        device_lost: counters.device_lost,
        drops: drops.zip(counters.drops).collect(),
        dropped: counters.dropped(),
        rsc: rsc_counters_body(counters),
    }
}

fn rsc_counters_body(counters: &PortCounters) -> RscCountersBody {
    let reasons = RscException::ALL.iter().map(|reason| reason.name().to_owned());
    let depth =
        |(segments, trains): (&str, u64)| DepthBody { segments: segments.to_owned(), trains };
    let exceptions_by_reason: BTreeMap<String, u64> =
        reasons.zip(counters.rsc_exceptions).collect();
    // A train that the switch made has one segment that began it and those that joined.
    let made = counters.coalesced_packets + counters.coalescing_events;
    RscCountersBody {
        arrived_coalesced_trains: counters.egress_trains.saturating_sub(counters.coalescing_events),
        arrived_coalesced_segments: counters.egress_train_segments.saturating_sub(made),
        coalesced_bytes: counters.coalesced_bytes,
        coalesced_packets: counters.coalesced_packets,
        coalescing_events: counters.coalescing_events,
        coalescing_exceptions: counters.coalescing_exceptions(),
        exceptions_by_reason,
        train_depth: DEPTHS.into_iter().zip(counters.train_depth).map(depth).collect(),
    }
}
