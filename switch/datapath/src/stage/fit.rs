//! Fit: adapts frames that an egress port cannot take as they are: VLAN tags, segmentation,
//! checksums.
//!
//! Most lists need nothing ([`are_taken`]) and skip this. In the others each frame or coalesced
//! train becomes one or more [`Fitted`] frames: virtio header, span of private bytes, range of
//! payload slices.

use crate::counters::DropReason;
use crate::frame::Frame;
use crate::frame::headers::{Headers, Span};
use crate::frame::parts::{Parts, PieceRange};
use crate::port::view::Port;
use crate::settings::vlan::{Tagging, Vlan};
use crate::stage::coalesce::Train;
use crate::stage::segment::{self, Cutter, Layout};
use crate::turn::Delivery;
use crate::turn::work::{self, Meter};
use ports::{Offloads, Outgoing};
use wire::ethernet::EthernetHeader;
use wire::tunnel::{Layers, Wanted};
use wire::vnet::{Flags, GsoType, VnetHeader};
use wire::{Header, Traits, tcp, udp};

/// A frame that its egress port can take.
#[derive(Clone, Copy)]
pub(crate) struct Fitted {
    vnet: VnetHeader,
    header: Span,
    payload: PieceRange,
    len: u32,
}

impl Fitted {
    /// Makes a frame without any change.
    #[inline]
    pub(crate) fn unchanged(frame: &Frame) -> Fitted {
        let Frame { vnet, header, rest, len, .. } = *frame;
        Fitted { vnet, header, payload: rest, len }
    }

    /// Returns the frame as an egress queue takes it.
    #[inline]
    pub(crate) fn outgoing<'p>(&self, parts: &'p Parts<'_>) -> Outgoing<'p> {
        Outgoing {
            vnet: self.vnet,
            header: parts.headers.get(self.header),
            payload: parts.slices(self.payload),
            len: self.len,
        }
    }
}

/// Fits frame after frame of one list.
pub(crate) struct Fitter<'f, 't, 'q> {
    pub(crate) delivery: &'f mut Delivery<'t, 'q>,
    pub(crate) fitted: &'f mut Vec<Fitted>,
    pub(crate) meter: &'f mut Meter,
}

impl Fitter<'_, '_, '_> {
    /// Fits a frame.
    ///
    /// # Errors
    ///
    /// Returns the reason why the frame is dropped.
    #[inline]
    pub(crate) fn fit(&mut self, frame: &Frame) -> Result<(), DropReason> {
        let Delivery { to, offloads, .. } = *self.delivery;
        if is_taken(frame, to, offloads) {
            self.fitted.push(Fitted::unchanged(frame));
            return Ok(());
        }
        DropReason::TooBig.when(frame.largest_packet() > u32::from(to.settings.mtu))?;
        DropReason::InnerTag.when(bares_inner_tag(frame, to))?;
        self.change(frame)
    }

    /// Fits the segments that coalescing put into one train; `members` are in order.
    ///
    /// # Errors
    ///
    /// Returns the reason why all of them are dropped.
    pub(crate) fn fit_train<'m>(
        &mut self,
        train: &Train,
        first: &Frame,
        members: impl Iterator<Item = &'m Frame>,
    ) -> Result<(), DropReason> {
        let Delivery { to, burst, frames, .. } = *self.delivery;
        let parts = &mut *self.delivery.parts;
        DropReason::InnerTag.when(bares_inner_tag(first, to))?;
        let headers_len = u32::from(first.parsed.payload - first.parsed.l3);
        DropReason::TooBig.when(headers_len + train.largest_payload > to.settings.mtu.into())?;
        let (header, mut vnet) = train.write_header(first, &mut parts.headers);
        let (header, _) = retag(header, &mut vnet, first, to, &mut parts.headers);
        let payload = adjoining(train, frames).unwrap_or_else(|| {
            let start = parts.pieces.len();
            members.for_each(|member| member.lend_payload(burst, parts));
            parts.since(start)
        });
        let len = u32::from(header.len()) + train.payload;
        self.fitted.push(Fitted { vnet, header, payload, len });
        Ok(())
    }

    /// Retags, segments and finishes the checksum of a frame, as far as the port needs it.
    fn change(&mut self, frame: &Frame) -> Result<(), DropReason> {
        let Delivery { to, offloads, .. } = *self.delivery;
        let headers = &mut self.delivery.parts.headers;
        let mut vnet = frame.vnet;
        let copy = headers.copy(frame.header, frame.header.len());
        let (header, grown) = retag(copy, &mut vnet, frame, to, headers);
        if frame.is_train() && !takes(to, offloads, frame) {
            return self.segment(frame, grown, header, vnet);
        }
        let len = frame.len.saturating_add_signed(grown.into());
        self.finish(Fitted { vnet, header, payload: frame.rest, len });
        Ok(())
    }

    /// Segments a train, of which `template` has the headers and `vnet` their places. A turn that has
    /// reached its limit of work starts none, and stops in a train that is longer than a guest's or
    /// in a tunnel: what is left is dropped, and counted as one train.
    fn segment(
        &mut self,
        train: &Frame,
        grown: i16,
        template: Span,
        vnet: VnetHeader,
    ) -> Result<(), DropReason> {
        let Delivery { to, offloads, .. } = *self.delivery;
        let mut layout = Layout::of(&train.parsed, grown);
        let tunnel = if train.is_in_tunnel() {
            (layout.l4, layout.payload) = (vnet.csum_start.get(), vnet.hdr_len.get());
            let found = self.layers(train, layout, template);
            Some(found.ok_or(DropReason::UnknownTrain)?)
        } else {
            None
        };
        let each = longest_train(train, to, offloads);
        let around =
            tunnel.as_ref().map_or(0, |tunnel| work::of_tunnel(template.len(), tunnel.all().len()));
        let mut payload = Cutter::new(train.payload(self.delivery.burst));
        for segment in segment::segments(train, layout, tunnel.as_ref(), each) {
            if tunnel.is_some() || segment.number == 0 || segment.number > segment::FINISHED {
                let waiting = work::of_delivering(self.fitted.len(), 0, 0, to.shared.kernel_ns);
                DropReason::WorkLimit.when(self.meter.would_reach_limit(waiting))?;
            }
            let parts = &mut *self.delivery.parts;
            let (header, vnet) = segment.header(&mut parts.headers, template);
            let start = parts.pieces.len();
            payload.cut(segment.len.into(), &mut parts.pieces);
            let len = u32::from(header.len()) + u32::from(segment.len);
            let payload = parts.since(start);
            self.finish(Fitted { vnet, header, payload, len });
            self.delivery.cell.segments.add(1);
            self.meter.add(work::OF_SEGMENT + around);
        }
        self.delivery.cell.segmented_trains.add(1);
        Ok(())
    }

    /// Returns the headers around a transport in a tunnel.
    fn layers(&self, train: &Frame, layout: Layout, template: Span) -> Option<Layers> {
        let protocol =
            if train.vnet.gso() == GsoType::UdpL4 { udp::PROTOCOL } else { tcp::PROTOCOL };
        let wanted = Wanted { protocol, start: Some(layout.l4) };
        let headers = self.delivery.parts.headers.get(template);
        Layers::find(headers, (train.parsed.ethertype, layout.l3), wanted)
    }

    /// Adds a frame, its checksum finished where the port does not do that.
    fn finish(&mut self, mut frame: Fitted) {
        let Delivery { offloads, cell, parts, .. } = &mut *self.delivery;
        if !offloads.contains(Offloads::CSUM) {
            if frame.vnet.flags().contains(Flags::NEEDS_CSUM) {
                let Parts { headers, pieces, .. } = &mut **parts;
                let payload = frame.payload.of(pieces);
                segment::finish_checksum(headers.get_mut(frame.header), &mut frame.vnet, payload);
                self.meter.add(work::of_checksum(frame.len));
                cell.checksums.add(1);
            }
            frame.vnet.set_flags(Flags::empty());
        }
        self.fitted.push(frame);
    }
}

/// Returns the payload of a train with segments that are next to each other in the turn, so that
/// their slices are as well.
fn adjoining(train: &Train, frames: &[Frame]) -> Option<PieceRange> {
    let members = frames.get(train.head.into()..=train.tail.into())?;
    let adjoin =
        members.len() == usize::from(train.segments) && members.iter().all(Frame::payload_is_rest);
    if adjoin { Some(members.first()?.rest.to(members.last()?.rest)) } else { None }
}

/// Returns whether a port takes all of these frames as they are. Mostly their sums and maxima
/// answer it, without a branch for each frame.
#[inline(never)]
pub(crate) fn are_taken(frames: &[Frame], to: &Port, offloads: Offloads) -> bool {
    let (mut longest, mut claims, mut traits) = (0, 0, Traits::empty());
    for frame in frames {
        longest = longest.max(frame.len);
        claims |= frame.vnet.claims();
        traits |= frame.parsed.traits;
    }
    let untagged = matches!(to.settings.vlan, Vlan::Access(_)) && !traits.contains(Traits::VLAN);
    let is_train = claims > u16::from(u8::MAX);
    let unclaimed = claims == 0 || !is_train && offloads.contains(Offloads::CSUM);
    let short = longest <= u32::from(EthernetHeader::LEN) + u32::from(to.settings.mtu);
    untagged && unclaimed && short || frames.iter().all(|frame| is_taken(frame, to, offloads))
}

#[inline(always)]
fn is_taken(frame: &Frame, to: &Port, offloads: Offloads) -> bool {
    frame.largest_packet() <= u32::from(to.settings.mtu)
        && takes(to, offloads, frame)
        && tag_change(frame, to).is_none()
}

/// Returns whether a port takes a frame with this virtio header without help.
#[inline]
fn takes(to: &Port, offloads: Offloads, frame: &Frame) -> bool {
    frame.vnet.asks_nothing()
        || offloads.contains(Offloads::CSUM)
            && (!frame.is_train()
                || takes_kind(offloads, frame)
                    && frame.fits_ip()
                    && frame.datagrams() <= to.datagrams())
}

/// Whether a port takes trains of this kind. None takes a train in a tunnel: the virtio-net header
/// has no name for one, and a kernel that has to segment it later drops it.
fn takes_kind(offloads: Offloads, frame: &Frame) -> bool {
    let train = match frame.vnet.gso() {
        GsoType::Tcp4 => Offloads::TSO4,
        GsoType::Tcp6 => Offloads::TSO6,
        GsoType::UdpL4 => Offloads::USO,
        GsoType::None | GsoType::Unknown(_) => return false,
    };
    offloads.contains(train)
        && (!frame.vnet.gso_ecn() || offloads.contains(Offloads::ECN))
        && !frame.is_in_tunnel()
}

/// Returns how many segments of a train a port takes as one frame.
#[allow(clippy::cast_possible_truncation, reason = "an IP packet has less than 64 KiB")]
fn longest_train(train: &Frame, to: &Port, offloads: Offloads) -> u16 {
    if !offloads.contains(Offloads::CSUM) || !takes_kind(offloads, train) {
        return 1;
    }
    let headers = train.vnet.hdr_len.get() - train.parsed.l3;
    let fit = (u16::MAX - headers) / train.vnet.gso_size.get().max(1);
    let most = if train.vnet.gso() == GsoType::UdpL4 { to.datagrams() } else { u16::MAX };
    fit.min(most).max(1)
}

/// Returns the tagging that the frame must get; `None` if it has it.
#[inline]
fn tag_change(frame: &Frame, to: &Port) -> Option<Tagging> {
    let wanted = match &to.settings.vlan {
        Vlan::Access(_) => Tagging::Untagged,
        trunk => trunk.tagging(frame.vlan).unwrap_or(Tagging::Untagged),
    };
    let fits = match wanted {
        Tagging::Untagged => !frame.parsed.traits.contains(Traits::VLAN),
        Tagging::Tagged(id) => {
            let tags = frame.parsed.traits & (Traits::VLAN | Traits::SERVICE);
            tags == Traits::VLAN && frame.parsed.vlan_id() == id
        }
    };
    (!fits).then_some(wanted)
}

/// Returns whether a frame would lose its outer tag and then begin with the inner one. The receiver
/// would take it for a frame of the inner tag's VLAN, of which the sender may not be a member.
fn bares_inner_tag(frame: &Frame, to: &Port) -> bool {
    let has_inner = frame.parsed.traits.intersects(Traits::QINQ | Traits::OLD_TAG);
    has_inner && tag_change(frame, to) == Some(Tagging::Untagged)
}

/// Inserts or strips the tag of a newest span, and moves the checksum's place along. Returns the
/// span and by how much the headers grew.
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
            // A frame without a tag has the priority that a rule marked it with.
            let tci = frame.parsed.vlan_tci & 0xe000 | id;
            (headers.insert_tag(span, wire::ethernet::ethertype::VLAN, tci), 4)
        }
        (Some(Tagging::Tagged(id)), true) => {
            // Priority and drop eligibility stay. The tag's type is always 802.1Q, whatever the
            // sender's was: a bridge without 802.1ad takes such a frame for untagged, in its native
            // VLAN.
            let tci = frame.parsed.vlan_tci & 0xf000 | id;
            headers.set_tag(span, wire::ethernet::ethertype::VLAN, tci);
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
