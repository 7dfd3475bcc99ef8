//! A bad wire: wraps the queues of any port and loses, corrupts, duplicates, reorders and delays
//! frames by chance.
//!
//! Used by tests and the lab. Chance comes from a seed, so a run can be repeated. The wrapper
//! copies and allocates, and while frames wait in it, it keeps its worker from sleeping.
//!
//! One surprise: a frame with a partial checksum is *lost* instead of corrupted. On a real wire the
//! checksum is complete, so the receiver would notice the corruption and drop the frame; here it
//! could not.

mod line;

use crate::{
    Burst, Device, Egress, EgressDrop, EgressQueue, Ingress, IngressQueue, Nanos, Outgoing,
    PortFault, Slice,
};
use line::{Held, Line};
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, PoisonError};

/// A probability in parts per million.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerMillion(pub u32);

/// Probabilities of faults, each drawn independently of the others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Seed of the random numbers; the same seed and frames give the same faults.
    pub seed: u64,
    /// The frame is lost.
    pub loss: PerMillion,
    /// One bit is flipped.
    pub corruption: PerMillion,
    /// The frame is sent twice.
    pub duplication: PerMillion,
    /// The next frame overtakes this one. If none comes, the frame is late by [`Faults::OVERTAKE`]
    /// on ingress, and leaves with the next call on egress.
    pub reordering: PerMillion,
    /// Delay of every frame; ingress only, as `deliver` has no clock.
    pub delay: Nanos,
}

impl Faults {
    /// How long a frame waits for the next one to overtake it.
    pub const OVERTAKE: Nanos = Nanos::MILLISECOND;
}

/// Wraps all queues of a port, each with its own seed.
pub fn wrap(device: Device, ingress: Faults, egress: Faults) -> Device {
    let seeded = |faults: Faults, queue: usize| Faults {
        seed: faults.seed.wrapping_add(queue as u64),
        ..faults
    };
    Device {
        ingress: (0..)
            .zip(device.ingress)
            .map(|(number, queue)| wrap_ingress(queue, seeded(ingress, number)))
            .collect(),
        egress: (0..)
            .zip(device.egress)
            .map(|(number, queue)| wrap_egress(queue, seeded(egress, number)))
            .collect(),
        ..device
    }
}

/// Wraps an ingress queue.
pub fn wrap_ingress(inner: IngressQueue, faults: Faults) -> IngressQueue {
    let line = Line::new(faults);
    IngressQueue::Fault(Box::new(FaultIngress { inner, line, lent: Vec::new(), fault: None }))
}

/// Wraps an egress queue.
pub fn wrap_egress(inner: EgressQueue, faults: Faults) -> EgressQueue {
    let line = Line::new(Faults { delay: Nanos(0), ..faults });
    EgressQueue::Fault(Box::new(FaultEgress { inner, line: Mutex::new(line) }))
}

/// The ingress side of a faulty wire. See [`Ingress`].
pub struct FaultIngress {
    inner: IngressQueue,
    line: Line,
    /// The frames that the last `take` pushed.
    lent: Vec<Held>,
    /// A fault of the inner queue, reported once the frames waiting before it have left.
    fault: Option<PortFault>,
}

/// The egress side of a faulty wire. See [`Egress`].
pub struct FaultEgress {
    inner: EgressQueue,
    line: Mutex<Line>,
}

/// Most frames that may wait. At this number no more are taken.
const MOST_WAITING: usize = 4096;

impl Ingress for FaultIngress {
    fn take<'q>(&'q mut self, now: Nanos, burst: &mut Burst<'q>) -> Result<(), PortFault> {
        if self.line.len() < MOST_WAITING && self.fault.is_none() {
            let mut arrived = Burst::new();
            self.fault = self.inner.take(now, &mut arrived).err();
            for frame in arrived.frames() {
                let mut bytes = Vec::new();
                arrived.slices(frame).iter().for_each(|slice| slice.append_to(&mut bytes));
                self.line.admit(now, Held::new(frame.vnet, frame.vlan, bytes));
            }
            drop(arrived);
            self.inner.release();
        }
        if self.line.len() == 0
            && let Some(fault) = self.fault.take()
        {
            return Err(fault);
        }
        let mut bytes = 0;
        while self.lent.len() < burst.room() && bytes < burst.room_bytes() {
            let Some(frame) = self.line.next_due(now) else { break };
            bytes += frame.bytes.len();
            self.lent.push(frame);
        }
        for frame in &self.lent {
            burst.push(frame.vnet, frame.vlan, &[Slice::from(frame.bytes.as_slice())]);
        }
        Ok(())
    }

    fn release(&mut self) {
        self.lent.clear();
    }

    fn arm(&mut self) -> bool {
        // Nothing wakes a worker when a waiting frame is due.
        self.inner.arm() || self.line.len() > 0 || self.fault.is_some()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn ready_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.ready_fd()
    }

    fn kernel_ns(&self) -> u32 {
        self.inner.kernel_ns()
    }

    fn lost(&self) -> u64 {
        self.inner.lost()
    }
}

impl Egress for FaultEgress {
    fn kernel_ns(&self) -> u32 {
        self.inner.kernel_ns()
    }

    fn deliver(
        &self,
        frames: &[Outgoing<'_>],
        drops: &mut Vec<(usize, EgressDrop)>,
    ) -> Result<(), PortFault> {
        // Not the switch's lock: this wrapper, for tests, copies and delivers under it.
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        for (place, frame) in frames.iter().enumerate() {
            let mut bytes = frame.header.to_vec();
            frame.payload.iter().for_each(|slice| slice.append_to(&mut bytes));
            let mut held = Held::new(frame.vnet, None, bytes);
            held.place = Some(place);
            line.admit(Nanos(0), held);
        }
        let due: Vec<Held> = std::iter::from_fn(|| line.next_due(Nanos(0))).collect();
        let outgoing: Vec<Outgoing<'_>> = due.iter().map(Held::outgoing).collect();
        let mut refused = Vec::new();
        let result = self.inner.deliver(&outgoing, &mut refused);
        let place_of = |at: usize| due.get(at).and_then(|frame| frame.place);
        drops.extend(refused.into_iter().filter_map(|(at, reason)| Some((place_of(at)?, reason))));
        // Frames that still wait belong to an earlier call from now on.
        line.forget_places();
        result
    }
}
