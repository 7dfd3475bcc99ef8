//! Carries out the commands of the guest's driver, and tells the port and the rings what follows.

use super::Backend;
use crate::State;
use crate::control::{self, Command};
use crate::hold::HoldWish;

impl Backend {
    /// Serves a bounded number of commands of the control queue. If more are waiting, the ring
    /// becomes readable again.
    pub(crate) fn serve_control(&mut self) {
        let Some(ring) = self.shared.rings.last().cloned() else { return };
        ring.forget_kicks();
        let more = ring.with(|running| control::serve(running, |command| self.answer_to(command)));
        if more == Some(true) {
            ring.look_again();
        }
        self.tell(State::Connected);
    }

    /// Carries out a command. Returns what it asks for, mostly nothing, if it is granted.
    fn answer_to(&mut self, command: Command) -> Option<Vec<u8>> {
        let asked = match command {
            Command::GetHold(ring) => Some(self.asked.hold(ring.into())),
            _ => None,
        };
        let is_granted = self.carry_out(command);
        // Before the answer: the driver may rely on what it has set.
        self.publish_asked();
        let bytes = |it: HoldWish| [it.packets, it.microseconds].map(u32::to_le_bytes).concat();
        is_granted.then(|| asked.map(bytes).unwrap_or_default())
    }

    /// Carries out a command. Returns whether it is granted. What it sets about received frames is
    /// in force once it is published.
    pub(crate) fn carry_out(&mut self, command: Command) -> bool {
        let (own, most) = (self.shared.options.mac, self.shared.options.pairs);
        let is_granted = self.taken.intersects(command.needs())
            && match &command {
                Command::SetMac(mac) => own.is_none_or(|own| own == *mac),
                Command::SetPairs(pairs) => (1..=most).contains(pairs),
                Command::SetRss(command) => command.pairs_of(most).is_some(),
                Command::SetOffloads(offloads) => self.taken.contains(*offloads),
                Command::SetHold(ring, _) | Command::GetHold(ring) => *ring < 2 * most,
                _ => true,
            };
        if is_granted {
            match &command {
                Command::SetPairs(pairs) => self.wished_pairs = Some(*pairs),
                Command::SetRss(command) => self.wished_pairs = command.pairs_of(most),
                Command::SetOffloads(offloads) => self.offloads = Some(*offloads),
                _ => {}
            }
            self.asked.note(command, own, most);
        }
        is_granted
    }

    /// Forgets what the guest has set by command, as a reset of the device does.
    pub(super) fn forget_commands(&mut self) {
        (self.offloads, self.wished_pairs) = (None, None);
        self.asked.clear();
        self.publish_asked();
    }

    /// Tells the port and the rings what the guest has set about the frames that it receives, if
    /// that was changed. The control queue, which may be in use, is left out.
    pub(super) fn publish_asked(&mut self) {
        let Some(settings) = self.asked.take_change() else { return };
        (self.shared.options.commanded)(&settings);
        let (_control, rings) = self.shared.rings.split_last().unzip();
        for (place, ring) in rings.into_iter().flatten().enumerate() {
            let hold = self.asked.hold(place);
            ring.change(|running| {
                let Some(running) = running else { return };
                running.hash.clone_from(&settings.hash);
                if running.hold.set(hold) {
                    running.notify();
                }
            });
        }
    }
}
