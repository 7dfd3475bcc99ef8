//! Coalescing: segments of one flow that arrived in one turn leave one egress queue as one train.
//!
//! No frame is held for a later turn, so coalescing adds no latency, and turning it off drains only
//! the current turn. No payload moves: a train is the list of its frames' indices
//! ([`Coalescer::members`]), with a header written when the egress side is known
//! ([`train::Train::write_header`]). Frames that are not TCP, or that the rules do not merge, keep
//! their place: within a flow the order of arrival is kept.

mod candidate;
mod fast_path;
mod fingerprint;
mod flows;
mod rules;
mod train;

use crate::counters::{PortCell, RscException};
use crate::frame::Frame;
use crate::port::policy::Policy;
use crate::settings::RscPolicy;
use crate::stage::segment::sum_of;
use crate::turn::Delivery;
use candidate::{Candidate, Class, FlowKey, classify};
use fingerprint::Fingerprint;
use flows::Flows;
use ports::Burst;
use rules::Join;
use std::hash::{BuildHasher, RandomState};
pub(crate) use train::Train;
use wire::tcp::TcpFlags;

/// One thing to deliver: a frame alone, or a train.
#[derive(Clone, Copy)]
enum Item {
    /// The frame at this place.
    Single(u16),
    /// The train at this place of the coalescer's list.
    Train(u16),
}

/// The coalescer of a worker, used for one egress queue after the other.
pub(crate) struct Coalescer {
    flows: Flows,
    trains: Vec<Train>,
    /// The frame that follows a frame in its train.
    next: Box<[u16; Burst::FRAMES]>,
    items: Vec<Item>,
    /// The train that the frame before belonged to, which most segments continue.
    latest: usize,
    /// Bytes of the frames that had their checksum verified.
    pub(crate) summed: u32,
}

impl Coalescer {
    pub(crate) fn new() -> Coalescer {
        Coalescer {
            flows: Flows::new(RandomState::new().hash_one(0)),
            trains: Vec::with_capacity(Burst::FRAMES),
            next: Box::new([0; Burst::FRAMES]),
            items: Vec::with_capacity(Burst::FRAMES),
            latest: 0,
            summed: 0,
        }
    }

    /// Prepares for the next egress queue.
    pub(crate) fn clear(&mut self) {
        self.flows.clear();
        self.trains.clear();
        self.items.clear();
        (self.latest, self.summed) = (0, 0);
    }

    /// Returns what is to be delivered, in order: the place of a frame, with its train if others
    /// have joined it.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u16, Option<&Train>)> {
        self.items.iter().filter_map(|item| match *item {
            Item::Single(place) => Some((place, None)),
            Item::Train(at) => {
                let train = self.trains.get(usize::from(at))?;
                Some((train.head, (train.segments > 1).then_some(train)))
            }
        })
    }

    /// Returns the places of a train's frames, in order.
    pub(crate) fn members(&self, train: &Train) -> impl Iterator<Item = u16> {
        let follow = |place: &u16| self.next.get(usize::from(*place)).copied();
        std::iter::successors(Some(train.head), follow).take(train.segments.into())
    }

    /// Adds a frame that coalescing leaves as it is.
    pub(crate) fn pass(&mut self, frame: &Frame) {
        self.items.push(Item::Single(frame.place));
    }

    /// Adds the next frame of the list.
    #[inline]
    pub(crate) fn add(&mut self, frame: &Frame, policy: &Policy, delivery: &Delivery<'_, '_>) {
        if !policy.applies(frame) {
            return self.pass(frame);
        }
        let header = delivery.parts.headers.get(frame.header);
        if !self.continues(frame, header, policy) {
            self.add_any(frame, header, policy, delivery);
        }
    }

    /// Appends the frame to the latest train by the fast path. Returns `false` if that does not
    /// apply.
    #[inline]
    fn continues(&mut self, frame: &Frame, header: &[u8], policy: &Policy) -> bool {
        let Some(train) = self.trains.get_mut(self.latest) else { return false };
        let tail = train.tail;
        let continues = !train.closed
            && policy.rsc.policy == RscPolicy::Ndis
            && fast_path::append(train, frame, header, policy.limit(frame.parsed.payload));
        if continues {
            self.link(tail, frame.place);
        }
        continues
    }

    /// [`Coalescer::add`] for any frame.
    #[inline(never)]
    fn add_any(
        &mut self,
        frame: &Frame,
        header: &[u8],
        policy: &Policy,
        delivery: &Delivery<'_, '_>,
    ) {
        let any_options = policy.rsc.policy == RscPolicy::Gro;
        let payload_sum = || {
            self.summed += frame.len;
            sum_of(frame.payload(delivery.burst))
        };
        match classify(frame, header, any_options, payload_sum) {
            Class::Stranger => self.pass(frame),
            Class::Alone(key, exception) => {
                exception.into_iter().for_each(|reason| count(delivery.cell, reason));
                key.into_iter().for_each(|key| self.close(&key));
                self.pass(frame);
            }
            Class::Segment(segment) => self.segment(&segment, frame, header, policy, delivery),
        }
    }

    /// Closes the open train of the flow.
    fn close(&mut self, key: &FlowKey) {
        let open = self.flows.find(key).map(usize::from);
        if let Some(train) = open.and_then(|open| self.trains.get_mut(open)) {
            train.closed = true;
        }
    }

    #[inline]
    fn segment(
        &mut self,
        segment: &Candidate,
        frame: &Frame,
        header: &[u8],
        policy: &Policy,
        delivery: &Delivery<'_, '_>,
    ) {
        let cell = delivery.cell;
        let new = self.trains.len();
        let known = match self.trains.get(self.latest) {
            Some(train) if train.last.key == segment.key => Some(self.latest),
            _ => match self.flows.find_or_add(&segment.key, policy.rsc.flows, index(new)) {
                Ok((_, true)) => None,
                Ok((train, false)) => Some(usize::from(*train)),
                Err(()) => {
                    count(cell, RscException::Resources);
                    return self.pass(frame);
                }
            },
        };
        let Some(known) = known else { return self.start(frame.place, segment, header) };
        self.latest = known;
        let Some(train) = self.trains.get_mut(known) else { return self.pass(frame) };
        if !train.closed {
            let same_headers = || {
                let first = delivery.frames.get(usize::from(train.head));
                first.is_some_and(|first| {
                    let first = (&first.parsed, delivery.parts.headers.get(first.header));
                    rules::are_same(first, (&frame.parsed, header))
                })
            };
            match join(train, segment, policy, same_headers) {
                Join::Start(reason) => count(cell, reason),
                joined => {
                    train.closed = joined == Join::AppendLast;
                    return self.append(known, frame.place, segment);
                }
            }
        }
        if let Ok((open, _)) = self.flows.find_or_add(&segment.key, policy.rsc.flows, index(new)) {
            *open = index(new);
        }
        self.start(frame.place, segment, header);
    }

    fn start(&mut self, place: u16, segment: &Candidate, header: &[u8]) {
        self.latest = self.trains.len();
        self.items.push(Item::Train(index(self.latest)));
        self.trains.push(Train::start(place, *segment, Fingerprint::of(header)));
    }

    fn append(&mut self, known: usize, place: u16, segment: &Candidate) {
        let Some(train) = self.trains.get_mut(known) else { return };
        let tail = train.tail;
        train.append(place, segment);
        self.link(tail, place);
    }

    /// Puts a segment behind the one before it in its train.
    #[inline]
    fn link(&mut self, tail: u16, place: u16) {
        if let Some(next) = self.next.get_mut(usize::from(tail)) {
            *next = place;
        }
    }

    /// Counts the trains of this queue, once all frames are in.
    pub(crate) fn count_trains(&self, cell: &PortCell) {
        for train in &self.trains {
            if train.segments > 1 {
                cell.coalescing_events.add(1);
                cell.coalesced_packets.add(u64::from(train.segments) - 1);
                cell.coalesced_bytes.add(u64::from(train.payload - train.first_payload));
            }
            let depth = (u16::BITS - (train.segments - 1).leading_zeros()).min(7);
            if let Some(counter) = cell.train_depth.get(depth as usize) {
                counter.add(1);
            }
        }
    }
}

fn join(
    train: &Train,
    segment: &Candidate,
    policy: &Policy,
    same_headers: impl FnOnce() -> bool,
) -> Join {
    if !policy.ecn && segment.flags.intersects(TcpFlags::ECE | TcpFlags::CWR) {
        return Join::Start(RscException::Ecn);
    }
    let limit = policy.limit(segment.header_len);
    match policy.rsc.policy {
        RscPolicy::Gro => rules::gro(train, segment, limit, same_headers()),
        RscPolicy::Ndis | RscPolicy::Off => {
            rules::ndis(train, segment, limit, policy.rsc.ack_limit)
        }
    }
}

fn count(cell: &PortCell, reason: RscException) {
    if let Some(counter) = cell.rsc_exceptions.get(reason as usize) {
        counter.add(1);
    }
}

#[allow(clippy::cast_possible_truncation, reason = "no more trains than frames in a burst")]
fn index(train: usize) -> u16 {
    train as u16
}
