//! The switch's status as the control plane reads it.

use crate::counters::reasons;
use crate::settings::{PortId, PortSettings};
use ports::{Nanos, Offloads};
use wire::Mac;
use wire::toeplitz::Key;

/// Whether a port carries frames.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum PortState {
    /// It does.
    #[default]
    Up,
    /// Not now; it comes back by itself when the reason goes away.
    Down(String),
    /// Not until it is opened again.
    Broken(String),
}

/// A port as it is now.
#[derive(Clone, Debug)]
pub struct PortInfo {
    /// Its place.
    pub id: PortId,
    /// Its name.
    pub name: String,
    /// What is in force.
    pub settings: PortSettings,
    /// Up, down or broken.
    pub state: PortState,
    /// What its egress takes without help at the moment.
    pub offloads: Offloads,
    /// The device's own address.
    pub mac: Option<Mac>,
    /// The address that the MAC-spoofing guard holds the port to, having no configured one.
    pub held_mac: Option<Mac>,
    /// The worker (its place in [`crate::SwitchOptions::workers`]) of each queue.
    pub queue_workers: Vec<usize>,
}

reasons! {
    /// Why coalescing does not happen, in the words of `Get-NetAdapterRsc`.
    RscFailureReason {
        /// It does happen.
        NoFailure = "NoFailure",
        /// Off on this port.
        NicPropertyDisabled = "NicPropertyDisabled",
        /// The other side takes no trains of this family.
        Capability = "Capability",
    }
}

/// Coalescing of one address family on one port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RscStatus {
    /// Asked for.
    pub enabled: bool,
    /// Done.
    pub operational: bool,
    /// Why not.
    pub failure_reason: RscFailureReason,
}

impl PortInfo {
    /// Returns the state of coalescing toward this port for IPv4 and IPv6.
    pub fn rsc(&self) -> (RscStatus, RscStatus) {
        let status = |family: bool, needed: Offloads| {
            let enabled = family && self.settings.rsc.policy != crate::settings::RscPolicy::Off;
            let failure_reason = match (enabled, self.offloads.contains(needed | Offloads::CSUM)) {
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
        (
            status(self.settings.rsc.ipv4, Offloads::TSO4),
            status(self.settings.rsc.ipv6, Offloads::TSO6),
        )
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
    pub busy_turns: u64,
    /// Rounds that took none.
    pub idle_turns: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Frames it took.
    pub frames: u64,
    /// It does not answer.
    pub hangs: bool,
    /// Time in turns that took frames: the busy time of the queues it owned meanwhile,
    /// [`QueueInfo::busy`].
    pub busy: Nanos,
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
    /// Time of its turns that took frames, by the worker's clock: what other threads took of the
    /// core meanwhile is in it. In a stepped switch, where no time passes during a turn, the turns'
    /// work, in about a nanosecond.
    pub busy: Nanos,
    /// Frames it took; a train is one.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Entries of the port's indirection table that name the egress queue of this number.
    pub entries: usize,
    /// Whether there is another worker to move it to.
    pub movable: bool,
}

/// A port's steering as it is now, see [`crate::Rss`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RssInfo {
    /// The key in force, configured or drawn.
    pub key: Key,
    /// Egress queues.
    pub queues: usize,
    /// Those that the other side uses, the first ones.
    pub in_use: usize,
    /// The queue each entry of the indirection table names.
    pub configured: [u8; 128],
    /// The queue each entry goes to: the one it names, or if that is not in use the entry's number
    /// modulo those that are.
    pub in_force: [u8; 128],
}

/// Something a person should know. Kept as a state, not repeated per frame.
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
