//! Measure: delivers to a guest and takes the time of it, see [`slow`](crate::turn::slow).

use crate::stage::deliver::Deliverer;
use crate::turn::Exit;
use crate::turn::slow::SlowPorts;
use crate::turn::work::Meter;
use ports::{EgressDrop, EgressQueue, Outgoing, PortFault};

impl Deliverer {
    /// Calls a guest's egress queue, and charges the time that is more than the frames' work. If one
    /// of the two guests was slow lately, the frames go one at a time, until that is slow.
    #[inline(never)]
    pub(super) fn send_measured(
        &mut self,
        queue: &EgressQueue,
        outgoing: &[Outgoing<'_>],
        exit: &Exit<'_>,
        (work, meter): (u64, &mut Meter),
    ) -> Result<(), PortFault> {
        let (id, stopwatch) = (exit.to.shared.id, self.stopwatch.restarted());
        let is_watched =
            self.slow.is_watched(id) || self.sender.is_some_and(|from| self.slow.is_watched(from));
        let portion = if is_watched { 1 } else { outgoing.len().max(1) };
        let mut result = Ok(());
        for (number, frames) in outgoing.chunks(portion).enumerate() {
            let (first, before) = (number * portion, self.drops.len());
            result = queue.deliver_at(exit.now, frames, &mut self.drops);
            self.drops.iter_mut().skip(before).for_each(|(place, _)| *place += first);
            if result.is_err() {
                break;
            }
            if SlowPorts::excess(&stopwatch, work).is_some() {
                let late = first + frames.len()..outgoing.len();
                self.drops.extend(late.map(|place| (place, EgressDrop::Late)));
                break;
            }
        }
        if let Some(time) = SlowPorts::excess(&stopwatch, work) {
            let time = time.saturating_sub(work);
            if self.slow.blame(self.sender, id, time, exit.now) {
                meter.add_receivers(time);
            } else {
                meter.add_sender(time);
            }
        }
        result
    }
}
