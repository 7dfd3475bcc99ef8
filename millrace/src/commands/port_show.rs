//! `millrace port show`: shows one port with its counters, or the options and commands that connect
//! a guest to it.

use crate::commands::{names, snippet, status};
use crate::global::Global;
use crate::output::{self, Outcome};
use api::body::{CountersBody, GuestBody, PortBody, SpreadBody};
use clap::Args;
use config::{Device, PortConfig, Rate};
use serde::Serialize;
use std::process::ExitCode;

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port show vm1
  millrace port show vm1 --qemu          # QEMU options for this vNIC
  millrace port show vm1 --qemu-monitor  # adds it to a running QEMU, and removes it
  millrace port show vm1 --libvirt       # libvirt XML for this vNIC, and the lines of virsh
  millrace port show vm1 --cloud-hypervisor   # or --openvmm, --crosvm: options, and their limits
  millrace port show vm2 --firecracker        # or --proxmox: of a `packet` port at their TAP device")]
pub(super) struct Show {
    /// The port [default: the list of all ports].
    #[arg(add = names::ports())]
    name: Option<String>,
    /// Print the QEMU options that connect a guest to this vhost-user port.
    #[arg(long, requires = "name", conflicts_with_all = ["libvirt", "json"])]
    qemu: bool,
    /// Print the libvirt XML that connects a guest to this vhost-user port.
    #[arg(long, requires = "name", conflicts_with = "json")]
    libvirt: bool,
    /// Print the commands of QEMU's monitor, and the same by QMP, that add this vhost-user port's
    /// device to a running guest and remove it.
    #[arg(long, requires = "name", conflicts_with_all = ["qemu", "libvirt", "json"])]
    qemu_monitor: bool,
    /// Print the Cloud Hypervisor options that connect a guest to this vhost-user port.
    #[arg(long, requires = "name", conflicts_with_all = ["qemu", "libvirt", "qemu_monitor", "json"])]
    cloud_hypervisor: bool,
    /// Print the OpenVMM options that connect a guest to this vhost-user port.
    #[arg(long, requires = "name", conflicts_with_all = ["qemu", "libvirt", "qemu_monitor", "cloud_hypervisor", "json"])]
    openvmm: bool,
    /// Print the crosvm options that connect a guest to this vhost-user port.
    #[arg(long, requires = "name", conflicts_with_all = ["qemu", "libvirt", "qemu_monitor", "cloud_hypervisor", "openvmm", "json"])]
    crosvm: bool,
    /// Print the part of Firecracker's configuration for the TAP device that this `packet` port has.
    #[arg(long, requires = "name", conflicts_with_all = ["qemu", "libvirt", "qemu_monitor", "cloud_hypervisor", "openvmm", "crosvm", "json"])]
    firecracker: bool,
    /// Print the lines of a Proxmox guest for the TAP device that this `packet` port has.
    #[arg(long, requires = "name", conflicts_with_all = ["qemu", "libvirt", "qemu_monitor", "cloud_hypervisor", "openvmm", "crosvm", "firecracker", "json"])]
    proxmox: bool,
    /// PCI bus at which the device is added: on the machine type q35, the id of a free root port.
    #[arg(long, value_name = "ID", requires = "qemu_monitor")]
    bus: Option<String>,
}

/// A port with its counters.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    port: PortBody,
    counters: CountersBody,
}

impl Show {
    pub(super) fn run(&self, global: &Global) -> Outcome {
        let client = global.client()?;
        let Some(name) = &self.name else {
            return output::show(global, &client.ports()?, |ports| status::ports(ports));
        };
        let port = client.port(name)?;
        if self.firecracker || self.proxmox {
            let vnic = snippet::TapVnic::of(&port)?;
            let text = if self.proxmox { vnic.proxmox() } else { vnic.firecracker() };
            output::print(&text)?;
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(write) = self.snippet() {
            output::print(&write(self, &snippet::Vnic::of(&port)?))?;
            return Ok(ExitCode::SUCCESS);
        }
        let shown = Shown { port, counters: client.counters(name)? };
        output::show(global, &shown, text)
    }
}

/// Writes the options of a VMM for a vNIC.
type Write = fn(&Show, &snippet::Vnic) -> String;

impl Show {
    /// Returns what writes the options that were asked for.
    fn snippet(&self) -> Option<Write> {
        let each: [(bool, Write); 6] = [
            (self.qemu, |_, vnic| vnic.qemu()),
            (self.libvirt, |_, vnic| vnic.libvirt()),
            (self.qemu_monitor, |show, vnic| vnic.qemu_monitor(show.bus.as_deref())),
            (self.cloud_hypervisor, |_, vnic| vnic.cloud_hypervisor()),
            (self.openvmm, |_, vnic| vnic.openvmm()),
            (self.crosvm, |_, vnic| vnic.crosvm()),
        ];
        each.into_iter().find_map(|(is_asked, write)| is_asked.then_some(write))
    }
}

fn spread(spread: &SpreadBody) -> String {
    match spread {
        SpreadBody::Tables => "indirection tables".to_owned(),
        SpreadBody::KernelHash { reason } => format!("the kernel's hash ({reason})"),
    }
}

fn rate(rate: Option<Rate>) -> String {
    rate.map(|rate| rate.to_string()).unwrap_or_default()
}

fn text(shown: &Shown) -> String {
    let ports = status::ports(std::slice::from_ref(&shown.port));
    format!("{ports}\n\n{}", details(&shown.port, &shown.counters))
}

/// Returns a port's facts, one on a line, and its counters.
pub(super) fn details(port: &PortBody, counters: &CountersBody) -> String {
    let mut text = String::new();
    let facts = [
        ("origin", port.origin.name().to_owned()),
        ("address", port.mac.clone().unwrap_or_else(|| "none".to_owned())),
        ("held to address", port.held_mac.clone().unwrap_or_default()),
        ("address limit", address_limit(&port.config)),
        ("storm control", port.config.storm().to_string()),
        ("rate", rate(port.config.rate)),
        ("rate to the port", rate(port.config.rate_to)),
        ("weight", port.config.weight.map(|weight| weight.0.to_string()).unwrap_or_default()),
        ("takes", port.offloads.join(" ")),
        (
            if matches!(port.config.device(), Device::Xdp(_)) { "limits" } else { "in software" },
            port.degraded.join("; "),
        ),
        ("kernel path", kernel_path(port, counters)),
        ("flows spread by", port.spread.as_ref().map(spread).unwrap_or_default()),
    ];
    for (label, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
        text.push_str(&format!("{label}: {fact}\n"));
    }
    text.push_str(&port.guest.as_ref().map(guest).unwrap_or_default());
    let numbers = [
        ("ingress frames", counters.ingress_frames),
        ("  trains among them", counters.ingress_trains),
        ("  segments of these", counters.ingress_train_segments),
        ("ingress bytes", counters.ingress_bytes),
        ("egress frames", counters.egress_frames),
        ("  trains among them", counters.egress_trains),
        ("  segments of these", counters.egress_train_segments),
        ("egress bytes", counters.egress_bytes),
        ("flooded frames", counters.flooded_frames),
        ("mirrored frames", counters.mirrored_frames),
        ("trains segmented", counters.segmented_trains),
        ("segments made", counters.segments),
        ("partial checksums", counters.unfinished_checksums),
        ("checksums completed", counters.checksums),
        ("path MTU messages", counters.path_mtu_messages),
        ("addresses evicted", counters.evicted_addresses),
        ("own frames returned", counters.returned_frames),
        ("unwanted by the guest", counters.unwanted_frames),
        ("lost by the device", counters.device_lost),
        ("dropped", counters.dropped),
    ];
    let rows = numbers.iter().map(|(label, number)| vec![(*label).to_owned(), number.to_string()]);
    let drops = counters.drops.iter().filter(|(_, count)| **count > 0);
    let drops = drops.map(|(reason, count)| vec![format!("  {reason}"), count.to_string()]);
    text.push_str(&format!("\n{}\n", output::table(&["COUNTER", ""], rows.chain(drops))));
    text
}

/// Returns how much of the traffic the kernel carries, or why none; empty for a kind of device that
/// is never on the kernel path.
fn kernel_path(port: &PortBody, counters: &CountersBody) -> String {
    let is_of_host = matches!(port.config.device(), Device::Packet(_) | Device::Veth(_));
    let Some(path) = port.kernel_path.as_ref().filter(|_| is_of_host) else { return String::new() };
    let share = |carried: u64, all: u64| (100 * carried).checked_div(all).unwrap_or(0);
    let part = |reason: &Option<String>, carried, all| match reason {
        Some(reason) => format!("none ({reason})"),
        None => format!("{} % of the bytes", share(carried, all)),
    };
    format!(
        "to the port {}; from it {}",
        part(&path.reason, counters.carried_egress_bytes, counters.egress_bytes),
        part(&path.from_reason, counters.carried_ingress_bytes, counters.ingress_bytes)
    )
}

fn address_limit(port: &PortConfig) -> String {
    port.mac_limit().map_or_else(|| "half of mac-entries".to_owned(), |limit| limit.to_string())
}

/// Returns what was negotiated with a guest, one fact per line.
fn guest(guest: &GuestBody) -> String {
    let not_taken: Vec<_> = guest
        .offered
        .iter()
        .filter(|name| !guest.taken.contains(name))
        .map(String::as_str)
        .collect();
    let mut facts = vec![("offered", guest.offered.join(" "))];
    if guest.connected {
        facts.push(("taken", guest.taken.join(" ")));
        facts.push(("not taken", not_taken.join(" ")));
        facts.push(("queue pairs in use", guest.queues.to_string()));
    }
    facts.push(("so", guest.follows.join("; ")));
    let lines = facts.iter().filter(|(_, fact)| !fact.is_empty());
    lines.map(|(label, fact)| format!("{label}: {fact}\n")).collect()
}
