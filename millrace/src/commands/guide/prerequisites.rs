//! Tasks that come first: what would make a guide prove nothing.

use super::document::Document;
use super::place::Place;
use super::script::{End, Sight, Task};
use api::body::{PortBody, StateBody};
use config::Device;
use ports::link::{Link, LinkOffload};
use std::path::{Path, PathBuf};

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
/// The firewalls of both ends.
pub(super) const FIREWALL: Task<Place> = Task {
    title: "Configure the firewall rules of sender and receiver",
    windows: "New-NetFirewallRule -DisplayName 'NTTCP' -Program ntttcp.exe -Action Allow",
    here: "nft add rule inet filter input tcp dport 4999-5016 accept",
    repeats: false,
    look: firewall,
};
/// Workers and queues.
pub(super) const WORKERS: Task<Place> = Task {
    title: "Workers, queues, and who is busy",
    windows: "Get-NetAdapterVmqQueue",
    here: "millrace queue show",
    repeats: true,
    look: workers,
};

fn daemon(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let switch = place.client.switch()?;
    let silent: Vec<_> = switch.workers.iter().filter(|worker| !worker.answers).collect();
    let seen =
        format!("version {}, {} of {} ports up", switch.version, switch.ports_up, switch.ports);
    Ok(match silent.first() {
        None => Sight::passed(seen),
        Some(worker) => Sight::problem(
            format!("worker {} does not answer", worker.worker),
            "workers that answer",
            "restart the daemon; `millrace bugreport` collects what is needed to find the cause",
        )
        .stop(),
    })
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
        let within = |netns: &Path| format!("nsenter --net={} ", netns.display());
        let prefix = self.netns.as_deref().map(within).unwrap_or_default();
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

fn uplink(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let uplinks = place.uplinks()?;
    let all: Vec<Local> = uplinks.iter().flat_map(devices).collect();
    if all.is_empty() {
        return Ok(Sight::noted("the switch has no uplink: traffic comes from ports of this host"));
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
        let hint = "on the switch's host: `ethtool -k DEVICE`; GRO and LRO should be off";
        Sight::noted(format!("{} cannot be read from here", words(unknown))).remedy(hint)
    })
}

fn senders(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let (own, ports) = (place.port.clone(), place.client.ports()?);
    let taps = ports
        .iter()
        .filter(|port| port.name != own && matches!(port.config.device(), Device::Tap(_)));
    let local: Vec<Local> = taps.flat_map(devices).collect();
    let segments_not: Vec<&Local> =
        local.iter().filter(|it| it.has(LinkOffload::Tso) == Some(true)).collect();
    Ok(match segments_not.first() {
        None => Sight::passed("no vNIC of this host hands over unsegmented trains").remedy(
            "a sender in a namespace behind a veth must segment too: `ethtool -K DEVICE tso off gso off` there",
        ),
        Some(first) => {
            let names: Vec<_> = segments_not.iter().map(|it| it.words()).collect();
            Sight::noted(format!("TSO is on at {}", names.join(", "))).remedy(format!(
                "send from beyond the uplink; to send from there, first {}",
                first.ethtool("tso off gso off")
            ))
        }
    })
}

fn firewall(_: &mut Place, _: &Document) -> Result<Sight, End> {
    Ok(Sight::noted("NTttcp uses TCP ports 4999 to 5016, with -p 20001 also 20000 to 20016")
        .remedy("with your table and chain, at both ends; a sender that is not answered says so"))
}

fn workers(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let (switch, queues) = (place.client.switch()?, place.client.queues()?);
    let count = |port: &str| queues.iter().filter(|queue| queue.port == port).count();
    let mut ports: Vec<&str> = queues.iter().map(|queue| queue.port.as_str()).collect();
    ports.dedup();
    let busy = |worker: usize| {
        let own = queues.iter().filter(|queue| queue.worker == worker);
        own.map(|queue| queue.load_percent).sum::<f64>()
    };
    let workers = switch.workers.iter();
    let workers: Vec<_> =
        workers.map(|it| format!("worker {} {:.0} % busy", it.worker, busy(it.worker))).collect();
    let ports: Vec<_> = ports.iter().map(|port| format!("{port} {}", count(port))).collect();
    let seen = format!("{}; queues: {}", workers.join(", "), ports.join(", "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Sight::noted(seen).remedy(match (switch.workers.len(), cores) {
        (1, 2..) => format!(
            "one worker serves all ports; this host has {cores} processors: `workers = N` in [switch], then restart"
        ),
        _ => String::new(),
    }))
}
