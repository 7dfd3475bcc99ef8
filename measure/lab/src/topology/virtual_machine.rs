//! The guest as a virtual machine: QEMU runs in the receiver's host, with a vhost-user vNIC at the
//! switch, and an agent in the guest acts as the receiver. The lab connects to the agent from the
//! sender's host, from which the guest can be reached.

use super::{RECEIVER, Topology, VNIC};
use crate::LabError;
use crate::guest::Files;
use crate::host::{Host, Token, Whereabouts};
use crate::interrupt::Interrupt;
use crate::machine::VirtualMachine;
use crate::topology::Route;
use std::path::PathBuf;
use std::time::Duration;

/// Port on which the agent listens.
const AGENT: u16 = 5900;
/// Time within which an agent that listens must be reached.
const AGENT_TIMEOUT: Duration = Duration::from_secs(20);

impl Topology {
    /// Returns the path of QEMU's sockets without their extensions; `vm` is the port's.
    pub(crate) fn machine_path(&self) -> PathBuf {
        self.directory().join("guest")
    }

    /// Boots the guest and makes its agent the receiver. The switch listens at the port's socket.
    pub(crate) fn boot(&mut self, files: Files, interrupt: &Interrupt) -> Result<(), LabError> {
        let (path, mtu, to) = (self.machine_path(), self.mtu, self.address(Route::Switch));
        let directory = self.directory().to_owned();
        let files = files.with_program(&self.program, &mut self.receiver, &directory)?;
        let token = Token::random().map_err(LabError::io("choosing a token"))?;
        let line = format!(
            "ip link set eth0 name {VNIC} && ip link set {VNIC} mtu {mtu} up && ip address add {to}/24 dev {VNIC} && \
             ip -6 address add fd00:77::{RECEIVER}/64 dev {VNIC} && export MILLRACE_LAB_TOKEN={token} && \
             {{ millrace lab agent --listen {to}:{AGENT} >/tmp/agent 2>&1 & }} && \
             until grep Listening /tmp/agent; do kill -0 $! || {{ cat /tmp/agent; exit 1; }}; sleep 0.1; done"
        );
        let machine = VirtualMachine::boot(&files, (&mut self.receiver, &path), &line, interrupt)?;
        let agent = Whereabouts { token, at: format!("{to}:{AGENT}") };
        let connect =
            || Host::connect("receiver", &agent, interrupt).map_err(std::io::Error::other);
        let reached = interrupt.wait_for(AGENT_TIMEOUT, || Ok(self.sender.within(connect).ok()))?;
        let (from, to) = ("the sender".to_owned(), format!("the guest at {}", agent.at));
        let receiver = reached.ok_or(LabError::NoTraffic { from, to, waited: AGENT_TIMEOUT })?;
        let host = std::mem::replace(&mut self.receiver, receiver);
        self.virtual_machine = Some((machine, host));
        Ok(())
    }

    /// Returns the receiver's process; for a virtual machine the emulator's.
    pub(crate) fn receiver_process(&self) -> u32 {
        let machine = self.virtual_machine.as_ref().map(|(machine, _)| machine.process);
        machine.unwrap_or_else(|| self.receiver.process())
    }
}
