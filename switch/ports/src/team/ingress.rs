//! Takes frames from a member, without copies that another member receives and without the team's
//! own frames that come back.

use super::Shared;
use super::gate::Gate;
use super::mask::{PLACES, Place};
use super::place::Slot;
use crate::{Burst, Ingress, IngressQueue, Nanos, PortFault};
use rustix::event::epoll;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Time after a change of members during which frames for an address are accepted at any member,
/// because they were under way. In this time a frame from one of our addresses is our own
/// announcement, which the switch outside floods.
const GRACE: Nanos = Nanos(200 * Nanos::MILLISECOND.0);

/// The ingress queue of a member's place; see [`Ingress`].
pub struct TeamIngress {
    shared: Arc<Shared>,
    place: Place,
    inner: Option<IngressQueue>,
    /// Whether the queue's device is gone. The queue is not used until another one replaces it.
    is_gone: bool,
    /// Readable if the queue is readable, or if another one replaces it.
    epoll: OwnedFd,
    /// Frames lost by earlier queues.
    lost_before: u64,
    /// [`State::changes`] at the last turn, and the end of the grace for the last change.
    changes: u32,
    grace_until: Nanos,
    /// The members' own addresses at the last change.
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

    /// Switches to the queue that replaces the current one, if there is any.
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
            self.shared.state.note_change(now);
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
        // A down member is not a fault of the port.
        if let Err(fault) = queue.take(now, burst) {
            *is_gone = matches!(fault, PortFault::Gone(_));
            if *is_gone { shared.state.has_gone(*place) } else { shared.state.fell(*place) }
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
            // The descriptor of a failed queue would always be readable.
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
