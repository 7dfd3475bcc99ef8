//! Finishes the checksum of SCTP where it enters.
//!
//! Linux leaves it to the device, marked as any unfinished checksum. But it is a CRC, which nothing
//! in the virtio-net header tells from an Internet checksum, so no port can be asked to finish it. A
//! guest's driver is not asked for it, so only the kernel's claims are read in this way.

use crate::frame::parts::Parts;
use crate::frame::{Frame, SCTP_FIELD, stretch};
use crate::turn::work;
use ports::Slice;
use wire::Header;
use wire::checksum::Sum;
use wire::crc32c::Crc32c;
use wire::tunnel::{Layer, Layers, SCTP, Wanted};
use wire::udp::UdpHeader;
use wire::vnet::Flags;

impl Frame {
    /// Finishes the checksum of SCTP that the kernel's claim names: of the frame's packet or of one
    /// in a tunnel. In a tunnel that the switch cannot read, the kernel is believed: of all
    /// transports only SCTP has its checksum at byte 8.
    #[cold]
    pub(super) fn finish_sctp<'q>(&mut self, slices: &[Slice<'q>], parts: &mut Parts<'q>) {
        let start = self.vnet.csum_start.get();
        let headers = parts.headers.get(self.header);
        let wanted = Wanted { protocol: SCTP, start: Some(start) };
        let found = Layers::find(headers, self.parsed.network(), wanted);
        let end = found.and_then(|found| found.end(headers)).unwrap_or(self.parsed.end);
        let end = end.min(self.parsed.end) as usize;
        let field = usize::from(start + SCTP_FIELD);
        let headers = parts.headers.get_mut(self.header);
        let Some(place) = headers.get_mut(field..field + 4) else { return };
        place.fill(0);
        let covered = usize::from(start)..end.min(headers.len());
        let crc = Crc32c::default().with(headers.get(covered).unwrap_or_default());
        let crc = self.behind(slices, headers.len(), end).fold(crc, add).finish();
        if let Some(place) = headers.get_mut(field..field + 4) {
            place.copy_from_slice(&crc);
        }
        parts.work += work::of_crc(self.len);
        for layer in found.iter().flat_map(|found| found.all().iter().rev()) {
            self.sum_anew(*layer, headers, slices);
            parts.work += if layer.is_ip() { 0 } else { work::of_checksum(self.len) };
        }
        self.vnet.set_flags(self.vnet.flags() - Flags::NEEDS_CSUM);
        (self.vnet.csum_start, self.vnet.csum_offset) = Default::default();
    }

    /// Computes the checksum of a tunnel's header: Linux computes it as if the one inside were an
    /// Internet checksum.
    fn sum_anew(&self, layer: Layer, headers: &mut [u8], slices: &[Slice<'_>]) {
        let packet_end = self.parsed.end as usize;
        let sum = |headers: &[u8], at: u16, end: usize| {
            let covered = headers.get(at.into()..end.min(headers.len())).unwrap_or_default();
            let add = |(len, sum): (usize, Sum), piece: Slice<'_>| {
                (len + piece.len(), sum.add_at(len, piece.sum()))
            };
            let start = (covered.len(), Sum::of(covered));
            self.behind(slices, headers.len(), end).fold(start, add).1
        };
        match layer {
            Layer::Udp(at) => {
                let Some(udp) = UdpHeader::at_mut(headers, at) else { return };
                if udp.checksum.get() == 0 {
                    return;
                }
                udp.checksum.set(0);
                let end = (usize::from(at) + usize::from(udp.length.get())).min(packet_end);
                let length = udp.length.get();
                let Some(addresses) = self.outer_addresses(headers, at) else { return };
                let pseudo = addresses.add_u16(length).add_u16(wire::udp::PROTOCOL.into());
                let checksum = (pseudo + sum(headers, at, end)).finish_udp();
                if let Some(udp) = UdpHeader::at_mut(headers, at) {
                    udp.checksum.set(checksum);
                }
            }
            Layer::Gre(at) => {
                let field = usize::from(at) + 4;
                let Some(place) = headers.get_mut(field..field + 2) else { return };
                place.fill(0);
                let checksum = sum(headers, at, packet_end).finish().to_be_bytes();
                if let Some(place) = headers.get_mut(field..field + 2) {
                    place.copy_from_slice(&checksum);
                }
            }
            Layer::Ipv4(_) | Layer::Ipv6(_) | Layer::Pppoe(_) => {}
        }
    }

    /// Returns the sum of the addresses of the IP header around a UDP header.
    fn outer_addresses(&self, headers: &[u8], udp: u16) -> Option<Sum> {
        let wanted = Wanted { protocol: wire::udp::PROTOCOL, start: Some(udp) };
        let around = Layers::find(headers, self.parsed.network(), wanted)?;
        around.ip()?.addresses(headers).map(Sum::of)
    }

    /// Returns the frame's bytes behind the private ones, up to `end`.
    fn behind<'q>(
        &self,
        slices: &[Slice<'q>],
        private: usize,
        end: usize,
    ) -> impl Iterator<Item = Slice<'q>> {
        let skip = private.saturating_add_signed(-isize::from(self.restored));
        stretch(slices, skip, end.saturating_sub(private))
    }
}

fn add(mut crc: Crc32c, mut slice: Slice<'_>) -> Crc32c {
    let mut copy = [0; 512];
    while !slice.is_empty() {
        let len = slice.copy_to(&mut copy);
        crc = crc.with(copy.get(..len).unwrap_or_default());
        slice = slice.skip(len);
    }
    crc
}
