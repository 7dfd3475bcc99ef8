//! Taking from a member: its frames, without copies of what another member brings and without our own that come back.

use super::Shared;
use super::claims::Claims;
use super::mask::{Mask, PLACES, Place};
use super::place::Slot;
use super::state::{State, count};
use crate::{Burst, Ingress, IngressQueue, Nanos, PortFault, RawFrame, Slice};
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// A frame from an address that sent through the team no longer ago comes back: milliseconds. A guest that moves to
/// another host is silent for longer before it sends from there.
const REFLECTION_MS: u32 = 50;

/// Milliseconds by which the clock of a worker may be ahead of another's.
const AHEAD_MS: u32 = 1000;

/// After a change of members, frames for an address are taken at any of them for so long: they were under way. What comes from
/// an address of ours meanwhile is our own announcement, which the switch outside floods.
const GRACE: Nanos = Nanos(200 * Nanos::MILLISECOND.0);

/// See [`Ingress`].
pub struct TeamIngress {
    shared: Arc<Shared>,
    place: Place,
    inner: Option<IngressQueue>,
    /// The queue's device has gone: it is left alone until another one is put here.
    is_gone: bool,
    /// Readable when the queue is, or when another one is put here.
    epoll: OwnedFd,
    /// Frames lost by queues that were here before.
    lost_before: u64,
    /// [`State::changes`] at the last turn, and until when there is grace for the last change.
    changes: u32,
    grace_until: Nanos,
    /// The members' own addresses at that time.
    macs: [u64; PLACES],
}

impl TeamIngress {
    pub(super) fn new(shared: Arc<Shared>, place: Place) -> io::Result<TeamIngress> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64(0);
        if let Some(slot) = shared.slot(place) {
            epoll::add(&epoll, &slot.wake, data, epoll::EventFlags::IN)?;
        }
        Ok(TeamIngress {
            shared,
            place,
            inner: None,
            is_gone: false,
            epoll,
            lost_before: 0,
            changes: 0,
            grace_until: Nanos(0),
            macs: [0; PLACES],
        })
    }

    /// Uses the queue that was put here, if there is another one.
    #[cold]
    fn pick_up(&mut self) {
        let Some(slot) = self.shared.slot(self.place) else { return };
        let Some(next) = slot.pick_up() else { return };
        if let Some(old) = self.inner.take() {
            if let Some(fd) = old.ready_fd() {
                let _ = epoll::delete(&self.epoll, fd);
            }
            self.lost_before += old.lost();
            slot.retire(old);
        }
        if let Some(fd) = next.as_ref().and_then(|queue| queue.ready_fd()) {
            let data = epoll::EventData::new_u64(1);
            let _ = epoll::add(&self.epoll, fd, data, epoll::EventFlags::IN);
        }
        self.inner = next;
        self.is_gone = false;
    }

    fn slot(&self) -> Option<&Slot> {
        self.shared.slot(self.place)
    }

    /// Notes a change of the members.
    fn follow(&mut self, now: Nanos) {
        let changes = self.shared.state.changes();
        if changes != self.changes {
            self.changes = changes;
            self.grace_until = now + GRACE;
            self.macs = self.shared.state.macs();
        }
    }
}

impl Ingress for TeamIngress {
    fn take<'q>(&'q mut self, now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        if self.slot().is_some_and(Slot::is_due) {
            self.pick_up();
        }
        self.follow(now);
        let Self { inner, is_gone, shared, place, grace_until, macs, .. } = self;
        let Some(queue) = inner.as_mut().filter(|_| !*is_gone) else { return Ok(()) };
        // A member that is down is no fault of the port's.
        if let Err(fault) = queue.take(now, burst) {
            *is_gone = matches!(fault, PortFault::Gone(_));
            shared.state.fell(*place);
        }
        if !burst.frames().is_empty() {
            let mut gate = Gate::new(&shared.state, *place, macs, now, now < *grace_until);
            burst.retain(|frame, slices| gate.admits(frame, slices));
            gate.count();
        }
        Ok(())
    }

    fn release(&mut self) {
        if let Some(queue) = &mut self.inner {
            queue.release();
        }
    }

    fn arm(&mut self) -> bool {
        if self.is_gone {
            // It would be readable for ever.
            if let Some(fd) = self.inner.as_ref().and_then(|queue| queue.ready_fd()) {
                let _ = epoll::delete(&self.epoll, fd);
            }
            return self.slot().is_some_and(Slot::is_due);
        }
        self.slot().is_some_and(Slot::is_due)
            || self.inner.as_mut().is_some_and(|queue| queue.arm())
    }

    fn disarm(&mut self) {
        if let Some(queue) = &mut self.inner {
            queue.disarm();
        }
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn kernel_ns(&self) -> u32 {
        self.inner.as_ref().map_or(0, |queue| queue.kernel_ns())
    }

    fn lost(&self) -> u64 {
        self.lost_before + self.inner.as_ref().map_or(0, |queue| queue.lost())
    }
}

/// Why a frame is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// Its source is one of ours: the switch outside sent it back.
    Reflected,
    /// Another member brings it.
    Copy,
    /// It is for the member itself, which is the host's and no vNIC's.
    ToMember,
}

/// What decides about the frames of one burst. A run of frames with the same addresses is asked about once.
pub(super) struct Gate<'s> {
    state: &'s State,
    place: Place,
    macs: &'s [u64; PLACES],
    alive: Mask,
    now: Nanos,
    now_ms: u32,
    grace: bool,
    last: Option<(Head, Option<Refusal>)>,
    taken: u64,
    refused: [u64; 3],
}

/// Destination, source and VLAN.
type Head = ([u8; 12], u16);

impl<'s> Gate<'s> {
    pub(super) fn new(
        state: &'s State,
        place: Place,
        macs: &'s [u64; PLACES],
        now: Nanos,
        grace: bool,
    ) -> Gate<'s> {
        let (alive, now_ms) = (state.alive(), state.tick(now));
        Gate {
            state,
            place,
            macs,
            alive,
            now,
            now_ms,
            grace,
            last: None,
            taken: 0,
            refused: [0; 3],
        }
    }

    fn admits(&mut self, frame: &RawFrame, slices: &[Slice<'_>]) -> bool {
        // A runt is the switch's to drop.
        let Some(head) = head(frame, slices) else { return true };
        let refusal = match self.last {
            Some((last, refusal)) if last == head => refusal,
            _ => self.judge(head).err(),
        };
        self.last = Some((head, refusal));
        let Some(refusal) = refusal else {
            self.taken += 1;
            return true;
        };
        self.refused.get_mut(refusal as usize).into_iter().for_each(|count| *count += 1);
        false
    }

    pub(super) fn judge(&self, (addresses, vlan): Head) -> Result<(), Refusal> {
        let State { homes, claims, .. } = self.state;
        let [to, from] = [&addresses[..6], &addresses[6..]].map(number);
        let is_group = addresses[0] & 1 != 0;
        if is_group && let Some(heard) = self.state.heard.get(self.place.index()) {
            heard.note(vlan);
        }
        if self.macs.contains(&from) {
            return Err(Refusal::Reflected);
        }
        if let Some((_, age)) = homes.get_with_age(from, self.now_ms)
            && (self.grace || is_recent(age))
        {
            return Err(Refusal::Reflected);
        }
        if self.macs.contains(&to) {
            return Err(Refusal::ToMember);
        }
        let pair = claims.pair(addresses, vlan);
        if !is_group && let Some(home) = homes.get(to) {
            if home.current(self.alive) == Some(self.place) {
                claims.take(pair, self.place, self.now);
                return Ok(());
            }
            if self.grace {
                return Ok(());
            }
        }
        self.claim(claims, pair)
    }

    fn claim(&self, claims: &Claims, pair: u64) -> Result<(), Refusal> {
        if claims.may_take(pair, self.place, self.alive, self.now) {
            Ok(())
        } else {
            Err(Refusal::Copy)
        }
    }

    pub(super) fn count(&self) {
        let Some(counters) = self.state.counters(self.place) else { return };
        let [reflected, copies, to_member] = self.refused;
        count(&counters.ingress_frames, self.taken);
        count(&counters.reflected, reflected);
        count(&counters.copies, copies);
        count(&counters.to_member, to_member);
    }
}

/// Whether an address has sent through the team just now, by the age of its last frame.
fn is_recent(age: u32) -> bool {
    // The clock of the worker that noted it may be ahead, and then the age wraps.
    !(REFLECTION_MS..=u32::MAX - AHEAD_MS).contains(&age)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// `None`: it is too short.
fn head(frame: &RawFrame, slices: &[Slice<'_>]) -> Option<Head> {
    let mut bytes = [0; 16];
    let mut len = 0;
    for slice in slices {
        len += slice.copy_to(bytes.get_mut(len..).unwrap_or_default());
    }
    let addresses = *bytes.first_chunk()?;
    let beside = frame.vlan.map_or(0, |tag| tag.tci & 0xfff);
    let vlan = match bytes {
        [.., 0x81, 0, high, low] => u16::from_be_bytes([high, low]) & 0xfff,
        _ => beside,
    };
    (len >= 14).then_some((addresses, vlan))
}
