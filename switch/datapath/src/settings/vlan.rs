//! VLAN modes of a port: which frames may enter, and how they leave.

use wire::{Parsed, Traits};

/// VLAN mode, in the words of `Set-VMNetworkAdapterVlan`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Vlan {
    /// Untagged frames only, priority-tagged ones among them; they belong to this VLAN inside the
    /// switch. 0 is the VLAN of everything untagged.
    Access(u16),
    /// Tagged frames of the allowed VLANs; untagged ones belong to `native`.
    Trunk {
        /// VLAN of untagged frames.
        native: u16,
        /// VLANs that may pass.
        allowed: VlanSet,
    },
}

impl Vlan {
    /// Returns whether a frame may pass between two ports of these modes.
    pub fn overlaps(&self, other: &Vlan) -> bool {
        match (self, other) {
            (Vlan::Access(vlan), mode) | (mode, Vlan::Access(vlan)) => {
                mode.tagging(*vlan).is_some()
            }
            (Vlan::Trunk { native, allowed }, Vlan::Trunk { native: their, allowed: others }) => {
                let shared = allowed.0.iter().zip(&*others.0).any(|(one, two)| one & two != 0);
                shared || other.tagging(*native).is_some() || self.tagging(*their).is_some()
            }
        }
    }

    /// Returns the VLAN of a frame inside the switch; `None` if it is not allowed to enter.
    ///
    /// A tag of id 0 is only a priority (IEEE 802.1Q, 6.9): the frame is untagged. An access port
    /// allows no other tag, and none behind it, nor one of switches before 802.1ad: it would leave
    /// by an uplink's native VLAN, and the switch behind that may read it.
    #[inline]
    pub fn admit(&self, parsed: &Parsed) -> Option<u16> {
        match (self, parsed.vlan_id()) {
            (Vlan::Access(vlan), 0) => {
                let more = Traits::QINQ | Traits::OLD_TAG;
                (!parsed.traits.intersects(more)).then_some(*vlan)
            }
            (Vlan::Access(_), _) => None,
            (Vlan::Trunk { native, .. }, 0) => Some(*native),
            (Vlan::Trunk { allowed, .. }, tag) => allowed.contains(tag).then_some(tag),
        }
    }

    /// Returns how a frame of this VLAN leaves; `None` if it does not leave by this port.
    #[inline]
    pub(crate) fn tagging(&self, vlan: u16) -> Option<Tagging> {
        match self {
            Vlan::Access(own) => (*own == vlan).then_some(Tagging::Untagged),
            Vlan::Trunk { native, .. } if *native == vlan => Some(Tagging::Untagged),
            Vlan::Trunk { allowed, .. } => {
                (vlan != 0 && allowed.contains(vlan)).then_some(Tagging::Tagged(vlan))
            }
        }
    }
}

impl Default for Vlan {
    fn default() -> Vlan {
        Vlan::Access(0)
    }
}

/// A set of VLAN ids (0 to 4094) as a bitmap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanSet(Box<[u64; 64]>);

impl VlanSet {
    /// Returns whether the id is in the set.
    pub fn contains(&self, id: u16) -> bool {
        self.0.get(usize::from(id & 0xfff) / 64).is_some_and(|word| word >> (id % 64) & 1 != 0)
    }
}

impl FromIterator<u16> for VlanSet {
    /// Makes the set of these ids, cut to 12 bits. It never has 4095, which is reserved (IEEE
    /// 802.1Q, table 9-2).
    fn from_iter<I: IntoIterator<Item = u16>>(ids: I) -> VlanSet {
        let mut words = Box::new([0; 64]);
        for id in ids.into_iter().map(|id| id & 0xfff).filter(|id| *id != 0xfff) {
            words[usize::from(id) / 64] |= 1 << (id % 64);
        }
        VlanSet(words)
    }
}

/// How a frame of some VLAN leaves a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tagging {
    Untagged,
    Tagged(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vlan_set_holds_what_it_was_made_of() {
        let ids = [0, 1, 63, 64, 4094];
        let set: VlanSet = ids.into_iter().chain([4095]).collect();
        assert!((0..=4095).all(|id| set.contains(id) == ids.contains(&id)));
    }
}
