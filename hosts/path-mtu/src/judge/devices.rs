//! Judges hosts' own devices: those that packets leave by, and those below them.

use super::{Case, Finding, Hop, Host, Observation};
use crate::plan::Direction;
use problem::Problem;
use std::collections::BTreeMap;

/// A host's device with another MTU than the one wanted.
pub(super) struct Device<'c> {
    host: usize,
    interface: &'c str,
    mtu: u16,
    directions: usize,
    /// The device that is built on it, if packets leave by that one.
    above: Option<&'c str>,
}

impl Device<'_> {
    /// Whether a direction leaves or arrives by it. One whose arrival is not known may.
    fn is_on(&self, it: &Observation) -> bool {
        let name = self.above.unwrap_or(self.interface);
        self.host == it.from && name == it.interface
            || self.host == it.to && (it.arrives_by.is_empty() || name == it.arrives_by)
    }
}

impl<'c> Case<'c> {
    /// Returns the devices with another MTU than the one wanted. It is no fault if all of them
    /// could send more.
    pub(super) fn devices(&self) -> Vec<Device<'c>> {
        let least = match self.observations.iter().any(|it| it.device_mtu == self.wanted) {
            true => u16::MAX,
            false => self.wanted,
        };
        let differs = |it: &&Observation| {
            it.device_mtu > 0 && it.device_mtu != self.wanted && it.device_mtu <= least
        };
        let mut devices: BTreeMap<(usize, &str, u16), usize> = BTreeMap::new();
        for it in self.observations.iter().filter(differs) {
            *devices.entry((it.from, &it.interface, it.device_mtu)).or_default() += 1;
        }
        let device = |((host, interface, mtu), directions)| Device {
            host,
            interface,
            mtu,
            directions,
            above: None,
        };
        devices.into_iter().map(device).chain(self.members()).collect()
    }

    /// Returns the devices below those that packets leave by, if they are too small.
    fn members(&self) -> impl Iterator<Item = Device<'c>> {
        let of_host = |(host, it): (usize, &'c Host)| {
            let narrow = it.below.iter().filter(|below| below.mtu < self.wanted);
            narrow.map(move |below| (host, it.interface.as_str(), below))
        };
        self.hosts.iter().enumerate().flat_map(of_host).filter_map(|(host, above, below)| {
            let leaves = |it: &&Observation| it.from == host && it.interface == above;
            let directions = self.observations.iter().filter(leaves).count();
            let (interface, mtu, above) = (below.name.as_str(), below.mtu, Some(above));
            (directions > 0).then_some(Device { host, interface, mtu, directions, above })
        })
    }

    /// Whether a small device at either end explains the observation. A device may take a little
    /// more than its MTU, for a tag.
    pub(super) fn is_explained(&self, devices: &[Device<'_>], it: &Observation) -> bool {
        let ends = devices.iter().filter(|device| device.is_on(it));
        ends.map(|device| device.mtu)
            .min()
            .is_some_and(|mtu| mtu < self.wanted && it.carried >= mtu)
    }

    pub(super) fn device(&self, device: &Device<'_>) -> Finding {
        let (wanted, mtu, name) = (self.wanted, device.mtu, self.name(device.host));
        let interface = if device.interface.is_empty() { "its device" } else { device.interface };
        let what = match device.above {
            None => format!("{interface} has MTU {mtu}, not {wanted}"),
            Some(above) => format!("{interface}, below {above}, has MTU {mtu}, not {wanted}"),
        };
        let others = if mtu < wanted { "lower" } else { "raise" };
        Finding {
            network: None,
            hop: Hop::Vnic,
            at: name.clone(),
            directions: device.directions,
            pairs: self.limited_by(device),
            problem: Problem::new(format!("{name}: {what}"))
                .seen(mtu)
                .wanted(wanted)
                .remedy(format!(
                    "`ip link set {interface} mtu {wanted}` on {name} (for a guest also `millrace port set PORT mtu={wanted}`), \
                     or {others} the devices of the network's other hosts to {mtu}"
                )),
        }
    }

    /// Returns the directions that a device explains.
    fn limited_by(&self, device: &Device<'_>) -> Vec<Direction> {
        let device = std::slice::from_ref(device);
        let fails = self.observations.iter().filter(|it| it.carried < self.wanted);
        fails.filter(|it| self.is_explained(device, it)).map(|it| (it.from, it.to)).collect()
    }
}
