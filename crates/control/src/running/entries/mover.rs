//! The thread that moves entries.
//!
//! A move waits for a grace period of the kernel, so a thread makes them. Entries that go to the same queue go together, and an
//! uplink's other entries stay until that is done: a slow kernel means fewer moves, not a queue of them.

use crate::body::HeldBody;
use balance::Move;
use datapath::PortId;
use ports::steering::{Moved, Order, Steering, Vnic};
use std::collections::HashMap;
use std::io;
use std::sync::Weak;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Longest that a queue is held for a move. A ring of 4096 slots has room for 40,000 frames a second then.
const PATIENCE: Duration = Duration::from_millis(100);

/// Entries that go to a queue together.
pub(super) struct Job {
    pub(super) uplink: PortId,
    /// Of the uplink's port.
    pub(super) name: String,
    /// Gone once the uplink is closed: it has no flows then, and the same port opened anew has another.
    pub(super) steering: Weak<dyn Steering>,
    pub(super) queue: u8,
    pub(super) shifts: Vec<Shift>,
}

/// One of them.
pub(super) struct Shift {
    pub(super) vnic: Vnic,
    pub(super) entry: u8,
    /// The vNIC's port, if it is one's.
    pub(super) port: Option<String>,
    /// Why.
    pub(super) moved: Move,
}

impl Shift {
    /// `entry 17 of vm1`.
    pub(super) fn item(&self) -> String {
        let of = self.port.as_ref().map(|port| format!(" of {port}")).unwrap_or_default();
        format!("{}{of}", self.moved.item.part)
    }
}

/// What became of a job.
pub(super) struct Done {
    uplink: PortId,
    pub(super) name: String,
    /// Those whose entries name the new queue.
    pub(super) shifts: Vec<Shift>,
    pub(super) held: Option<HeldBody>,
    /// What went wrong, for people.
    pub(super) trouble: Option<String>,
}

impl Job {
    pub(super) fn run(self) -> Done {
        let Job { uplink, name, steering: weak, queue, mut shifts } = self;
        let mut done = Done { uplink, name, shifts: Vec::new(), held: None, trouble: None };
        let Some(steering) = weak.upgrade() else { return done };
        let entries: Vec<(Vnic, usize)> =
            shifts.iter().map(|shift| (shift.vnic, shift.entry.into())).collect();
        let outcome = steering.move_entries(&entries, queue, PATIENCE);
        // Those of a vNIC that went meanwhile were left out.
        shifts.retain(|shift| {
            let table = steering.table(shift.vnic);
            table.is_ok_and(|table| table.get(usize::from(shift.entry)) == Some(&queue))
        });
        drop(steering);
        if weak.strong_count() == 0 {
            // Closed meanwhile: nobody read its queues any more.
            return done;
        }
        match outcome {
            Ok(moved) => {
                done.trouble = (moved.order == Order::GivenUp).then(|| {
                    format!(
                        "entries went to queue {queue} although an old queue was not read for {PATIENCE:?}: \
                         flows may be out of order"
                    )
                });
                (done.shifts, done.held) = (shifts, Some(held(&moved)));
            }
            Err(error) => {
                done.trouble = Some(format!("cannot move entries to queue {queue}: {error}"))
            }
        }
        done
    }
}

fn held(moved: &Moved) -> HeldBody {
    HeldBody {
        us: u64::try_from(moved.held.as_micros()).unwrap_or(u64::MAX),
        frames: moved.held_frames,
        lost: moved.lost_frames,
        order: moved.order.into(),
    }
}

/// The thread, started by the first move. It ends with this.
#[derive(Default)]
pub(super) struct Mover {
    thread: Option<(Sender<Job>, Receiver<Done>)>,
    /// Jobs of each uplink that are not done.
    under_way: HashMap<u16, usize>,
}

impl Mover {
    pub(super) fn is_busy(&self, uplink: PortId) -> bool {
        self.under_way.contains_key(&uplink.0)
    }

    pub(super) fn begin(&mut self, job: Job) -> io::Result<()> {
        let (jobs, _) = match &mut self.thread {
            Some(thread) => thread,
            none => none.insert(start()?),
        };
        let uplink = job.uplink.0;
        jobs.send(job).map_err(|_| io::Error::other("its thread has ended"))?;
        *self.under_way.entry(uplink).or_default() += 1;
        Ok(())
    }

    /// Jobs that are done.
    pub(super) fn finished(&mut self) -> Vec<Done> {
        let Some((_, done)) = &self.thread else { return Vec::new() };
        let done: Vec<Done> = done.try_iter().collect();
        for Done { uplink, .. } in &done {
            if let Some(count) = self.under_way.get_mut(&uplink.0) {
                *count -= 1;
                if *count == 0 {
                    self.under_way.remove(&uplink.0);
                }
            }
        }
        done
    }
}

fn start() -> io::Result<(Sender<Job>, Receiver<Done>)> {
    let (jobs, to_do) = channel::<Job>();
    let (tell, done) = channel();
    std::thread::Builder::new().name("entries".to_owned()).spawn(move || {
        for job in to_do {
            if tell.send(job.run()).is_err() {
                return;
            }
        }
    })?;
    Ok((jobs, done))
}
