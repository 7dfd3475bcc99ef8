//! Measure: delivers to a guest within limited time, see [`slow`](crate::turn::slow).

use crate::stage::deliver::Deliverer;
use crate::turn::Exit;
use crate::turn::slow::Part;
use crate::turn::work::Meter;
use ports::vhost::{Absent, VhostEgress};
use ports::{EgressDrop, Outgoing};

impl Deliverer {
    /// Calls a guest's egress queue, and charges the time that is more than the work.
    #[inline(never)]
    pub(super) fn send_to_guest(
        &mut self,
        guest: &VhostEgress,
        outgoing: &[Outgoing<'_>],
        exit: &Exit<'_>,
        (mut part, meter): (Part, &mut Meter),
    ) {
        let (sender, id) = (self.sender, exit.to.shared.id);
        let is_measured = self.slow.measures(part, exit.now);
        let stopwatch = match is_measured {
            true => self.stopwatch.restarted(),
            false => self.stopwatch,
        };
        if !is_measured {
            // Its time is that of the turn so far.
            part.work += meter.total();
        }
        let time = self.slow.time_of_delivering(sender, id, part, (exit.now, stopwatch));
        let absent = guest.deliver_within(Some(exit.now), &time, outgoing, &mut self.drops);
        if let Some(at) = guest.signal_at() {
            self.held.note(id, exit.queue, at);
        }
        let is_late = || self.drops.iter().any(|(_, drop)| *drop == EgressDrop::Late);
        if !is_measured && !is_late() {
            return;
        }
        let Some(time) = part.excess(&stopwatch) else { return };
        let is_receivers = match (absent, sender) {
            (Some(Absent::Senders), Some(sender)) => {
                self.slow.rest(sender, time, exit.now);
                false
            }
            (Some(_), _) => {
                self.slow.rest(id, time, exit.now);
                true
            }
            (None, _) => self.slow.blame(sender, id, time, exit.now),
        };
        if is_receivers {
            meter.add_receivers(time);
        } else {
            meter.add_sender(time);
        }
    }
}
