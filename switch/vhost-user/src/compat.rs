//! The features of other back ends. A port can offer them instead of its own, so that a guest can
//! migrate between the two.
//!
//! The destination must offer every feature that the guest acknowledged when it booted, or QEMU
//! refuses to load its state. So both ends offer the same.

use crate::Features;

/// A back end as which a port can present itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compat {
    /// Open vSwitch with DPDK, with its default settings.
    OvsDpdk,
    /// Open vSwitch with DPDK and `userspace-tso-enable`.
    OvsDpdkTso,
}

impl Compat {
    /// Features that DPDK's vhost library offers for a network device, without `HOST_UFO`, which
    /// neither QEMU's users nor we use.
    const DPDK: Features = Features::CSUM
        .union(Features::GUEST_CSUM)
        .union(Features::MTU)
        .union(Features::GSO)
        .union(Features::GUEST_TSO4)
        .union(Features::GUEST_TSO6)
        .union(Features::GUEST_ECN)
        .union(Features::GUEST_UFO)
        .union(Features::HOST_TSO4)
        .union(Features::HOST_TSO6)
        .union(Features::HOST_ECN)
        .union(Features::MRG_RXBUF)
        .union(Features::CTRL_VQ)
        .union(Features::CTRL_RX)
        .union(Features::GUEST_ANNOUNCE)
        .union(Features::MQ)
        .union(Features::LOG_ALL)
        .union(Features::ANY_LAYOUT)
        .union(Features::INDIRECT_DESC)
        .union(Features::EVENT_IDX)
        .union(Features::PROTOCOL_FEATURES)
        .union(Features::VERSION_1)
        .union(Features::RING_PACKED)
        .union(Features::IN_ORDER);

    /// Returns the features that it offers for a device of several queue pairs.
    pub const fn offered(self) -> Features {
        let without = match self {
            Compat::OvsDpdk => Features::CSUM.union(Features::HOST_TSO4).union(Features::HOST_TSO6),
            Compat::OvsDpdkTso => Features::HOST_ECN,
        };
        Compat::DPDK.difference(without)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to `GET_FEATURES` of `dpdk-testpmd --vdev net_vhost0,iface=PATH,queues=2,tso=1`,
    /// DPDK 22.11.11 of Debian 12. The story `what_dpdk_offers_is_what_compat_offers` asks again
    /// where it is installed.
    const DPDK: u64 = 0xd_7c66_ffcb;
    const HOST_UFO: u64 = 1 << 14;
    /// Features that QEMU 10.0.2 lists as `Allowed features` at Open vSwitch 3.1 and at Millrace,
    /// started with the same options and one queue pair.
    const AT_OVS: u64 = 0x1_78bf_a7e6;
    const AT_MILLRACE: u64 = 0x1_78bf_bba7;

    #[test]
    fn dpdk_is_as_it_was_read() {
        assert_eq!(Compat::DPDK.bits(), DPDK & !HOST_UFO);
    }

    /// Open vSwitch removes some of DPDK's features by default; QEMU printed those that are left.
    #[test]
    fn open_vswitch_is_as_qemu_saw_it() {
        // Features that QEMU leaves to the back end; it implements the others itself.
        let asked = (AT_OVS | AT_MILLRACE) & (DPDK | Features::OWN.bits());
        let own = Features::CTRL_GUEST_OFFLOADS | Features::MAC | Features::STATUS;
        let own = own | Features::CTRL_VLAN | Features::CTRL_MAC_ADDR | Features::CTRL_RX_EXTRA;
        let asked = asked & !own.bits() & !HOST_UFO;
        assert_eq!(Compat::OvsDpdk.offered().bits() & asked, AT_OVS & asked);
        assert_eq!(Features::OWN.bits() & asked, AT_MILLRACE & asked);
    }

    /// From Open vSwitch's manual, confirmed by trial migrations. The features were not read from
    /// Open vSwitch itself, which needs huge pages.
    #[test]
    fn with_tso_it_lacks_one_of_dpdk_s() {
        let lacks = Compat::DPDK.difference(Compat::OvsDpdkTso.offered());
        assert_eq!(lacks, Features::HOST_ECN);
    }
}
