//! Decides which ports without `host` this host carries, from the claims in etcd and from the ports
//! that the host had before.
//!
//! A host carries such a port only while its claim owns the port's address, and gives the claim up
//! only after its switch has removed the port. So at no time do two hosts carry one address. A host
//! also has the vhost-user ports of guests that migrate to it; QEMU lets a guest run at one of its
//! two ports at a time.

use super::daemon::finding;
use crate::Name;
use crate::configuration::Claimed;
use crate::model::{Model, Port};
use crate::store::{Claims, Revision, Store};
use api::body::{FindingBody, Severity};
use config::{MacAddress, PortName};
use problem::Problem;
use std::collections::BTreeMap;

/// This host's claims by port: the address, and the fencing token.
pub(super) type Own = BTreeMap<PortName, (String, i64)>;

/// The decision.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    /// Ports that this host is to carry, with its claims on them.
    pub(super) carry: Own,
    /// Ports that it is to carry and that no host has claimed yet, with their addresses.
    pub(super) take: Vec<(PortName, MacAddress)>,
    /// Ports that it prepares for guests that migrate here while another host has their claims.
    pub(super) prepare: Vec<PortName>,
    /// Claims that it gives up once it no longer carries their ports.
    pub(super) leave: Vec<(MacAddress, i64)>,
    /// What people need to know.
    pub(super) findings: Vec<FindingBody>,
}

impl Decision {
    /// Returns the ports that this host is to have, in the form that `configuration` takes.
    pub(super) fn claimed(&self, host: &Name) -> Claimed {
        let ports = self.carry.keys().chain(&self.prepare);
        ports.map(|port| (port.clone(), host.clone())).collect()
    }
}

/// Decides which ports the host carries, from the claims in etcd and from those it `had` before.
fn decide(model: &Model, claims: &Claims, had: &Own, host: &Name) -> Decision {
    let mut decision = Decision::default();
    let claimable = || model.ports.iter().filter(|port| port.host.is_none());
    for port in claimable() {
        decision.port(port, claims, had, host);
    }
    // A guest runs at one vhost-user port at a time, so a second one carries nothing; a TAP device
    // would.
    let is_coming = |port: &&Port| {
        port.vhost_user.is_some() && claims.coming.get(port.name.as_str()) == Some(host)
    };
    decision.prepare = claimable().filter(is_coming).map(|port| port.name.clone()).collect();
    for (mac, claim) in claims.by(host) {
        let is_known =
            claimable().any(|port| port.name == claim.port && port.mac.0.to_string() == mac);
        if !is_known {
            decision.leave.extend(mac.parse().ok().map(|mac: MacAddress| (mac, claim.fence)));
        }
    }
    for (port, (mac, fence)) in had {
        let owner = mac.parse().ok().and_then(|mac| claims.owner(mac));
        if let Some(owner) = owner.filter(|owner| owner.host != *host) {
            let problem = Problem::new(format!("the claim on port {port} was taken over"))
                .seen(format!("host {} holds it, with fencing token {}", owner.host, owner.fence))
                .wanted(format!("this host, with fencing token {fence}"))
                .remedy("none is needed: this host removes the port, as the take-over intends");
            decision.findings.push(finding(Severity::Warning, "claim_taken_over", problem));
        }
    }
    decision
}

impl Decision {
    fn port(&mut self, port: &Port, claims: &Claims, had: &Own, host: &Name) {
        let carrier = claims.carriers.get(port.name.as_str());
        let is_mine = carrier == Some(host);
        // An etcd that lost its data has neither carriers nor claims: the host that had the port
        // keeps it.
        let is_lost = carrier.is_none()
            && had.get(&port.name).is_some_and(|(mac, _)| *mac == port.mac.0.to_string());
        match claims.owner(port.mac) {
            None if is_mine || is_lost => self.take.push((port.name.clone(), port.mac)),
            None => {}
            Some(owner) if owner.host == *host && owner.port == port.name => {
                if is_mine || carrier.is_none() {
                    self.carry.insert(port.name.clone(), (port.mac.0.to_string(), owner.fence));
                } else {
                    self.leave.push((port.mac, owner.fence));
                }
            }
            Some(owner) if is_mine => self.findings.push(waits(port, &owner.host, host)),
            // A claim that waits behind another is of no use to a host that is not the port's
            // carrier.
            Some(_) => {
                let own = claims.on(port.mac).iter().find(|claim| claim.host == *host);
                self.leave.extend(own.map(|own| (port.mac, own.fence)));
            }
        }
    }
}

/// The claims of this host, and what is still to be done about them.
#[derive(Default)]
pub(super) struct Claiming {
    /// Claims to be given up once their ports are removed.
    leaving: Vec<(MacAddress, i64)>,
    /// Ports to be prepared for guests that are about to come.
    preparing: Vec<PortName>,
    findings: Vec<FindingBody>,
}

impl Claiming {
    /// Claims the ports that this host is to carry and no host has claimed. Another host may have
    /// claimed one at the same moment, so what was claimed counts only once the claims were read
    /// again.
    pub(super) fn claim(
        &mut self,
        store: &Store,
        host: &Name,
        revision: &Revision,
        claims: &Claims,
        had: &Own,
    ) -> Result<Decision, Problem> {
        let mut decision = decide(&revision.model, claims, had, host);
        if !decision.take.is_empty() {
            for (port, mac) in &decision.take {
                if store.claim(*mac, host, port)? {
                    tracing::info!("claimed {} for port {port}", mac.0);
                }
            }
            decision = decide(&revision.model, &store.claims()?, had, host);
        }
        self.findings.clone_from(&decision.findings);
        self.leaving.clone_from(&decision.leave);
        self.preparing.clone_from(&decision.prepare);
        Ok(decision)
    }

    /// Gives up claims on ports that the switch no longer has. Returns whether etcd answered: only
    /// the next read shows what it still has.
    pub(super) fn give_up(&mut self, store: &Store, host: &Name) -> bool {
        let mut answered = true;
        for (mac, fence) in std::mem::take(&mut self.leaving) {
            match store.give_up(mac, host, fence) {
                Ok(true) => tracing::info!("gave up {}, with fencing token {fence}", mac.0),
                Ok(false) => tracing::warn!("{} was taken over before it was given up", mac.0),
                Err(problem) => {
                    tracing::debug!("{problem}");
                    answered = false;
                }
            }
        }
        answered
    }

    /// Returns the ports to be prepared for guests that are about to come.
    pub(super) fn preparing(&self) -> &[PortName] {
        &self.preparing
    }

    /// Returns the findings about claims.
    pub(super) fn findings(&self) -> &[FindingBody] {
        &self.findings
    }
}

fn waits(port: &Port, owner: &Name, host: &Name) -> FindingBody {
    let name = &port.name;
    let problem = Problem::new(format!("port {name} waits for host {owner}"))
        .seen(format!("host {owner} holds the claim on {}", port.mac.0))
        .wanted("a claim that no other host holds")
        .remedy(format!(
            "wait; if that host is off for good, `millrace fleet move {name} {host} --take-over`"
        ));
    finding(Severity::Info, "claim_waits", problem)
}

#[cfg(test)]
mod tests;
