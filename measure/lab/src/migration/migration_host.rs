//! One of the two hosts: a switch with the guest's port, the host's own port and an uplink, and the
//! network namespace from which QEMU runs and memory is sent.

use super::PORT;
use crate::host::{Command, Host};
use crate::interrupt::Interrupt;
use crate::machine::MAC;
use crate::port::Port;
use crate::topology::{UPLINK, VNIC, offloads, ovs, wire};
use crate::{LabError, daemon};
use api::body::{PortBody, StateBody};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Name of the host's end of the direct wire.
const DIRECT: &str = "direct0";
/// MTU of the direct wire, in bytes.
const DIRECT_MTU: u16 = 1500;
/// MTU of the uplink's wire, in bytes. The MTU of the switch's ports limits the frames.
const UPLINK_MTU: u16 = 9000;

/// Path of Debian's Open vSwitch with DPDK.
const OVS_DPDK: &str = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
/// Settings of Open vSwitch. A polling thread sleeps for at most 0.5 ms when little arrives: two
/// that never sleep would take both processors of a small machine. One guest needs no huge pages.
const OVS_SETTINGS: &str = "other_config:dpdk-init=true other_config:pmd-maxsleep=500 \
                        'other_config:dpdk-extra=\"--legacy-mem --no-huge --no-pci -m 1024\"'";

/// Kind of a host's switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SwitchKind {
    Millrace,
    OpenVswitch,
}

/// A running host; dropping it ends its two processes.
pub(super) struct MigrationHost {
    name: &'static str,
    /// Last byte of the host's addresses.
    station: u8,
    /// The host process of QEMU's namespace, with the host's own vNIC and the direct wire.
    pub(super) host: Host,
    /// The host process that becomes the switch.
    pub(super) switch: Host,
    /// The ports whose MTU is that of the arm; empty for Open vSwitch.
    ports: Vec<Port>,
    /// Path of the host's files without their extension.
    path: PathBuf,
}

impl MigrationHost {
    /// Starts a host, and connects it to the physical switch.
    ///
    /// # Errors
    /// A command on a host fails, Open vSwitch is not installed, or the switch does not start.
    pub(super) fn start(
        (name, station): (&'static str, u8),
        kind: SwitchKind,
        physical: &mut Host,
        (program, directory): (&Path, &Path),
        interrupt: &Interrupt,
    ) -> Result<MigrationHost, LabError> {
        let mut host = Host::start(&format!("{name} (QEMU)"), program, directory)?;
        let mut switch = Host::start(name, program, directory)?;
        let direct = direct_link(name);
        wire(physical, name, UPLINK, switch.process(), UPLINK_MTU)?;
        wire(physical, &direct, DIRECT, host.process(), DIRECT_MTU)?;
        for link in [name, &direct] {
            physical.run(&format!("ip link set {link} master bridge0"))?;
            physical.set_offloads(link, &offloads(false, false))?;
        }
        host.set_offloads(DIRECT, &offloads(false, false))?;
        // Both links of the host lead to bridge0. Linux would answer ARP on either for the other's
        // address, and memory would arrive on a link that the arm does not name.
        host.shell("echo 1 > /proc/sys/net/ipv4/conf/all/arp_ignore")?;
        host.run(&format!("ip address add 10.79.0.{station}/24 dev {DIRECT}"))?;
        host.run(&format!("ip link set {DIRECT} up"))?;
        switch.run(&format!("ip link set {UPLINK} mtu {UPLINK_MTU} up"))?;
        // Frames leave in MTU size, as on a physical wire.
        switch.set_offloads(UPLINK, &offloads(false, false))?;
        let path = directory.join(name);
        let mut started = MigrationHost { name, station, host, switch, ports: Vec::new(), path };
        match kind {
            SwitchKind::Millrace => started.run_switch(program, interrupt)?,
            SwitchKind::OpenVswitch => started.run_ovs()?,
        }
        Ok(started)
    }

    /// Returns the physical switch's link that carries the memory to this host, through Millrace or
    /// over the direct wire, and this host's address there.
    pub(super) fn memory(&self, direct: bool) -> (String, String) {
        let station = self.station;
        match direct {
            true => (direct_link(self.name), format!("10.79.0.{station}")),
            false => (self.name.to_owned(), format!("10.78.0.{station}")),
        }
    }

    /// Returns the path of the host's file with an extension.
    pub(super) fn file(&self, extension: &str) -> PathBuf {
        self.path.with_extension(extension)
    }

    /// Returns the host process for a virtual machine, and the path of its files without extension.
    pub(super) fn for_machine(&mut self) -> (&mut Host, &Path) {
        (&mut self.host, &self.path)
    }

    /// Turns the switch host into the daemon, and waits until its uplink and the host's port are
    /// up.
    fn run_switch(&mut self, program: &Path, interrupt: &Interrupt) -> Result<(), LabError> {
        let [socket, guest] = ["api", "vm"].map(|what| self.file(what));
        let text = format!(
            "[switch]\nsocket = {socket:?}\nworkers = 1\n\
             [[port]]\nname = \"uplink\"\npacket = \"{UPLINK}\"\n\
             [[port]]\nname = \"host\"\ntap = \"{VNIC}\"\nnetns = \"/proc/{}/ns/net\"\n\
             [[port]]\nname = \"{PORT}\"\nvhost-user = {guest:?}\nmac = \"{MAC}\"\n",
            self.host.process()
        );
        let up = |ports: &[PortBody]| {
            ports.iter().filter(|port| port.state == StateBody::Up).count() == 2
        };
        let of = (self.path.as_path(), text.as_str());
        let client = daemon::run(&mut self.switch, program, of, interrupt, up)?;
        let client = Rc::new(client);
        self.ports =
            ["uplink", "host"].map(|name| Port::new(client.clone(), name.to_owned())).into();
        self.host.run(&format!("ip address add 10.78.0.{}/24 dev {VNIC}", self.station))?;
        self.host.run(&format!("ip link set {VNIC} up")).map(drop)
    }

    /// Turns the switch host into Open vSwitch, and waits until it serves the guest's port. The
    /// switch carries no memory: over its packet sockets that took seven times as long, and would
    /// dominate the outage.
    fn run_ovs(&mut self) -> Result<(), LabError> {
        if !Path::new(OVS_DPDK).exists() {
            let package = "openvswitch-switch-dpdk";
            return Err(LabError::ProgramMissing { program: OVS_DPDK.into(), package });
        }
        // Open vSwitch names the socket of such a port like the port.
        let directory = self.path.with_extension("ovs");
        std::fs::create_dir(&directory).map_err(LabError::io("making a directory for OVS"))?;
        let ports = format!(
            "add-port switch0 {UPLINK} -- add-port switch0 {PORT} -- set interface {PORT} type=dpdkvhostuser"
        );
        let run = (OVS_DPDK, OVS_SETTINGS);
        let configure = ovs::run(&mut self.switch, &directory, run, &ports)?;
        self.host.run(&format!("{configure} wait-until Interface {PORT} ofport>=1"))?;
        let socket = self.file("vm");
        std::os::unix::fs::symlink(directory.join(PORT), socket)
            .map_err(LabError::io("naming the guest's socket"))
    }

    /// Sets the MTU of the memory's path, in bytes; the TAP follows its port.
    ///
    /// # Errors
    /// The daemon refuses the change.
    pub(super) fn set_mtu(&self, mtu: u16) -> Result<(), LabError> {
        self.ports.iter().try_for_each(|port| port.change(&json!({ "mtu": mtu })))
    }

    /// Returns every command so far.
    pub(super) fn commands(&self) -> Vec<Command> {
        let changes = self.ports.iter().flat_map(Port::commands);
        let changes = changes.map(|command| Command { host: self.name.into(), ..command });
        let hosts = self.switch.commands().iter().chain(self.host.commands());
        hosts.cloned().chain(changes).collect()
    }
}

/// Returns the name of the physical switch's end of a host's direct wire.
fn direct_link(name: &str) -> String {
    format!("{name}-direct")
}
