//! The site of existing hosts: what the report says of them, and the bench that runs on them.

use super::bench::Hosts;
use super::connected::ConnectedHosts;
use crate::LabError;
use crate::host::{Command, Identity};
use crate::interrupt::Interrupt;
use crate::load::Load;
use crate::plan::Plan;
use crate::report::{BenchFacts, Check, HostFacts};
use crate::site::{RunResult, Site, Tell};

/// Sentence of the report if the daemon's processor time cannot be read.
const UNSEEN: &str = " The switch's process is hidden from this one (ProtectProc, hidepid, or another PID namespace): the switch's CPU and the \
cost of receiving are missing, and its time counts as that of others.";

impl Site for ConnectedHosts {
    fn facts(&self) -> BenchFacts {
        let own = Identity::own();
        let [sender, receiver] = &self.identities;
        let machine = |role: &str, of: &Identity| {
            let place =
                if of.boot == own.boot { "the switch's machine" } else { "its own machine" };
            format!("the {role} is on {place} ({})", of.machine.words())
        };
        let description = format!(
            "Between hosts: {}, {}; the load goes to {} ({}) through port {} of the running switch. Each host counts with \
              its own clock; throughput uses the receiver's.{}",
            machine("sender", sender),
            machine("receiver", receiver),
            self.to,
            self.link,
            self.running.port.name,
            if self.running.is_visible() { "" } else { UNSEEN }
        );
        let host = |role: &str, of: &Identity| HostFacts {
            role: role.to_owned(),
            same_machine: of.boot == own.boot,
            machine: of.machine.clone(),
        };
        let hosts = vec![host("sender", sender), host("receiver", receiver)];
        let (mtu, vnic) = (self.running.mtu, Some(self.running.kind.clone()));
        BenchFacts { description, mtu, vnic, hosts, ..BenchFacts::default() }
    }

    fn checks(&mut self, _interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        self.running.checks()
    }

    fn commands(&self) -> Vec<Command> {
        let hosts = [&self.sender, &self.receiver];
        let theirs = hosts.into_iter().flat_map(|host| host.commands().iter().cloned());
        self.running.port.commands().into_iter().chain(theirs).collect()
    }

    fn leave(&mut self) -> Option<Check> {
        self.running.leave()
    }

    fn run(
        &mut self,
        load: Load,
        plan: &Plan,
        interrupt: &Interrupt,
        progress: Tell<'_>,
    ) -> RunResult {
        let mut bench = Hosts::start(self, load, interrupt.clone())?;
        let run = plan.run(&mut bench, progress);
        Ok((run, bench.account()))
    }
}
