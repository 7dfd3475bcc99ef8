//! Applies a model: makes it a new revision, and rolls that out to the fleet's hosts.

use crate::difference::{Change, difference};
use crate::model::Model;
use crate::plan::HostPlan;
use crate::preview::{Preview, preview};
use crate::rollout::Rollout;
use crate::stages::stages;
use crate::store::{Desired, Driver, HostRecord, Phase, Revision, Store};
use crate::{Name, now};
use problem::Problem;
use serde::Serialize;
use std::time::Duration;

/// How long a roll-out blocks the next one after its driver has ended.
pub(crate) const DRIVER: Duration = Duration::from_secs(15);

/// A model to be applied, and the way to apply it.
pub struct Apply {
    /// The model.
    pub model: Model,
    /// Who applies it.
    pub author: String,
    /// Why.
    pub message: String,
    /// The revision that the author has seen. If another is in force, nothing is applied.
    pub base: Option<u64>,
    /// For a rollback: the revision that had this model.
    pub back_to: Option<u64>,
    /// Whether all hosts get it in one step.
    pub at_once: bool,
    /// Whether to go back to the revision before if the roll-out stops.
    pub rollback_on_failure: bool,
}

/// The outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Applied {
    /// The new revision; the one in force, if there was nothing to do.
    pub revision: u64,
    /// The revision before.
    pub before: u64,
    /// How far the roll-out has come.
    pub phase: Phase,
    /// Why it has stopped; empty if it has not.
    pub reason: String,
    /// The differences between the two.
    pub changes: Vec<Change>,
    /// The plan of each host.
    pub hosts: Vec<HostPlan>,
    /// Hosts that take the revision when their agents return.
    pub away: Vec<Name>,
}

impl Apply {
    /// Rolls the model out. Returns when all hosts have it or the roll-out has stopped. `tell` gets
    /// lines that report progress.
    ///
    /// # Errors
    /// Fails if the model breaks a rule, another revision than the base is in force, another
    /// roll-out is in progress, all hosts are away, or etcd does not answer.
    pub fn run(&self, store: &Store, tell: &mut dyn FnMut(&str)) -> Result<Applied, Problem> {
        let seen = preview(store, &self.model)?;
        self.check_base(store, &seen)?;
        if seen.is_in_force() {
            return Ok(self.applied(seen.base, seen, Phase::Done, String::new()));
        }
        if let Some(driver) = store.driver()?.document {
            return Err(busy(&driver));
        }
        self.check_there(&seen)?;
        for unfit in &seen.unfit {
            tell(&format!("host {} stays as it is: {}", unfit.host, unfit.problem.error));
        }
        let number = next_number(store.newest()?, &seen.records)?;
        let stages = self.stages(&seen);
        let desired = Desired {
            revision: number,
            before: seen.base,
            phase: if stages.is_empty() { Phase::Done } else { Phase::Running },
            hosts: stages.first().cloned().unwrap_or_default(),
            reason: String::new(),
            author: self.author.clone(),
            at: now(),
        };
        let lease = store.etcd.grant(DRIVER)?;
        let driver = Driver { author: self.author.clone(), since: now(), revision: number };
        let begun = store.begin(
            &self.revision(number),
            &desired,
            seen.desired.mod_revision,
            (&driver, lease),
        )?;
        let Some(written) = begun else {
            store.etcd.revoke(lease)?;
            return Err(refused(store, &seen)?);
        };
        let policy = self.model.policy();
        let mut rollout = Rollout::new(store, (desired, written), lease, &policy, tell);
        let ended = rollout.run(&stages, &seen.records, self.rollback_on_failure);
        let desired = rollout.desired();
        // Frees the way for the next roll-out at once; if this fails, the lease runs out by itself.
        let _ = store.etcd.revoke(lease);
        ended?;
        Ok(self.applied(number, seen, desired.phase, desired.reason))
    }

    fn applied(&self, revision: u64, seen: Preview, phase: Phase, reason: String) -> Applied {
        let Preview { base, changes, hosts, away, .. } = seen;
        Applied { revision, before: base, phase, reason, changes, hosts, away }
    }

    fn revision(&self, number: u64) -> Revision {
        Revision {
            number,
            author: self.author.clone(),
            at: now(),
            message: self.message.clone(),
            back_to: self.back_to,
            model: self.model.clone(),
        }
    }

    /// Returns the steps over the hosts that the roll-out has to reach and that are not away. Hosts
    /// that have the model already are in every step, so that they do not go back to the revision
    /// before.
    fn stages(&self, seen: &Preview) -> Vec<Vec<Name>> {
        let there = seen.reached.iter().filter(|host| !seen.away.contains(host)).cloned();
        let (ahead, hosts): (Vec<Name>, Vec<Name>) = there.partition(|it| seen.ahead.contains(it));
        let steps = if self.at_once { Vec::new() } else { self.model.policy().steps };
        let stages = stages(&hosts, &steps);
        if stages.is_empty() && !ahead.is_empty() {
            return vec![ahead];
        }
        stages.into_iter().map(|stage| [ahead.clone(), stage].concat()).collect()
    }

    /// Refuses if all hosts are away: they would take the revision on their return, and nothing
    /// would stop a bad one. A rollback is not refused.
    fn check_there(&self, seen: &Preview) -> Result<(), Problem> {
        let is_there = |host: &Name| !seen.away.contains(host);
        if self.at_once || seen.reached.is_empty() || seen.reached.iter().any(is_there) {
            return Ok(());
        }
        let count = seen.reached.len();
        Err(Problem::new("the agents of all hosts that the model changes are away")
            .seen(format!("{count} of {count} away"))
            .wanted("at least one host by which the first step can be judged")
            .remedy("find out why their agents are away; `millrace fleet status` lists them"))
    }

    /// Refuses if another revision is in force than the one the author has seen.
    fn check_base(&self, store: &Store, seen: &Preview) -> Result<(), Problem> {
        match self.base {
            Some(base) if base != seen.base => Err(changed_meanwhile(store, base, seen.base)?),
            _ => Ok(()),
        }
    }
}

/// Makes the rollback to the model of revision `to`, by default of the revision before the newest,
/// on all hosts at once.
///
/// # Errors
/// Fails if no revision was applied yet, `to` does not exist, the fleet was rolled back already and
/// `to` is `None`, or etcd does not answer.
pub fn back(store: &Store, to: Option<u64>, author: String) -> Result<Apply, Problem> {
    let Some(desired) = store.desired()?.document else {
        return Err(Problem::new("no revision was applied yet")
            .wanted("a revision from which to go back")
            .remedy("`millrace fleet apply -f DIRECTORY` makes the first one"));
    };
    let newest = store.revision(desired.revision)?;
    if let (None, Some(back_to), Phase::Done) = (to, newest.back_to, desired.phase) {
        return Err(Problem::new("the fleet has been rolled back already")
            .seen(format!("revision {} has the model of {back_to}", newest.number))
            .wanted("the number of the revision to go back to")
            .remedy(
                "`millrace fleet history` lists them; then `millrace fleet rollback REVISION`",
            ));
    }
    let to = to.unwrap_or(desired.before);
    Ok(Apply {
        model: store.revision(to)?.model,
        author,
        message: format!("back to revision {to}"),
        base: None,
        back_to: Some(to),
        at_once: true,
        rollback_on_failure: false,
    })
}

/// Returns a number greater than any that a host has seen, because an etcd restored from a backup
/// may lack some. A status with a number far ahead does not come from an honest host, and is
/// ignored.
fn next_number(newest: u64, records: &[HostRecord]) -> Result<u64, Problem> {
    const MOST_LOST: u64 = 1 << 20;
    let statuses = records.iter().filter_map(|record| record.status.as_ref());
    let known = statuses.map(|status| status.revision.max(status.wanted));
    let believed = known.filter(|number| *number <= newest.saturating_add(MOST_LOST));
    believed.fold(newest, u64::max).checked_add(1).ok_or_else(|| {
        Problem::new("no revision number is left").seen(newest).remedy("start with an empty etcd")
    })
}

fn busy(driver: &Driver) -> Problem {
    let Driver { author, revision, since } = driver;
    Problem::new(format!("a roll-out of revision {revision} is in progress"))
        .seen(format!("started by {author}, {}", crate::ago(*since, now())))
        .wanted("one roll-out at a time")
        .remedy("wait until it has ended; `millrace fleet status` shows its progress")
}

/// Returns the refusal if the transaction found another state than the preview did.
fn refused(store: &Store, seen: &Preview) -> Result<Problem, Problem> {
    if let Some(driver) = store.driver()?.document {
        return Ok(busy(&driver));
    }
    let current = store.desired()?.document.map_or(0, |desired| desired.base());
    changed_meanwhile(store, seen.base, current)
}

/// Returns the refusal that names the author of the newer revision, and the difference.
fn changed_meanwhile(store: &Store, base: u64, current: u64) -> Result<Problem, Problem> {
    let (old, new) = (store.revision(base)?, store.revision(current)?);
    let changes = difference(&old.model, &new.model);
    let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
    Ok(Problem::new(format!("revision {current} was applied since revision {base}"))
        .seen(format!("by {}: {}: {}", new.author, new.message, changes.join("; ")))
        .wanted(format!("revision {base} still in force, as when you looked"))
        .remedy("add these changes to your files, check `millrace fleet plan`, and apply again"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::Host;
    use crate::store::Status;

    #[test]
    fn a_new_number_is_greater_than_any_an_honest_host_has_seen() {
        let record = |wanted| HostRecord {
            host: Host { name: "a".parse().unwrap(), labels: Default::default() },
            status: Some(Status { wanted, ..Status::default() }),
            written: 0,
        };
        let next = |newest, seen: &[u64]| {
            next_number(newest, &seen.iter().map(|it| record(*it)).collect::<Vec<_>>())
        };
        assert_eq!((next(0, &[]), next(5, &[3]), next(5, &[9, 7])), (Ok(1), Ok(6), Ok(10)));
        assert_eq!(next(5, &[u64::MAX, 6]), Ok(7));
        assert!(next(u64::MAX, &[]).is_err());
    }
}
