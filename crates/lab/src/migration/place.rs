//! One of the two hosts: a daemon with a guest's port, the host's own port and an uplink, and the namespace in which QEMU runs
//! and from which memory is sent.

use super::PORT;
use crate::LabError;
use crate::daemon;
use crate::host::Host;
use crate::interrupt::Interrupt;
use crate::machine::MAC;
use crate::port::Port;
use crate::report::Command;
use crate::topology::{UPLINK, VNIC, offloads, wire};
use control::body::{PortBody, StateBody};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// MTU of the wire, in bytes: the ports decide which frames there are.
const WIDE: u16 = 9000;

/// See the module. It ends with its two processes.
pub(super) struct Place {
    name: &'static str,
    /// Where memory is sent from and to.
    pub(super) address: &'static str,
    /// QEMU's namespace, with the host's own vNIC.
    pub(super) host: Host,
    /// Becomes the daemon.
    pub(super) switch: Host,
    /// The ports whose MTU is that of the arm.
    ports: Vec<Port>,
    /// What the paths of its files begin with.
    path: PathBuf,
}

impl Place {
    /// Starts a host that is wired to the physical switch.
    pub(super) fn start(
        (name, address): (&'static str, &'static str),
        physical: &mut Host,
        (program, directory): (&Path, &Path),
        interrupt: &Interrupt,
    ) -> Result<Place, LabError> {
        let host = Host::start(&format!("{name} (QEMU)"), program, directory)?;
        let mut switch = Host::start(name, program, directory)?;
        wire(physical, name, UPLINK, switch.process(), WIDE)?;
        physical.run(&format!("ip link set {name} master bridge0"))?;
        physical.set_offloads(name, &offloads(false, false))?;
        switch.run(&format!("ip link set {UPLINK} mtu {WIDE} up"))?;
        // Frames of MTU size leave, as over a wire.
        switch.set_offloads(UPLINK, &offloads(false, false))?;
        let path = directory.join(name);
        let mut place = Place { name, address, host, switch, ports: Vec::new(), path };
        place.run_switch(program, interrupt)?;
        place.host.run(&format!("ip address add {address}/24 dev {VNIC}"))?;
        place.host.run(&format!("ip link set {VNIC} up"))?;
        Ok(place)
    }

    /// A file of this host's.
    pub(super) fn file(&self, what: &str) -> PathBuf {
        self.path.with_extension(what)
    }

    /// Where a machine runs.
    pub(super) fn for_machine(&mut self) -> (&mut Host, &Path) {
        (&mut self.host, &self.path)
    }

    /// Turns the switch host into the daemon and waits until it carries frames.
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
        Ok(())
    }

    /// Sets the MTU of the way that memory takes, in bytes; the TAP follows its port.
    pub(super) fn set_mtu(&self, mtu: u16) -> Result<(), LabError> {
        self.ports.iter().try_for_each(|port| port.change(&json!({ "mtu": mtu })))
    }

    /// Every command so far.
    pub(super) fn commands(&self) -> Vec<Command> {
        let told = self.ports.iter().flat_map(Port::commands);
        let told = told.map(|command| Command { host: self.name.into(), ..command });
        let hosts = self.switch.commands().iter().chain(self.host.commands());
        hosts.cloned().chain(told).collect()
    }
}
