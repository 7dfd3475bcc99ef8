//! VLAN modes of a port: which frames may enter, and how they leave.

use wire::{Parsed, Traits, VlanSet};

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
                allowed.overlaps(others)
                    || other.tagging(*native).is_some()
                    || self.tagging(*their).is_some()
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

/// How a frame of some VLAN leaves a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tagging {
    Untagged,
    Tagged(u16),
}
