//! Coalescing toggled live: what `on` means for which port.

use super::Running;
use super::steps::all_done;
use api::body::RscSetting;
use config::{PortConfig, PortRole, RscMode};
use problem::Problem;
use std::time::Instant;

impl Running {
    /// Sets coalescing on one port, or on all.
    pub fn set_rsc(
        &mut self,
        port: Option<&str>,
        setting: RscSetting,
        now: Instant,
    ) -> Result<(), Problem> {
        if let Some(name) = port.filter(|name| self.config.port(name).is_none()) {
            return Err(self.no_such_port(name));
        }
        let mut wanted = self.config.clone();
        let meant = |other: &&mut PortConfig| port.is_none_or(|name| other.name.as_str() == name);
        for config in wanted.ports.iter_mut().filter(meant) {
            if let Some(mode) = mode(setting, config.role(), port.is_some()) {
                config.rsc = Some(mode);
            }
        }
        self.reload(wanted, now).and_then(|steps| all_done(&steps))
    }
}

/// The rules that a port gets; `None` leaves it unchanged. An uplink is turned on only if it is
/// `named`.
fn mode(setting: RscSetting, role: PortRole, named: bool) -> Option<RscMode> {
    match (setting, role) {
        (RscSetting::Off, _) => Some(RscMode::Off),
        (RscSetting::Ndis, _) => Some(RscMode::Ndis),
        (RscSetting::Gro, _) => Some(RscMode::Gro),
        (RscSetting::On, PortRole::Vnic) => Some(RscMode::Ndis),
        (RscSetting::On, PortRole::Uplink) => named.then_some(RscMode::Gro),
    }
}
