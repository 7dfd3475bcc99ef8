//! Carries out the commands to a worker: the view it uses and the queues it owns.

use crate::settings::PortRole;
use crate::turn::queue::OwnedQueue;
use crate::turn::work::QUANTUM;
use crate::worker::Worker;
use crate::worker::command::Command;
use crate::worker::share::Account;
use crate::worker::wait::Waiter;

impl Worker {
    /// Carries out all commands that wait. Returns `false` if one of them was [`Command::Stop`].
    pub(crate) fn read_commands(&mut self, waiter: Option<&Waiter>) -> bool {
        for command in self.shared.mailbox.collect() {
            match command {
                Command::View(view, reply) => {
                    self.scratch.outbox.resize(view.slots);
                    self.scratch.floods.resize(view.ports.len());
                    self.scratch.guests.resize(view.ports.len());
                    self.view = view;
                    self.owners.read(&self.view);
                    self.share_out();
                    let _ = reply.send(());
                }
                Command::Own(mut queues, reply) => {
                    // A worker that hung may have passed one on after its port was removed.
                    queues.retain(|queue| self.view.port(queue.port).is_some());
                    let mut unpolled = None;
                    for queue in &mut queues {
                        waiter.iter().for_each(|waiter| waiter.watch(queue));
                        unpolled =
                            queue.given_at.zip(waiter).map(|(at, waiter)| waiter.now().since(at));
                    }
                    self.queues.append(&mut queues);
                    self.share_out();
                    let _ = reply.send(unpolled.unwrap_or_default());
                }
                Command::GiveBack(ports, reply) => {
                    let _ = reply.send(self.give(waiter, |queue| ports.contains(&queue.port)));
                }
                Command::Pass(port, number, to, reply) => {
                    let is_meant =
                        |queue: &OwnedQueue| queue.port == port && queue.number == number;
                    let given = self.give(waiter, is_meant);
                    if !given.is_empty() {
                        to.post(Command::Own(given, reply));
                    }
                }
                Command::Flows(table, reply) => {
                    let _ = reply.send(self.scratch.deliverer.flows.exchange(table));
                }
                Command::Answer => {}
                Command::Stop => return false,
            }
        }
        true
    }

    /// Removes the queues for which `is_meant` says so, with their accounts' debt. The frames that
    /// they took have been delivered.
    fn give(
        &mut self,
        waiter: Option<&Waiter>,
        is_meant: impl Fn(&OwnedQueue) -> bool,
    ) -> Vec<OwnedQueue> {
        for account in &self.accounts {
            let queues = self.queues.get_mut(account.queues.clone());
            queues.into_iter().flatten().for_each(|queue| queue.balance = account.balance);
        }
        let mut given: Vec<_> = self.queues.extract_if(.., |queue| is_meant(queue)).collect();
        for queue in &mut given {
            waiter.iter().for_each(|waiter| waiter.forget(queue));
            queue.given_at = waiter.map(Waiter::now);
        }
        self.share_out();
        given
    }

    /// Makes the accounts anew. The queues of a vNIC share one, since a guest chooses how many it
    /// uses; each queue of an uplink has its own.
    fn share_out(&mut self) {
        let Worker { queues, view, accounts, .. } = self;
        queues.sort_unstable_by_key(|queue| (queue.port, queue.number));
        let is_vnic = |id| view.port(id).is_some_and(|port| port.settings.role == PortRole::Vnic);
        let shared = queues.chunk_by_mut(|one, next| one.port == next.port && is_vnic(one.port));
        let mut end = 0;
        let account = |queues: &mut [OwnedQueue]| {
            end += queues.len();
            // A debt that came with one of the queues is its account's from now on.
            let owed =
                queues.iter_mut().map(|queue| std::mem::replace(&mut queue.balance, QUANTUM));
            let owed = owed.min()?;
            let first = queues.first()?;
            let number = (!is_vnic(first.port)).then_some(first.number);
            let places = end - queues.len()..end;
            Some(Account::of(first.port, number, places, accounts).owing(owed))
        };
        *accounts = shared.filter_map(account).collect();
    }
}
