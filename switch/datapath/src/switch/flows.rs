//! Takes the workers' tables of flows.

use super::Switch;
use super::kernel_path::CarriedFlow;
use crate::flow::{Flow, FlowCounts, FlowTable, SeenFlow};
use crate::options::SwitchError;
use crate::worker::command::Command;
use std::cell::RefCell;
use wire::Mac;
use wire::ethernet::ethertype;

impl Switch {
    /// Passes what the workers have seen of flows since the last call to `see`, and returns what
    /// they saw of flows for which their tables had no room. From the first call with `on` to the
    /// next without it, the workers look.
    ///
    /// # Errors
    ///
    /// Fails if a worker does not answer; what was seen since the last call is lost then.
    pub fn take_flows(
        &mut self,
        on: bool,
        mut see: impl FnMut(SeenFlow),
    ) -> Result<FlowCounts, SwitchError> {
        let mut others = FlowCounts::default();
        if !on && !self.looks_at_flows {
            return Ok(others);
        }
        self.looks_at_flows = on;
        let mut tables = std::mem::take(&mut self.spare_flows);
        tables.resize_with(if on { self.workers.len() } else { 0 }, FlowTable::default);
        let tables = RefCell::new(tables);
        let next = || tables.borrow_mut().pop();
        let taken: Vec<Option<FlowTable>> = self.ask(|reply| Command::Flows(next(), reply))?;
        for mut table in taken.into_iter().flatten() {
            table.flows().for_each(&mut see);
            others.add(&table.others());
            if on {
                table.clear();
                self.spare_flows.push(table);
            }
        }
        Ok(others)
    }
}

impl CarriedFlow {
    /// Returns the flow in the words of those that workers see.
    pub fn flow(&self) -> Flow {
        let key = &self.report.key;
        let ([destination, source], addresses) = (key.stations(), key.addresses());
        Flow {
            from: Some(self.from),
            to: Some(self.to),
            vlan: self.report.vlan,
            source_mac: Mac(source),
            destination_mac: Mac(destination),
            ethertype: if key.is_ipv6() { ethertype::IPV6 } else { ethertype::IPV4 },
            addresses: Some(addresses.into()),
            protocol: Some(key.protocol()),
            ports: Some(key.ports().into()),
        }
    }

    /// Returns what the kernel has carried of it, all of which it has counted.
    pub fn counts(&self) -> FlowCounts {
        let tally = &self.report.tally;
        let single = tally.frames.saturating_sub(tally.trains);
        FlowCounts {
            frames: tally.frames,
            bytes: tally.bytes,
            segments: single + tally.train_segments,
            resent: 0,
            sampled: tally.frames,
        }
    }
}
