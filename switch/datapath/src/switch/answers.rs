//! Asks the workers, and lets none of them delay the control plane for long.
//!
//! A worker that has not read its commands in time *hangs*. That is an event, and the control plane
//! does not wait for the worker until it has read them. It reads them in order, so it ends up with
//! the same view and queues as the others.

use super::Switch;
use crate::PortId;
use crate::options::SwitchError;
use crate::status::HealthEvent;
use crate::worker::command::{Command, NO_PORT};
use crate::worker::handle::Handle;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

impl Switch {
    /// Checks that no worker hangs.
    ///
    /// # Errors
    ///
    /// Fails if one does, and names it and the port of its last turn.
    pub fn all_answer(&self) -> Result<(), SwitchError> {
        let hangs = self.workers.iter().position(|handle| handle.hangs);
        hangs.map_or(Ok(()), |worker| {
            let port = self.last_turn(worker).and_then(|port| self.entry(port).ok());
            let port = port.map(|entry| format!("port {}", entry.port.shared.name));
            Err(SwitchError::WorkerHangs { worker, port: port.unwrap_or("no port".to_owned()) })
        })
    }

    fn last_turn(&self, worker: usize) -> Option<PortId> {
        let turn = self.workers.get(worker)?.shared.turn.load(Ordering::Relaxed);
        (turn != NO_PORT).then_some(PortId(turn))
    }

    /// Sends every worker a command and returns their answers. A worker thread that has ended gives
    /// none.
    pub(super) fn ask<Answer>(
        &mut self,
        command: impl Fn(SyncSender<Answer>) -> Command,
    ) -> Result<Vec<Answer>, SwitchError> {
        let asked = Instant::now();
        let post = |handle: &mut Handle| {
            let (reply, replied) = sync_channel(1);
            handle.post(command(reply));
            replied
        };
        let replies: Vec<_> = self.workers.iter_mut().map(post).collect();
        let answer = |(worker, replied)| self.answer(worker, &replied, asked);
        let answers = replies.into_iter().enumerate().filter_map(answer).collect();
        self.all_answer().map(|()| answers)
    }

    /// Returns a worker's reply to what it was asked at this time; `None` if there is none in time.
    pub(super) fn answer<Answer>(
        &mut self,
        worker: usize,
        replied: &Receiver<Answer>,
        asked: Instant,
    ) -> Option<Answer> {
        let handle = self.workers.get(worker)?;
        let (hung, time_left) = (handle.hangs, handle.time_left(asked));
        let answer = replied.recv_timeout(time_left);
        if !hung && matches!(answer, Err(RecvTimeoutError::Timeout)) {
            // In a move two workers are asked: the one with unread commands hangs.
            self.note_hanging(|handle| handle.hangs || handle.has_unread());
        }
        answer.ok()
    }

    /// Finds out which workers hang, without waiting for any.
    pub(super) fn look_at_workers(&mut self) {
        let now = Instant::now();
        self.note_hanging(|handle| handle.is_late(now));
    }

    fn note_hanging(&mut self, hangs: impl Fn(&mut Handle) -> bool) {
        for worker in 0..self.workers.len() {
            let port = self.last_turn(worker);
            let Some(handle) = self.workers.get_mut(worker) else { continue };
            let hangs = hangs(handle);
            match (std::mem::replace(&mut handle.hangs, hangs), hangs) {
                (false, true) => self.events.push(HealthEvent::WorkerHangs { worker, port }),
                (true, false) => self.events.push(HealthEvent::WorkerAnswers { worker }),
                _ => {}
            }
        }
    }
}
