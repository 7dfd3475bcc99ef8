//! Makes a wanted configuration the running one: begins a plan, takes its steps one by one, and
//! ends it.
//!
//! Between two steps the thread that owns the switch does what else waits, for example reads and
//! the poll. They find the wanted configuration, and the API lists its ports
//! ([`listed_ports`](Running::listed_ports)): one that a later step opens is down until then.
//! `pending` names the ports of later steps, and the poll leaves them to their steps.

use super::{Running, changes};
use crate::log;
use api::body::{Origin, StepBody};
use config::plan::Step;
use config::{Config, PortName, PortRole};
use problem::Problem;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// What the owner's thread does between two steps of a plan.
pub(crate) type AtEachStep = Box<dyn FnMut(&mut Running) + Send>;

/// The plan in work.
#[derive(Default)]
pub(super) struct InWork {
    /// Ports that later steps close, change or open.
    pending: BTreeSet<String>,
    /// The origins of ports that the wanted configuration does not have. They are listed until
    /// their step.
    leaving: BTreeMap<PortName, Origin>,
}

impl Running {
    /// Sets what to do between two steps of a plan. It must not begin another plan.
    pub(crate) fn at_each_step(&mut self, act: AtEachStep) {
        self.at_each_step = Some(act);
    }

    /// Makes this the running configuration. If a worker hangs, steps that do not reach it take
    /// effect once it answers.
    ///
    /// # Errors
    ///
    /// If the configuration is refused; then nothing has changed. A failed step is no error: it has
    /// its reason in the list.
    pub(super) fn enforce(
        &mut self,
        wanted: Config,
        added: BTreeMap<PortName, Origin>,
        now: Instant,
    ) -> Result<Vec<StepBody>, Problem> {
        let began = Instant::now();
        let steps = self.begin(wanted, added)?;
        let mut results = Vec::with_capacity(steps.len());
        for step in steps {
            if !results.is_empty() {
                self.pause();
            }
            // Polls may have run since the plan began, and time never runs backwards.
            let result = self.take(&step, now + began.elapsed());
            results.push((step, result));
        }
        let settled = self.end(now + began.elapsed());
        if let Some((_, last)) = results.last_mut() {
            *last = std::mem::replace(last, Ok(())).and(settled);
        }
        Ok(results.into_iter().map(|(step, result)| StepBody::taken(step, result)).collect())
    }

    /// Makes a wanted configuration the running one, and returns the steps that its ports need.
    fn begin(
        &mut self,
        wanted: Config,
        added: BTreeMap<PortName, Origin>,
    ) -> Result<Vec<Step>, Problem> {
        debug_assert!(self.in_work.is_none(), "a second plan waits until the first has ended");
        let steps = self.dry_run(&wanted)?;
        for step in &steps {
            changes::log(&self.config, &wanted, step);
        }
        let kept = self.added_ports();
        self.config = wanted;
        log::write_as(self.config.switch.log);
        let mut leaving = std::mem::replace(&mut self.added, added);
        leaving.retain(|name, _| self.config.port(name.as_str()).is_none());
        self.kept_changes += u64::from(self.added_ports() != kept);
        let pending = steps.iter().filter_map(port_of).map(str::to_owned).collect();
        self.in_work = Some(InWork { pending, leaving });
        // Without ports, no device waits for an earlier step to release it.
        if self.ports.is_empty() {
            self.open_ahead(&steps);
        }
        Ok(steps)
    }

    fn take(&mut self, step: &Step, now: Instant) -> Result<(), String> {
        let done = self.carry_out(step, now);
        let settled = match step {
            Step::Switch { .. } => self.settle(now),
            Step::Remove { port, .. } => self.settle_around(port, now),
            Step::Change { port, .. } | Step::Add { port, .. } => {
                self.settle_around(port.name.as_str(), now)
            }
        };
        let comes_again = matches!(step, Step::Remove { reopens: true, .. });
        if let (Some(name), Some(in_work), false) = (port_of(step), &mut self.in_work, comes_again)
        {
            in_work.pending.remove(name);
        }
        done.and(settled)
    }

    fn end(&mut self, now: Instant) -> Result<(), String> {
        self.in_work = None;
        let settled = self.settle(now);
        self.settle_vnics(now);
        self.settle_pins();
        settled
    }

    /// Lets the owner's thread do what waits.
    pub(crate) fn pause(&mut self) {
        if let Some(mut act) = self.at_each_step.take() {
            act(self);
            self.at_each_step = Some(act);
        }
    }

    /// Whether a plan is in work, and has steps left.
    pub(super) fn is_in_work(&self) -> bool {
        self.in_work.is_some()
    }

    /// Whether a later step of the plan in work closes, changes or opens this port.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.in_work.as_ref().is_some_and(|in_work| in_work.pending.contains(name))
    }

    /// Whether a later step of the plan in work changes or opens an uplink.
    pub(super) fn uplink_is_pending(&self) -> bool {
        let mut uplinks = self.config.ports.iter().filter(|port| port.role() == PortRole::Uplink);
        self.is_in_work() && uplinks.any(|port| self.is_pending(port.name.as_str()))
    }

    /// The origin of a port that a later step of the plan in work closes for good.
    pub(super) fn origin_of_leaving(&self, name: &PortName) -> Option<Origin> {
        self.in_work.as_ref()?.leaving.get(name).copied()
    }
}

/// The port of a step.
fn port_of(step: &Step) -> Option<&str> {
    match step {
        Step::Remove { port, .. } => Some(port),
        Step::Change { port, .. } | Step::Add { port, .. } => Some(port.name.as_str()),
        Step::Switch { .. } => None,
    }
}
