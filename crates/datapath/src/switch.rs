//! The handle by which the control plane holds a running switch.

use crate::{HealthEvent, MacEntry, PortCounters, PortId, PortInfo, PortSettings, WorkerInfo};
use ports::Device;
use ports::capture::Capture;
use std::sync::Arc;

/// What a worker does when there is nothing to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// Polls on: lowest latency, a whole core.
    Always,
    /// Polls a little longer, then sleeps until something arrives.
    #[default]
    Adaptive,
    /// Sleeps at once.
    Never,
}

/// One worker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerOptions {
    /// The core it is pinned to; `None`: wherever the kernel likes.
    pub cpu: Option<usize>,
}

/// The switch as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchOptions {
    /// At least one.
    pub workers: Vec<WorkerOptions>,
    /// Polling.
    pub wait: Wait,
    /// Most learned addresses.
    pub mac_entries: usize,
    /// Seconds after which a silent address is forgotten.
    pub mac_ageing_s: u32,
}

impl Default for SwitchOptions {
    fn default() -> SwitchOptions {
        SwitchOptions {
            workers: vec![WorkerOptions::default()],
            wait: Wait::Adaptive,
            mac_entries: 8192,
            mac_ageing_s: 300,
        }
    }
}

/// What the switch refuses.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// The name is taken.
    #[error("a port named {0:?} exists: choose another name or remove that port first")]
    NameInUse(String),
    /// No such port.
    #[error("no port with the number {}", .0.0)]
    NoSuchPort(PortId),
    /// The tables are full.
    #[error("the switch has {0} ports, which is all it can have: remove one first")]
    TooManyPorts(usize),
    /// A worker could not be started or pinned.
    #[error("starting worker {worker} on core {cpu:?}: {source}")]
    Worker {
        /// Its place.
        worker: usize,
        /// Where it should run.
        cpu: Option<usize>,
        /// What the kernel said.
        #[source]
        source: std::io::Error,
    },
}

/// A running switch. Calls take effect before they return: every worker has passed a turn boundary by then.
pub struct Switch {}

#[allow(unused_variables, missing_docs, reason = "being written")]
impl Switch {
    /// Starts the workers.
    pub fn start(options: SwitchOptions) -> Result<Switch, SwitchError> {
        Ok(Switch {})
    }
    /// Takes a port into the switch; frames flow when this returns.
    pub fn add_port(
        &mut self,
        name: &str,
        device: Device,
        settings: PortSettings,
    ) -> Result<PortId, SwitchError> {
        Ok(PortId(0))
    }
    /// Removes a port; when this returns no worker touches its queues any more and they are closed.
    pub fn remove_port(&mut self, port: PortId) -> Result<(), SwitchError> {
        Ok(())
    }
    /// Changes a running port. Turning coalescing off drains every open train before this returns.
    pub fn change_port(&mut self, port: PortId, settings: PortSettings) -> Result<(), SwitchError> {
        Ok(())
    }
    /// Starts or (`None`) ends a capture at a port. The caller keeps its own `Arc` and stops the capture afterwards.
    pub fn set_capture(
        &mut self,
        port: PortId,
        capture: Option<Arc<Capture>>,
    ) -> Result<(), SwitchError> {
        Ok(())
    }
    /// The control plane's own knowledge of a device (link went down, came back), as the port's state.
    pub fn set_state(&mut self, port: PortId, state: crate::PortState) -> Result<(), SwitchError> {
        Ok(())
    }
    /// All ports, by number.
    pub fn ports(&self) -> Vec<PortInfo> {
        Vec::new()
    }
    /// One port's counters since it was added, over all workers.
    pub fn counters(&self, port: PortId) -> Option<PortCounters> {
        None
    }
    /// All workers.
    pub fn workers(&self) -> Vec<WorkerInfo> {
        Vec::new()
    }
    /// Learned addresses.
    pub fn macs(&self) -> Vec<MacEntry> {
        Vec::new()
    }
    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<HealthEvent> {
        Vec::new()
    }
    /// Stops the workers and closes every port. Dropping the switch does the same.
    pub fn stop(self) {}
}
