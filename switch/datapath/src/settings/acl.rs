//! The rules of a port's ACL, as an operator sets them: stateless, tested in order.

use crate::settings::mark::AclMark;
use ports::capture::Direction;
use std::ops::RangeInclusive;
use wire::{Mac, Prefix};

/// The action of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclAction {
    /// They pass.
    Allow,
    /// They are dropped as `acl_denied`.
    Deny,
    /// They are marked by the first such rule that matches; the other rules decide whether they
    /// pass. Only from the port into the switch.
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

/// The source, or the destination, that a rule matches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AclEnd {
    /// The Ethernet address.
    pub mac: Option<Mac>,
    /// The IP address.
    pub prefix: Option<Prefix>,
    /// The port of TCP or UDP.
    pub ports: Option<RangeInclusive<u16>>,
}

/// One rule: a frame must match all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclRule {
    /// What happens.
    pub action: AclAction,
    /// From the port into the switch, or out of the switch to the port.
    pub direction: Direction,
    /// The frame's kind.
    pub protocol: AclProtocol,
    /// Its source.
    pub from: AclEnd,
    /// Its destination.
    pub to: AclEnd,
}
