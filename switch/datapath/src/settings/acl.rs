//! The rules of a port's ACL, as an operator sets them: stateless, tested in order.

use crate::settings::mark::AclMark;
use ports::capture::Direction;
use std::ops::RangeInclusive;
use wire::{Mac, Prefix};

/// The action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclAction {
    /// Lets matching frames pass.
    Allow,
    /// Drops matching frames as `acl_denied`.
    Deny,
    /// Marks frames. Only the first matching rule of this kind does so, and only for frames from
    /// the port into the switch. The rules of other kinds decide whether the frames pass.
    Mark(AclMark),
}

/// The kind of frame that a rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclProtocol {
    /// Any kind.
    Any,
    /// ARP.
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// IPv4 or IPv6 with this transport.
    Ip(u8),
}

/// Condition on a frame's source or destination; absent fields match everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AclEnd {
    /// The Ethernet address.
    pub mac: Option<Mac>,
    /// The IP address.
    pub prefix: Option<Prefix>,
    /// The port of TCP or UDP.
    pub ports: Option<RangeInclusive<u16>>,
}

/// A rule, which applies to frames that match all of its fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclRule {
    /// The action for frames that match.
    pub action: AclAction,
    /// Direction of the frames: from the port into the switch, or from the switch to the port.
    pub direction: Direction,
    /// The frame's kind.
    pub protocol: AclProtocol,
    /// The frame's source.
    pub from: AclEnd,
    /// The frame's destination.
    pub to: AclEnd,
}
