//! What a drop means, for people; captures and metrics have the reason's name alone.

use datapath::DropReason;

/// Where on a frame's way it is dropped, in the order of the data path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    Read,
    Guards,
    Acl,
    Address,
    Vlan,
    Spoofing,
    Rate,
    Learn,
    Lookup,
    Egress,
}

/// Where a reason is met, and what it means.
pub(super) fn meaning(reason: DropReason) -> (Stage, &'static str) {
    use DropReason as R;
    match reason {
        R::Runt => (Stage::Read, "it is shorter than an Ethernet header"),
        R::BadOffload => {
            (Stage::Read, "what is claimed about its checksum or segments does not fit the frame")
        }
        R::DhcpGuard => {
            (Stage::Guards, "it is a DHCP server's message, or hides whether it is one")
        }
        R::RouterGuard => (Stage::Guards, "it is a router's message, or hides whether it is one"),
        R::IpGuard => (Stage::Guards, "its IP source is not in the port's `ip-guard`, or hidden"),
        R::AclDenied => (Stage::Acl, "a rule of the port's ACL denies it"),
        R::ReservedAddress => {
            (Stage::Address, "no bridge forwards 01:80:c2:00:00:00 to 0f (IEEE 802.1Q, 8.6.3)")
        }
        R::BadSource => (Stage::Address, "its source is a group address"),
        R::VlanNotAllowed => (Stage::Vlan, "the port is no member of its VLAN, or takes no tag"),
        R::MacSpoofed => (Stage::Spoofing, "the port may send from its own address only"),
        R::RateLimited => (Stage::Rate, "the port is above its `rate`"),
        R::AddressTaken => (Stage::Learn, "its source is another port's own address"),
        R::SamePort => (Stage::Lookup, "its destination is behind the port that it came from"),
        R::Isolated => (Stage::Lookup, "both ports are isolated: they reach uplinks only"),
        R::NoPort => (Stage::Lookup, "no other port is in its VLAN"),
        R::WorkLimit => (Stage::Lookup, "the turn had cost as much as one may"),
        R::Storm => (Stage::Lookup, "the port floods more than its `storm` limit allows"),
        R::TooBig => (Stage::Egress, "it is longer than the port's MTU"),
        R::InnerTag => {
            (Stage::Egress, "its inner tag would be laid bare by taking the outer one off")
        }
        R::EgressFull => (Stage::Egress, "the other side has no room"),
        R::EgressDown => (Stage::Egress, "the port is down or broken, or its guest is not ready"),
        R::PathDown => (Stage::Egress, "the one member of the team that it may leave by is down"),
        R::EgressRefused => (Stage::Egress, "the device refused it"),
    }
}
