//! Open vSwitch without a part in the kernel (`datapath_type=netdev`), in a host of its own.
//!
//! Its packet sockets carry no virtio header, so it forwards unfinished checksums as they are: both ends finish theirs.

use super::{RECEIVER, SENDER, Topology, address, offloads, wire};
use crate::LabError;
use crate::host::{Host, Request};
use crate::placement::Placement;
use ports::link::LinkOffload;

/// The sender's and the receiver's links to it.
pub(super) const LINK: &str = "ovs0";
/// Where Debian and Fedora have its schema.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// Starts it between the two hosts. The host that is returned has become the switch.
pub(super) fn start(topology: &mut Topology) -> Result<Host, LabError> {
    let (program, mtu) = (topology.program.clone(), topology.mtu);
    let place = topology.directory().display().to_string();
    let mut host = Host::start("ovs", &program, topology.directory())?;
    host.run(&format!("ovsdb-tool create {place}/ovs.db {SCHEMA}"))?;
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
    let server = [format!("{place}/ovs.db"), format!("--remote=punix:{place}/ovs.sock")];
    let line = format!("ovsdb-server {}", server.join(" "));
    let control = format!("--unixctl={place}/ovsdb.ctl");
    let arguments = server.into_iter().chain([control]).collect();
    host.order(&Request::Start { program: "ovsdb-server".into(), arguments }, &line)?;
    let configure = format!("ovs-vsctl --db=unix:{place}/ovs.sock --retry --timeout=10");
    host.run(&format!("{configure} --no-wait init"))?;
    host.run(&format!(
        "{configure} --no-wait add-br switch0 -- set bridge switch0 datapath_type=netdev -- add-port switch0 in1 \
         -- add-port switch0 out1"
    ))?;
    let run = ["ovs-vswitchd", &format!("unix:{place}/ovs.sock")].map(str::to_owned);
    let line = format!("OVS_RUNDIR={place} {}", run.join(" "));
    let control = [format!("--unixctl={place}/ovs.ctl"), "-vconsole:off".to_owned()];
    let arguments = std::iter::once(format!("OVS_RUNDIR={place}")).chain(run).chain(control);
    host.order(&Request::Become { program: "env".into(), arguments: arguments.collect() }, &line)?;
    topology.bridge.run(&format!("{configure} wait-until Interface out1 ofport>=1"))?;
    Ok(host)
}
