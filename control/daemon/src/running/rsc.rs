//! Coalescing toggled live: what `on` means for which port.

use super::ports::Ports;
use api::body::RscSetting;
use config::{Config, PortConfig, PortRole, RscMode, SwitchConfig};
use datapath::{RscFailureReason, RscStatus};
use problem::Problem;

/// Sets coalescing on one port, or on all.
///
/// # Errors
/// There is no such port.
pub(crate) fn set(
    ports: &Ports,
    wanted: &mut Config,
    port: Option<&str>,
    setting: RscSetting,
) -> Result<(), Problem> {
    if let Some(name) = port {
        ports.wanted(wanted, name)?;
    }
    let meant = |other: &&mut PortConfig| port.is_none_or(|name| other.name.as_str() == name);
    for config in wanted.ports.iter_mut().filter(meant) {
        if let Some(mode) = mode(setting, config.role(), port.is_some()) {
            config.rsc = Some(mode);
        }
    }
    Ok(())
}

/// Returns the status of coalescing in Windows' levels: a port that would coalesce but for the
/// switch or the host is disabled globally.
pub(super) fn in_levels(status: RscStatus, port: &PortConfig, switch: &SwitchConfig) -> RscStatus {
    let own = port.rsc(switch.rsc) != RscMode::Off;
    let is_inherited = port.rsc.is_none() && port.role() == PortRole::Vnic;
    if !status.enabled && (own && !switch.software_rsc || !own && is_inherited) {
        let failure_reason = RscFailureReason::NetOffloadGlobalDisabled;
        return RscStatus { enabled: own, operational: false, failure_reason };
    }
    status
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
