//! A ring with the two event file descriptors by which the two sides notify each other.

use crate::area::Area;
use crate::ring::Ring;
use anyhow::{Context, Result};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// One queue of a vNIC.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) ring: Ring,
    /// Notifies the switch.
    pub(crate) kick: EventFd,
    /// Notifies the driver; the rings tell the switch that it need not.
    pub(crate) call: EventFd,
}

impl Queue {
    pub(crate) fn new(area: Area, packed: bool, in_order: bool) -> Result<Queue> {
        let event = || EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC).context("no event descriptor");
        let ring = Ring::new(area, packed, in_order);
        Ok(Queue { ring, kick: event()?, call: event()? })
    }

    /// Notifies the switch if it asks for that. Called when nothing has moved for a while.
    pub(crate) fn kick_if_wanted(&self) -> Result<()> {
        if self.ring.wants_kick() {
            self.kick.write(1).context("the switch cannot be notified")?;
        }
        Ok(())
    }
}
