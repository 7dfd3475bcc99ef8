//! One pass over a frame's headers, once per frame: Ethernet, up to two VLAN tags, IPv4 or IPv6,
//! TCP or UDP.
//!
//! The worker calls [`parse`] right after it has copied a frame's headers; nothing re-parses. Every
//! frame that has an Ethernet header gets an answer, because a switch forwards by addresses also
//! what it does not understand: the answer then is [`Kind::NotIp`], [`Kind::OtherIp`] or
//! [`Kind::Malformed`] with the reason, and the offsets of what was understood before. Checksums
//! are not looked at, IPv4's neither.
//!
//! Lengths are checked from the outside in: a header against the IP packet, the IP packet against
//! the frame, and only then against the bytes handed over. So a prefix of the headers gives the
//! same answer as all of them, or [`Malformed::BeyondHeaders`].
//!
//! Bulk TCP takes the [`fast_path`], which gives the same answer for less than half of the
//! instructions.

mod fast_path;

pub use fast_path::Packet;

use crate::ethernet::{EthernetHeader, VlanHeader, ethertype};
use crate::ipv4::Ipv4Header;
use crate::ipv6::{ExtensionHeader, Ipv6Header, extension};
use crate::tcp::{self, TcpHeader, TimestampOption};
use crate::udp::{self, UdpHeader};
use crate::{Header, Kind, Malformed, Parsed, TcpOptions, Traits};

/// IPv6 extension headers that are walked before the frame is given up.
const MAX_EXTENSIONS: usize = 8;

/// Bytes that filters ask about where the transport is neither TCP nor UDP: a neighbour
/// advertisement up to its target.
const ASKED: u16 = 24;

/// Parses the headers of a frame of `frame_len` bytes of which `headers` are the first.
/// Returns `None` for fewer than the 14 bytes of an Ethernet header.
#[inline]
pub fn parse(headers: &[u8], frame_len: usize) -> Option<Parsed> {
    let mut parsed = Parsed::default();
    parsed.read(headers, frame_len).then_some(parsed)
}

/// Nothing is known yet.
impl Default for Parsed {
    #[inline]
    fn default() -> Parsed {
        Parsed {
            kind: Kind::NotIp,
            traits: Traits::empty(),
            ethertype: 0,
            vlan_tci: 0,
            l3: EthernetHeader::LEN,
            l4: 0,
            payload: EthernetHeader::LEN,
            end: 0,
            protocol: 0,
            tcp_options: TcpOptions::None,
        }
    }
}

impl Parsed {
    /// Like [`parse`], in place; `false` stands for `None`. The answer is written once,
    /// where it stays: as a value it is copied field by field, which takes half as many
    /// instructions as finding it.
    #[inline(always)]
    pub fn read(&mut self, headers: &[u8], frame_len: usize) -> bool {
        fast_path::read(self, headers, frame_len).is_some()
            || walk(self, headers, frame_len).is_some()
    }

    /// Like [`Parsed::read`], for a packet that may be longer than its IP header can say: Linux
    /// writes the length 0 then, and the packet ends with the frame ("BIG TCP", RFC 2675).
    #[cold]
    pub fn read_big(&mut self, headers: &[u8], frame_len: usize) -> bool {
        walk_to(self, headers, frame_len, true).is_some()
    }
}

/// Like [`Parsed::read`], for any frame.
#[cold]
fn walk(parsed: &mut Parsed, headers: &[u8], frame_len: usize) -> Option<()> {
    walk_to(parsed, headers, frame_len, false)
}

fn walk_to(parsed: &mut Parsed, headers: &[u8], frame_len: usize, may_be_big: bool) -> Option<()> {
    let headers = headers.get(..frame_len).unwrap_or(headers);
    let ethernet = EthernetHeader::at(headers, 0)?;
    let frame_end = u32::try_from(frame_len).unwrap_or(u32::MAX);
    let found = Parsed { ethertype: ethernet.ethertype.get(), end: frame_end, ..Parsed::default() };
    let mut walk = Walk { headers, frame_end, may_be_big, found };
    walk.found.kind = walk.network().unwrap_or_else(Kind::Malformed);
    *parsed = walk.found;
    Some(())
}

/// A walk over a frame's headers, with what is known so far. `found.payload` is its position.
struct Walk<'h> {
    headers: &'h [u8],
    frame_end: u32,
    /// Whether an IP packet of length 0 ends with the frame.
    may_be_big: bool,
    found: Parsed,
}

impl<'h> Walk<'h> {
    fn network(&mut self) -> Result<Kind, Malformed> {
        if is_tag(self.found.ethertype) {
            self.tags()?;
        }
        match self.found.ethertype {
            ethertype::IPV4 => self.ipv4(),
            ethertype::IPV6 => self.ipv6(),
            kind => {
                if ethertype::OLD_TAGS.contains(&kind) {
                    self.old_tag();
                }
                Ok(Kind::NotIp)
            }
        }
    }

    /// Notes a tag that is not read. Behind a priority tag it is like a tag that is cut off: such a
    /// frame is in no VLAN.
    #[cold]
    fn old_tag(&mut self) {
        let is_tagged = self.found.traits.contains(Traits::VLAN);
        if self.found.vlan_tci & 0xfff == 0 {
            self.found.vlan_tci = if is_tagged { Parsed::CUT_TAG } else { Parsed::OLD_TAG };
        }
        self.found.traits |= Traits::OLD_TAG;
    }

    /// Steps over two tags at most; a third is an EtherType unknown to the parser.
    fn tags(&mut self) -> Result<(), Malformed> {
        for tag in [Traits::VLAN, Traits::QINQ] {
            if !is_tag(self.found.ethertype) {
                break;
            }
            let header = self.header::<VlanHeader>(self.found.l3);
            let header = header.inspect_err(|_| self.found.vlan_tci = Parsed::CUT_TAG)?;
            if tag == Traits::VLAN {
                self.found.vlan_tci = header.tci.get();
                let service = self.found.ethertype == ethertype::PROVIDER_VLAN;
                self.found.traits.set(Traits::SERVICE, service);
            }
            self.found.traits |= tag;
            self.found.ethertype = header.ethertype.get();
            self.found.l3 += VlanHeader::LEN;
            self.found.payload = self.found.l3;
        }
        Ok(())
    }

    fn ipv4(&mut self) -> Result<Kind, Malformed> {
        self.found.traits |= Traits::IPV4;
        let ip: &Ipv4Header = self.header(self.found.l3)?;
        Malformed::IpVersion.unless(ip.version() == 4)?;
        Malformed::IpHeaderLength.unless(ip.header_len() >= Ipv4Header::LEN)?;
        let total_length = ip.total_length.get();
        if !self.is_big(total_length) {
            Malformed::IpLength.unless(total_length >= ip.header_len())?;
            self.set_end(u32::from(self.found.l3) + u32::from(total_length))?;
        }
        if ip.header_len() > Ipv4Header::LEN {
            self.found.traits |= Traits::IP_OPTIONS;
        }
        self.found.payload = self.found.l3 + ip.header_len();
        self.found.protocol = ip.protocol;
        if ip.is_fragment() { Ok(Kind::Fragment) } else { self.transport() }
    }

    fn ipv6(&mut self) -> Result<Kind, Malformed> {
        self.found.traits |= Traits::IPV6;
        let ip: &Ipv6Header = self.header(self.found.l3)?;
        Malformed::IpVersion.unless(ip.version() == 6)?;
        self.found.payload = self.found.l3 + Ipv6Header::LEN;
        if !self.is_big(ip.payload_length.get()) {
            self.set_end(u32::from(self.found.payload) + u32::from(ip.payload_length.get()))?;
        }
        self.found.protocol = ip.next_header;
        self.extensions()
    }

    /// Walks IPv6 extension headers up to the transport. A fragment header ends the walk, an atomic
    /// fragment's too: the switch neither merges nor segments behind one.
    fn extensions(&mut self) -> Result<Kind, Malformed> {
        for _ in 0..MAX_EXTENSIONS {
            let kind = self.found.protocol;
            if !extension::KNOWN.contains(&kind) {
                return self.transport();
            }
            Malformed::IpLength.unless(self.fits(ExtensionHeader::LEN))?;
            let header: &ExtensionHeader = self.header(self.found.payload)?;
            let length = header.bytes(kind);
            Malformed::IpLength.unless(self.fits(length))?;
            self.found.traits |= Traits::IP_OPTIONS;
            self.found.payload += length;
            self.found.protocol = header.next_header;
            if kind == extension::FRAGMENT {
                return Ok(Kind::Fragment);
            }
        }
        let ended = !extension::KNOWN.contains(&self.found.protocol);
        Malformed::TooManyExtensions.unless(ended)?;
        self.transport()
    }

    fn transport(&mut self) -> Result<Kind, Malformed> {
        match self.found.protocol {
            tcp::PROTOCOL => self.tcp(),
            udp::PROTOCOL => self.udp(),
            extension::NONE if self.found.traits.contains(Traits::IPV6) => Ok(Kind::OtherIp),
            _ => {
                let asked = u32::from(self.found.payload + ASKED).min(self.found.end);
                Malformed::BeyondHeaders.unless(asked as usize <= self.headers.len())?;
                self.found.l4 = self.found.payload;
                Ok(Kind::OtherIp)
            }
        }
    }

    fn tcp(&mut self) -> Result<Kind, Malformed> {
        let l4 = self.found.payload;
        Malformed::TcpHeaderLength.unless(self.fits(TcpHeader::LEN))?;
        let tcp: &TcpHeader = self.header(l4)?;
        let length = tcp.header_len();
        Malformed::TcpHeaderLength.unless(length >= TcpHeader::LEN && self.fits(length))?;
        let options = usize::from(l4 + TcpHeader::LEN)..usize::from(l4 + length);
        let options = self.headers.get(options).ok_or(Malformed::BeyondHeaders)?;
        self.found.l4 = l4;
        self.found.payload = l4 + length;
        self.found.tcp_options = tcp_options(options, l4 + TcpHeader::LEN);
        Ok(Kind::Tcp)
    }

    fn udp(&mut self) -> Result<Kind, Malformed> {
        let l4 = self.found.payload;
        Malformed::UdpLength.unless(self.fits(UdpHeader::LEN))?;
        let udp: &UdpHeader = self.header(l4)?;
        let length = udp.length.get();
        Malformed::UdpLength.unless(length >= UdpHeader::LEN && self.fits(length))?;
        if u32::from(l4) + u32::from(length) < self.found.end {
            self.found.traits |= Traits::SURPLUS;
        }
        self.found.l4 = l4;
        self.found.payload = l4 + UdpHeader::LEN;
        Ok(Kind::Udp)
    }

    /// Whether a packet of this length ends with the frame.
    fn is_big(&self, length: u16) -> bool {
        self.may_be_big && length == 0
    }

    /// Takes the IP packet's end, which must not lie behind the frame's.
    fn set_end(&mut self, end: u32) -> Result<(), Malformed> {
        Malformed::IpLength.unless(end <= self.frame_end)?;
        self.found.end = end;
        Ok(())
    }

    /// Returns whether the IP packet has `length` more bytes.
    fn fits(&self, length: u16) -> bool {
        u32::from(self.found.payload) + u32::from(length) <= self.found.end
    }

    /// Returns the header at `offset`. Fails if the frame ends before it.
    fn header<H: Header>(&self, offset: u16) -> Result<&'h H, Malformed> {
        H::at(self.headers, offset)
            .ok_or_else(|| self.missing(u32::from(offset) + u32::from(H::LEN)))
    }

    /// Returns the reason why bytes up to `end` are missing.
    #[cold]
    fn missing(&self, end: u32) -> Malformed {
        if end > self.frame_end { Malformed::Truncated } else { Malformed::BeyondHeaders }
    }
}

const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::VLAN | ethertype::PROVIDER_VLAN)
}

/// Parses the option bytes, which start at `offset` in the frame.
fn tcp_options(mut options: &[u8], mut offset: u16) -> TcpOptions {
    const END: u8 = 0;
    const NO_OPERATION: u8 = 1;
    let mut found = TcpOptions::None;
    while let [kind, rest @ ..] = options {
        match (*kind, found) {
            (END, _) if rest.iter().all(|&byte| byte == 0) => return found,
            (NO_OPERATION, _) => {
                options = rest;
                offset += 1;
            }
            (TimestampOption::KIND, TcpOptions::None) => {
                let [_, TimestampOption::LENGTH, _, _, _, _, _, _, _, _, rest @ ..] = options
                else {
                    return TcpOptions::Other;
                };
                found = TcpOptions::Timestamp(offset);
                options = rest;
                offset += u16::from(TimestampOption::LENGTH);
            }
            _ => return TcpOptions::Other,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// TCP over IPv4 with timestamps, two bytes of payload and four of padding.
    const TCP4: &[u8] = b"\x52\x54\0\0\0\x01\x52\x54\0\0\0\x02\x08\0\
        \x45\0\0\x36\0\x01\x40\0\x40\x06\0\0\x0a\0\0\x01\x0a\0\0\x02\
        \0\x50\0\x51\0\0\0\x01\0\0\0\x02\x80\x18\x01\0\0\0\0\0\
        \x01\x01\x08\x0a\0\0\0\x05\0\0\0\x06hi\0\0\0\0";

    #[test]
    fn a_plain_segment() {
        let parsed = parse(TCP4, TCP4.len()).unwrap();
        let expected = Parsed {
            kind: Kind::Tcp,
            traits: Traits::IPV4,
            ethertype: 0x0800,
            vlan_tci: 0,
            l3: 14,
            l4: 34,
            payload: 66,
            end: 68,
            protocol: 6,
            tcp_options: TcpOptions::Timestamp(56),
        };
        assert_eq!(parsed, expected);
        assert_eq!(walk(TCP4, TCP4.len()), Some(expected));
        assert_eq!(parsed.payload_len(), 2);
    }

    /// Calls [`parse`] without the short cut.
    fn walk(headers: &[u8], frame_len: usize) -> Option<Parsed> {
        let mut parsed = Parsed::default();
        super::walk(&mut parsed, headers, frame_len).map(|()| parsed)
    }

    /// Calls [`parse`] by the short cut alone.
    fn short_cut(headers: &[u8], frame_len: usize) -> Option<Parsed> {
        let mut parsed = Parsed::default();
        fast_path::read(&mut parsed, headers, frame_len).map(|()| parsed)
    }

    const TCP6: &[u8] = b"\x52\x54\0\0\0\x01\x52\x54\0\0\0\x02\x86\xdd\
        \x60\0\0\0\0\x22\x06\x40\
        \xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\
        \0\x50\0\x51\0\0\0\x01\0\0\0\x02\x80\x18\x01\0\0\0\0\0\
        \x01\x01\x08\x0a\0\0\0\x05\0\0\0\x06hi\0\0\0\0";

    #[test]
    fn the_short_cut_takes_plain_segments() {
        assert!(short_cut(TCP4, TCP4.len()).is_some());
        assert!(short_cut(TCP6, TCP6.len()).is_some());
    }

    proptest! {
        #[test]
        fn the_short_cut_says_what_the_walk_says(
            frame in prop_oneof![Just(TCP4), Just(TCP6)],
            damage in vec((0usize..90, prop_oneof![any::<u8>(), Just(0x50), Just(0x80)]), 0..3),
            (cut, frame_len) in (0usize..100, 0usize..100),
        ) {
            let mut frame = frame.to_vec();
            for (place, value) in damage {
                let place = place % frame.len();
                frame[place] = value;
            }
            for headers in [&frame, frame.get(..cut).unwrap_or(&frame)] {
                for frame_len in [frame_len, frame.len()] {
                    let short = short_cut(headers, frame_len);
                    prop_assert!(short.is_none() || short == walk(headers, frame_len));
                }
            }
        }
    }

    #[test]
    fn tcp_options_are_none_one_timestamp_or_other() {
        let timestamp = [8, 10, 1, 2, 3, 4, 5, 6, 7, 8];
        let cases: [(&[&[u8]], TcpOptions); 12] = [
            (&[], TcpOptions::None),
            (&[&[1, 1, 0, 0]], TcpOptions::None),
            (&[&[1, 1], &timestamp], TcpOptions::Timestamp(102)),
            (&[&timestamp, &[1, 1]], TcpOptions::Timestamp(100)),
            (&[&timestamp, &[0, 0]], TcpOptions::Timestamp(100)),
            (&[&[1], &timestamp, &[0]], TcpOptions::Timestamp(101)),
            (&[&timestamp, &timestamp], TcpOptions::Other),
            (&[&timestamp, &[0, 1]], TcpOptions::Other),
            (&[&timestamp[..8]], TcpOptions::Other),
            (&[&[8, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]], TcpOptions::Other),
            (&[&[2, 4, 5, 180]], TcpOptions::Other),
            (&[&[1, 1, 5, 10], &[0; 8]], TcpOptions::Other),
        ];
        for (parts, expected) in cases {
            assert_eq!(tcp_options(&parts.concat(), 100), expected, "{parts:?}");
        }
    }
}
