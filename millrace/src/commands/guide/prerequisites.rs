//! Tasks that come first: what would make a guide prove nothing.

use super::document::{Document, Measurement};
use super::place::Place;
use super::script::{End, Look, Sight, Task};
use super::traffic::{Ntttcp, ONE, SIXTEEN};
use crate::commands::anew;
use api::body::{PortBody, StateBody};
use config::Device;
use lab::experiments::rsc::MANY_ARRIVE;
use ports::link::{Link, LinkOffload};
use std::path::PathBuf;

/// The daemon answers.
pub(super) const DAEMON: Task<Place> = Task {
    title: "The switch runs",
    windows: "Get-VMSwitch",
    here: "millrace status",
    repeats: true,
    look: daemon,
};
/// The vNIC's port is up.
pub(super) const VNIC: Task<Place> = Task {
    title: "The vNIC is up",
    windows: "Get-VMNetworkAdapter",
    here: "millrace port show PORT",
    repeats: true,
    look: vnic,
};
/// The uplink's device delivers segments as they were on the wire.
pub(super) const UPLINK: Task<Place> = Task {
    title: "The uplink's device does not coalesce by itself",
    windows: "",
    here: "ethtool -k DEVICE",
    repeats: true,
    look: uplink,
};
/// Senders on this host segment.
pub(super) const SENDERS: Task<Place> = Task {
    title: "The sender is beyond the uplink, or segments by itself",
    windows: "",
    here: "ethtool -k DEVICE",
    repeats: true,
    look: senders,
};
/// The firewalls of both ends, for the line of the RSC validation guide.
pub(super) const FIREWALL_ONE: Task<Place> =
    firewall_task("nft add rule inet filter input tcp dport 5000-5001 accept", |_, document| {
        Ok(firewall(&ONE, document))
    });
/// The firewalls of both ends, for sixteen connections.
pub(super) const FIREWALL_SIXTEEN: Task<Place> =
    firewall_task("nft add rule inet filter input tcp dport 20000-20016 accept", |_, document| {
        Ok(firewall(&SIXTEEN, document))
    });
/// Workers and queues.
pub(super) const WORKERS: Task<Place> = Task {
    title: "Workers, queues, and who is busy",
    windows: "Get-NetAdapterVmqQueue",
    here: "millrace queue show",
    repeats: true,
    look: workers,
};

const fn firewall_task(here: &'static str, look: Look<Place>) -> Task<Place> {
    Task {
        title: "Configure the firewall rules of sender and receiver",
        windows: "New-NetFirewallRule -DisplayName 'NTTCP' -Program ntttcp.exe -Action Allow",
        here,
        repeats: true,
        look,
    }
}

fn daemon(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let switch = place.client.switch()?;
    let silent: Vec<_> = switch.workers.iter().filter(|worker| !worker.answers).collect();
    let seen =
        format!("version {}, {} of {} ports up", switch.version, switch.ports_up, switch.ports);
    let uplinks = place.uplinks()?;
    let words =
        |port: &PortBody| format!("{} is {}: {}", port.name, port.state.name(), port.reason);
    let not_up = uplinks.iter().filter(|port| port.state != StateBody::Up).map(words);
    let not_up: Vec<_> = not_up.collect();
    Ok(match silent.first() {
        None => without(&not_up, seen),
        Some(worker) => Sight::problem(
            format!("worker {} does not answer", worker.worker),
            "workers that answer",
            "restart the daemon; `millrace bugreport` collects what is needed to find the cause",
        )
        .stop(),
    })
}

/// Judges the uplinks that carry no frames. A guest that is off is no fault.
fn without(reasons: &[String], seen: String) -> Sight {
    if reasons.is_empty() {
        return Sight::passed(seen);
    }
    Sight::problem(
        format!("{seen}; {}", reasons.join("; ")),
        "uplinks that carry frames",
        "fix the cause; the port recovers by itself (`millrace check`)",
    )
}

fn vnic(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let port = place.vnic()?;
    let seen = format!("{} ({}), {}", port.name, port.device, port.state.name());
    Ok(match port.state {
        StateBody::Up => Sight::passed(seen),
        StateBody::Down | StateBody::Broken => Sight::problem(
            format!("{seen}: {}", port.reason),
            "up",
            "start its guest, or fix the cause; the port comes up by itself",
        )
        .stop(),
    })
}

/// A device of this host.
struct Local {
    device: String,
    netns: Option<PathBuf>,
}

impl Local {
    /// Returns whether an offload is on; `None` if the device is not readable from here.
    fn has(&self, offload: LinkOffload) -> Option<bool> {
        Link::open(&self.device, self.netns.as_deref()).ok()?.offload(offload).ok()
    }

    fn words(&self) -> String {
        match &self.netns {
            None => self.device.clone(),
            Some(netns) => format!("{} in {}", self.device, netns.display()),
        }
    }

    /// Returns a command that changes offloads of the device.
    fn ethtool(&self, offloads: &str) -> String {
        let prefix = anew::prefix(self.netns.as_deref());
        format!("`{prefix}ethtool -K {} {offloads}`", self.device)
    }
}

/// Returns the network devices of a port.
fn devices(port: &PortBody) -> Vec<Local> {
    let netns = port.config.netns_path();
    let names = match port.config.device() {
        Device::None | Device::VhostUser(_) => Vec::new(),
        device => device.names(),
    };
    names.into_iter().map(|device| Local { device, netns: netns.clone() }).collect()
}

/// Returns what a measurement has shown since: that segments arrive one by one.
fn shown(document: &Document) -> Option<Sight> {
    let Measurement { label, arrived_coalesced_percent: arrived, .. } =
        document.measurements.first()?;
    let words = format!("{arrived:.1} % of the frames arrived already coalesced ({label})");
    (*arrived <= MANY_ARRIVE).then(|| Sight::passed(words))
}

fn uplink(place: &mut Place, document: &Document) -> Result<Sight, End> {
    let uplinks = place.uplinks()?;
    let all: Vec<Local> = uplinks.iter().flat_map(devices).collect();
    if all.is_empty() {
        return Ok(Sight::passed(
            "the switch has no uplink: traffic comes from ports of this host",
        ));
    }
    let gro = |it: &&Local| it.has(LinkOffload::Gro) == Some(true);
    let words = |of: Vec<&Local>| of.iter().map(|it| it.words()).collect::<Vec<_>>().join(", ");
    let unknown: Vec<_> = all.iter().filter(|it| it.has(LinkOffload::Gro).is_none()).collect();
    Ok(if let Some(first) = all.iter().find(gro) {
        let seen = format!("GRO is on at {}", words(all.iter().filter(gro).collect()));
        let wanted = "GRO and LRO off: otherwise segments arrive already coalesced, and RSC has nothing to do";
        Sight::problem(seen, wanted, first.ethtool("gro off lro off"))
    } else if unknown.is_empty() {
        Sight::passed(format!("GRO is off at {}", words(all.iter().collect())))
    } else {
        let hint = "in the namespace of the switch: `ethtool -k DEVICE`; GRO and LRO should be off. The measurement shows it, too";
        let unread =
            || Sight::noted(format!("{} cannot be read from here", words(unknown))).remedy(hint);
        shown(document).unwrap_or_else(unread)
    })
}

fn senders(place: &mut Place, document: &Document) -> Result<Sight, End> {
    let (own, ports) = (place.port.clone(), place.client.ports()?);
    let made = ports.iter().filter(|port| port.name != own && port.config.device().is_made());
    let local: Vec<Local> = made.flat_map(devices).collect();
    let segments_not: Vec<&Local> =
        local.iter().filter(|it| it.has(LinkOffload::Tso) == Some(true)).collect();
    Ok(match segments_not.first() {
        None => Sight::passed("no vNIC of this host hands over unsegmented trains").remedy(
            "a sender in a namespace behind a veth must segment too: `ethtool -K DEVICE tso off gso off` there",
        ),
        Some(first) => {
            let names: Vec<_> = segments_not.iter().map(|it| it.words()).collect();
            let unshown = || {
                Sight::noted(format!("TSO is on at {}", names.join(", "))).remedy(format!(
                    "send from beyond the uplink; to send from there, first {}",
                    first.ethtool("tso off gso off")
                ))
            };
            shown(document).unwrap_or_else(unshown)
        }
    })
}

/// Names the ports of an NTttcp line until a measurement shows that its traffic comes through.
fn firewall(line: &Ntttcp, document: &Document) -> Sight {
    if let Some(measured) = document.measurements.last() {
        return Sight::passed(format!("traffic came through ({})", measured.label));
    }
    let [first, last] = line.ports();
    Sight::noted(format!("the traffic of this guide uses TCP ports {first} to {last} of the receiver"))
        .remedy(
            "at the receiver, with your table and chain, if `nft list ruleset` shows rules there; a sender that is not \
             answered says so",
        )
}

fn workers(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let (switch, queues) = (place.client.switch()?, place.client.queues()?);
    let count = |port: &str| queues.iter().filter(|queue| queue.port == port).count();
    let mut ports: Vec<&str> = queues.iter().map(|queue| queue.port.as_str()).collect();
    ports.dedup();
    let busy = |worker: usize| {
        let own = queues.iter().filter(|queue| queue.worker == worker);
        own.map(|queue| queue.load_percent).sum::<f64>().min(100.0)
    };
    let workers = switch.workers.iter();
    let workers: Vec<_> =
        workers.map(|it| format!("worker {} {:.0} % busy", it.worker, busy(it.worker))).collect();
    let ports: Vec<_> = ports.iter().map(|port| format!("{port} {}", count(port))).collect();
    let seen = format!("{}; queues: {}", workers.join(", "), ports.join(", "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Sight::passed(seen).remedy(match (switch.workers.len(), cores) {
        (1, 2..) => format!(
            "one worker serves all ports; this host has {cores} processors: `workers = N` in [switch], then restart"
        ),
        _ => String::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::guide::document::Status;

    /// The rule named ports 4999 to 5016 where the traffic used 20000 to 20016.
    #[test]
    fn the_firewall_rule_opens_the_ports_of_the_guides_own_line() {
        for (task, line) in [(FIREWALL_ONE, ONE), (FIREWALL_SIXTEEN, SIXTEEN)] {
            let [first, last] = line.ports();
            assert!(task.here.contains(&format!("dport {first}-{last} ")), "{}", task.here);
        }
        assert_eq!((ONE.ports(), SIXTEEN.ports()), ([5000, 5001], [20_000, 20_016]));
    }

    /// A guide waited for traffic while the uplink was not open, and all tasks before were ok.
    #[test]
    fn an_uplink_that_carries_no_frames_is_a_problem() {
        assert_eq!(without(&[], "4 of 4 ports up".into()).status, Some(Status::Passed));
        let broken = without(&["uplink is broken: no eth1".into()], "3 of 4 ports up".into());
        assert_eq!(broken.status, Some(Status::Problem));
        assert_eq!(broken.seen, "3 of 4 ports up; uplink is broken: no eth1");
    }

    #[test]
    fn a_measurement_settles_what_cannot_be_read() {
        let mut document = Document::new("rsc", "t", None);
        assert_eq!(firewall(&ONE, &document).status, Some(Status::Noted));
        assert!(shown(&document).is_none());
        document.measured(Measurement { name: "on".into(), ..Measurement::default() });
        assert_eq!(firewall(&ONE, &document).status, Some(Status::Passed));
        assert_eq!(shown(&document).unwrap().status, Some(Status::Passed));
        let arrived_coalesced_percent = 98.9;
        document.measured(Measurement {
            name: "on".into(),
            arrived_coalesced_percent,
            ..Measurement::default()
        });
        assert!(shown(&document).is_none());
    }
}
