//! The ingress queues with their owners and loads.

use super::{Entry, Switch};
use crate::PortId;
use crate::options::SwitchError;
use crate::status::QueueInfo;
use crate::turn::queue::OwnedQueue;
use crate::worker::command::Command;
use crate::worker::handle::Handle;
use ports::{IngressQueue, Nanos};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

impl Switch {
    /// Gives each queue of new ports to its worker.
    pub(super) fn hand_out(
        &mut self,
        ports: Vec<(PortId, Vec<IngressQueue>)>,
    ) -> Result<(), SwitchError> {
        let mut by_worker: Vec<Vec<OwnedQueue>> = self.workers.iter().map(|_| Vec::new()).collect();
        for (port, ingress) in ports {
            let entry = self.entry(port)?;
            let places = entry.queue_workers.iter().zip(&entry.loads);
            for (number, (ingress, (worker, load))) in ingress.into_iter().zip(places).enumerate() {
                let queue = OwnedQueue::new(port, number, ingress, load.clone());
                if let Some(queues) = by_worker.get_mut(*worker) {
                    queues.push(queue);
                }
            }
        }
        let asked = Instant::now();
        let post = |(handle, queues): (&mut Handle, Vec<OwnedQueue>)| {
            let (reply, replied) = sync_channel(1);
            handle.post(Command::Own(queues, reply));
            replied
        };
        let replies: Vec<_> = self.workers.iter_mut().zip(by_worker).map(post).collect();
        for (worker, replied) in replies.iter().enumerate() {
            self.answer(worker, replied, asked);
        }
        self.all_answer()
    }

    /// Moves an ingress queue to a worker. Returns how long no worker polled it; zero if the worker
    /// has it already.
    ///
    /// Every flow stays in order: the old worker gives the queue away between turns, when the
    /// frames it took have been delivered.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port, queue or worker, or if one of the two workers does not
    /// answer. In the last case the move is made when it does.
    pub fn move_queue(
        &mut self,
        port: PortId,
        queue: usize,
        worker: usize,
    ) -> Result<Nanos, SwitchError> {
        self.all_answer()?;
        let workers = self.workers.len();
        let Some(to) = self.workers.get(worker).map(|handle| handle.shared.clone()) else {
            return Err(SwitchError::NoSuchWorker { worker, workers });
        };
        let entry = self.ports.get_mut(usize::from(port.0)).and_then(Option::as_mut);
        let entry = entry.ok_or(SwitchError::NoSuchPort(port))?;
        let queues = entry.queue_workers.len();
        let Some(owner) = entry.queue_workers.get_mut(queue) else {
            return Err(SwitchError::NoSuchQueue { port, queue, queues });
        };
        let from = std::mem::replace(owner, worker);
        if from == worker {
            return Ok(Nanos::default());
        }
        let (reply, replied) = sync_channel(1);
        if let Some(from) = self.workers.get_mut(from) {
            from.post(Command::Pass(port, queue, to, reply));
        }
        if let Some(to) = self.workers.get_mut(worker) {
            to.read_commands();
        }
        let unpolled = self.answer(from, &replied, Instant::now());
        self.all_answer()?;
        unpolled.ok_or(SwitchError::WorkerEnded(from))
    }

    /// Returns all ingress queues, by port and number.
    pub fn queues(&self) -> Vec<QueueInfo> {
        self.entries().flat_map(|entry| self.infos(entry)).collect()
    }

    /// Returns the ingress queues of a port; none if there is no such port.
    pub fn queues_of(&self, port: PortId) -> Vec<QueueInfo> {
        self.entry(port).into_iter().flat_map(|entry| self.infos(entry)).collect()
    }

    fn infos(&self, entry: &Entry) -> impl Iterator<Item = QueueInfo> {
        let (port, movable) = (entry.port.shared.id, self.workers.len() > 1);
        let mut entries = [0; 256];
        entry.port.shared.table().iter().for_each(|queue| entries[usize::from(*queue)] += 1);
        let places = entry.queue_workers.iter().zip(&entry.loads).enumerate();
        places.map(move |(queue, (worker, load))| QueueInfo {
            port,
            queue,
            worker: *worker,
            busy: Nanos(load.busy.get()),
            frames: load.frames.get(),
            bytes: load.bytes.get(),
            waits: load.waits.get(),
            entries: entries.get(queue).copied().unwrap_or_default(),
            movable,
        })
    }
}
