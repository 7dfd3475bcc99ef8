//! What an absent key of a port means: its default, from the role or from `[switch]`.

use super::port::{MacSpoofing, PortConfig, PortRole, RscMode, VmmqMode};
use super::storm::Storm;
use super::switch::Scale;
use super::{Device, Namespace};
use std::path::PathBuf;

impl PortConfig {
    /// Returns which way the port faces, configured or by default.
    pub fn role(&self) -> PortRole {
        self.role.unwrap_or(match self.device() {
            Device::Packet(_) | Device::Team(_) | Device::Xdp(_) => PortRole::Uplink,
            Device::None | Device::Tap(_) | Device::Veth(_) | Device::VhostUser(_) => {
                PortRole::Vnic
            }
        })
    }

    /// Most queue pairs by default, as many as a guest of Hyper-V has channels by default.
    pub const QUEUES_BY_DEFAULT: u16 = 8;

    /// Returns the number of queue pairs, configured or by default.
    ///
    /// A guest's driver takes as many as it has processors of those that it is offered. The kernel
    /// behind a TAP has the host's processors. With one worker, several queues of a TAP or an uplink
    /// would only cost it more looks.
    pub fn queue_pairs(&self, scale: Scale) -> u16 {
        let default = match self.device() {
            Device::VhostUser(_) => PortConfig::QUEUES_BY_DEFAULT,
            Device::Tap(_) if scale.workers > 1 => scale.processors,
            Device::Packet(_) | Device::Xdp(_) if self.role() == PortRole::Uplink => scale.workers,
            Device::Tap(_)
            | Device::Veth(_)
            | Device::Packet(_)
            | Device::Xdp(_)
            | Device::Team(_)
            | Device::None => 1,
        };
        self.queues.map_or(default.clamp(1, PortConfig::QUEUES_BY_DEFAULT), |queues| queues.0)
    }

    /// Returns whether queues or entries move by load, configured or by default.
    pub fn vmmq(&self) -> VmmqMode {
        self.vmmq.unwrap_or(VmmqMode::Dynamic)
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
            PortRole::Uplink if self.transit != Some(true) => Storm::Off,
            PortRole::Vnic | PortRole::Uplink => Storm::DEFAULT,
        })
    }
}
