//! The counters and loads of a port at a poll, and its rates since the poll before.

use crate::health::DROPS_AGE;
use api::body::RatesBody;
use datapath::{DropReason, PortCounters, QueueInfo, Waits};
use ports::Nanos;
use std::time::Instant;

/// Drop reasons that are findings while recent.
pub(super) const DROPS_TOLD: [DropReason; 4] =
    [DropReason::TooBig, DropReason::DhcpGuard, DropReason::RouterGuard, DropReason::IpGuard];

/// Returned frames between two polls that are a finding. `docs/health.md` states it too.
const RETURNED_TOLD: u64 = 5;

/// Trains that arrive at an uplink between two polls and are a finding.
const COALESCED_TOLD: u64 = 100;

/// What the last poll found at a port.
#[derive(Default)]
pub(super) struct Sample {
    at: Option<Instant>,
    counters: PortCounters,
    /// When drops for each reason in [`DROPS_TOLD`] were last seen.
    dropped_at: [Option<Instant>; DROPS_TOLD.len()],
    /// When at least [`RETURNED_TOLD`] frames of the switch's own guests last came back.
    returned_at: Option<Instant>,
    /// When at least [`COALESCED_TOLD`] trains last arrived between two polls.
    coalesced_at: Option<Instant>,
    rates: RatesBody,
    queues: Vec<QueueInfo>,
    /// Share of each queue's busy time in the time since the previous poll, in percent, at most
    /// 100: the time for which another program held up a turn counts too.
    loads: Vec<f64>,
    /// Waits of each queue's frames since the previous poll.
    waits: Vec<Waits>,
}

impl Sample {
    /// Returns the sample of the next poll.
    pub(super) fn next(
        &self,
        now: Instant,
        counters: PortCounters,
        queues: Vec<QueueInfo>,
    ) -> Sample {
        let elapsed = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let (rates, loads) = if elapsed > 0.0 {
            let load =
                |(old, new): (&QueueInfo, &QueueInfo)| percent(new.busy.since(old.busy), elapsed);
            let loads = self.queues.iter().zip(&queues).map(load).collect();
            (rates(&self.counters, &counters, elapsed), loads)
        } else {
            Default::default()
        };
        let waits = self.queues.iter().zip(&queues);
        let waits = waits.map(|(old, new)| new.waits.since(&old.waits)).collect();
        let mut dropped_at = self.dropped_at;
        for (at, reason) in dropped_at.iter_mut().zip(DROPS_TOLD) {
            if dropped(&counters, reason) > dropped(&self.counters, reason) {
                *at = Some(now);
            }
        }
        // A guest that moves to another host is announced there by a few frames.
        let returned = counters.returned_frames.saturating_sub(self.counters.returned_frames);
        let returned_at = if returned >= RETURNED_TOLD { Some(now) } else { self.returned_at };
        let trains = counters.ingress_trains.saturating_sub(self.counters.ingress_trains);
        let coalesced_at = if trains >= COALESCED_TOLD { Some(now) } else { self.coalesced_at };
        Sample {
            at: Some(now),
            counters,
            dropped_at,
            returned_at,
            coalesced_at,
            rates,
            queues,
            loads,
            waits,
        }
    }

    /// Returns whether frames of the switch's own guests came back recently enough to be a finding.
    pub(super) fn have_returned(&self, now: Instant) -> bool {
        is_recent(self.returned_at, now)
    }

    /// Returns whether many trains arrived recently enough to be a finding.
    pub(super) fn have_arrived_coalesced(&self, now: Instant) -> bool {
        is_recent(self.coalesced_at, now)
    }

    /// Whether the last drop for a reason, by its index in [`DROPS_TOLD`], is recent enough to be a
    /// finding; `count` is the current counter.
    pub(super) fn is_recent(&self, place: usize, count: u64, now: Instant) -> bool {
        let before = DROPS_TOLD.get(place).map_or(0, |reason| dropped(&self.counters, *reason));
        count > before || is_recent(self.dropped_at.get(place).copied().flatten(), now)
    }

    /// Returns the counters at the last poll.
    pub(super) fn counters(&self) -> &PortCounters {
        &self.counters
    }

    /// Returns the rates of the last second.
    pub(super) fn rates(&self) -> RatesBody {
        self.rates
    }

    /// Returns a queue's share of its worker's time over the last second, in percent.
    pub(super) fn load(&self, queue: usize) -> f64 {
        self.loads.get(queue).copied().unwrap_or_default()
    }

    /// Returns the waits of a queue's frames over the last second.
    pub(super) fn waits(&self, queue: usize) -> Waits {
        self.waits.get(queue).copied().unwrap_or_default()
    }
}

/// Returns whether something happened, and less than [`DROPS_AGE`] ago.
fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < DROPS_AGE)
}

fn dropped(counters: &PortCounters, reason: DropReason) -> u64 {
    counters.drops.get(reason as usize).copied().unwrap_or_default()
}

/// Returns a share of a number of seconds, in percent, to a tenth and at most 100.
fn percent(busy: Nanos, seconds: f64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a second has 2^30 nanoseconds")]
    let busy = busy.0 as f64;
    ((busy / seconds / 1e6).round() / 10.0).min(100.0)
}

fn rates(old: &PortCounters, new: &PortCounters, seconds: f64) -> RatesBody {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate is shown to people, and the float-to-integer cast saturates"
    )]
    let rate = |old: u64, new: u64| (new.saturating_sub(old) as f64 / seconds).round() as u64;
    RatesBody {
        ingress_frames_per_s: rate(old.ingress_frames, new.ingress_frames),
        ingress_bits_per_s: rate(old.ingress_bytes, new.ingress_bytes).saturating_mul(8),
        egress_frames_per_s: rate(old.egress_frames, new.egress_frames),
        egress_bits_per_s: rate(old.egress_bytes, new.egress_bytes).saturating_mul(8),
        drops_per_s: rate(old.dropped(), new.dropped()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// A queue read as 700 % busy whose turn another program had held up.
    #[test]
    fn a_turn_that_was_held_up_takes_no_more_than_all_of_its_worker() {
        let busy = |ms: u64| Nanos(ms * 1_000_000);
        assert_eq!(percent(busy(250), 1.0).to_string(), "25");
        assert_eq!(percent(busy(7000), 1.0).to_string(), "100");
    }

    #[test]
    fn returned_frames_are_a_finding_if_there_are_several_in_a_second() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let counters = |returned_frames| PortCounters { returned_frames, ..Default::default() };
        let moved = Sample::default().next(at(1), counters(4), Vec::new());
        assert!(!moved.have_returned(at(1)), "a guest moved away");
        let looped = moved.next(at(2), counters(9), Vec::new());
        let later = looped.next(at(601), counters(9), Vec::new());
        assert!(later.have_returned(at(601)) && !later.have_returned(at(602)));
    }

    /// A drop of last month made every check fail.
    #[test]
    fn drops_are_a_finding_for_ten_minutes_after_the_last() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let counters = |too_big| {
            let mut counters = PortCounters::default();
            counters.drops[DropReason::TooBig as usize] = too_big;
            counters
        };
        let sample = Sample::default().next(at(1), counters(0), Vec::new());
        assert!(!sample.is_recent(0, 0, at(1)));
        assert!(sample.is_recent(0, 1, at(1)), "since the last look");
        let sample = sample.next(at(2), counters(5), Vec::new());
        let later = sample.next(at(601), counters(5), Vec::new());
        assert!(later.is_recent(0, 5, at(601)) && !later.is_recent(1, 0, at(601)));
        assert!(!later.is_recent(0, 5, at(602)));
        assert!(later.is_recent(0, 6, at(602)), "it drops again");
    }
}
