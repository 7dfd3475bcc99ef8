//! A site without hosts: the switch and both guests run in this process.

use super::{RunResult, Site, Tell};
use crate::LabError;
use crate::in_process::{InProcess, facts};
use crate::interrupt::Interrupt;
use crate::load::Load;
use crate::plan::Plan;
use crate::report::{BenchFacts, Check};

/// Two guests on memory ports of a switch in this process. Only the guide can be measured there.
pub(crate) struct MemoryGuests;

impl Site for MemoryGuests {
    fn facts(&self) -> BenchFacts {
        facts()
    }

    fn checks(&mut self, interrupt: &Interrupt) -> Result<Vec<Check>, LabError> {
        Ok(InProcess::start(Load::bulk(1), interrupt.clone())?.checks())
    }

    fn run(
        &mut self,
        load: Load,
        plan: &Plan,
        interrupt: &Interrupt,
        progress: Tell<'_>,
    ) -> RunResult {
        let mut bench = InProcess::start(load, interrupt.clone())?;
        Ok((plan.run(&mut bench, progress), None))
    }
}
