//! Signals to guests that are held back, as their drivers ask for: the worker that held one looks
//! after it.
//!
//! Several workers may deliver to a ring. Each that sees a signal held notes when to look, and the
//! first that looks in time sends it.

use crate::port::view::View;
use crate::settings::PortId;
use ports::Nanos;

/// A signal that is held back.
struct Held {
    port: PortId,
    /// The egress queue's number.
    queue: usize,
    /// When to look.
    at: Nanos,
}

/// The signals that a worker looks after.
#[derive(Default)]
pub(crate) struct HeldSignals(Vec<Held>);

impl HeldSignals {
    /// Notes that the signal of a port's egress queue is held until then.
    #[cold]
    pub(crate) fn note(&mut self, port: PortId, queue: usize, at: Nanos) {
        let same = |held: &&mut Held| held.port == port && held.queue == queue;
        match self.0.iter_mut().find(same) {
            Some(held) => held.at = held.at.min(at),
            None => self.0.push(Held { port, queue, at }),
        }
    }

    /// Returns when to look first.
    pub(crate) fn first(&self) -> Option<Nanos> {
        self.0.iter().map(|held| held.at).min()
    }

    /// Returns whether it is time to look.
    #[inline]
    pub(crate) fn are_due(&self, now: Nanos) -> bool {
        !self.0.is_empty() && self.first().is_some_and(|at| at <= now)
    }

    /// Sends those whose time has come.
    #[cold]
    pub(crate) fn send(&mut self, view: &View, now: Nanos) {
        self.0.retain_mut(|held| {
            if held.at > now {
                return true;
            }
            let port = view.port(held.port);
            let queue = port.and_then(|port| port.shared.egress.get(held.queue)?.guest());
            let next = queue.and_then(|queue| queue.signal(now));
            held.at = next.unwrap_or(held.at);
            next.is_some()
        });
    }

    /// Sends all, whatever their times: the worker ends.
    pub(crate) fn send_all(&mut self, view: &View) {
        self.0.iter_mut().for_each(|held| held.at = Nanos(0));
        self.send(view, Nanos(u64::MAX));
        self.0.clear();
    }
}
