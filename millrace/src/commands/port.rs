//! `millrace port`: ports while the switch runs.

use crate::cli::Global;
use crate::commands::{port_export, snippet, status};
use crate::output::{self, Failure, Outcome};
use clap::{ArgGroup, Args, Subcommand};
use control::Problem;
use control::body::{CountersBody, GuestBody, PortBody, SpreadBody};
use control::config::{
    Account, FileMode, HostName, MacAddress, Mtu, Namespace, PortConfig, PortName, Queues, Rate,
    Size, SocketPath, VlanId, VlanList, Weight, typed_value,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Open another port
    Add(Box<Add>),
    /// Close a port
    Remove(Name),
    /// Show one port and its counters
    Show(Show),
    /// Change keys of a port while it runs
    Set(Set),
    /// List all ports
    List(List),
    /// Print a port's settings, tables and counters for another host
    Export(port_export::Export),
    /// Make or set a port as it was at another host
    Import(port_export::Import),
}

#[derive(Args)]
#[command(group = ArgGroup::new("device").required(true))]
#[command(after_help = "\
Examples:
  millrace port add vm1 --tap tap1 --vlan 10 --mac 52:54:00:12:34:56
  millrace port add vm2 --vhost-user /run/millrace/vm2.sock --queues 4 --mac 52:54:00:12:34:57
  millrace port add uplink0 --packet eth1 --trunk 10,20-30
  millrace port add uplink0 --team eth1,eth2
  millrace port add uplink1 --xdp eth2

A port added here is kept: it is there again after a restart, and reading the file again leaves it alone.")]
struct Add {
    /// Its name: letters, digits, `.`, `_` and `-`.
    name: PortName,
    /// Open this TAP device; create it if it does not exist.
    #[arg(long, group = "device", value_name = "DEVICE")]
    tap: Option<HostName>,
    /// Use this network device as an uplink.
    #[arg(long, group = "device", value_name = "DEVICE")]
    packet: Option<HostName>,
    /// Use these network devices, up to 8, as one uplink.
    #[arg(long, group = "device", value_name = "DEVICES", value_delimiter = ',')]
    team: Vec<HostName>,
    /// Use this network device as an uplink by AF_XDP, past the host's stack.
    #[arg(long, group = "device", value_name = "DEVICE")]
    xdp: Option<HostName>,
    /// Serve a virtual machine or a DPDK application at this Unix socket.
    #[arg(long, group = "device", value_name = "PATH")]
    vhost_user: Option<SocketPath>,
    /// Connect to the socket, on which the guest's side listens.
    #[arg(long, requires = "vhost_user")]
    vhost_client: bool,
    /// Permissions of the socket, such as 0660.
    #[arg(long, requires = "vhost_user", conflicts_with = "vhost_client", value_name = "MODE")]
    socket_mode: Option<FileMode>,
    /// Owner of the socket.
    #[arg(long, requires = "vhost_user", conflicts_with = "vhost_client", value_name = "USER")]
    socket_owner: Option<Account>,
    /// Group of the socket.
    #[arg(long, requires = "vhost_user", conflicts_with = "vhost_client", value_name = "GROUP")]
    socket_group: Option<Account>,
    /// Network namespace of the device.
    #[arg(long, conflicts_with = "vhost_user", value_name = "NAME|PATH")]
    netns: Option<Namespace>,
    /// Queue pairs.
    #[arg(long)]
    queues: Option<Queues>,
    /// Largest IP packet in bytes.
    #[arg(long)]
    mtu: Option<Mtu>,
    /// Access mode: the VLAN of untagged frames.
    #[arg(long, conflicts_with = "trunk")]
    vlan: Option<VlanId>,
    /// Trunk mode: the tagged VLANs that may pass, such as 10,20-30.
    #[arg(long, value_name = "VLANS")]
    trunk: Option<VlanList>,
    /// The VLAN of a trunk's untagged frames.
    #[arg(long, requires = "trunk", value_name = "VLAN")]
    native: Option<VlanId>,
    /// The guest's address.
    #[arg(long)]
    mac: Option<MacAddress>,
    /// Limit the rate at which the port may send, such as 1Gbit.
    #[arg(long)]
    rate: Option<Rate>,
    /// Burst size of the rate limit, such as 256KiB.
    #[arg(long, requires = "rate", value_name = "SIZE")]
    burst: Option<Size>,
    /// Share of an uplink that is short of room, beside the other ports: 1 to 100.
    #[arg(long)]
    weight: Option<Weight>,
    /// Isolate the port: it reaches uplinks only.
    #[arg(long)]
    isolated: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port show vm1
  millrace port show vm1 --qemu          # QEMU options for this vNIC
  millrace port show vm1 --libvirt       # libvirt XML for this vNIC")]
struct Show {
    /// The port.
    name: String,
    /// Print the QEMU options that connect a guest to this vhost-user port.
    #[arg(long, conflicts_with_all = ["libvirt", "json"])]
    qemu: bool,
    /// Print the same for a libvirt domain.
    #[arg(long, conflicts_with = "json")]
    libvirt: bool,
}

#[derive(Args)]
#[command(after_help = "Example:\n  millrace port remove vm1")]
struct Name {
    /// The port.
    name: String,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  millrace port list\n  millrace port list --json | jq -r '.[].name'"
)]
struct List {}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace port set vm1 mtu=9000 rate=1Gbit
  millrace port set vm1 rate=            # removes the key
  millrace port set vm1 trunk=10,20-30 vlan=

Keys are those of [[port]] in the configuration file.")]
struct Set {
    /// The port.
    name: String,
    /// Keys and their values.
    #[arg(required = true, value_name = "KEY=VALUE")]
    changes: Vec<String>,
}

/// A port with its counters.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    port: PortBody,
    counters: CountersBody,
}

pub(crate) fn run(arguments: Arguments, global: &Global) -> Outcome {
    match arguments.verb {
        Verb::Add(add) => {
            let port = global.client()?.add_port(&add.port())?;
            output::show(global, &port, |port| status::ports(std::slice::from_ref(port)))
        }
        Verb::Remove(Name { name }) => {
            global.client()?.remove_port(&name)?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Show(show) => show.run(global),
        Verb::Export(export) => export.run(global),
        Verb::Import(import) => import.run(global),
        Verb::Set(set) => {
            let change = changes(&set.changes)?;
            let port = global.client()?.change_port(&set.name, &change)?;
            output::show(global, &port, |port| status::ports(std::slice::from_ref(port)))
        }
        Verb::List(_) => {
            output::show(global, &global.client()?.ports()?, |ports| status::ports(ports))
        }
    }
}

impl Show {
    fn run(&self, global: &Global) -> Outcome {
        let client = global.client()?;
        let port = client.port(&self.name)?;
        if self.qemu || self.libvirt {
            let vnic = snippet::Vnic::of(&port)?;
            output::print(&if self.qemu { vnic.qemu() } else { vnic.libvirt() })?;
            return Ok(ExitCode::SUCCESS);
        }
        let shown = Shown { port, counters: client.counters(&self.name)? };
        output::show(global, &shown, text)
    }
}

impl Add {
    fn port(self) -> PortConfig {
        PortConfig {
            tap: self.tap,
            packet: self.packet,
            team: (!self.team.is_empty()).then_some(self.team),
            xdp: self.xdp,
            vhost_user: self.vhost_user,
            vhost_client: self.vhost_client.then_some(true),
            socket_mode: self.socket_mode,
            socket_owner: self.socket_owner,
            socket_group: self.socket_group,
            netns: self.netns,
            queues: self.queues,
            mtu: self.mtu,
            vlan: self.vlan,
            trunk: self.trunk,
            native: self.native,
            mac: self.mac,
            rate: self.rate,
            burst: self.burst,
            weight: self.weight,
            isolated: self.isolated.then_some(true),
            ..PortConfig::named(self.name)
        }
    }
}

/// `KEY=VALUE` as a merge patch.
fn changes(texts: &[String]) -> Result<Value, Failure> {
    let mut map = Map::new();
    for text in texts {
        let Some((key, value)) = text.split_once('=') else {
            return Err(Failure::Usage(
                Problem::new("not a change")
                    .seen(text)
                    .wanted("KEY=VALUE")
                    .remedy("write mtu=9000"),
            ));
        };
        map.insert(key.to_owned(), typed_value(key, value));
    }
    Ok(Value::Object(map))
}

fn spread(spread: &SpreadBody) -> String {
    match spread {
        SpreadBody::Tables => "indirection tables".to_owned(),
        SpreadBody::KernelHash { reason } => format!("the kernel's hash ({reason})"),
    }
}

fn text(shown: &Shown) -> String {
    let (port, counters) = (&shown.port, &shown.counters);
    let mut text = format!("{}\n\n", status::ports(std::slice::from_ref(port)));
    let facts = [
        ("origin", port.origin.name().to_owned()),
        ("address", port.mac.clone().unwrap_or_else(|| "none".to_owned())),
        ("held to address", port.held_mac.clone().unwrap_or_default()),
        ("address limit", address_limit(&port.config)),
        ("storm control", port.config.storm().to_string()),
        ("weight", port.config.weight.map(|weight| weight.0.to_string()).unwrap_or_default()),
        ("takes", port.offloads.join(" ")),
        (
            if port.config.xdp.is_some() { "limits" } else { "in software" },
            port.degraded.join("; "),
        ),
        ("flows spread by", port.spread.as_ref().map(spread).unwrap_or_default()),
    ];
    for (label, fact) in facts.iter().filter(|(_, fact)| !fact.is_empty()) {
        text.push_str(&format!("{label}: {fact}\n"));
    }
    text.push_str(&port.guest.as_ref().map(guest).unwrap_or_default());
    let numbers = [
        ("ingress frames", counters.ingress_frames),
        ("ingress bytes", counters.ingress_bytes),
        ("egress frames", counters.egress_frames),
        ("egress bytes", counters.egress_bytes),
        ("flooded frames", counters.flooded_frames),
        ("mirrored frames", counters.mirrored_frames),
        ("trains segmented", counters.segmented_trains),
        ("segments made", counters.segments),
        ("partial checksums", counters.unfinished_checksums),
        ("checksums completed", counters.checksums),
        ("path MTU messages", counters.path_mtu_messages),
        ("addresses evicted", counters.evicted_addresses),
        ("lost by the device", counters.device_lost),
        ("dropped", counters.dropped),
    ];
    let rows = numbers.iter().map(|(label, number)| vec![(*label).to_owned(), number.to_string()]);
    let drops = counters.drops.iter().filter(|(_, count)| **count > 0);
    let drops = drops.map(|(reason, count)| vec![format!("  {reason}"), count.to_string()]);
    text.push_str(&format!("\n{}\n", output::table(&["COUNTER", ""], rows.chain(drops))));
    text
}

fn address_limit(port: &PortConfig) -> String {
    port.mac_limit().map_or_else(|| "half of mac-entries".to_owned(), |limit| limit.to_string())
}

/// What was agreed on with a guest, a line a fact.
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
