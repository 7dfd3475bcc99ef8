//! The poll's look at flows, and the flows for the API.

use super::Running;
use crate::flows::{MOST, Wanted};
use api::body::{CarriedBy, FlowsBody};
use problem::Problem;
use std::time::Instant;

impl Running {
    /// Takes what the workers have seen of flows since the poll before, and what the kernel has
    /// carried.
    pub(super) fn look_at_flows(&mut self, now: Instant) {
        let mut seen = Vec::new();
        let on = self.config().switch.flows;
        self.flows.begin(now);
        // A worker that does not answer is an event already.
        if self.all_answer().is_ok()
            && let Ok(others) = self.switch.take_flows(on, |flow| seen.push(flow))
        {
            self.flows.add_others(&others);
        }
        let carried = if on { self.switch.carried_flows(MOST) } else { Vec::new() };
        if !seen.is_empty() || !carried.is_empty() {
            let ports = self.infos();
            seen.iter().for_each(|flow| self.flows.add(flow, CarriedBy::Switch, &ports));
            for flow in carried {
                self.flows.add_total(&flow.flow(), flow.counts(), CarriedBy::Kernel, &ports);
            }
        }
        self.flows.end();
    }

    /// Returns the flows of the last minutes.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port.
    pub(crate) fn flows_body(&self, wanted: &Wanted, now: Instant) -> Result<FlowsBody, Problem> {
        let port = wanted.port.as_deref();
        port.map_or(Ok(()), |name| self.ports.port(name).map(drop))?;
        Ok(self.flows.body(wanted, self.config().switch.flows, now))
    }
}
