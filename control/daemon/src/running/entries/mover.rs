//! Threads that move entries.
//!
//! A move waits for a grace period of the kernel, so a thread makes those of a decision at an
//! uplink. The uplink's other entries stay until it has ended: a slow kernel means fewer moves, not
//! a queue of them. Uplinks do not wait for one another.

use super::super::moves::Record;
use api::body::{HeldBody, OrderBody};
use balance::Move;
use datapath::PortId;
use ports::steering::{EntryMove, Moved, Order, Steering, Vnic};
use std::collections::HashMap;
use std::io;
use std::sync::Weak;
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest that a queue is held for a batch of moves, and that moves wait for room in their queues'
/// rings.
const MOVE_TIMEOUT: Duration = Duration::from_millis(100);

/// What a decision moves at an uplink.
pub(super) struct Job {
    /// Of the uplink's port.
    pub(super) name: String,
    /// Gone once the uplink is closed: it has no flows then, and the same port opened anew has
    /// another.
    pub(super) steering: Weak<dyn Steering>,
    /// In the order of the decision, the most urgent first.
    pub(super) shifts: Vec<Shift>,
}

/// One entry.
pub(super) struct Shift {
    pub(super) vnic: Vnic,
    pub(super) entry: u8,
    /// Its new queue.
    pub(super) queue: u8,
    /// The vNIC's port, if it is one's.
    pub(super) port: Option<String>,
    /// Why.
    pub(super) moved: Move,
}

/// What became of a job.
pub(super) struct Done {
    pub(super) name: String,
    pub(super) moved: Vec<Together>,
    /// Entries whose queues had no room for what would have waited meanwhile.
    pub(super) stayed: Vec<Shift>,
    /// What went wrong, for people.
    pub(super) troubles: Vec<String>,
}

/// Entries that went to one queue, which was held for all of them.
pub(super) struct Together {
    pub(super) shifts: Vec<Shift>,
    pub(super) held: HeldBody,
}

impl Job {
    pub(super) fn run(self) -> Done {
        let Job { name, steering: weak, shifts } = self;
        let mut done = Done { name, moved: Vec::new(), stayed: Vec::new(), troubles: Vec::new() };
        let Some(steering) = weak.upgrade() else { return done };
        let of = |shift: &Shift| EntryMove {
            vnic: shift.vnic,
            entry: shift.entry.into(),
            queue: shift.queue,
        };
        let moves: Vec<EntryMove> = shifts.iter().map(of).collect();
        let outcome = steering.move_entries(&moves, MOVE_TIMEOUT);
        drop(steering);
        if weak.strong_count() == 0 {
            // Closed meanwhile: nobody read its queues any more.
            return done;
        }
        match outcome {
            Ok(moved) => done.note(shifts, moved),
            Err(error) => done.troubles.push(format!("cannot move entries: {error}")),
        }
        done
    }
}

impl Done {
    /// Those of vNICs that went meanwhile are in none of the moves.
    fn note(&mut self, shifts: Vec<Shift>, moves: Vec<Moved>) {
        let named = |shift: Shift| ((shift.vnic, shift.entry.into()), shift);
        let mut shifts: HashMap<(Vnic, usize), Shift> = shifts.into_iter().map(named).collect();
        for moved in moves {
            let together: Vec<Shift> =
                moved.entries.iter().filter_map(|entry| shifts.remove(entry)).collect();
            let order = match moved.order {
                Order::Kept => OrderBody::Kept,
                Order::NearlySure => OrderBody::NearlySure,
                Order::GivenUp => OrderBody::GivenUp,
                Order::Stayed => {
                    self.stayed.extend(together);
                    continue;
                }
            };
            if let (OrderBody::GivenUp, Some(Shift { queue, .. })) = (order, together.first()) {
                self.troubles.push(format!(
                    "entries went to queue {queue} although an old queue was not read for \
                     {MOVE_TIMEOUT:?}, or until the new one's ring was nearly full: \
                     flows may be out of order"
                ));
            }
            self.moved.push(Together { shifts: together, held: held(&moved, order) });
        }
    }
}

impl Together {
    /// One for the entries of a vNIC that left a worker for one reason.
    pub(super) fn records(mut self, uplink: &str) -> Vec<Record> {
        self.shifts.sort_by_key(|shift| (shift.vnic, shift.moved.from));
        let alike = |shift: &Shift| (shift.vnic, shift.moved.from, shift.moved.reason);
        let groups = self.shifts.chunk_by(|one, other| alike(one) == alike(other));
        groups.filter_map(|shifts| record(uplink, shifts, &self.held)).collect()
    }
}

fn record(uplink: &str, shifts: &[Shift], held: &HeldBody) -> Option<Record> {
    let first = shifts.first()?;
    let sum = |of: fn(&Move) -> f64| shifts.iter().map(|shift| of(&shift.moved)).sum::<f64>();
    // Moves of others may stand in between, so that the last one's figures are not those of these.
    let gone = sum(|moved| moved.from_load.0 - moved.from_load.1);
    let come = sum(|moved| moved.to_load.1 - moved.to_load.0);
    let (from, to) = (first.moved.from_load.0, first.moved.to_load.0);
    Some(Record {
        port: uplink.to_owned(),
        vnic: first.port.clone(),
        entries: shifts.iter().map(|shift| shift.entry).collect(),
        moved: Move {
            load: sum(|moved| moved.load),
            from_load: (from, from - gone),
            to_load: (to, to + come),
            ..first.moved
        },
        held: Some(held.clone()),
        rest: None,
    })
}

fn held(moved: &Moved, order: OrderBody) -> HeldBody {
    HeldBody {
        us: u64::try_from(moved.held.as_micros()).unwrap_or(u64::MAX),
        frames: moved.held_frames,
        lost: moved.lost_frames,
        order,
    }
}

/// The jobs under way, at most one an uplink: while it moves entries, nothing decides to move
/// others.
#[derive(Default)]
pub(super) struct Mover {
    /// By the uplink.
    under_way: HashMap<PortId, JoinHandle<Done>>,
}

impl Mover {
    pub(super) fn is_busy(&self, uplink: PortId) -> bool {
        self.under_way.contains_key(&uplink)
    }

    /// Has a thread do a job of an uplink that is not busy.
    ///
    /// # Errors
    ///
    /// Fails if the system refuses a thread.
    pub(super) fn begin(&mut self, uplink: PortId, job: Job) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("entries".to_owned());
        self.under_way.insert(uplink, thread.spawn(|| job.run())?);
        Ok(())
    }

    /// Jobs that are done.
    pub(super) fn finished(&mut self) -> Vec<Done> {
        let ended = self.under_way.extract_if(|_, thread| thread.is_finished());
        ended.filter_map(|(_, thread)| thread.join().ok()).collect()
    }
}
