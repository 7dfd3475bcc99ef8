//! Shares of a worker: deficit round robin over its ports, in nanoseconds of a turn, limited by its
//! [work](crate::turn::work::charged).
//!
//! A turn's cost is known only afterwards, so it is charged then: a port has a balance, gets a
//! quantum each round, and its queues take turns while the balance is above zero. A turn that cost
//! ten quanta is followed by ten rounds without one, so bursts stay whole and shares are even,
//! however many queues a port has and uses. If no port in credit has frames, the rounds until the
//! next debtor's turn are skipped: a lone busy port never waits.

use crate::settings::PortId;
use crate::turn::work::QUANTUM;
use std::ops::Range;

/// The account of the queues that share a quantum.
pub(crate) struct Account {
    port: PortId,
    /// The number of its only queue at an uplink; `None` for all queues of a vNIC.
    queue: Option<usize>,
    /// Never above one quantum: a port that was idle has saved nothing.
    pub(crate) balance: i64,
    /// The places of its queues among the worker's.
    pub(crate) queues: Range<usize>,
    /// The place of the queue that had the last turn.
    last: usize,
}

impl Account {
    /// Makes an account. Its balance is that of the same account in `old`, which are in the order of
    /// their ports, so a debt outlives a change of the worker's queues.
    pub(crate) fn of(
        port: PortId,
        queue: Option<usize>,
        queues: Range<usize>,
        old: &[Account],
    ) -> Account {
        // If the role of a port has changed, it had an account of the other kind.
        let is_same = |account: &&Account| {
            account.queue == queue || account.queue.is_none() || queue.is_none()
        };
        let first = old.partition_point(|account| account.port < port);
        let of_port = old.iter().skip(first).take_while(|account| account.port == port);
        let balance =
            of_port.filter(is_same).map(|account| account.balance).fold(QUANTUM, i64::min);
        Account { port, queue, balance, last: queues.end, queues }
    }

    /// Lowers the balance to at most this: one of the account's queues came with a debt.
    pub(crate) fn owing(self, balance: i64) -> Account {
        Account { balance: self.balance.min(balance), ..self }
    }

    /// Lets rounds pass. Returns whether the account's queues may have turns.
    #[inline]
    fn pass(&mut self, rounds: i64) -> bool {
        self.balance = self.balance.saturating_add(QUANTUM * rounds).min(QUANTUM);
        self.balance > 0
    }

    /// Returns the rounds until they may.
    fn debt(&self) -> i64 {
        (QUANTUM - self.balance) / QUANTUM
    }

    /// Returns the place of the queue that has the next turn.
    #[inline]
    fn next(&mut self) -> usize {
        let next = self.last + 1;
        self.last = if next < self.queues.end { next } else { self.queues.start };
        self.last
    }
}

/// Where a round that was interrupted goes on.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// The place of the next account.
    account: usize,
    /// The rounds that pass for the accounts with at most this balance.
    rounds: i64,
    highest: i64,
}

impl Place {
    /// The start of a round.
    pub(crate) const START: Place = Place { account: 0, rounds: 1, highest: i64::MAX };
}

/// Runs one round, or as many as it takes until a queue has frames, from a place on. Returns the
/// frames taken and the rounds.
///
/// `turn` is called for queues in credit, and returns the frames taken and what they cost. Once frames
/// were taken, the round is interrupted if `is_wanted` says so: with thousands of ports it may take
/// seconds.
#[inline]
pub(crate) fn round<Queue>(
    (accounts, queues): (&mut [Account], &mut [Queue]),
    place: &mut Place,
    is_wanted: impl Fn() -> bool,
    mut turn: impl FnMut(&mut Queue) -> (usize, u64),
) -> (usize, i64) {
    let mut passed = 0_i64;
    loop {
        let Place { account: first, rounds, highest } = std::mem::replace(place, Place::START);
        passed = passed.saturating_add(if first == 0 { rounds } else { 0 });
        let (mut taken, mut least_debt) = (0, i64::MAX);
        let from_here = accounts.iter_mut().enumerate().skip(first);
        for (at, account) in from_here.filter(|(_, account)| account.balance <= highest) {
            if !account.pass(rounds) {
                least_debt = account.debt().min(least_debt);
            }
            for _ in 0..account.queues.len() {
                if account.balance > 0
                    && let Some(queue) = queues.get_mut(account.next())
                {
                    let (frames, work) = turn(queue);
                    account.balance -= i64::try_from(work).unwrap_or(i64::MAX / 2);
                    taken += frames;
                }
            }
            if taken > 0 && is_wanted() {
                *place = Place { account: at + 1, rounds, highest };
                return (taken, passed);
            }
        }
        // What was left of a round says nothing of the accounts before.
        let is_whole = first == 0;
        if taken > 0 || is_whole && least_debt == i64::MAX {
            return (taken, passed);
        }
        if is_whole {
            // Queues in credit were looked at and had nothing: only debtors are left.
            *place = Place { account: 0, rounds: least_debt, highest: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A queue with bursts of these costs, and the work that it was given.
    struct Sender {
        costs: Vec<u64>,
        turns: usize,
        work: u64,
        backlogged: bool,
    }

    impl Sender {
        fn new(costs: Vec<u64>) -> Sender {
            Sender { costs, turns: 0, work: 0, backlogged: true }
        }

        fn turn(&mut self) -> (usize, u64) {
            if !self.backlogged {
                return (0, 0);
            }
            let cost = self.costs[self.turns % self.costs.len()];
            (self.turns, self.work) = (self.turns + 1, self.work + cost);
            (1, cost)
        }
    }

    /// Returns an account for each of so many ports of one queue.
    fn accounts(ports: usize) -> Vec<Account> {
        (0..ports)
            .map(|port| {
                Account::of(PortId(u16::try_from(port).unwrap()), None, port..port + 1, &[])
            })
            .collect()
    }

    fn turn_round(accounts: &mut [Account], senders: &mut [Sender]) -> usize {
        round((accounts, senders), &mut { Place::START }, || false, Sender::turn).0
    }

    #[test]
    fn a_debt_outlives_a_change_of_the_queues() {
        let mut accounts = accounts(2);
        accounts[1].balance = -5;
        let changed =
            [0, 1, 2].map(|port| Account::of(PortId(port), None, 0..3, &accounts).balance);
        assert_eq!(changed, [QUANTUM, -5, QUANTUM]);
    }

    /// Each queue of an uplink was charged the dearest one's debt.
    #[test]
    fn a_queue_of_an_uplink_keeps_its_own_balance() {
        let mut old =
            [0, 1, 2].map(|queue| Account::of(PortId(7), Some(queue), queue..queue + 1, &[]));
        (old[1].balance, old[2].balance) = (-5, 3);
        let of = |queue| Account::of(PortId(7), queue, 0..1, &old).balance;
        assert_eq!([Some(0), Some(1), Some(2), Some(3)].map(of), [QUANTUM, -5, 3, QUANTUM]);
        assert_eq!(of(None), -5, "a vNIC from now on");
    }

    proptest! {
        /// Whatever the turns of two backlogged queues cost (a full burst costs more than a
        /// quantum), neither gets more than the other but for one turn and one quantum.
        #[test]
        fn backlogged_queues_get_even_shares(
            costs in proptest::collection::vec(proptest::collection::vec(QUANTUM as u64..2_000_000, 1..5), 2..6),
            rounds in 1usize..3000,
        ) {
            let dearest = *costs.iter().flatten().max().unwrap();
            let mut senders: Vec<_> = costs.into_iter().map(Sender::new).collect();
            let mut accounts = accounts(senders.len());
            for _ in 0..rounds {
                prop_assert!(turn_round(&mut accounts, &mut senders) > 0, "somebody always has frames");
            }
            let work = || senders.iter().map(|sender| sender.work);
            let (least, most) = (work().min().unwrap(), work().max().unwrap());
            prop_assert!(most - least <= dearest + QUANTUM as u64, "{least} and {most}");
        }

        /// Also if each turn is interrupted, so that a guest that causes commands gains nothing.
        #[test]
        fn an_interrupted_round_goes_on_with_the_next_account(
            costs in proptest::collection::vec(QUANTUM as u64..2_000_000, 2..6),
            wanted in proptest::collection::vec(any::<bool>(), 1..50),
        ) {
            let dearest = *costs.iter().max().unwrap();
            let mut senders: Vec<_> = costs.into_iter().map(|cost| Sender::new(vec![cost])).collect();
            let (mut accounts, mut place) = (accounts(senders.len()), Place::START);
            for wanted in wanted.iter().cycle().take(3000) {
                let queues = (&mut accounts[..], &mut senders[..]);
                let (taken, _) = round(queues, &mut place, || *wanted, Sender::turn);
                prop_assert!(taken > 0, "somebody always has frames");
                prop_assert!(!wanted || taken == 1, "one account had a turn");
            }
            let work = || senders.iter().map(|sender| sender.work);
            let (least, most) = (work().min().unwrap(), work().max().unwrap());
            prop_assert!(most - least <= dearest + 2 * QUANTUM as u64, "{least} and {most}");
        }

        /// A queue that comes back after any pause has its turn in the next round, and is then
        /// given no more than the others.
        #[test]
        fn an_idle_queue_saves_nothing(pause in 1usize..2000, cost in 1u64..200_000) {
            let mut senders = [Sender::new(vec![cost]), Sender::new(vec![cost])];
            let mut accounts = accounts(2);
            senders[0].backlogged = false;
            (0..pause).for_each(|_| { turn_round(&mut accounts, &mut senders); });
            senders[0].backlogged = true;
            let before = senders[1].work;
            turn_round(&mut accounts, &mut senders);
            prop_assert_eq!(senders[0].turns, 1);
            (0..pause).for_each(|_| { turn_round(&mut accounts, &mut senders); });
            prop_assert!(senders[0].work <= senders[1].work - before + 2 * cost + QUANTUM as u64);
        }

        /// A lone busy queue has a turn each time, whatever its turns cost.
        #[test]
        fn a_lone_busy_queue_never_waits(cost in 1u64..20_000_000, idle in 0usize..20) {
            let mut senders: Vec<_> = (0..=idle).map(|_| Sender::new(vec![cost])).collect();
            senders[1..].iter_mut().for_each(|sender| sender.backlogged = false);
            let mut accounts = accounts(senders.len());
            for _ in 0..100 {
                prop_assert_eq!(turn_round(&mut accounts, &mut senders), 1);
            }
        }
    }

    proptest! {
        /// A port of 8 queues, some of them busy, beside a port of one.
        #[test]
        fn the_queues_of_one_port_get_one_share_together(busy in 1usize..=8, cost in 1u64..100_000) {
            let mut senders: Vec<_> = (0..9).map(|_| Sender::new(vec![cost])).collect();
            senders[1 + busy..].iter_mut().for_each(|sender| sender.backlogged = false);
            let mut accounts = [Account::of(PortId(0), None, 0..1, &[]), Account::of(PortId(1), None, 1..9, &[])];
            (0..4000).for_each(|_| {
                turn_round(&mut accounts, &mut senders);
            });
            let many: u64 = senders[1..].iter().map(|sender| sender.work).sum();
            let one = senders[0].work;
            prop_assert!(cost < QUANTUM as u64 || one.abs_diff(many) <= one / 20, "{one} and {many}");
            let turns = || senders[1..=busy].iter().map(|sender| sender.turns);
            prop_assert!(turns().max().unwrap() - turns().min().unwrap() <= 1, "each in its turn");
        }
    }
}
