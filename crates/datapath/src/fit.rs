//! Fit: what an egress port cannot take as it is gets done here: VLAN tags, segmentation, checksums.
//!
//! Most frames need nothing ([`are_taken`]) and go by without being listed here. Where one of a list does, the result is
//! a list of frames ready for one egress queue: virtio header, span of private bytes, range of payload pieces.

use crate::coalesce::{Coalescer, Item, Train};
use crate::counters::{DropReason, PortCell};
use crate::frame::Frame;
use crate::headers::{Headers, Span};
use crate::outbox::Run;
use crate::parts::{Lent, Parts};
use crate::segment::{self, Layout};
use crate::settings::Vlan;
use crate::view::{Port, Tagging};
use crate::work;
use ports::{Burst, Offloads, Outgoing};
use wire::Traits;
use wire::vnet::{Flags, GsoType, VnetHeader};

/// A frame that its egress port can take.
pub(crate) struct Fitted {
    vnet: VnetHeader,
    header: Span,
    payload: Lent,
    len: u32,
}

/// What is ready for one egress queue.
pub(crate) struct Fitting {
    /// What the port takes without help: read once, so that the whole list is made for the same.
    pub(crate) offloads: Offloads,
    pub(crate) frames: Vec<Fitted>,
    /// What the turn has cost so far.
    pub(crate) work: u64,
}

/// The frames of the turn as fitting reads them.
pub(crate) struct Source<'t, 'q> {
    pub(crate) burst: &'t Burst<'q>,
    pub(crate) frames: &'t [Frame],
}

impl Source<'_, '_> {
    /// The frames of a list of the outbox, in order.
    #[inline]
    pub(crate) fn runs(&self, list: &[Run]) -> impl Iterator<Item = &[Frame]> {
        list.iter().map(|run| self.frames.get(run.places()).unwrap_or_default())
    }
}

impl Fitting {
    /// The frames as an egress queue takes them.
    pub(crate) fn outgoing<'a>(&self, parts: &'a Parts<'_>, out: &mut Vec<Outgoing<'a>>) {
        let outgoing =
            |frame: &Fitted| parts.outgoing(frame.vnet, frame.header, frame.payload, frame.len);
        out.extend(self.frames.iter().map(outgoing));
    }

    /// Fits one item; an error is for all its frames.
    #[inline]
    pub(crate) fn fit<'q>(
        &mut self,
        item: Item,
        to: &Port,
        source: &Source<'_, 'q>,
        coalescer: &Coalescer,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        match item {
            Item::Single(place) => {
                let Some(frame) = source.frames.get(usize::from(place)) else { return Ok(()) };
                self.single(frame, to, source.burst, parts, cell)
            }
            Item::Train(train) => self.train(train, to, source, coalescer, parts, cell),
        }
    }

    fn train<'q>(
        &mut self,
        place: u16,
        to: &Port,
        source: &Source<'_, 'q>,
        coalescer: &Coalescer,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        let Some(train) = coalescer.train(place) else { return Ok(()) };
        let Some(first) = source.frames.get(usize::from(train.head)) else { return Ok(()) };
        if train.segments == 1 {
            return self.single(first, to, source.burst, parts, cell);
        }
        let headers_len = u32::from(first.parsed.payload - first.parsed.l3);
        if headers_len + train.largest_payload > to.settings.mtu.into() {
            return Err(DropReason::TooBig);
        }
        let (span, mut vnet) = train.header(first, &mut parts.headers);
        let (span, _) = retag(span, &mut vnet, first, to, &mut parts.headers);
        let payload = match Self::adjoining(train, source) {
            Some(payload) => payload,
            None => {
                let members = coalescer.members(train);
                let members = members.filter_map(|place| source.frames.get(usize::from(place)));
                let start = parts.pieces.len();
                members.for_each(|member| member.lend_payload(source.burst, parts));
                parts.since(start)
            }
        };
        let len = u32::from(span.len()) + train.payload;
        self.frames.push(Fitted { vnet, header: span, payload, len });
        Ok(())
    }

    /// The payload of a train whose segments stand next to each other in the turn: so do its pieces.
    fn adjoining(train: &Train, source: &Source<'_, '_>) -> Option<Lent> {
        let (head, tail) = (usize::from(train.head), usize::from(train.tail));
        let members = source.frames.get(head..=tail)?;
        let all_lent = || members.iter().all(Frame::payload_is_rest);
        let adjoin = members.len() == usize::from(train.segments) && all_lent();
        adjoin.then_some(members.first()?.rest.to(members.last()?.rest))
    }

    #[inline]
    pub(crate) fn single<'q>(
        &mut self,
        frame: &Frame,
        to: &Port,
        burst: &Burst<'q>,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        if is_taken(frame, to, self.offloads) {
            let Frame { vnet, header, rest, len, .. } = *frame;
            self.frames.push(Fitted { vnet, header, payload: rest, len });
            return Ok(());
        }
        if frame.largest_packet() > u32::from(to.settings.mtu) {
            return Err(DropReason::TooBig);
        }
        self.rework(frame, to, burst, parts, cell)
    }

    /// The way of frames that need something done.
    fn rework<'q>(
        &mut self,
        frame: &Frame,
        to: &Port,
        burst: &Burst<'q>,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        let mut vnet = frame.vnet;
        let copy = parts.headers.copy(frame.header, frame.header.len());
        let (span, grown) = retag(copy, &mut vnet, frame, to, &mut parts.headers);
        if frame.is_train() && !takes(self.offloads, frame) {
            let waiting = work::of_delivering(self.frames.len(), 0, 0, to.shared.kernel_ns);
            if self.work + waiting >= work::TURN_LIMIT {
                return Err(DropReason::WorkLimit);
            }
            let layout = Layout::of(&frame.parsed, grown);
            return self.segments(frame, layout, span, burst, parts, cell);
        }
        let len = frame.len.saturating_add_signed(grown.into());
        self.finish(Fitted { vnet, header: span, payload: frame.rest, len }, parts, cell);
        Ok(())
    }

    fn segments<'q>(
        &mut self,
        train: &Frame,
        layout: Layout,
        template: Span,
        burst: &Burst<'q>,
        parts: &mut Parts<'q>,
        cell: &PortCell,
    ) -> Result<(), DropReason> {
        for segment in segment::segments(train, layout) {
            let (header, vnet) = segment.header(&mut parts.headers, template);
            let start = parts.pieces.len();
            segment.lend_payload(burst, parts);
            let len = u32::from(header.len()) + u32::from(segment.len);
            self.finish(Fitted { vnet, header, payload: parts.since(start), len }, parts, cell);
            cell.segments.add(1);
            self.work += work::OF_SEGMENT;
        }
        cell.segmented_trains.add(1);
        Ok(())
    }

    /// Adds a frame, its checksum finished where the port does not.
    fn finish(&mut self, mut frame: Fitted, parts: &mut Parts<'_>, cell: &PortCell) {
        if !self.offloads.contains(Offloads::CSUM) {
            if frame.vnet.flags().contains(Flags::NEEDS_CSUM) {
                let Parts { headers, pieces } = parts;
                let payload = frame.payload.of(pieces);
                segment::finish_checksum(headers.get_mut(frame.header), &mut frame.vnet, payload);
                self.work += work::of_checksum(frame.len);
                cell.checksums.add(1);
            }
            frame.vnet.set_flags(Flags::empty());
        }
        self.frames.push(frame);
    }
}

/// Whether a port takes all of these frames as they are.
#[inline(never)]
pub(crate) fn are_taken(frames: &[Frame], to: &Port, offloads: Offloads) -> bool {
    frames.iter().all(|frame| is_taken(frame, to, offloads))
}

#[inline(always)]
fn is_taken(frame: &Frame, to: &Port, offloads: Offloads) -> bool {
    frame.largest_packet() <= u32::from(to.settings.mtu)
        && takes(offloads, frame)
        && tag_change(frame, to).is_none()
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
    let wanted = match &to.settings.vlan {
        Vlan::Access(_) => Tagging::Untagged,
        trunk => trunk.tagging(frame.vlan).unwrap_or(Tagging::Untagged),
    };
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
