//! The switch's status as the control plane reads it.

use crate::counters::reasons;
use crate::settings::{PortId, PortSettings, Rsc, RscPolicy};
use ports::{Nanos, Offloads};
use wire::Mac;
use wire::toeplitz::{HashTypes, Key};

/// Whether a port carries frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PortState {
    /// It carries frames.
    #[default]
    Up,
    /// It carries none now, and comes back by itself when the reason goes away.
    Down(String),
    /// It carries none until it is opened again.
    Broken(String),
}

/// A port as it is now.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// The port's number.
    pub id: PortId,
    /// Its name.
    pub name: String,
    /// The settings in force.
    pub settings: PortSettings,
    /// Up, down or broken.
    pub state: PortState,
    /// How often the state has changed.
    pub state_changes: u64,
    /// The offloads that its egress side accepts at the moment.
    pub offloads: Offloads,
    /// The device's own address.
    pub mac: Option<Mac>,
    /// The address that the MAC-spoofing guard holds the port to, if none is configured.
    pub held_mac: Option<Mac>,
    /// The worker of each queue, as its place in [`crate::SwitchOptions::workers`].
    pub queue_workers: Vec<usize>,
}

reasons! {
    /// Why coalescing does not happen, in the words of `Get-NetAdapterRsc`.
    RscFailureReason {
        /// It does take place.
        NoFailure = "NoFailure",
        /// Off in the switch or on the host.
        NetOffloadGlobalDisabled = "NetOffloadGlobalDisabled",
        /// Off on this port.
        NicPropertyDisabled = "NicPropertyDisabled",
        /// Nothing behind the port takes trains of this family: the other side cannot, its device is
        /// down, or none is open.
        Capability = "Capability",
    }
}

/// Coalescing of one address family on one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RscStatus {
    /// Whether it is configured.
    pub enabled: bool,
    /// Whether it takes place.
    pub operational: bool,
    /// Why it does not take place.
    pub failure_reason: RscFailureReason,
}

impl RscStatus {
    /// Returns the state of coalescing for IPv4 and IPv6 toward a port that takes these offloads;
    /// none while it is down.
    pub fn of(rsc: &Rsc, taken: Offloads) -> (RscStatus, RscStatus) {
        let status = |family: bool, needed: Offloads| {
            let enabled = family && rsc.policy != RscPolicy::Off;
            let failure_reason = match (enabled, taken.contains(needed | Offloads::CSUM)) {
                (false, _) => RscFailureReason::NicPropertyDisabled,
                (true, false) => RscFailureReason::Capability,
                (true, true) => RscFailureReason::NoFailure,
            };
            RscStatus {
                enabled,
                operational: failure_reason == RscFailureReason::NoFailure,
                failure_reason,
            }
        };
        (status(rsc.ipv4, Offloads::TSO4), status(rsc.ipv6, Offloads::TSO6))
    }
}

impl PortInfo {
    /// Returns the state of coalescing toward this port for IPv4 and IPv6.
    pub fn rsc(&self) -> (RscStatus, RscStatus) {
        let is_up = self.state == PortState::Up;
        let taken = if is_up { self.offloads } else { Offloads::empty() };
        RscStatus::of(&self.settings.rsc, taken)
    }
}

/// A learned address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MacEntry {
    /// The address.
    pub mac: Mac,
    /// VLAN inside the switch.
    pub vlan: u16,
    /// Where it lives.
    pub port: PortId,
    /// Seconds since a frame from it was seen.
    pub age_s: u64,
}

/// A worker as it is now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerInfo {
    /// The core it is pinned to.
    pub cpu: Option<usize>,
    /// Rounds that took frames.
    pub busy_rounds: u64,
    /// Rounds that took none.
    pub idle_rounds: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Frames it took.
    pub frames: u64,
    /// Whether it does not answer.
    pub hangs: bool,
    /// Time in turns that took frames. It is the sum of [`QueueInfo::busy`] over the queues that
    /// the worker owned meanwhile.
    pub busy: Nanos,
    /// Time for which it wanted to run and had no processor, in [`WorkerInfo::busy`] or beside it:
    /// other programs had the processor.
    pub waited: Nanos,
}

/// Waits of an ingress queue's frames. Each burst counts with the wait of its first frame, so the
/// figures are upper bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waits {
    /// Sum of the waits.
    pub sum: Nanos,
    /// Frames by their wait: of each of [`Waits::BOUNDS`] those above the bound before and up to
    /// this one, then those above all.
    pub frames: [u64; Waits::BOUNDS.len() + 1],
}

impl Waits {
    /// Bounds of the waits, in ascending order.
    pub const BOUNDS: [Nanos; 10] = [
        Nanos(50_000),
        Nanos(100_000),
        Nanos(200_000),
        Nanos(500_000),
        Nanos(1_000_000),
        Nanos(2_000_000),
        Nanos(5_000_000),
        Nanos(10_000_000),
        Nanos(20_000_000),
        Nanos(50_000_000),
    ];

    /// Returns the number of frames whose wait is known.
    pub fn count(&self) -> u64 {
        self.frames.iter().sum()
    }

    /// Returns what was added since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Waits) -> Waits {
        let mut added = *self;
        for (frames, before) in added.frames.iter_mut().zip(earlier.frames) {
            *frames = frames.saturating_sub(before);
        }
        added.sum = self.sum.since(earlier.sum);
        added
    }

    /// Returns the mean; `None` without frames.
    pub fn mean(&self) -> Option<Nanos> {
        self.sum.0.checked_div(self.count()).map(Nanos)
    }

    /// Returns the bound that this part of the frames did not wait longer than; beyond the last
    /// bound, twice that. `None` without frames.
    pub fn quantile(&self, part: f64) -> Option<Nanos> {
        let [.., last] = Waits::BOUNDS;
        #[allow(clippy::cast_precision_loss, reason = "the counts of a queue are below 2^53")]
        let wanted = self.count() as f64 * part;
        let mut sum = 0;
        let place = self.frames.iter().position(|frames| {
            sum += frames;
            #[allow(clippy::cast_precision_loss, reason = "as above")]
            let reached = sum as f64 >= wanted;
            reached && sum > 0
        })?;
        Some(Waits::BOUNDS.get(place).copied().unwrap_or(Nanos(2 * last.0)))
    }
}

/// An ingress queue as it is now; its sums begin when the port is added, and a move keeps them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueInfo {
    /// Its port.
    pub port: PortId,
    /// Its number at the port.
    pub queue: usize,
    /// The worker that owns it: its place in [`crate::SwitchOptions::workers`].
    pub worker: usize,
    /// Time of the queue's turns that took frames, by the worker's clock; it includes the time that
    /// other threads took of the core. In a stepped switch, where no time passes during a turn, it
    /// is the turns' work, in units of about a nanosecond.
    pub busy: Nanos,
    /// Frames it took; a train is one.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long its frames waited before they were taken; empty if the port does not know.
    pub waits: Waits,
    /// Entries of the port's indirection table that name the egress queue of this number.
    pub entries: usize,
    /// Whether there is another worker to move it to.
    pub movable: bool,
}

/// A port's steering as it is now, see [`crate::Rss`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RssInfo {
    /// The key of the switch's own hash, configured or drawn.
    pub key: Key,
    /// What the guest's driver has set, whether or not it is in force.
    pub guest: Option<GuestRss>,
    /// Whether that is in force.
    pub is_by_guest: bool,
    /// Egress queues.
    pub queues: usize,
    /// Egress queues that the other side uses, the first ones.
    pub in_use: usize,
    /// The queue each entry of the indirection table names.
    pub configured: [u8; 128],
    /// The queue each entry goes to: the one it names, or if that is not in use the entry's number
    /// modulo those that are; or the one that the guest's table says, if that is in force.
    pub in_force: [u8; 128],
}

/// The receive-side scaling that a guest's driver has set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestRss {
    /// The key of the hash.
    pub key: Key,
    /// The types that are hashed.
    pub types: HashTypes,
    /// The queue of each entry.
    pub table: Vec<u16>,
    /// The queue of frames without a hash.
    pub unclassified: u16,
}

/// An event that an operator should know about. A state is reported once, not with every frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HealthEvent {
    /// Frames from one port are too big for another.
    TooBig {
        /// Where they come from.
        from: PortId,
        /// Its MTU.
        from_mtu: u16,
        /// Where they cannot go.
        to: PortId,
        /// Its MTU.
        to_mtu: u16,
    },
    /// Large segments of a flow are retransmitted repeatedly while small ones pass: something
    /// behind `to` carries less.
    BlackHole {
        /// Where they come from.
        from: PortId,
        /// Its MTU.
        from_mtu: u16,
        /// Where they leave.
        to: PortId,
        /// Its MTU.
        to_mtu: u16,
    },
    /// A port went up, down or broke.
    PortState {
        /// The port.
        port: PortId,
        /// Its new state.
        state: PortState,
    },
    /// A worker does not answer: its ports carry nothing, and nothing can be changed.
    WorkerHangs {
        /// Its place.
        worker: usize,
        /// The port of its last turn.
        port: Option<PortId>,
    },
    /// It answers again.
    WorkerAnswers {
        /// Its place.
        worker: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_bound_that_enough_frames_did_not_exceed() {
        let mut waits = Waits::default();
        assert_eq!((waits.mean(), waits.quantile(0.5)), (None, None));
        (waits.frames[1], waits.frames[4], waits.frames[10]) = (50, 49, 1);
        waits.sum = Nanos(100 * 7);
        let quantiles = [0.0, 0.5, 0.51, 0.99, 1.0].map(|part| waits.quantile(part).unwrap().0);
        assert_eq!(quantiles, [100_000, 100_000, 1_000_000, 1_000_000, 100_000_000]);
        assert_eq!(waits.mean(), Some(Nanos(7)));
        assert_eq!(waits.since(&waits), Waits::default());
        assert_eq!(waits.since(&Waits::default()), waits);
    }
}
