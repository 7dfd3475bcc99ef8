//! Shares of a worker: deficit round robin over its queues, in units of [work](crate::work).
//!
//! What a turn costs is known only after it, so a turn is paid afterwards: a queue has a balance, gets a quantum each round, and
//! has a turn while its balance is above zero. A turn that cost ten quanta is followed by ten rounds without one, so bursts stay whole
//! and shares are even. When no queue in credit has frames, the rounds until the next debtor's turn are skipped: a lone busy queue
//! never waits.

use crate::work::Dearness;
use ports::Most;

/// What a port's queues at one worker get together each round.
pub(crate) const QUANTUM: u64 = 8192;

/// One queue's account with its worker.
pub(crate) struct Account {
    /// Never above one quantum: a queue that was idle has saved nothing.
    balance: i64,
    quantum: i64,
    dearness: Dearness,
}

impl Default for Account {
    fn default() -> Account {
        let quantum = QUANTUM as i64;
        Account { balance: quantum, quantum, dearness: Dearness::default() }
    }
}

impl Account {
    /// One of so many queues that share a quantum.
    pub(crate) fn share_with(&mut self, queues: usize) {
        self.quantum = (QUANTUM as i64 / queues.max(1) as i64).max(1);
    }

    /// The burst limit of a turn.
    #[inline]
    pub(crate) fn most(&self) -> Most {
        self.dearness.most()
    }

    /// Pays for a turn.
    #[inline]
    pub(crate) fn pay(&mut self, frames: usize, bytes: usize, work: u64) {
        self.balance -= i64::try_from(work).unwrap_or(i64::MAX / 2);
        self.dearness.note(frames, bytes, work);
    }

    /// Some rounds pass; whether the queue may have a turn.
    #[inline]
    fn pass(&mut self, rounds: i64) -> bool {
        self.balance = self.balance.saturating_add(self.quantum * rounds).min(self.quantum);
        self.balance > 0
    }

    /// Rounds until it may have a turn.
    fn debt(&self) -> i64 {
        (self.quantum - self.balance) / self.quantum
    }
}

/// One round, or as many as it takes until a queue has frames: `turn` is called for each queue in credit and returns the frames
/// taken. A queue without an account is left alone. The frames taken of all.
#[inline]
pub(crate) fn round<Queue>(
    queues: &mut [Queue],
    account: impl Fn(&mut Queue) -> Option<&mut Account>,
    mut turn: impl FnMut(&mut Queue) -> usize,
) -> usize {
    let (mut taken, mut least_debt) = (0, None);
    for queue in &mut *queues {
        let Some(account) = account(queue) else { continue };
        if account.pass(1) {
            taken += turn(queue);
        } else {
            least_debt = Some(account.debt().min(least_debt.unwrap_or(i64::MAX)));
        }
    }
    // Queues in credit were looked at and had nothing: only debtors are left.
    while taken == 0
        && let Some(rounds) = least_debt.take()
    {
        for queue in &mut *queues {
            let Some(account) = account(queue).filter(|account| account.balance <= 0) else {
                continue;
            };
            if account.pass(rounds) {
                taken += turn(queue);
            } else {
                least_debt = Some(account.debt().min(least_debt.unwrap_or(i64::MAX)));
            }
        }
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A queue whose bursts cost this much, and what it was given.
    struct Sender {
        account: Account,
        costs: Vec<u64>,
        turns: usize,
        work: u64,
        backlogged: bool,
    }

    impl Sender {
        fn new(costs: Vec<u64>) -> Sender {
            Sender { account: Account::default(), costs, turns: 0, work: 0, backlogged: true }
        }

        fn turn(&mut self) -> usize {
            if !self.backlogged {
                return 0;
            }
            let cost = self.costs[self.turns % self.costs.len()];
            self.account.pay(1, 60, cost);
            (self.turns, self.work) = (self.turns + 1, self.work + cost);
            1
        }
    }

    fn turn_round(senders: &mut [Sender]) -> usize {
        round(senders, |sender| Some(&mut sender.account), Sender::turn)
    }

    proptest! {
        /// Whatever the turns of two backlogged queues cost (a full burst costs more than a quantum), neither gets more than
        /// the other but for one turn and one quantum.
        #[test]
        fn backlogged_queues_get_even_shares(
            costs in proptest::collection::vec(proptest::collection::vec(QUANTUM..2_000_000, 1..5), 2..6),
            rounds in 1usize..3000,
        ) {
            let dearest = *costs.iter().flatten().max().unwrap();
            let mut senders: Vec<_> = costs.into_iter().map(Sender::new).collect();
            for _ in 0..rounds {
                prop_assert!(turn_round(&mut senders) > 0, "somebody always has frames");
            }
            let work = || senders.iter().map(|sender| sender.work);
            let (least, most) = (work().min().unwrap(), work().max().unwrap());
            prop_assert!(most - least <= dearest + QUANTUM, "{least} and {most}");
        }

        /// A queue that comes back after any pause has its turn in the next round, and is then given no more than the others.
        #[test]
        fn an_idle_queue_saves_nothing(pause in 1usize..2000, cost in 1u64..200_000) {
            let mut senders = [Sender::new(vec![cost]), Sender::new(vec![cost])];
            senders[0].backlogged = false;
            (0..pause).for_each(|_| { turn_round(&mut senders); });
            senders[0].backlogged = true;
            let before = senders[1].work;
            turn_round(&mut senders);
            prop_assert_eq!(senders[0].turns, 1);
            (0..pause).for_each(|_| { turn_round(&mut senders); });
            prop_assert!(senders[0].work <= senders[1].work - before + 2 * cost + QUANTUM);
        }

        /// A lone busy queue has a turn each time, whatever its turns cost.
        #[test]
        fn a_lone_busy_queue_never_waits(cost in 1u64..20_000_000, idle in 0usize..20) {
            let mut senders: Vec<_> = (0..=idle).map(|_| Sender::new(vec![cost])).collect();
            senders[1..].iter_mut().for_each(|sender| sender.backlogged = false);
            for _ in 0..100 {
                prop_assert_eq!(turn_round(&mut senders), 1);
            }
        }
    }

    #[test]
    fn the_queues_of_one_port_get_one_share_together() {
        let mut senders: Vec<_> = (0..9).map(|_| Sender::new(vec![30_000])).collect();
        senders[1..].iter_mut().for_each(|sender| sender.account.share_with(8));
        (0..4000).for_each(|_| {
            turn_round(&mut senders);
        });
        let many: u64 = senders[1..].iter().map(|sender| sender.work).sum();
        let one = senders[0].work;
        assert!(one.abs_diff(many) < one / 20, "{one} and {many}");
    }
}
