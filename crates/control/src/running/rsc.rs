//! Coalescing toggled live: what `on` means for which port.

use super::Running;
use crate::Problem;
use crate::body::RscWish;
use crate::config::{PortConfig, PortRole, RscMode};
use std::time::Instant;

impl Running {
    /// Sets coalescing of one port, or of all.
    pub fn set_rsc(
        &mut self,
        port: Option<&str>,
        wish: RscWish,
        now: Instant,
    ) -> Result<(), Problem> {
        if let Some(name) = port.filter(|name| self.config.port(name).is_none()) {
            return Err(self.no_such_port(name));
        }
        let mut wanted = self.config.clone();
        let meant = |other: &&mut PortConfig| port.is_none_or(|name| other.name.as_str() == name);
        for config in wanted.ports.iter_mut().filter(meant) {
            if let Some(mode) = mode(wish, config.role(), port.is_some()) {
                config.rsc = Some(mode);
            }
        }
        self.reload(wanted, now).map(drop)
    }
}

/// The rules a port gets; `None` leaves it as it is. An uplink is turned on only when it is `named`.
fn mode(wish: RscWish, role: PortRole, named: bool) -> Option<RscMode> {
    match (wish, role) {
        (RscWish::Off, _) => Some(RscMode::Off),
        (RscWish::Ndis, _) => Some(RscMode::Ndis),
        (RscWish::Gro, _) => Some(RscMode::Gro),
        (RscWish::On, PortRole::Vnic) => Some(RscMode::Ndis),
        (RscWish::On, PortRole::Uplink) => named.then_some(RscMode::Gro),
    }
}
