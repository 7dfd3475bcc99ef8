//! The part of a worker's time that floods toward many ports may take.
//!
//! A thousand guests that start together each flood a few frames (neighbour discovery, multicast
//! reports), far below storm control, and together a million copies. Each turn is within its limit,
//! but a round of such turns takes seconds, in which the worker answers no command and passes nothing
//! else on. So the floods of all ports at a worker share a budget; beyond it they are dropped and
//! counted as `work_limit`.

use crate::settings::PortId;
use ports::Nanos;

/// The receivers from which on a flood counts. One toward fewer costs no more than other frames do.
pub(crate) const MANY: usize = 64;

/// How long a budget lasts.
const WINDOW: Nanos = Nanos(100 * Nanos::MILLISECOND.0);
/// The [work](super::work) of a window's floods: about a quarter of its time.
const BUDGET: u64 = WINDOW.0 / 4;

/// What a worker's floods have cost in this window.
#[derive(Default)]
pub(crate) struct Floods {
    window: u64,
    spent: u64,
    /// Whether this turn flooded to many.
    has_flooded: bool,
    /// By the sender's number.
    senders: Vec<Spent>,
}

/// What one port's floods have cost in a window.
#[derive(Clone, Copy, Default)]
struct Spent {
    window: u64,
    work: u64,
}

impl Floods {
    /// Makes room for senders with numbers below this.
    pub(crate) fn resize(&mut self, ports: usize) {
        self.senders.resize_with(ports, Spent::default);
    }

    /// Returns whether a port may flood to many now. It may use half of what the others leave, so
    /// that one that storms leaves the other half to them.
    pub(crate) fn allows(&mut self, sender: PortId, now: Nanos) -> bool {
        let window = now.0 / WINDOW.0;
        if window != self.window {
            (self.window, self.spent) = (window, 0);
        }
        let own = self.senders.get(usize::from(sender.0)).filter(|spent| spent.window == window);
        self.spent + own.map_or(0, |spent| spent.work) < BUDGET
    }

    /// Adds the work of a flood that was allowed.
    pub(crate) fn pay(&mut self, sender: PortId, work: u64) {
        self.has_flooded = true;
        self.spent += work;
        let Some(own) = self.senders.get_mut(usize::from(sender.0)) else { return };
        if own.window != self.window {
            *own = Spent { window: self.window, work: 0 };
        }
        own.work += work;
    }

    /// Adds what a turn is charged beyond its work: the kernel's part of a copy can be many times
    /// what is assumed.
    #[inline]
    pub(crate) fn end_turn(&mut self, sender: PortId, excess: u64) {
        if self.has_flooded {
            self.pay(sender, excess);
            self.has_flooded = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Floods as long as that is allowed. Returns how often it was.
    fn flood(floods: &mut Floods, sender: u16, work: u64, now: Nanos) -> u64 {
        let mut count = 0;
        while floods.allows(PortId(sender), now) {
            floods.pay(PortId(sender), work);
            count += 1;
        }
        count
    }

    proptest! {
        #[test]
        fn floods_keep_within_the_budget_and_leave_some_of_it(senders in 1u16..1_000, work in 1_000u64..4_000_000) {
            let (mut floods, now) = (Floods::default(), WINDOW);
            floods.resize(1_001);
            let mut any = true;
            while any {
                any = false;
                for sender in (0..senders).map(PortId) {
                    if floods.allows(sender, now) {
                        floods.pay(sender, work);
                        any = true;
                    }
                }
            }
            prop_assert!(floods.spent < BUDGET + work);
            let left = BUDGET.saturating_sub(floods.spent);
            prop_assert!(left + 2 * work >= BUDGET / (u64::from(senders) + 1), "{left}");
            prop_assert!(left == 0 || floods.allows(PortId(1_000), now), "another port has its turn");
        }
    }

    #[test]
    fn a_turn_that_took_longer_than_its_work_pays_for_it_if_it_flooded() {
        let mut floods = Floods::default();
        floods.resize(2);
        floods.end_turn(PortId(0), BUDGET);
        assert!(floods.allows(PortId(0), Nanos(0)));
        floods.pay(PortId(0), 1);
        floods.end_turn(PortId(0), BUDGET);
        assert!(!floods.allows(PortId(1), Nanos(0)));
    }

    #[test]
    fn each_window_has_its_budget() {
        let mut floods = Floods::default();
        floods.resize(2);
        let first = flood(&mut floods, 0, 1_000, Nanos(0));
        assert_eq!(first, BUDGET / 2_000);
        assert_eq!(flood(&mut floods, 0, 1_000, Nanos(WINDOW.0 - 1)), 0);
        assert_eq!(flood(&mut floods, 1, 1_000, Nanos(WINDOW.0 - 1)), BUDGET / 4_000);
        assert_eq!(flood(&mut floods, 0, 1_000, WINDOW), first);
    }
}
