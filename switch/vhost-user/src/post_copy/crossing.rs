//! A ring that a ferry carries, as the session has it.

use super::handle::Ferry;
use super::handover::Handover;
use super::order::{Files, Order, Start, Stopped};
use super::relay::{Relay, RelayError};
use crate::RingSlot;
use crate::ring_slot::Running;
use crate::signal::{Budget, Signal};
use crate::{Features, Hold};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use virtqueue::Setup;

/// How long a worker may take to use the frames that were carried last.
const DRAIN: Duration = Duration::from_secs(1);

/// Most buffers of a frame where buffers merge, as for a ring that a worker serves.
const MOST_BUFFERS: u16 = 64;

/// A ring that is carried.
#[derive(Debug)]
pub(crate) struct Crossing {
    ferry: Arc<Ferry>,
    relay: Relay,
    place: u32,
    /// As in [`Start`].
    buffers: u16,
    is_counted: bool,
    /// The worker's signal to the ferry.
    from_worker: Arc<Signal>,
}

/// What a ring begins with.
pub(crate) struct Departure<'d> {
    pub(crate) place: u32,
    pub(crate) setup: Setup,
    pub(crate) features: Features,
    pub(crate) is_enabled: bool,
    pub(crate) kick: Arc<OwnedFd>,
    pub(crate) call: Option<&'d Arc<Signal>>,
    pub(crate) error: Option<Arc<Signal>>,
    /// The session's.
    pub(crate) budget: &'d Arc<Budget>,
}

impl Crossing {
    /// Has a ferry carry a ring. Returns the ring for the worker, and the position at which the
    /// guest's begins.
    pub(crate) fn begin(
        ferry: &Arc<Ferry>,
        from: Departure<'_>,
    ) -> Result<(Crossing, Running, u32), RelayError> {
        let Departure { place, setup, features, is_enabled, kick, call, error, budget } = from;
        let relay = Relay::new()?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let [to_worker, from_worker] = [event(), event()].map(|fd| fd.map(Arc::new));
        let (to_worker, from_worker) =
            (to_worker.map_err(io::Error::from)?, from_worker.map_err(io::Error::from)?);
        let buffers = if features.contains(Features::MRG_RXBUF) { MOST_BUFFERS } else { 1 };
        let is_counted = features.intersects(Features::MRG_RXBUF | Features::VERSION_1);
        let files = Files {
            kick,
            call: call.map(|call| call.try_clone_file().map(Arc::new)).transpose()?,
            relay: Arc::new(relay.file().try_clone()?),
            to_worker: to_worker.clone(),
            from_worker: from_worker.clone(),
        };
        let start = Start { place, setup, is_enabled, buffers, is_counted, files };
        let began = ferry.ask(&Order::Start(Box::new(start)))?;
        let began = u32::try_from(began).map_err(io::Error::other)?;
        let mut queue = relay.queue()?;
        queue.set_enabled(is_enabled);
        let signal = Signal::new(from_worker.try_clone()?, budget).map_err(io::Error::other)?;
        let from_worker = Arc::new(signal);
        let (hash, announcement) = Default::default();
        let (kick, call) = (Some(to_worker), Some(from_worker.clone()));
        let hold = Hold::default();
        let running = Running { queue, features, hash, hold, announcement, kick, call, error };
        let ferry = ferry.clone();
        let crossing = Crossing { ferry, relay, place, buffers, is_counted, from_worker };
        Ok((crossing, running, began))
    }

    /// Returns the worker's signal to the ferry, which may be owed.
    pub(crate) fn signal(&self) -> &Arc<Signal> {
        &self.from_worker
    }

    /// Takes or leaves what is in the ring.
    pub(crate) fn enable(&self, is_enabled: bool) -> io::Result<()> {
        self.ferry.ask(&Order::Enable(self.place, is_enabled)).map(drop)
    }

    /// Has the guest interrupted by another descriptor.
    pub(crate) fn call_by(&self, call: Option<&Arc<Signal>>) -> io::Result<()> {
        let call = call.map(|call| call.try_clone_file().map(Arc::new)).transpose()?;
        self.ferry.ask(&Order::Call(self.place, call)).map(drop)
    }

    /// Whether the guest receives by it.
    pub(crate) fn is_egress(&self) -> bool {
        self.place.is_multiple_of(2)
    }

    /// Has the ferry carry what it has, and stop. Returns `None` if it does not say where.
    fn stop(&self) -> Option<Stopped> {
        let told = self.ferry.ask(&Order::Stop(self.place));
        if told.is_err() {
            // A sound ferry refuses no stop. What else this one says is not believed.
            self.ferry.abandon();
        }
        told.ok().map(Stopped::of)
    }

    /// Stops a ring by which the guest receives, and leaves its relay to the worker until the
    /// guest's ring takes the relay's place. `None` if the ferry does not say where it stopped.
    pub(crate) fn hand_over(self) -> Option<Handover> {
        let stopped = self.stop()?;
        let Crossing { relay, buffers, is_counted, .. } = self;
        Some(Handover { relay, stopped, buffers, is_counted })
    }

    /// Stops the ring, once the frames on their way have arrived. Returns the position where the
    /// guest's ring stopped; `None` if the ferry does not say.
    pub(crate) fn end(self, slot: &RingSlot) -> Option<u32> {
        let stopped = if self.is_egress() {
            slot.stop();
            self.stop()
        } else {
            let stopped = self.stop();
            let began = Instant::now();
            // No worker takes from a ring that is disabled.
            let is_taken =
                slot.change(|running| running.is_some_and(|running| running.queue.is_enabled()));
            let waits = || began.elapsed() < DRAIN && !self.ferry.has_failed();
            while is_taken && !self.relay.is_drained() && waits() {
                thread::sleep(Duration::from_micros(100));
            }
            slot.stop();
            stopped
        };
        stopped.map(|stopped| stopped.position)
    }
}
