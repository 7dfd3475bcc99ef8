//! Police: drops from a list what is above the port's `rate-to`, before it is coalesced.
//!
//! A worker calls this only for ports that have one, once per list. Of a train that is partly above
//! it, the first segments pass, so it is segmented.

use crate::counters::{DropReason, count_drop};
use crate::port::capture::show;
use crate::port::policer::Policer;
use crate::turn::outbox::{Run, append};
use crate::turn::{Cut, Delivery};
use ports::capture::Direction;
use ports::lock;
use std::sync::Mutex;

/// A worker's memory for policing.
#[derive(Default)]
pub(crate) struct Policing {
    /// The trains of the last list that are cut.
    pub(crate) cuts: Vec<Cut>,
    /// An empty list, kept for its allocation.
    spare: Vec<Run>,
}

impl Policing {
    /// Removes from a list the frames that the port may not receive, and notes the trains to cut.
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, reason = "a train has fewer than 65536 segments")]
    pub(crate) fn police(
        &mut self,
        policer: &Mutex<Policer>,
        delivery: &Delivery<'_, '_>,
        list: &mut Vec<Run>,
    ) {
        let Delivery { to, frames, parts, cell, now, .. } = delivery;
        self.cuts.clear();
        let mut all = std::mem::replace(list, std::mem::take(&mut self.spare));
        let mut policer = lock(policer);
        policer.refill(*now);
        for run in all.drain(..) {
            for frame in frames.get(run.places()).unwrap_or_default() {
                let segments = frame.vnet.segments_of(frame.parsed.payload_len());
                let passing = policer.take(frame.len.into(), segments);
                let [lost, kept] = [segments - passing, passing].map(|count| count as usize);
                if passing > 0 {
                    append(list, Run::new(frame.place.into(), 1, run.cause));
                }
                if passing == segments {
                    continue;
                }
                count_drop(cell, DropReason::RateLimited, lost);
                if passing == 0 {
                    let reason = Some(DropReason::RateLimited);
                    show(to, Direction::Egress, frame, parts, *now, reason);
                } else {
                    self.cuts.push(Cut { place: frame.place, passing: kept });
                }
            }
        }
        self.spare = all;
    }
}
