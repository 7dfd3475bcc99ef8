//! Describes a parsed frame in words:

use ports::memory::MemoryFrame;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wire::ethernet::ethertype;
use wire::upper::{ICMP, ICMPV6};
use wire::vnet::{Flags, GsoType};
use wire::{Kind, Mac, Parsed, Traits, parse};

/// Returns a frame in words.
pub(super) fn of(frame: &MemoryFrame) -> String {
    let MemoryFrame { bytes, vnet } = frame;
    let length = format!("{} bytes", bytes.len());
    let Some(parsed) = parse(bytes, bytes.len()) else { return format!("not a frame, {length}") };
    let mut parts = Vec::new();
    if let Some((destination, source)) = addresses(bytes) {
        parts.push(format!("{source} > {destination}"));
    }
    parts.extend(tag(&parsed));
    parts.push(packet(&parsed, bytes));
    parts.push(length);
    if vnet.gso() != GsoType::None {
        parts.push(format!("a train of segments of {} bytes", vnet.gso_size.get()));
    }
    if vnet.flags().contains(Flags::NEEDS_CSUM) {
        parts.push("partial checksum".to_owned());
    }
    parts.join(", ")
}

/// Returns destination and source.
pub(super) fn addresses(bytes: &[u8]) -> Option<(Mac, Mac)> {
    let [destination, source] = bytes.as_chunks::<6>().0.get(..2)? else { return None };
    Some((Mac(*destination), Mac(*source)))
}

fn tag(parsed: &Parsed) -> Option<String> {
    let inner = if parsed.traits.contains(Traits::QINQ) { " with an inner tag" } else { "" };
    let has = parsed.traits.contains(Traits::VLAN);
    has.then(|| match (parsed.vlan_id(), parsed.vlan_tci >> 13) {
        (0, priority) => format!("priority {priority}{inner}"),
        (vlan, 0) => format!("VLAN {vlan}{inner}"),
        (vlan, priority) => format!("VLAN {vlan} priority {priority}{inner}"),
    })
}

fn packet(parsed: &Parsed, bytes: &[u8]) -> String {
    let ends = ends(parsed, bytes);
    let name = match (parsed.kind, parsed.protocol) {
        (Kind::Malformed(why), _) => return format!("malformed IP ({why:?})"),
        (Kind::NotIp, _) if parsed.ethertype == ethertype::ARP => return "ARP".to_owned(),
        (Kind::NotIp, _) => return format!("EtherType 0x{:04x}", parsed.ethertype),
        (Kind::Tcp, _) => "TCP".to_owned(),
        (Kind::Udp, _) => "UDP".to_owned(),
        (Kind::Fragment, _) => "an IP fragment".to_owned(),
        (Kind::OtherIp, ICMP) => "ICMP".to_owned(),
        (Kind::OtherIp, ICMPV6) => "ICMPv6".to_owned(),
        (Kind::OtherIp, number) => format!("IP protocol {number}"),
    };
    ends.map_or_else(|| name.clone(), |ends| format!("{name} {ends}"))
}

/// Returns text such as `10.0.0.1:1 > 10.0.0.2:80`.
fn ends(parsed: &Parsed, bytes: &[u8]) -> Option<String> {
    let addresses = parsed.addresses(bytes)?;
    let (from, to) = addresses.split_at(addresses.len() / 2);
    let address = |bytes: &[u8]| -> Option<IpAddr> {
        let v4 = <[u8; 4]>::try_from(bytes).ok().map(|bytes| Ipv4Addr::from(bytes).into());
        v4.or_else(|| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()))
    };
    let (from, to) = (address(from)?, address(to)?);
    if !parsed.kind.has_ports() {
        return Some(format!("{from} > {to}"));
    }
    let l4 = usize::from(parsed.l4);
    let port = |at: usize| bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes);
    let (from, to) = (SocketAddr::new(from, port(l4)?), SocketAddr::new(to, port(l4 + 2)?));
    Some(format!("{from} > {to}"))
}
