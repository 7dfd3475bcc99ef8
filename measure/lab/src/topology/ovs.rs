//! Open vSwitch without its kernel module (`datapath_type=netdev`), in a host of its own.
//!
//! Its packet sockets carry no virtio header, so it would forward partial checksums as they are.
//! Checksum offload is therefore off at both ends.

use super::{RECEIVER, SENDER, Topology, address, offloads, wire};
use crate::LabError;
use crate::host::{Host, Request};
use crate::placement::Placement;
use ports::link::LinkOffload;
use std::path::Path;

/// The sender's and the receiver's links to it.
pub(super) const LINK: &str = "ovs0";
/// Path of its schema on Debian and Fedora.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Starts Open vSwitch between the two hosts. Returns the host that has become the switch.
pub(super) fn start(topology: &mut Topology) -> Result<Host, LabError> {
    let (program, mtu) = (topology.program.clone(), topology.mtu);
    let mut host = Host::start("ovs", &program, topology.directory())?;
    if let Ok(Placement { switch, .. }) = &topology.placement {
        Placement::pin(&mut host, switch)?;
        Placement::steer(&mut host, switch)?;
    }
    let Topology { sender, receiver, .. } = topology;
    for (end, other, station) in [(sender, "in1", SENDER), (receiver, "out1", RECEIVER)] {
        wire(end, LINK, other, host.process(), mtu)?;
        host.run(&format!("ip link set {other} mtu {mtu} up"))?;
        address(end, LINK, 79, station)?;
        end.set_offloads(LINK, &offloads(false, false))?;
        end.set_offloads(LINK, &[(LinkOffload::TxCsum, false)])?;
    }
    let ports = "add-port switch0 in1 -- add-port switch0 out1";
    let configure = run(&mut host, topology.directory(), ("ovs-vswitchd", ""), ports)?;
    topology.bridge.run(&format!("{configure} wait-until Interface out1 ofport>=1"))?;
    Ok(host)
}

/// Turns a host into a switch by running `program`, with its files in `directory`, and with
/// settings (as `ovs-vsctl set` takes them) and ports. Returns the prefix of `ovs-vsctl` commands
/// to it.
pub(crate) fn run(
    host: &mut Host,
    directory: &Path,
    (program, settings): (&str, &str),
    ports: &str,
) -> Result<String, LabError> {
    let place = directory.display();
    host.run(&format!("ovsdb-tool create {place}/ovs.db {SCHEMA}"))?;
    let server = [format!("{place}/ovs.db"), format!("--remote=punix:{place}/ovs.sock")];
    let line = format!("ovsdb-server {}", server.join(" "));
    let control = format!("--unixctl={place}/ovsdb.ctl");
    let arguments = server.into_iter().chain([control]).collect();
    host.order(&Request::Start { program: "ovsdb-server".into(), arguments }, &line)?;
    let configure = format!("ovs-vsctl --db=unix:{place}/ovs.sock --retry --timeout=10");
    host.run(&format!("{configure} --no-wait init"))?;
    if !settings.is_empty() {
        host.shell(&format!("{configure} --no-wait set Open_vSwitch . {settings}"))?;
    }
    host.run(&format!(
        "{configure} --no-wait add-br switch0 -- set bridge switch0 datapath_type=netdev -- {ports}"
    ))?;
    let run = [program, &format!("unix:{place}/ovs.sock")].map(str::to_owned);
    // DPDK keeps its files in RUNTIME_DIRECTORY, which two processes cannot share.
    let variables = ["OVS_RUNDIR", "RUNTIME_DIRECTORY"].map(|name| format!("{name}={place}"));
    let line = format!("{} {}", variables.join(" "), run.join(" "));
    let control = [format!("--unixctl={place}/ovs.ctl"), "-vconsole:off".to_owned()];
    let arguments = variables.into_iter().chain(run).chain(control);
    host.order(&Request::Become { program: "env".into(), arguments: arguments.collect() }, &line)?;
    Ok(configure)
}
