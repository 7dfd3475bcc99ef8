//! What an absent key of a port means: its default, from the role or from `[switch]`.

use super::Namespace;
use super::port::{MacSpoofing, PortConfig, PortRole, RscMode};
use super::storm::Storm;
use std::path::PathBuf;

impl PortConfig {
    /// Returns which way the port faces, configured or by default.
    pub fn role(&self) -> PortRole {
        let faces_network = self.is_interface() || self.team.is_some();
        self.role.unwrap_or(if faces_network { PortRole::Uplink } else { PortRole::Vnic })
    }

    /// Returns the number of queue pairs, configured or by default.
    pub fn queue_pairs(&self) -> u16 {
        self.queues.map_or(1, |queues| queues.0)
    }

    /// Returns the path of the device's network namespace; `None` for the daemon's.
    pub fn netns_path(&self) -> Option<PathBuf> {
        self.netns.as_ref().map(Namespace::path)
    }

    /// Returns the rules of coalescing toward the port, configured or by default. `default` is that
    /// of `[switch]`.
    pub fn rsc(&self, default: RscMode) -> RscMode {
        self.rsc.unwrap_or(match self.role() {
            PortRole::Vnic => default,
            PortRole::Uplink => RscMode::Off,
        })
    }

    /// Returns whether forged source addresses are dropped, configured or by default.
    pub fn mac_guard(&self) -> bool {
        self.mac_spoofing.map_or(self.role() == PortRole::Vnic, |key| key == MacSpoofing::Deny)
    }

    /// Returns the most addresses learned on the port, configured or by default; 0 for no limit,
    /// `None` for half of `mac-entries`.
    pub fn mac_limit(&self) -> Option<u16> {
        let default = (self.role() == PortRole::Vnic).then_some(64);
        self.mac_limit.map(|limit| limit.0).or(default)
    }

    /// Returns the limits of storm control, configured or by default.
    pub fn storm(&self) -> Storm {
        self.storm.unwrap_or(match self.role() {
            PortRole::Vnic => Storm::DEFAULT,
            PortRole::Uplink => Storm::Off,
        })
    }
}
