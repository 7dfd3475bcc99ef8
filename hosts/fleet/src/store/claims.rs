//! Claims decide which host carries the address of a port without `host`. Their order and fencing
//! tokens ensure that only one does.
//!
//! A person decides which host is to be a port's *carrier*. The agent there claims the port's
//! address. Each host writes its claims below its own name, so that no host can touch another's.
//! The claim on an address that was written first, with the lowest mod revision, *owns* it; the
//! others wait behind it. So a host that finds its claim in front stays the owner until it gives
//! the claim up, whatever is written later. This is the usual way to build locks from etcd's keys.
//!
//! A claim has no lease: a host that etcd cannot hear may still carry the port, so the claim of a
//! lost host is taken over only when a person says that the host is off (`take over`). A claim's
//! mod revision is its fencing token: each owner's is greater than all earlier owners', and a write
//! that gives a claim up compares it, so a host that was taken over finds that it no longer is the
//! owner.

use super::coming::COMING;
use super::{Store, text, told};
use crate::Name;
use crate::configuration::Claimed;
use crate::etcd::{Compare, KeyValue, Operation, Transaction};
use crate::model::Model;
use config::{MacAddress, PortName};
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The host that is to carry a port, or that prepares it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrier {
    /// The host.
    pub host: Name,
}

/// A host's claim on an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The host.
    pub host: Name,
    /// The port for which it claims the address.
    pub port: PortName,
    /// The fencing token: etcd's revision at which the claim was written.
    pub fence: i64,
}

/// A claim's value. The host is in the key, where a role binds it.
#[derive(Serialize, Deserialize)]
struct Value {
    port: PortName,
}

/// All claims and carriers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claims {
    /// The claims by address, that of the owner first.
    claims: BTreeMap<String, Vec<Claim>>,
    /// The host that is to carry each port.
    pub carriers: BTreeMap<String, Name>,
    /// The host that prepares each port for a guest that is to migrate there.
    pub coming: BTreeMap<String, Name>,
}

const CLAIMS: &str = "/millrace/v1/claims/";
const CARRIERS: &str = "/millrace/v1/carriers/";

/// Returns the prefix of a host's claims.
pub(super) fn prefix(host: &Name) -> String {
    format!("{CLAIMS}{host}/")
}

fn claim_key(host: &Name, mac: MacAddress) -> String {
    format!("{}{}", prefix(host), mac.0)
}

fn carrier_key(port: &PortName) -> String {
    format!("{CARRIERS}{port}")
}

impl Claims {
    /// Reads the claims and carriers among these keys. Those that cannot be read are left out: a
    /// host that writes such a claim has none.
    pub(crate) fn of(keys: &[KeyValue]) -> Claims {
        let mut claims = BTreeMap::<String, Vec<Claim>>::new();
        for (mac, claim) in keys.iter().filter_map(claim) {
            claims.entry(mac).or_default().push(claim);
        }
        for all in claims.values_mut() {
            all.sort_by_key(|claim| claim.fence);
        }
        Claims { claims, carriers: by_port(keys, CARRIERS), coming: by_port(keys, COMING) }
    }

    /// Returns the host that carries each claimed port of these models. If they differ in a port's
    /// address, the first model decides.
    pub fn claimed<'m>(&self, models: impl IntoIterator<Item = &'m Model>) -> Claimed {
        let mut claimed = Claimed::new();
        let ports = models.into_iter().flat_map(|model| &model.ports);
        for port in ports.filter(|port| port.host.is_none()) {
            // A claim for another port of this address says nothing about this one.
            if let Some(owner) = self.owner(port.mac).filter(|owner| owner.port == port.name) {
                claimed.entry(port.name.clone()).or_insert_with(|| owner.host.clone());
            }
        }
        claimed
    }

    /// Returns the claim that owns an address.
    pub fn owner(&self, mac: MacAddress) -> Option<&Claim> {
        self.on(mac).first()
    }

    /// Returns all claims on an address, that of the owner first.
    pub fn on(&self, mac: MacAddress) -> &[Claim] {
        self.claims.get(&mac.0.to_string()).map_or(&[], Vec::as_slice)
    }

    /// Returns a host's claims, by address.
    pub(crate) fn by(&self, host: &Name) -> impl Iterator<Item = (&str, &Claim)> {
        let all =
            self.claims.iter().flat_map(|(mac, all)| all.iter().map(move |it| (mac.as_str(), it)));
        all.filter(move |(_, claim)| claim.host == *host)
    }
}

/// Reads a claim and its address from a key that ends in `HOST/MAC`.
fn claim(pair: &KeyValue) -> Option<(String, Claim)> {
    let (host, mac) = pair.key.strip_prefix(CLAIMS)?.split_once('/')?;
    let host = host.parse().ok()?;
    let value: Value = told(pair).ok()?;
    Some((mac.to_owned(), Claim { host, port: value.port, fence: pair.mod_revision }))
}

/// Returns the host that each document below this prefix names for a port. Those that cannot be
/// read are left out.
fn by_port(keys: &[KeyValue], prefix: &str) -> BTreeMap<String, Name> {
    let host = |pair: &KeyValue| {
        let port = pair.key.strip_prefix(prefix)?.to_owned();
        Some((port, told::<Carrier>(pair).ok()?.host))
    };
    keys.iter().filter_map(host).collect()
}

impl Store {
    /// Sets the host that is to carry a port.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn place(&self, port: &PortName, host: &Name) -> Result<(), Problem> {
        self.carry_out(&placing(port, host)?).map(drop)
    }

    /// Reads the claims.
    pub(crate) fn claims(&self) -> Result<Claims, Problem> {
        Ok(Claims::of(&self.etcd.between(CARRIERS, super::DESIRED)?.keys))
    }

    /// Claims an address for a port. Returns false if the host has a claim on it already. A later
    /// read shows whether the claim owns the address.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn claim(&self, mac: MacAddress, host: &Name, port: &PortName) -> Result<bool, Problem> {
        Ok(self.carry_out(&claiming(mac, host, port)?)?.is_some())
    }

    /// Gives a claim up. Returns false if it was taken over, so that this fencing token owns
    /// nothing any more.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn give_up(&self, mac: MacAddress, host: &Name, fence: i64) -> Result<bool, Problem> {
        Ok(self.carry_out(&giving_up(mac, host, fence))?.is_some())
    }

    /// Places a port on a host and gives that host the claim in place of the `old` ones, the
    /// owner's first. The caller knows that the owner is off. Returns the new fencing token; `None`
    /// if the owner changed meanwhile, so that nothing was written.
    ///
    /// # Errors
    /// Fails if etcd does not answer or refuses the request.
    pub fn take_over(
        &self,
        mac: MacAddress,
        old: &[Claim],
        (host, port): (&Name, &PortName),
    ) -> Result<Option<i64>, Problem> {
        self.carry_out(&taking_over(mac, old, (host, port))?)
    }
}

/// Returns the transaction of [`Store::place`].
pub(crate) fn placing(port: &PortName, host: &Name) -> Result<Transaction, Problem> {
    let carrier = text(&Carrier { host: host.clone() })?;
    let put = Operation::put(&carrier_key(port), carrier, None);
    Ok(Transaction { compare: Vec::new(), success: vec![put] })
}

/// Returns the transaction of [`Store::claim`].
pub(crate) fn claiming(
    mac: MacAddress,
    host: &Name,
    port: &PortName,
) -> Result<Transaction, Problem> {
    let key = claim_key(host, mac);
    let put = Operation::put(&key, text(&Value { port: port.clone() })?, None);
    Ok(Transaction { compare: vec![Compare::absent(&key)], success: vec![put] })
}

/// Returns the transaction of [`Store::give_up`].
pub(crate) fn giving_up(mac: MacAddress, host: &Name, fence: i64) -> Transaction {
    let key = claim_key(host, mac);
    let compare = vec![Compare::unchanged(&key, fence)];
    Transaction { compare, success: vec![Operation::delete(&key)] }
}

/// Returns the transaction of [`Store::take_over`].
pub(crate) fn taking_over(
    mac: MacAddress,
    old: &[Claim],
    (host, port): (&Name, &PortName),
) -> Result<Transaction, Problem> {
    let key = |claim: &Claim| claim_key(&claim.host, mac);
    // Only the owner's claim is compared: if waiting claims counted too, a host could block a
    // take-over by renewing its claim.
    let compare = old.first().map(|owner| Compare::unchanged(&key(owner), owner.fence));
    let compare = compare.into_iter().collect();
    let mut success = placing(port, host)?.success;
    let others = old.iter().filter(|claim| claim.host != *host);
    success.extend(others.map(|claim| Operation::delete(&key(claim))));
    let value = text(&Value { port: port.clone() })?;
    success.push(Operation::put(&claim_key(host, mac), value, None));
    Ok(Transaction { compare, success })
}
