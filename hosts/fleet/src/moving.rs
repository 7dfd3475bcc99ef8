//! Moves a port without `host` to a host.

use crate::Name;
use crate::configuration::configuration;
use crate::model::{Model, Port};
use crate::store::{Claims, HostRecord, Store, Wanted};
use config::{PortName, nearest};
use problem::Problem;
use std::time::{Duration, Instant};

/// The interval between reads of etcd.
const LOOK: Duration = Duration::from_millis(200);

/// Moves a port without `host` to a host, and waits up to `timeout` until that host has claimed
/// it. `take_over` takes the claim from a host that is off. After any outcome the move can be
/// requested again.
///
/// # Errors
/// Fails if the port does not exist or has a host in the model, the host cannot have it or takes
/// too long, another host keeps the claim, or etcd does not answer.
pub fn move_port(
    store: &Store,
    port: &PortName,
    host: &Name,
    take_over: bool,
    timeout: Duration,
) -> Result<(), Problem> {
    let in_force = store.in_force()?;
    let found = find(&in_force.model, port)?;
    find_target(store, &in_force, (found, host))?;
    store.place(port, host)?;
    if take_over {
        look(timeout, || take_over_from_owner(store, found, host))?;
    }
    look(timeout, || is_claimed(store, found, host))?;
    if in_force.claims.coming.contains_key(port.as_str()) {
        store.end_preparation(port)?;
    }
    Ok(())
}

/// Checks that a port can move to a host: the port has no host in the model, and the host exists
/// and has a valid configuration with the port.
pub(crate) fn find_target(
    store: &Store,
    in_force: &InForce,
    (port, host): (&Port, &Name),
) -> Result<(), Problem> {
    if let Some(own) = &port.host {
        return Err(Problem::new(format!(
            "port {} does not move: the model names its host",
            port.name
        ))
        .seen(format!("host = \"{own}\""))
        .wanted("a port without `host`")
        .remedy("change `host` in two revisions: remove the port, then add it"));
    }
    let records = store.hosts()?;
    let target = find_host(&records, host)?;
    check_present(target, in_force.revision)?;
    let mut claimed = in_force.claims.claimed([&in_force.model]);
    claimed.insert(port.name.clone(), host.clone());
    configuration(&in_force.model, &target.host, &claimed).map(drop)
}

/// Calls `missing` until it returns nothing, for at most `timeout`. Then it fails with what is
/// missing.
pub(crate) fn look(
    timeout: Duration,
    mut missing: impl FnMut() -> Result<Option<Problem>, Problem>,
) -> Result<(), Problem> {
    let begin = Instant::now();
    while let Some(problem) = missing()? {
        if begin.elapsed() >= timeout {
            return Err(problem);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Takes the claim from another host that owns it. Claims may change at the same moment, so the
/// next look decides.
fn take_over_from_owner(
    store: &Store,
    port: &Port,
    host: &Name,
) -> Result<Option<Problem>, Problem> {
    let claims = store.claims()?;
    let Some(owner) = claims.owner(port.mac).filter(|owner| owner.host != *host) else {
        return Ok(None);
    };
    let taken = store.take_over(port.mac, claims.on(port.mac), (host, &port.name))?;
    let problem = Problem::new(format!("the claim on port {} keeps changing", port.name))
        .seen(format!("host {} has it", owner.host))
        .wanted("an owner that is off")
        .remedy(format!(
            "`millrace fleet bootstrap --remove {}` if its credentials were stolen; then try again",
            owner.host
        ));
    Ok(taken.is_none().then_some(problem))
}

/// Checks whether the host owns the claim. Returns the problem if not.
fn is_claimed(store: &Store, port: &Port, host: &Name) -> Result<Option<Problem>, Problem> {
    let claims = store.claims()?;
    let owner = claims.owner(port.mac).map(|claim| &claim.host);
    if owner == Some(host) {
        return Ok(None);
    }
    let seen = owner.map_or("no host has claimed it".to_owned(), |it| format!("host {it} has it"));
    let problem = Problem::new(format!("port {} has not come to host {host}", port.name))
        .seen(seen)
        .wanted(format!("host {host}; the move stays requested"));
    Ok(Some(
        problem.remedy(
            "see `millrace fleet status`; if the old host is off for good, use --take-over",
        ),
    ))
}

pub(crate) fn find<'m>(model: &'m Model, port: &PortName) -> Result<&'m Port, Problem> {
    model.ports.iter().find(|other| other.name == *port).ok_or_else(|| {
        let known: Vec<&str> = model.ports.iter().map(|port| port.name.as_str()).collect();
        let remedy = match nearest(port.as_str(), &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "add the port to the model, and apply it".to_owned(),
        };
        Problem::new(format!("the fleet has no port {port}"))
            .seen(port)
            .wanted(one_of("port", &known))
            .remedy(remedy)
    })
}

fn find_host<'r>(records: &'r [HostRecord], host: &Name) -> Result<&'r HostRecord, Problem> {
    records.iter().find(|record| record.host.name == *host).ok_or_else(|| {
        let known: Vec<&str> = records.iter().map(|record| record.host.name.as_str()).collect();
        Problem::new(format!("no agent has registered host {host}"))
            .seen(host)
            .wanted(one_of("host", &known))
            .remedy(format!("run `millrace fleet agent --host {host}` there"))
    })
}

fn one_of(kind: &str, known: &[&str]) -> String {
    match known {
        [] => format!("the name of a {kind}, of which there is none"),
        _ => known.join(", "),
    }
}

/// Checks that the host is not away, and has the revision in force.
fn check_present(record: &HostRecord, base: u64) -> Result<(), Problem> {
    let seen = match &record.status {
        Some(status) if status.revision >= base => return Ok(()),
        Some(status) => format!("it has revision {}", status.revision),
        None => "its agent is away".to_owned(),
    };
    Err(Problem::new(format!("host {} cannot take a port now", record.host.name))
        .seen(seen)
        .wanted(format!("a host that is not away and has revision {base}"))
        .remedy("check `millrace fleet status`; the port stays where it is"))
}

/// The revision in force with its model and the claims, read at one time.
pub(crate) struct InForce {
    /// The number of the revision.
    pub(crate) revision: u64,
    pub(crate) model: Model,
    pub(crate) claims: Claims,
}

impl Store {
    /// Reads the revision in force, and the claims.
    pub(crate) fn in_force(&self) -> Result<InForce, Problem> {
        let Wanted { desired, claims, .. } = self.wanted()?;
        let revision = desired.document.map_or(0, |desired| desired.base());
        Ok(InForce { revision, model: self.revision(revision)?.model, claims })
    }
}
