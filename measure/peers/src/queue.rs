//! A ring with the two descriptors with which the two sides wake each other.

use crate::ring::{Area, Ring};
use anyhow::{Context, Result};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// One queue of a vNIC.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) ring: Ring,
    /// Wakes the switch.
    pub(crate) kick: EventFd,
    /// Would wake us; the switch is told that it need not.
    pub(crate) call: EventFd,
}

impl Queue {
    pub(crate) fn new(area: Area, packed: bool) -> Result<Queue> {
        let event = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).context("no event descriptor");
        Ok(Queue { ring: Ring::new(area, packed), kick: event()?, call: event()? })
    }

    /// Wakes the switch if it sleeps. Called when nothing has moved for a while.
    pub(crate) fn kick_if_wanted(&self) -> Result<()> {
        if self.ring.wants_kick() {
            self.kick.write(1).context("the switch cannot be notified")?;
        }
        Ok(())
    }
}
