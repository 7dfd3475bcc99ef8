//! The meaning of each drop reason, for people; captures and metrics have only the reason's name.

use datapath::DropReason;

/// The stage at which a frame is dropped, in the order of the data path.
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

/// Returns the stage of a reason, and its meaning.
pub(super) fn meaning(reason: DropReason) -> (Stage, &'static str) {
    use DropReason as R;
    match reason {
        R::Runt => (Stage::Read, "it is shorter than an Ethernet header"),
        R::BadOffload => {
            (Stage::Read, "the sender's claims about its checksum or segments do not fit the frame")
        }
        R::UnknownTrain => (
            Stage::Read,
            "the kernel has merged packets whose transport the switch does not find, so it cannot \
             segment them",
        ),
        R::Scattered => {
            (Stage::Read, "its pieces average below 64 bytes, or their pages took too long to find")
        }
        R::DhcpGuard => {
            (Stage::Guards, "it is a DHCP server's message, or hides whether it is one")
        }
        R::RouterGuard => (Stage::Guards, "it is a router's message, or hides whether it is one"),
        R::IpGuard => (Stage::Guards, "its IP source is not in the port's `ip-guard`, or hidden"),
        R::AclDenied => (Stage::Acl, "a rule of the port's ACL denies it"),
        R::ReservedAddress => {
            (Stage::Address, "bridges do not forward 01:80:c2:00:00:00 to 0f (IEEE 802.1Q, 8.6.3)")
        }
        R::BadSource => (Stage::Address, "its source is a group address"),
        R::VlanNotAllowed => (Stage::Vlan, "the port does not carry its VLAN, or accepts no tag"),
        R::MacSpoofed => (Stage::Spoofing, "the port may send only from its own address"),
        R::AddressTaken => (Stage::Learn, "its source is another port's own address"),
        R::SamePort => (Stage::Lookup, "its destination is behind its ingress port"),
        R::Isolated => (Stage::Lookup, "both ports are isolated: they reach uplinks only"),
        R::UplinkToUplink => {
            (Stage::Lookup, "uplinks exchange frames only if both have `transit = true`")
        }
        R::NoPort => (Stage::Lookup, "no other port is in its VLAN"),
        R::WorkLimit => (Stage::Lookup, "the turn, or the receiver, has used up its work limit"),
        R::Storm => (Stage::Lookup, "the port floods more than its `storm` limit allows"),
        R::RateLimited => (Stage::Egress, "the port receives more than its `rate-to` allows"),
        R::TooBig => (Stage::Egress, "it is longer than the port's MTU"),
        R::InnerTag => (Stage::Egress, "removing the outer tag would make the inner one the first"),
        R::EgressFull => (Stage::Egress, "the receiver has no room"),
        R::EgressDown => (Stage::Egress, "the port is down or broken, or its guest is not ready"),
        R::PathDown => (Stage::Egress, "the only team member that it may use is down"),
        R::EgressRefused => (Stage::Egress, "the device refused it"),
    }
}
