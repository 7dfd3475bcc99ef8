//! `millrace port add`: adds a port.

use super::port::changes;
use super::port_wait::Wait;
use crate::commands::{names, status};
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use api::body::PortBody;
use clap::{ArgGroup, Args};
use config::{
    self, Account, Device, FileMode, HostName, MacAddress, Mtu, Namespace, PortConfig, PortName,
    Queues, Rate, Size, SocketPath, VlanId, VlanList, Weight,
};
use problem::Problem;
use serde_json::Value;

#[derive(Args)]
#[command(group = ArgGroup::new("device"))]
#[command(after_help = "\
Examples:
  millrace port add vm1 --tap tap1 --vlan 10 --mac 52:54:00:12:34:56
  millrace port add vm2 --vhost-user /run/millrace/vm2.sock --queues 4 --mac 52:54:00:12:34:57
  millrace port add c1 --veth eth0 --netns c1 --mac 52:54:00:12:34:58
  millrace port add uplink0 --packet eth1 --trunk 10,20-30
  millrace port add uplink0 --team eth1,eth2
  millrace port add uplink1 --xdp eth2
  millrace port add vm3 --tap tap3 mac-spoofing=allow storm=off
  millrace port add vm1 --tap tap1 --vlan 10 --may-exist --wait up

The port persists: it survives a restart, and rereading the configuration file leaves it alone.")]
pub(super) struct Add {
    /// The port's name: letters, digits, `.`, `_` and `-`.
    name: PortName,
    /// Open this TAP device; create it if it does not exist.
    #[arg(long, group = "device", value_name = "DEVICE", add = names::devices())]
    tap: Option<HostName>,
    /// Make a veth pair whose end of this name is in the namespace of --netns.
    #[arg(long, group = "device", value_name = "DEVICE")]
    veth: Option<HostName>,
    /// Use this network device as an uplink.
    #[arg(long, group = "device", value_name = "DEVICE", add = names::devices())]
    packet: Option<HostName>,
    /// Use these network devices, up to 8, as one uplink.
    #[arg(long, group = "device", value_name = "DEVICES", value_delimiter = ',')]
    team: Vec<HostName>,
    /// Use this network device as an uplink by AF_XDP, bypassing the host's stack.
    #[arg(long, group = "device", value_name = "DEVICE", add = names::devices())]
    xdp: Option<HostName>,
    /// Serve a virtual machine or a DPDK application at this Unix socket.
    #[arg(long, group = "device", value_name = "PATH")]
    vhost_user: Option<SocketPath>,
    /// Connect to the socket; the guest's side listens.
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
    #[arg(long, conflicts_with = "vhost_user", value_name = "NAME|PATH", add = names::namespaces())]
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
    /// Limit the rate at which the port may receive, such as 1Gbit.
    #[arg(long)]
    rate_to: Option<Rate>,
    /// Burst size of the rate limit, such as 256KiB.
    #[arg(long, requires = "rate", value_name = "SIZE")]
    burst: Option<Size>,
    /// Share of a congested uplink relative to other ports, 1 to 100.
    #[arg(long)]
    weight: Option<Weight>,
    /// Let the port reach uplinks only.
    #[arg(long)]
    isolated: bool,
    /// Any key of a port in the configuration file.
    #[arg(value_name = "KEY=VALUE", add = names::keys())]
    keys: Vec<String>,
    /// Do nothing if the port exists with these settings.
    #[arg(long)]
    may_exist: bool,
    #[command(flatten)]
    wait: Wait,
}

impl Add {
    /// Adds the port, unless it may exist and does.
    pub(super) fn run(mut self, global: &Global) -> Outcome {
        let (keys, may_exist) = (std::mem::take(&mut self.keys), self.may_exist);
        let wait = std::mem::take(&mut self.wait);
        let wanted = with_keys(&self.port(), &keys)?;
        let client = global.client()?;
        let name = wanted.name.as_str();
        let there = if may_exist {
            client.ports()?.into_iter().find(|port| port.name == name)
        } else {
            None
        };
        let port = match there {
            Some(port) => same(port, &wanted)?,
            None => client.add_port(&wanted)?,
        };
        let port = wait.until(&client, port)?;
        output::show(global, &port, |port| status::ports(std::slice::from_ref(port)))
    }

    fn port(self) -> PortConfig {
        PortConfig {
            tap: self.tap,
            veth: self.veth,
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
            rate_to: self.rate_to,
            burst: self.burst,
            weight: self.weight,
            isolated: self.isolated.then_some(true),
            ..PortConfig::named(self.name)
        }
    }
}

/// Returns the port with the typed `KEY=VALUE` pairs.
fn with_keys(port: &PortConfig, keys: &[String]) -> Result<PortConfig, Failure> {
    let mut keys = changes(keys)?;
    keys.retain(|_, value| !value.is_null());
    let name = &port.name;
    let port = config::with_keys(port, &keys).map_err(Failure::Usage)?;
    if port.device() == Device::None {
        let problem = Problem::new(format!("port {name} has no device"))
            .wanted(
                "one of --tap, --veth, --packet, --team, --xdp and --vhost-user, with its device or socket",
            )
            .remedy(format!("`millrace port add {name} --tap {name}` opens a TAP device"));
        return Err(Failure::Usage(problem));
    }
    Ok(port)
}

/// Returns the existing port, if each wanted key has the wanted value.
fn same(port: PortBody, wanted: &PortConfig) -> Result<PortBody, Problem> {
    let json = |config: &PortConfig| serde_json::to_value(config).unwrap_or_default();
    let (is, wanted) = (json(&port.config), json(wanted));
    let keys = wanted.as_object().into_iter().flatten();
    let others: Vec<_> = keys.filter(|(key, value)| is.get(key) != Some(value)).collect();
    if others.is_empty() {
        return Ok(port);
    }
    let text = |value: Option<&Value>| value.map_or("absent".to_owned(), Value::to_string);
    let seen = others.iter().map(|(key, _)| format!("{key}: {}", text(is.get(key))));
    let keys = others.iter().map(|(key, value)| format!("{key}: {value}"));
    Err(Problem::new(format!("port {} exists with other settings", port.name))
        .seen(seen.collect::<Vec<_>>().join(", "))
        .wanted(keys.collect::<Vec<_>>().join(", "))
        .remedy(format!("`millrace port set {} KEY=VALUE` changes them", port.name)))
}
