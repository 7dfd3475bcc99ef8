//! Fit: what an egress port cannot take as it is gets done here: VLAN tags, segmentation, checksums.
//!
//! The result is a list of frames ready for one egress queue: virtio header, span of private bytes, range of payload
//! pieces. A frame that needs nothing costs a list entry and its pieces.

use crate::coalesce::{Coalescer, Item};
use crate::counters::{DropReason, PortCell};
use crate::frame::{Frame, Headers, Span};
use crate::segment::{self, Layout};
use crate::view::{Port, Tagging};
use ports::{Burst, Offloads, Outgoing, Slice};
use std::ops::Range;
use wire::Traits;
use wire::vnet::{Flags, GsoType, VnetHeader};

/// A frame that its egress port can take.
pub(crate) struct Fitted {
    pub(crate) vnet: VnetHeader,
    pub(crate) header: Span,
    pieces: Range<u32>,
    pub(crate) len: u32,
}

/// What is ready for one egress queue.
#[derive(Default)]
pub(crate) struct Fitting<'q> {
    /// What the port takes without help: read once, so that the whole list is made for the same.
    pub(crate) offloads: Offloads,
    pub(crate) frames: Vec<Fitted>,
    pub(crate) pieces: Vec<Slice<'q>>,
}

/// The frames of the turn as fitting reads them.
pub(crate) struct Source<'t, 'q> {
    pub(crate) burst: &'t Burst<'q>,
    pub(crate) frames: &'t [Frame],
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "a turn has far less than 4 G pieces, a frame less than 4 GiB"
)]
impl<'q> Fitting<'q> {
    pub(crate) fn clear(&mut self) {
        self.frames.clear();
        self.pieces.clear();
    }

    /// The frames as an egress queue takes them.
    pub(crate) fn outgoing<'a>(&'a self, headers: &'a Headers, out: &mut Vec<Outgoing<'a>>) {
        out.extend(self.frames.iter().map(|frame| {
            Outgoing {
                vnet: frame.vnet,
                header: headers.get(frame.header),
                payload: self
                    .pieces
                    .get(frame.pieces.start as usize..frame.pieces.end as usize)
                    .unwrap_or_default(),
                len: frame.len,
            }
        }));
    }

    /// Fits one item; an error is for all its frames.
    #[inline]
    pub(crate) fn fit(
        &mut self,
        item: Item,
        to: &Port,
        source: &Source<'_, 'q>,
        coalescer: &Coalescer,
        headers: &mut Headers,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        match item {
            Item::Single(place) => {
                let Some(frame) = source.frames.get(usize::from(place)) else { return Ok(()) };
                self.single(frame, to, source.burst, headers, cell)
            }
            Item::Train(train) => self.train(train, to, source, coalescer, headers, cell),
        }
    }

    fn train(
        &mut self,
        place: u16,
        to: &Port,
        source: &Source<'_, 'q>,
        coalescer: &Coalescer,
        headers: &mut Headers,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        let Some(train) = coalescer.train(place) else { return Ok(()) };
        let Some(first) = source.frames.get(usize::from(train.head)) else { return Ok(()) };
        if train.segments == 1 {
            return self.single(first, to, source.burst, headers, cell);
        }
        let headers_len = u32::from(first.parsed.payload - first.parsed.l3);
        if headers_len + train.largest_payload > to.settings.mtu.into() {
            return Err(DropReason::TooBig);
        }
        let (span, mut vnet) = train.header(first, headers);
        let (span, _) = retag(span, &mut vnet, first, to, headers);
        let start = self.pieces.len();
        for place in coalescer.members(train) {
            if let Some(member) = source.frames.get(usize::from(place)) {
                member.lend_payload(source.burst, &mut self.pieces);
            }
        }
        self.push(vnet, span, start, u32::from(span.len()) + train.payload);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn single(
        &mut self,
        frame: &Frame,
        to: &Port,
        burst: &Burst<'q>,
        headers: &mut Headers,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        if frame.largest_packet() > u32::from(to.settings.mtu) {
            return Err(DropReason::TooBig);
        }
        if takes(self.offloads, frame) && tag_change(frame, to).is_none() {
            let start = self.pieces.len();
            frame.lend_rest(burst, &mut self.pieces);
            self.push(frame.vnet, frame.header, start, frame.len);
            return Ok(());
        }
        self.rework(frame, to, burst, headers, cell)
    }

    /// The way of frames that need something done.
    fn rework(
        &mut self,
        frame: &Frame,
        to: &Port,
        burst: &Burst<'q>,
        headers: &mut Headers,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        let mut vnet = frame.vnet;
        let copy = headers.copy(frame.header, frame.header.len());
        let (span, grown) = retag(copy, &mut vnet, frame, to, headers);
        if frame.is_train() && !takes(self.offloads, frame) {
            return self.segments(
                frame,
                Layout::of(&frame.parsed, grown),
                span,
                burst,
                headers,
                cell,
            );
        }
        let start = self.pieces.len();
        frame.lend_rest(burst, &mut self.pieces);
        self.finish(&mut vnet, span, start, headers, cell);
        self.push(vnet, span, start, frame.len.saturating_add_signed(grown.into()));
        Ok(())
    }

    fn segments(
        &mut self,
        train: &Frame,
        layout: Layout,
        template: Span,
        burst: &Burst<'q>,
        headers: &mut Headers,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        if train.vnet.gso_size.get() < segment::SMALLEST {
            return Err(DropReason::BadOffload);
        }
        for segment in segment::segments(train, layout) {
            let (span, mut vnet) = segment.header(headers, template);
            let start = self.pieces.len();
            segment.lend_payload(burst, &mut self.pieces);
            self.finish(&mut vnet, span, start, headers, cell);
            self.push(vnet, span, start, u32::from(span.len()) + u32::from(segment.len));
            cell.segments.add(1);
        }
        cell.segmented_trains.add(1);
        Ok(())
    }

    /// Finishes the checksum where the port does not.
    fn finish(
        &self,
        vnet: &mut VnetHeader,
        span: Span,
        pieces: usize,
        headers: &mut Headers,
        cell: &PortCell,
    ) {
        if self.offloads.contains(Offloads::CSUM) {
            return;
        }
        if vnet.flags().contains(Flags::NEEDS_CSUM) {
            segment::finish_checksum(
                headers.get_mut(span),
                vnet,
                self.pieces.get(pieces..).unwrap_or_default(),
            );
            cell.checksums.add(1);
        }
        vnet.set_flags(Flags::empty());
    }

    #[inline]
    fn push(&mut self, vnet: VnetHeader, header: Span, start: usize, len: u32) {
        let pieces = start as u32..self.pieces.len() as u32;
        self.frames.push(Fitted { vnet, header, pieces, len });
    }
}

/// Whether a port takes what a frame's virtio header says without help.
#[inline]
fn takes(offloads: Offloads, frame: &Frame) -> bool {
    let vnet = &frame.vnet;
    vnet.asks_nothing()
        || offloads.contains(Offloads::CSUM) && (!frame.is_train() || takes_train(offloads, vnet))
}

fn takes_train(offloads: Offloads, vnet: &VnetHeader) -> bool {
    let train = match vnet.gso() {
        GsoType::Tcp4 => Offloads::TSO4,
        GsoType::Tcp6 => Offloads::TSO6,
        GsoType::UdpL4 => Offloads::USO,
        GsoType::None | GsoType::Unknown(_) => return false,
    };
    offloads.contains(train) && (!vnet.gso_ecn() || offloads.contains(Offloads::ECN))
}

/// What has to happen to the tag; `None`: nothing.
#[inline]
fn tag_change(frame: &Frame, to: &Port) -> Option<Tagging> {
    let wanted = to.settings.vlan.tagging(frame.vlan).unwrap_or(Tagging::Untagged);
    let fits = match wanted {
        Tagging::Untagged => !frame.parsed.traits.contains(Traits::VLAN),
        Tagging::Tagged(id) => {
            frame.parsed.traits.contains(Traits::VLAN) && frame.parsed.vlan_id() == id
        }
    };
    (!fits).then_some(wanted)
}

/// Inserts or strips the tag of a newest span, moves the checksum's place along, and says by how much the headers grew.
fn retag(
    span: Span,
    vnet: &mut VnetHeader,
    frame: &Frame,
    to: &Port,
    headers: &mut Headers,
) -> (Span, i16) {
    let tagged = frame.parsed.traits.contains(Traits::VLAN);
    let (span, grown) = match (tag_change(frame, to), tagged) {
        (None, _) => (span, 0),
        (Some(Tagging::Untagged), _) => (headers.strip_tag(span), -4),
        (Some(Tagging::Tagged(id)), false) => {
            (headers.insert_tag(span, wire::ethernet::ethertype::VLAN, id), 4)
        }
        (Some(Tagging::Tagged(id)), true) => {
            // Only the id changes; the priority stays. A priority tag becomes a VLAN tag.
            let tci = frame.parsed.vlan_tci & 0xf000 | id;
            if let Some(place) = headers.get_mut(span).get_mut(14..16) {
                place.copy_from_slice(&tci.to_be_bytes());
            }
            (span, 0)
        }
    };
    if vnet.flags().contains(Flags::NEEDS_CSUM) {
        vnet.csum_start.set(vnet.csum_start.get().saturating_add_signed(grown));
    }
    if vnet.gso() != GsoType::None {
        vnet.hdr_len.set(vnet.hdr_len.get().saturating_add_signed(grown));
    }
    (span, grown)
}
