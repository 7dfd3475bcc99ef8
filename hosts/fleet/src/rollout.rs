//! Drives a roll-out: takes a step and waits at the gate, until all hosts have the revision or the
//! gate stops the roll-out.
//!
//! The driver holds a lease. When that ends, hosts stay as the last step left them, and another
//! `apply` may begin. While etcd does not answer, the driver waits for it as it does for a late
//! host.

use crate::Name;
use crate::apply::DRIVER;
use crate::etcd::Lease;
use crate::gate::{Gate, Verdict, findings};
use crate::model::Policy;
use crate::now;
use crate::shortened::shortened;
use crate::store::{Desired, HostRecord, Phase, Store};
use problem::Problem;
use std::time::{Duration, Instant};

/// The interval between reads of the agents' statuses.
const LOOK: Duration = Duration::from_millis(300);
/// How often the lease is kept alive.
const KEEP: Duration = Duration::from_secs(4);

/// A roll-out that has begun.
pub(crate) struct Rollout<'a> {
    store: &'a Store,
    desired: Desired,
    /// etcd's revision at which `desired` was written.
    written: i64,
    lease: Lease,
    kept: Instant,
    policy: &'a Policy,
    tell: &'a mut dyn FnMut(&str),
}

impl<'a> Rollout<'a> {
    /// Makes the driver of a roll-out that was written to etcd.
    pub(crate) fn new(
        store: &'a Store,
        (desired, written): (Desired, i64),
        lease: Lease,
        policy: &'a Policy,
        tell: &'a mut dyn FnMut(&str),
    ) -> Rollout<'a> {
        Rollout { store, desired, written, lease, kept: Instant::now(), policy, tell }
    }

    /// Returns the desired state as it was last written.
    pub(crate) fn desired(&self) -> Desired {
        self.desired.clone()
    }

    /// Takes all steps. The first is written already.
    pub(crate) fn run(
        &mut self,
        stages: &[Vec<Name>],
        records: &[HostRecord],
        roll_back: bool,
    ) -> Result<(), Problem> {
        if stages.is_empty() {
            return Ok(());
        }
        let before = findings(records, self.policy);
        for (place, hosts) in stages.iter().enumerate() {
            if place > 0 {
                self.write(Phase::Running, hosts.clone())?;
            }
            let names: Vec<&str> = hosts.iter().map(Name::as_str).collect();
            let (revision, names) = (self.desired.revision, shortened(&names, ", "));
            (self.tell)(&format!(
                "revision {revision}: step {} of {}: {names}",
                place + 1,
                stages.len()
            ));
            let mut gate =
                Gate::new((hosts.as_slice(), revision), self.policy, &before, Instant::now());
            if let Some(reason) = self.wait(|records, now| gate.look(records, now))? {
                self.desired.reason = reason;
                return if roll_back {
                    self.roll_back()
                } else {
                    self.write(Phase::Stopped, hosts.clone())
                };
            }
        }
        self.write(Phase::Done, Vec::new())
    }

    /// Waits until `look` passes or stops. Returns the reason if it stops.
    fn wait(
        &mut self,
        mut look: impl FnMut(&[HostRecord], Instant) -> Verdict,
    ) -> Result<Option<String>, Problem> {
        let mut told = String::new();
        loop {
            self.keep()?;
            // While etcd does not answer nothing is known about the hosts, so `look` does not judge
            // them.
            let verdict = self.store.hosts().map(|records| look(&records, Instant::now()));
            let wait_for = match verdict {
                Ok(Verdict::Pass) => return Ok(None),
                Ok(Verdict::Stop(reason)) => return Ok(Some(reason)),
                Ok(Verdict::Wait(what)) => what,
                Err(problem) => problem.error,
            };
            if wait_for != told {
                (self.tell)(&format!("waiting: {wait_for}"));
                told = wait_for;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Puts all hosts back to the revision before, and waits for those that had the new one.
    fn roll_back(&mut self) -> Result<(), Problem> {
        let (reason, hosts) = (self.desired.reason.clone(), self.desired.hosts.clone());
        (self.tell)(&format!("stopped: {reason}; going back to revision {}", self.desired.before));
        self.write(Phase::RolledBack, hosts.clone())?;
        let until = Instant::now() + Duration::from_secs(self.policy.wait.0.into());
        let before = self.desired.before;
        let late = self.wait(|records, now| {
            let is_back = |record: &HostRecord| {
                record.status.as_ref().is_some_and(|status| status.revision == before)
            };
            let late = records.iter().filter(|it| hosts.contains(&it.host.name) && !is_back(it));
            let late: Vec<&str> = late.map(|it| it.host.name.as_str()).collect();
            match late.is_empty() && !records.is_empty() {
                true => Verdict::Pass,
                false if now >= until => {
                    Verdict::Stop(format!("not back yet: {}", shortened(&late, ", ")))
                }
                false => Verdict::Wait(format!("{} to go back", shortened(&late, ", "))),
            }
        })?;
        if let Some(late) = late {
            self.desired.reason = format!("{reason}; {late}");
            self.write(Phase::RolledBack, hosts)?;
        }
        Ok(())
    }

    fn write(&mut self, phase: Phase, hosts: Vec<Name>) -> Result<(), Problem> {
        let desired = Desired { phase, hosts, at: now(), ..self.desired.clone() };
        loop {
            match self.try_to_write(&desired) {
                Ok(Some(written)) => {
                    (self.desired, self.written) = (desired, written);
                    return Ok(());
                }
                Ok(None) => return Err(taken_over(desired.revision)),
                // The write is retried until the lease ends: a late step does no harm, a lost stop
                // or rollback would.
                Err(problem) => (self.tell)(&problem.error),
            }
            self.keep()?;
            std::thread::sleep(LOOK);
        }
    }

    /// Writes the desired state. Returns `None` if etcd has another one. An earlier attempt without
    /// an answer may have been carried out, which counts as written.
    fn try_to_write(&self, desired: &Desired) -> Result<Option<i64>, Problem> {
        if let Some(written) = self.store.set_desired(desired, self.written)? {
            return Ok(Some(written));
        }
        let found = self.store.desired()?;
        Ok((found.document.as_ref() == Some(desired)).then_some(found.mod_revision))
    }

    /// Keeps the lease alive. Fails if the lease has expired, but not while etcd does not answer.
    fn keep(&mut self) -> Result<(), Problem> {
        if self.kept.elapsed() < KEEP {
            return Ok(());
        }
        match self.store.etcd.keep_alive(self.lease) {
            Ok(false) => Err(run_out()),
            Ok(true) => {
                self.kept = Instant::now();
                Ok(())
            }
            Err(_) if self.kept.elapsed() > DRIVER => Err(run_out()),
            Err(error) => {
                (self.tell)(&error.problem().error);
                Ok(())
            }
        }
    }
}

fn taken_over(revision: u64) -> Problem {
    Problem::new(format!("the roll-out of revision {revision} was taken over"))
        .seen("a desired state that this roll-out did not write")
        .wanted("one roll-out at a time")
        .remedy("`millrace fleet status` shows who rolls out what")
}

fn run_out() -> Problem {
    Problem::new("etcd could not be reached for too long")
        .seen("the lease of this roll-out has expired")
        .wanted(format!("an etcd that answers within {} s", DRIVER.as_secs()))
        .remedy("`millrace fleet status` shows its progress; apply again to continue")
}
