//! The filter of received frames that a guest's driver sets by commands (virtio 1.2, sections
//! 5.1.6.5.1 to 5.1.6.5.3).

use crate::control::MacTable;
use bitflags::bitflags;
use wire::{Mac, VlanSet};

bitflags! {
    /// Receive modes, each at the bit of its command's number.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Modes: u8 {
        /// All frames.
        const PROMISCUOUS = 1 << 0;
        /// All frames to groups.
        const ALL_MULTICAST = 1 << 1;
        /// All frames to single stations.
        const ALL_UNICAST = 1 << 2;
        /// No frames to groups but to all.
        const NO_MULTICAST = 1 << 3;
        /// No frames to single stations.
        const NO_UNICAST = 1 << 4;
        /// No frames to all.
        const NO_BROADCAST = 1 << 5;
    }
}

impl Modes {
    /// The modes that a driver may set only if it has taken `CTRL_RX_EXTRA`.
    pub(crate) const EXTRA: Modes = Modes::PROMISCUOUS.union(Modes::ALL_MULTICAST).complement();
}

/// Returns promiscuous mode, in which a device begins, as QEMU's does: a driver that sets no filter
/// gets all frames.
impl Default for Modes {
    fn default() -> Modes {
        Modes::PROMISCUOUS
    }
}

/// Which frames a guest wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveFilter {
    modes: Modes,
    /// The guest's own address, if it is known.
    own: Option<Mac>,
    /// Sorted.
    macs: MacTable,
    /// The VLANs that pass; `None` if the driver has named none.
    vlans: Option<VlanSet>,
}

impl ReceiveFilter {
    /// Returns the filter; `None` if all frames are wanted.
    pub(crate) fn new(
        modes: Modes,
        own: Option<Mac>,
        macs: &MacTable,
        vlans: Option<&VlanSet>,
    ) -> Option<ReceiveFilter> {
        let mut macs = macs.clone();
        let lists = [&mut macs.unicast, &mut macs.multicast];
        lists.into_iter().flatten().for_each(|list| list.sort_unstable());
        let is_set = !modes.contains(Modes::PROMISCUOUS);
        is_set.then(|| ReceiveFilter { modes, own, macs, vlans: vlans.cloned() })
    }

    /// Returns whether the guest wants a frame to this destination, with this VLAN in its tag.
    /// `is_known`: the switch knows that the destination is at the guest, be it another than its
    /// own.
    pub fn wants(&self, destination: Mac, vlan: Option<u16>, is_known: bool) -> bool {
        vlan.is_none_or(|vlan| self.passes(vlan))
            && if destination == Mac::BROADCAST {
                !self.modes.contains(Modes::NO_BROADCAST)
            } else if destination.is_group() {
                self.wants_group(destination)
            } else {
                self.wants_station(destination, is_known)
            }
    }

    fn passes(&self, vlan: u16) -> bool {
        self.vlans.as_ref().is_none_or(|vlans| vlans.contains(vlan))
    }

    fn wants_group(&self, destination: Mac) -> bool {
        !self.modes.contains(Modes::NO_MULTICAST)
            && (self.modes.contains(Modes::ALL_MULTICAST)
                || has(self.macs.multicast.as_deref(), destination))
    }

    fn wants_station(&self, destination: Mac, is_known: bool) -> bool {
        !self.modes.contains(Modes::NO_UNICAST)
            && (is_known
                || self.modes.contains(Modes::ALL_UNICAST)
                || self.own.is_none_or(|own| own == destination)
                || has(self.macs.unicast.as_deref(), destination))
    }
}

/// Returns whether an address is in a sorted list; without a list all are.
fn has(list: Option<&[Mac]>, mac: Mac) -> bool {
    list.is_none_or(|list| list.binary_search(&mac).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);
    const GROUP: Mac = Mac([1, 0, 0x5e, 0, 0, 1]);

    /// Returns which frames to its own address, another, a group and all are wanted.
    fn wanted(modes: Modes, macs: &MacTable) -> [bool; 4] {
        let filter = ReceiveFilter::new(modes, Some(OWN), macs, None);
        [OWN, OTHER, GROUP, Mac::BROADCAST]
            .map(|to| filter.as_ref().is_none_or(|filter| filter.wants(to, None, false)))
    }

    #[test]
    fn each_mode_does_what_its_name_says() {
        let (none, no) = (MacTable::default(), Modes::empty());
        let both = MacTable { unicast: Some(vec![OTHER]), multicast: Some(vec![GROUP]) };
        let all = MacTable { unicast: None, multicast: None };
        assert_eq!(wanted(Modes::default(), &none), [true; 4], "as it begins");
        assert_eq!(wanted(no, &none), [true, false, false, true]);
        assert_eq!(wanted(no, &both), [true; 4]);
        assert_eq!(wanted(no, &all), [true; 4], "too many to note");
        assert_eq!(wanted(Modes::ALL_MULTICAST, &none), [true, false, true, true]);
        assert_eq!(wanted(Modes::ALL_UNICAST, &none), [true, true, false, true]);
        assert_eq!(wanted(Modes::NO_MULTICAST, &all), [true, true, false, true]);
        assert_eq!(wanted(Modes::NO_UNICAST, &both), [false, false, true, true]);
        assert_eq!(wanted(Modes::NO_BROADCAST, &both), [true, true, true, false]);
    }

    #[test]
    fn an_address_that_the_switch_knows_there_is_wanted() {
        let filter = |own| ReceiveFilter::new(Modes::empty(), own, &MacTable::default(), None);
        let filter = |own| filter(own).expect("a filter");
        assert!(filter(Some(OWN)).wants(OTHER, None, true));
        assert!(filter(None).wants(OTHER, None, false), "its own address is not known");
    }

    #[test]
    fn a_vlan_that_was_not_named_does_not_pass() {
        let vlans = VlanSet::from_iter([7]);
        let macs = MacTable::default();
        let filter = |vlans| ReceiveFilter::new(Modes::empty(), Some(OWN), &macs, vlans);
        let filter = |vlans| filter(vlans).expect("a filter");
        let wants = |vlan| filter(Some(&vlans)).wants(OWN, vlan, true);
        assert_eq!([None, Some(7), Some(8), Some(4095)].map(wants), [true, true, false, false]);
        assert!(filter(None).wants(OWN, Some(8), true), "the driver has named none");
    }
}
