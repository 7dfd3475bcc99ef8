//! The key of a flow, from the headers of a frame: the same reading as the judge's.

use super::layout::key;

/// A flow's key; the interface is filled in when it is offered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FlowKey(pub(super) [u8; key::SIZE]);

/// What a first look at a frame's headers tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// The frame's flow.
    pub key: FlowKey,
    /// The phase of its TCP connection; UDP is always established.
    pub phase: TcpPhase,
}

/// What a segment does to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpPhase {
    /// SYN.
    Opens,
    /// SYN and ACK.
    Accepts,
    /// FIN or RST.
    Ends,
    /// Neither.
    Goes,
}

impl Glance {
    /// Reads the headers of an untagged frame. `None` if it is none of those that the kernel path
    /// carries, or begins or ends.
    pub fn read(header: &[u8]) -> Option<Glance> {
        let mut key = [0; key::SIZE];
        let mut put = |offset: i16, bytes: &[u8]| {
            let start = usize::from(offset.unsigned_abs());
            key.get_mut(start..start + bytes.len()).map(|place| place.copy_from_slice(bytes))
        };
        put(key::STATIONS, header.get(..12)?)?;
        let ip = header.get(14..)?;
        let (protocol, transport) = match header.get(12..14)? {
            [0x08, 0x00] => {
                let fragment = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]);
                if *ip.first()? != 0x45 || fragment & 0xbfff != 0 {
                    return None;
                }
                put(key::FAMILY, &[4])?;
                put(key::SOURCE, ip.get(12..16)?)?;
                put(key::DESTINATION, ip.get(16..20)?)?;
                (*ip.get(9)?, ip.get(20..)?)
            }
            [0x86, 0xdd] => {
                if *ip.first()? >> 4 != 6 {
                    return None;
                }
                put(key::FAMILY, &[6])?;
                put(key::SOURCE, ip.get(8..40)?)?;
                (*ip.get(6)?, ip.get(40..)?)
            }
            _ => return None,
        };
        put(key::PROTOCOL, &[protocol])?;
        put(key::PORTS, transport.get(..4)?)?;
        let phase = match protocol {
            6 => phase(*transport.get(13)?)?,
            17 => TcpPhase::Goes,
            _ => return None,
        };
        Some(Glance { key: FlowKey(key), phase })
    }
}

/// Reads TCP's flags. `None`: no segment of a connection in order.
fn phase(flags: u8) -> Option<TcpPhase> {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;
    match flags & (FIN | SYN | RST | ACK) {
        SYN => Some(TcpPhase::Opens),
        both if both == SYN | ACK => Some(TcpPhase::Accepts),
        ACK => Some(TcpPhase::Goes),
        other if other & SYN == 0 && other & (FIN | RST) != 0 => Some(TcpPhase::Ends),
        _ => None,
    }
}

impl FlowKey {
    /// Returns the key at an interface.
    pub(super) fn at(mut self, interface: u32) -> FlowKey {
        let start = usize::from(key::INTERFACE.unsigned_abs());
        if let Some(place) = self.0.get_mut(start..start + 4) {
            place.copy_from_slice(&interface.to_ne_bytes());
        }
        self
    }

    /// Returns the key of the flow in the other direction.
    pub fn reversed(&self) -> FlowKey {
        let mut reversed = *self;
        for (first, second, length) in [
            (key::STATIONS, key::STATIONS + 6, 6),
            (key::PORTS, key::PORTS + 2, 2),
            (key::SOURCE, key::DESTINATION, 16),
        ] {
            let [first, second] = [first, second].map(|offset| usize::from(offset.unsigned_abs()));
            if let Some((front, back)) = reversed.0.split_at_mut_checked(second)
                && let Some(front) = front.get_mut(first..first + length)
                && let Some(back) = back.get_mut(..length)
            {
                front.swap_with_slice(back);
            }
        }
        reversed
    }

    /// Returns destination and source address of Ethernet.
    pub fn stations(&self) -> [[u8; 6]; 2] {
        [0, 6].map(|offset| self.bytes(key::STATIONS + offset))
    }

    /// Returns IP's protocol number.
    pub fn protocol(&self) -> u8 {
        let [protocol] = self.bytes(key::PROTOCOL);
        protocol
    }

    /// Returns whether it is a flow of IPv6.
    pub fn is_ipv6(&self) -> bool {
        self.bytes::<1>(key::FAMILY) == [6]
    }

    /// Returns the source and the destination address of IP.
    pub fn addresses(&self) -> [std::net::IpAddr; 2] {
        [key::SOURCE, key::DESTINATION].map(|offset| {
            if self.is_ipv6() {
                self.bytes::<16>(offset).into()
            } else {
                self.bytes::<4>(offset).into()
            }
        })
    }

    /// Returns the source and the destination port.
    pub fn ports(&self) -> [u16; 2] {
        [0, 2].map(|offset| u16::from_be_bytes(self.bytes(key::PORTS + offset)))
    }

    fn bytes<const N: usize>(&self, offset: i16) -> [u8; N] {
        let start = usize::from(offset.unsigned_abs());
        self.0.get(start..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }
}
