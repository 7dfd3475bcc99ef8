//! Steering: chooses a frame's egress queue of a port with several queues in use.
//!
//! With `rss` the flow's Toeplitz hash picks an entry of the port's indirection table, which names
//! the queue (virtio 1.2, section 5.1.6.5, receive-side scaling). With `follow` a flow is answered
//! on the queue pair from which the other side last sent it (the same section, automatic receive
//! steering); the table decides about flows that it has not sent. With `guest` the guest's own hash
//! and table decide, once its driver has set them.

use crate::frame::Frame;
use crate::frame::headers::Headers;
use crate::port::followed::{self, Followed, Tick};
use crate::port::view::Port;
use crate::settings::Steer;
use crate::turn::guests::Guests;
use crate::turn::outbox::Target;
use ports::Nanos;
use ports::capture::Direction;
use ports::steering::ENTRIES;
use wire::toeplitz::Toeplitz;

impl Port {
    /// Returns the table of the flows that the port sent. `None` if they are not followed, or one
    /// queue is in use.
    #[inline]
    fn followed(&self) -> Option<&Followed> {
        let follows = match self.settings.rss.steer {
            Steer::Rss => false,
            Steer::Follow => true,
            Steer::Guest => !self.is_steered_by_guest(),
        };
        let is_asked = follows && self.shared.queues_in_use() > 1;
        self.shared.steering.followed.get().filter(|_| is_asked)
    }

    /// Returns whether the guest's own table is in force.
    pub(crate) fn is_steered_by_guest(&self) -> bool {
        self.settings.rss.steer == Steer::Guest && self.shared.live.settings_version().steers()
    }

    /// Returns the queue that the other side last sent a frame's flow from.
    pub(crate) fn noted(&self, frame: &Frame, header: &[u8], now: Nanos) -> Option<usize> {
        let seed = &self.shared.steering.seed;
        let flow = followed::flow(seed, frame, header, Direction::Egress)?;
        self.followed()?.find(flow, Tick::of(now))
    }

    /// Notes that the other side sent a frame's flow from this queue.
    pub(crate) fn note(&self, frame: &Frame, header: &[u8], queue: u8, now: Nanos) {
        let seed = &self.shared.steering.seed;
        let flow = followed::flow(seed, frame, header, Direction::Egress);
        if let (Some(flow), Some(followed)) = (flow, self.followed()) {
            followed.note(flow, queue, Tick::of(now));
        }
    }

    /// Returns the queue of a frame by hash and table; a frame without a hash goes by entry 0, or as
    /// the guest says.
    fn queue_by_table(
        &self,
        frame: &Frame,
        header: &[u8],
        in_use: usize,
        guests: &mut Guests,
    ) -> usize {
        if self.is_steered_by_guest()
            && let Some(queue) = guests.queue(&self.shared, header, &frame.parsed)
        {
            // The table may name a queue that is not in use yet, or no longer.
            return if queue < in_use { queue } else { queue % in_use.max(1) };
        }
        let types = self.settings.rss.types;
        let hash = |it: &Toeplitz| it.hash_types(header, &frame.parsed, types);
        let hash = self.toeplitz.as_deref().and_then(hash).unwrap_or_default();
        self.shared.steering.queue(hash as usize % ENTRIES, in_use)
    }
}

/// Steers the frames of one burst.
pub(crate) struct Steerer {
    tick: Tick,
    /// The flow of the last frame and its queue. Most frames are of the same flow, so the queue is
    /// looked up once for a run of them, and stays during it. A flow has another number at another
    /// port.
    last: Option<(u64, Target)>,
}

impl Steerer {
    pub(crate) fn new(now: Nanos) -> Steerer {
        Steerer { tick: Tick::of(now), last: None }
    }

    /// Returns the egress queue of a frame that leaves by this port.
    #[inline]
    pub(crate) fn target(
        &mut self,
        port: &Port,
        frame: &Frame,
        header: &[u8],
        guests: &mut Guests,
    ) -> Target {
        match port.shared.egress.len() {
            0 | 1 => Target::first(port),
            _ => self.choose(port, frame, header, guests),
        }
    }

    #[inline(never)]
    fn choose(&mut self, port: &Port, frame: &Frame, header: &[u8], guests: &mut Guests) -> Target {
        let in_use = port.shared.queues_in_use();
        if in_use < 2 {
            return Target::first(port);
        }
        let flow = followed::flow(&port.shared.steering.seed, frame, header, Direction::Egress);
        let Some(flow) = flow else {
            return Target::nth(port, port.queue_by_table(frame, header, in_use, guests));
        };
        if let Some((last, target)) = self.last
            && last == flow
            && target.queue < in_use
        {
            return target;
        }
        let noted = port.followed().and_then(|followed| followed.find(flow, self.tick));
        let queue = noted.filter(|queue| *queue < in_use);
        let queue = queue.unwrap_or_else(|| port.queue_by_table(frame, header, in_use, guests));
        let target = Target::nth(port, queue);
        self.last = Some((flow, target));
        target
    }
}

/// Notes the flows of a burst that its port sends, where they are followed.
pub(crate) struct Noter<'t> {
    port: &'t Port,
    followed: &'t Followed,
    queue: u8,
    tick: Tick,
    /// The flow of the last frame.
    last: Option<u64>,
}

impl<'t> Noter<'t> {
    /// Prepares for a burst of the port's queue of this number; `None` if its flows are not noted.
    pub(crate) fn new(port: &'t Port, queue: usize, now: Nanos) -> Option<Noter<'t>> {
        let followed = port.followed()?;
        let queue = u8::try_from(queue).ok()?;
        Some(Noter { port, followed, queue, tick: Tick::of(now), last: None })
    }

    /// Notes admitted frames. A frame that was dropped has no header any more.
    #[inline(never)]
    pub(crate) fn note(&mut self, frames: &[Frame], headers: &Headers) {
        for frame in frames {
            let header = headers.get(frame.header);
            let seed = &self.port.shared.steering.seed;
            let flow = followed::flow(seed, frame, header, Direction::Ingress);
            if let Some(flow) = flow
                && self.last != Some(flow)
            {
                self.followed.note(flow, self.queue, self.tick);
                self.last = Some(flow);
            }
        }
    }
}
