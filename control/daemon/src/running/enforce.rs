//! Makes a wanted configuration the running one: begins a plan, takes its steps, and ends it.
//!
//! Steps of a kind are taken together, some at a time: their devices wait for the kernel at the same
//! time, and the workers get one view for all. In between, and while devices are opened and closed,
//! the thread that owns the switch does what else waits, for example reads and the poll. They find the
//! wanted configuration, and the API lists its ports
//! ([`listed_ports`](super::report::Report::listed_ports)): one that a later step opens is down until
//! then. [`Desired`](super::desired::Desired) knows the ports of later steps, and the poll leaves them
//! to their steps.

use super::Running;
use super::origin::Origins;
use super::parallel_open::AT_ONCE;
use crate::log;
use api::body::StepBody;
use config::Config;
use config::plan::Step;
use problem::Problem;
use std::collections::BTreeSet;
use std::time::Instant;

/// What the owner's thread does between two steps of a plan.
pub(crate) type AtEachStep = Box<dyn FnMut(&mut Running) + Send>;

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
        added: Origins,
        now: Instant,
    ) -> Result<Vec<StepBody>, Problem> {
        let began = Instant::now();
        let steps = self.begin(wanted, added)?;
        let mut results = Vec::with_capacity(steps.len());
        for batch in steps.chunk_by(|one, next| one.kind() == next.kind()) {
            for batch in batch.chunks(AT_ONCE) {
                if !results.is_empty() {
                    self.pause();
                }
                // Polls may have run since the plan began, and time never runs backwards.
                results.extend(self.take(batch, now + began.elapsed()));
            }
        }
        let settled = self.end(now + began.elapsed());
        if let Some(last) = results.last_mut() {
            *last = std::mem::replace(last, Ok(())).and(settled);
        }
        let taken = |(step, result)| StepBody::taken(step, result);
        Ok(steps.into_iter().zip(results).map(taken).collect())
    }

    /// Makes a wanted configuration the running one, and returns the steps that its ports need.
    fn begin(&mut self, wanted: Config, added: Origins) -> Result<Vec<Step>, Problem> {
        let steps = self.desired.begin(wanted, added)?;
        log::write_as(self.config().switch.log);
        Ok(steps)
    }

    /// Takes steps of one kind. Returns the result of each.
    fn take(&mut self, steps: &[Step], now: Instant) -> Vec<Result<(), String>> {
        let (store, began) = (self.ports.store(), Instant::now());
        let done = store.in_one_list(|| self.carry_out(steps, now));
        let now = now + began.elapsed();
        let names: BTreeSet<&str> = steps.iter().filter_map(Step::port).collect();
        let settled = match names.is_empty() {
            true => self.settle(now),
            false => self.settle_around(&names, now),
        };
        steps.iter().for_each(|step| self.desired.taken(step));
        done.into_iter().map(|done| done.and(settled.clone())).collect()
    }

    fn end(&mut self, now: Instant) -> Result<(), String> {
        self.desired.end();
        let settled = self.settle(now);
        self.settle_vnics(now);
        self.settle_pins();
        settled
    }

    /// Does `work` without the pauses that it would have as a part of a plan.
    pub(super) fn without_pauses<T>(&mut self, work: impl FnOnce(&mut Running) -> T) -> T {
        let act = self.at_each_step.take();
        let done = work(self);
        self.at_each_step = act;
        done
    }

    /// Lets the owner's thread do what waits.
    pub(crate) fn pause(&mut self) {
        if let Some(mut act) = self.at_each_step.take() {
            act(self);
            self.at_each_step = Some(act);
        }
    }
}
