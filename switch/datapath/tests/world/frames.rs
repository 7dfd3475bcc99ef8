//! Frames of the attackers: what is asked for is nearly right, with one thing wrong.

use bolero::TypeGenerator;
use wire::vnet::{Flags, GsoType, VnetHeader};

/// Where a frame goes.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) enum To {
    Victim(u8),
    Broadcast,
    /// 01:80:c2:00:00:0X
    Reserved(u8),
    Group(u8),
    Unknown(u16),
}

/// From which address.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) enum From {
    Own,
    /// Another port's.
    Of(u8),
    Random(u16),
    Group,
}

/// A tag in front of the network header.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) struct Tag {
    service: bool,
    vlan: u8,
    /// One of the kinds of switches before 802.1ad, in a run of tags.
    old: bool,
}

impl Tag {
    pub(crate) fn is_old(self) -> bool {
        self.old
    }

    /// Returns the tag, of any kind.
    pub(crate) fn any_bytes(self) -> [u8; 4] {
        let mut bytes = self.bytes();
        if self.old {
            [bytes[0], bytes[1]] = [0x91 + self.vlan % 3, 0];
        }
        bytes
    }

    pub(crate) fn vlan(self) -> u8 {
        self.bytes()[3]
    }

    pub(crate) fn bytes(self) -> [u8; 4] {
        let [high, low] = if self.service { [0x88, 0xa8] } else { [0x81, 0] };
        let vlan = [0, 0, 10, 20, 1, 4][usize::from(self.vlan % 6)];
        [high, low, self.vlan & 0xe0, vlan]
    }
}

/// The one thing that is wrong with what the virtio header says.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) enum Wrong {
    Nothing,
    SegmentSize(u8),
    AnySegmentSize(u16),
    Start(u8),
    Offset(u8),
    HeaderLen(u16),
    Kind(u8),
    Flags(u8),
    /// The IP length is another.
    IpLength(u16),
}

/// A frame.
#[derive(Clone, Debug, TypeGenerator)]
pub(crate) struct Frame {
    pub(crate) to: To,
    pub(crate) from: From,
    pub(crate) tags: (Option<Tag>, Option<Tag>),
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    /// TCP flags, and the bits above them.
    pub(crate) flags: u16,
    pub(crate) payload: u16,
    /// A train, of a usual segment size.
    pub(crate) train: bool,
    /// The checksum is left to the switch.
    pub(crate) unfinished: bool,
    pub(crate) ecn: bool,
    pub(crate) wrong: Wrong,
}

/// Returns the address of a port.
pub(crate) fn mac(port: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, port]
}

impl To {
    pub(crate) fn mac(self) -> [u8; 6] {
        match self {
            To::Victim(port) => mac(port % 13),
            To::Broadcast => [0xff; 6],
            To::Reserved(last) => [1, 0x80, 0xc2, 0, 0, last % 16],
            To::Group(last) => [1, 0, 0x5e, 0, 0, last],
            To::Unknown(number) => {
                let [high, low] = number.to_be_bytes();
                [2, 7, 7, 7, high, low]
            }
        }
    }
}

impl From {
    pub(crate) fn mac(self, own: u8) -> [u8; 6] {
        match self {
            From::Own => mac(own),
            From::Of(port) => mac(port % 13),
            From::Random(number) => {
                let [high, low] = number.to_be_bytes();
                [2, 9, 9, 9, high, low]
            }
            From::Group => [3, 0, 0, 0, 0, own],
        }
    }
}

/// Segment sizes at which something changes.
const SIZES: [u16; 8] = [1, 2, 8, 47, 48, 536, 1448, 65535];

impl Frame {
    /// Returns the frame's virtio header and bytes; `id` goes to the end of the payload.
    pub(crate) fn build(&self, own: u8, id: u32) -> (VnetHeader, Vec<u8>) {
        let mut bytes = [self.to.mac(), self.from.mac(own)].concat();
        for tag in [self.tags.0, self.tags.1].into_iter().flatten() {
            bytes.extend(tag.bytes());
        }
        bytes.extend(if self.v6 { [0x86, 0xdd] } else { [8, 0] });
        let l3 = bytes.len();
        let header = if self.udp { 8 } else { 20 };
        let most = if self.train { 60_000 } else { 1460 };
        let payload = usize::from(self.payload) % most;
        bytes.extend(ip(self.v6, self.udp, header + payload));
        let l4 = bytes.len();
        bytes.extend(transport(self.udp, self.flags, payload));
        bytes.resize(l4 + header + payload, 0x5a);
        mark(&mut bytes[l4 + header..], id);
        let unfinished = self.unfinished || self.train;
        finish(&mut bytes, l3, l4, self.udp, unfinished);
        let mut vnet = VnetHeader::default();
        if unfinished {
            vnet.set_flags(Flags::NEEDS_CSUM);
            vnet.csum_start.set(l4 as u16);
            vnet.csum_offset.set(if self.udp { 6 } else { 16 });
        }
        if self.train {
            let kind = [GsoType::Tcp4, GsoType::Tcp6];
            let kind = if self.udp { GsoType::UdpL4 } else { kind[usize::from(self.v6)] };
            vnet.set_gso(kind, self.ecn);
            vnet.gso_size.set(SIZES[4 + usize::from(self.payload % 3)]);
            vnet.hdr_len.set((l4 + header) as u16);
        }
        self.spoil(&mut vnet, &mut bytes, l3);
        (vnet, bytes)
    }

    fn spoil(&self, vnet: &mut VnetHeader, bytes: &mut [u8], l3: usize) {
        match self.wrong {
            Wrong::Nothing => {}
            Wrong::SegmentSize(choice) => vnet.gso_size.set(SIZES[usize::from(choice % 8)]),
            Wrong::AnySegmentSize(size) => vnet.gso_size.set(size),
            Wrong::Start(start) => vnet.csum_start.set(u16::from(start % 96)),
            Wrong::Offset(offset) => vnet.csum_offset.set(u16::from(offset % 64)),
            Wrong::HeaderLen(len) => vnet.hdr_len.set(len),
            Wrong::Kind(kind) => vnet.set_gso(GsoType::Unknown(kind & 0x87), kind & 0x80 != 0),
            Wrong::Flags(flags) => vnet.set_flags(Flags::from_bits_truncate(flags)),
            Wrong::IpLength(len) => {
                let place = if self.v6 { l3 + 4 } else { l3 + 2 };
                bytes[place..place + 2].copy_from_slice(&len.to_be_bytes());
                if !self.v6 {
                    fill_ip_checksum(&mut bytes[l3..l3 + 20]);
                }
            }
        }
    }
}

/// Returns an Ethernet frame between two benign guests.
pub(crate) fn clean(
    to: [u8; 6],
    from: [u8; 6],
    tag: Option<u16>,
    round: u32,
    len: usize,
) -> Vec<u8> {
    let mut frame = [to, from].concat();
    if let Some(vlan) = tag {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([0x88, 0xb5]);
    frame.extend(b"mill");
    frame.extend(round.to_le_bytes());
    frame.resize(len.max(frame.len()), round as u8);
    frame
}

/// A TCP segment of the flow that an uplink sends into VLAN 10.
#[derive(Clone, Copy, Debug, TypeGenerator)]
pub(crate) struct Segment {
    /// The outer tag is one of 802.1ad.
    pub(crate) service: bool,
    /// Behind the outer tag.
    pub(crate) inner: Option<Tag>,
    /// The low half of byte 12 of the TCP header: reserved bits and AE.
    pub(crate) reserved: u8,
    /// ECE and CWR.
    pub(crate) ecn: u8,
    pub(crate) payload: u8,
}

/// What distinguishes the flow of [`Segment`] from all else.
pub(crate) const OUTSIDE_PORT: [u8; 2] = 4242_u16.to_be_bytes();

impl Segment {
    /// Returns the header fields that all segments of a train share: tags (the outer one of 802.1Q
    /// by now), reserved and ECN bits.
    pub(crate) fn likeness(self) -> (Vec<u8>, u8, u8) {
        let tags = Segment { service: false, ..self }.tags();
        (tags, self.reserved & 15, self.ecn & 0xc0)
    }

    fn tags(self) -> Vec<u8> {
        let outer = if self.service { [0x88, 0xa8, 0, 10] } else { [0x81, 0, 0, 10] };
        [&outer[..], self.inner.map(Tag::bytes).as_slice().as_flattened()].concat()
    }

    pub(crate) fn len(self) -> u32 {
        u32::from(self.payload) + 1
    }

    pub(crate) fn build(self, sequence: u32, to: usize) -> Vec<u8> {
        let mut bytes = [mac(to as u8), mac(8)].concat();
        bytes.extend(self.tags());
        bytes.extend([8, 0]);
        let l3 = bytes.len();
        let payload = self.len() as usize;
        bytes.extend(ip(false, false, 20 + payload));
        let l4 = bytes.len();
        bytes.extend(transport(false, 0, payload));
        bytes[l4 + 2..l4 + 4].copy_from_slice(&OUTSIDE_PORT);
        bytes[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        bytes[l4 + 12] = 0x50 | self.reserved & 15;
        bytes[l4 + 13] = 0x10 | self.ecn & 0xc0;
        bytes.resize(l4 + 20 + payload, 0x33);
        finish(&mut bytes, l3, l4, false, false);
        bytes
    }
}

fn mark(payload: &mut [u8], id: u32) {
    if let Some(last) = payload.last_chunk_mut::<8>() {
        last[..4].copy_from_slice(b"MARK");
        last[4..].copy_from_slice(&id.to_le_bytes());
    }
}

/// Returns the number at the end of a frame's payload.
pub(crate) fn id_of(frame: &[u8]) -> Option<u32> {
    let [b'M', b'A', b'R', b'K', id @ ..] = frame.last_chunk::<8>()? else { return None };
    Some(u32::from_le_bytes(*id))
}

fn ip(v6: bool, udp: bool, len: usize) -> Vec<u8> {
    let protocol = if udp { 17 } else { 6 };
    let len = len as u16;
    if v6 {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend(len.to_be_bytes());
        ip.extend([protocol, 64]);
        ip.extend([[0xfd; 15].as_slice(), &[1], &[0xfd; 15], &[2]].concat());
        return ip;
    }
    let mut ip = vec![0x45, 0];
    ip.extend((20 + len).to_be_bytes());
    ip.extend([0, 1, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    fill_ip_checksum(&mut ip);
    ip
}

pub(crate) fn fill_ip_checksum(ip: &mut [u8]) {
    ip[10..12].fill(0);
    let sum = !fold(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

fn transport(udp: bool, flags: u16, payload: usize) -> Vec<u8> {
    let mut header = vec![0x10, 0, 0x20, 0];
    if udp {
        header.extend((8 + payload as u16).to_be_bytes());
        header.extend([0, 0]);
        return header;
    }
    header.extend([0, 0, 0, 1, 0, 0, 0, 1]);
    header.extend((0x5010 | flags & 0xfff).to_be_bytes());
    header.extend([1, 0, 0, 0, 0, 0]);
    header
}

/// Writes the checksum: of the pseudo-header alone if `unfinished`, otherwise in full.
fn finish(bytes: &mut [u8], l3: usize, l4: usize, udp: bool, unfinished: bool) {
    let place = l4 + if udp { 6 } else { 16 };
    let sum = fold(
        &[pseudo(bytes, l3, l4), if unfinished { vec![] } else { bytes[l4..].to_vec() }].concat(),
    );
    let sum = match (unfinished, !sum) {
        (true, _) => sum,
        (false, 0) if udp => 0xffff,
        (false, sum) => sum,
    };
    bytes[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}

pub(crate) fn pseudo(bytes: &[u8], l3: usize, l4: usize) -> Vec<u8> {
    let v6 = bytes[l3] >> 4 == 6;
    let (addresses, protocol) = if v6 {
        (&bytes[l3 + 8..l3 + 40], bytes[l3 + 6])
    } else {
        (&bytes[l3 + 12..l3 + 20], bytes[l3 + 9])
    };
    let len = ((bytes.len() - l4) as u32).to_be_bytes();
    [addresses, &[0, protocol], &len].concat()
}

/// Returns the sum of the Internet checksum, computed independently of ours.
pub(crate) fn fold(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}
