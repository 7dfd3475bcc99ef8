//! Steering: chooses a frame's egress queue of a port with several queues in use.
//!
//! With `rss` the flow's Toeplitz hash picks an entry of the port's indirection table, which names
//! the queue (virtio 1.2, section 5.1.6.5, receive-side scaling). With `follow` a flow is answered
//! on the queue pair from which the other side last sent it (the same section, automatic receive
//! steering); the table decides about flows that it has not sent.
//!
//! The control plane stores the table entry by entry, and all workers read it, without a new view.

mod followed;

use crate::frame::Frame;
use crate::headers::Headers;
use crate::outbox::Target;
use crate::settings::{Rss, Steer};
use crate::view::{Port, PortShared};
use followed::{Followed, Seed, Tick};
use ports::Nanos;
use ports::capture::Direction;
use ports::steering::{ENTRIES, random_key};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use wire::toeplitz::{Key, Toeplitz};

/// What of a port's steering outlives a change of its settings.
pub(crate) struct Steering {
    /// The queue of each entry.
    table: [AtomicU8; ENTRIES],
    /// The Toeplitz key where none is configured.
    pub(crate) key: Key,
    seed: Seed,
    /// Made when the port first follows.
    followed: OnceLock<Followed>,
}

impl Steering {
    /// Keys at random, and entries that name `queues` in turn.
    #[allow(clippy::cast_possible_truncation, reason = "entries name the first 128 queues")]
    pub(crate) fn new(queues: usize) -> Steering {
        let random = RandomState::new();
        Steering {
            table: std::array::from_fn(|entry| AtomicU8::new((entry % queues.max(1)) as u8)),
            key: random_key(),
            seed: [0, 1, 2].map(|place| random.hash_one(place)),
            followed: OnceLock::new(),
        }
    }

    /// Has an entry name a queue; the next frame goes by it.
    #[allow(clippy::cast_possible_truncation, reason = "a queue beyond 255 is no port's")]
    pub(crate) fn set(&self, entry: usize, queue: usize) {
        self.table.get(entry).into_iter().for_each(|place| place.store(queue as u8, Relaxed));
    }

    /// The queue each entry names.
    pub(crate) fn named(&self) -> [u8; ENTRIES] {
        self.table.each_ref().map(|queue| queue.load(Relaxed))
    }

    /// The queue of an entry, of so many in use. One that names a queue that is not goes to its own
    /// number modulo those that are, which spreads them evenly.
    #[inline]
    pub(crate) fn queue(&self, entry: usize, in_use: usize) -> usize {
        let named = self.table.get(entry).map_or(0, |queue| queue.load(Relaxed)).into();
        if named < in_use { named } else { entry % in_use.max(1) }
    }
}

impl PortShared {
    /// Makes what the settings need; the tables of a key that stays are those of `old`.
    pub(crate) fn toeplitz(&self, rss: Rss, old: Option<&Port>) -> Option<Arc<Toeplitz>> {
        if self.egress.len() < 2 {
            return None;
        }
        if rss.steer == Steer::Follow {
            self.steering.followed.get_or_init(Followed::new);
        }
        let kept = old.filter(|old| old.settings.rss.key == rss.key);
        let new = || Arc::new(Toeplitz::new(&rss.key.unwrap_or(self.steering.key)));
        kept.and_then(|old| old.toeplitz.clone()).or_else(|| Some(new()))
    }

    /// The queue each entry goes to.
    #[allow(clippy::cast_possible_truncation, reason = "entries name 256 queues at most")]
    pub(crate) fn table(&self) -> [u8; ENTRIES] {
        let in_use = self.queues_in_use();
        std::array::from_fn(|entry| self.steering.queue(entry, in_use) as u8)
    }
}

impl Port {
    /// The flows it sent, where they are followed: not where one queue is in use, of however many.
    #[inline]
    fn followed(&self) -> Option<&Followed> {
        let follows = self.settings.rss.steer == Steer::Follow && self.shared.queues_in_use() > 1;
        self.shared.steering.followed.get().filter(|_| follows)
    }

    /// The queue that the other side last sent a frame's flow from, as it is noted here.
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

    /// The queue of a frame by hash and table; a frame without a hash goes by entry 0.
    fn queue_by_table(&self, frame: &Frame, header: &[u8], in_use: usize) -> usize {
        let types = self.settings.rss.types;
        let hash = |it: &Toeplitz| it.hash_types(header, &frame.parsed, types);
        let hash = self.toeplitz.as_deref().and_then(hash).unwrap_or_default();
        self.shared.steering.queue(hash as usize % ENTRIES, in_use)
    }
}

/// Steers the frames of one burst.
pub(crate) struct Steerer {
    tick: Tick,
    /// The flow of the last frame, which at another port is another, and where it went: most frames
    /// are of the same. So a flow's hash is found once a run of it, and it keeps its queue during
    /// one.
    last: Option<(u64, Target)>,
}

impl Steerer {
    pub(crate) fn new(now: Nanos) -> Steerer {
        Steerer { tick: Tick::of(now), last: None }
    }

    /// Where a frame goes that leaves by this port.
    #[inline]
    pub(crate) fn target(&mut self, port: &Port, frame: &Frame, header: &[u8]) -> Target {
        match port.shared.egress.len() {
            0 | 1 => Target::first(port),
            _ => self.choose(port, frame, header),
        }
    }

    #[inline(never)]
    fn choose(&mut self, port: &Port, frame: &Frame, header: &[u8]) -> Target {
        let in_use = port.shared.queues_in_use();
        if in_use < 2 {
            return Target::first(port);
        }
        let flow = followed::flow(&port.shared.steering.seed, frame, header, Direction::Egress);
        let Some(flow) = flow else {
            return Target::nth(port, port.queue_by_table(frame, header, in_use));
        };
        if let Some((last, target)) = self.last
            && last == flow
            && target.queue < in_use
        {
            return target;
        }
        let noted = port.followed().and_then(|followed| followed.find(flow, self.tick));
        let queue = noted.filter(|queue| *queue < in_use);
        let queue = queue.unwrap_or_else(|| port.queue_by_table(frame, header, in_use));
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
    /// For a burst of the port's queue of this number; `None`: nothing is to be noted.
    pub(crate) fn new(port: &'t Port, queue: usize, now: Nanos) -> Option<Noter<'t>> {
        let followed = port.followed()?;
        let queue = u8::try_from(queue).ok()?;
        Some(Noter { port, followed, queue, tick: Tick::of(now), last: None })
    }

    /// These frames were admitted. Of one that was dropped no header is left.
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
