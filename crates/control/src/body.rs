//! What the API says about the running switch: written by the daemon, read by the command line and the lab.
//!
//! Settings are spelled as in the file (`mac-ageing`), facts in snake case (`ingress_frames`), and coalescing in the words of
//! `Get-NetAdapterRsc` and `Get-NetAdapterStatistics` (`IPv4OperationalState`, `CoalescedBytes`).

mod acl;
mod capture;
mod counters;
mod health;
mod mtu;
mod queue;
mod rsc;
mod rss;
mod team;
mod trace;
mod vmmq;

pub use acl::{AclAdd, AclBody, AclRuleBody};
pub use capture::{CaptureBody, CaptureStart, CaptureState};
pub use counters::{CountersBody, DepthBody, RscCountersBody};
pub use health::{FindingBody, HealthBody, Severity};
pub use mtu::{MtuBody, MtuLinkBody, MtuPortBody};
pub use queue::{QueueBody, QueueMove, QueueVnicBody};
pub use rsc::{RscBody, RscChange, RscSetting};
pub use rss::{RssBody, RssChange, RssEntry};
pub use team::{TeamBody, TeamChange, TeamHomeBody, TeamMapping, TeamMemberBody};
pub use trace::{
    TraceBody, TraceDropBody, TraceFrameBody, TraceRequest, TraceStepBody, TraceTurnBody,
};
pub use vmmq::{
    HeldBody, OrderBody, VmmqLoadBody, VmmqMoveBody, VmmqQueueBody, VmmqTableBody, VmmqWorkerBody,
};

use crate::config::{Config, PortConfig, PortRole, RscMode};
use crate::plan::Step;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The switch as a whole.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SwitchBody {
    /// Version of the daemon.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Ports of the configuration.
    pub ports: usize,
    /// Ports that carry frames.
    pub ports_up: usize,
    /// Learned addresses.
    pub macs: usize,
    /// The workers.
    pub workers: Vec<WorkerBody>,
    /// What the daemon has given up.
    pub sandbox: SandboxBody,
    /// Changed keys of `[switch]` that take effect after a restart.
    pub restart_needed: Vec<String>,
    /// The last events, oldest first.
    pub events: Vec<EventBody>,
}

/// What the daemon has given up since it started.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxBody {
    /// Files beyond those that it needs.
    pub files: RestrictionBody,
    /// System calls that it never makes.
    pub system_calls: RestrictionBody,
}

/// Whether the kernel refuses it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RestrictionBody {
    /// Whether it does.
    pub in_force: bool,
    /// By what, or why not.
    pub detail: String,
}

/// One worker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerBody {
    /// Its number.
    pub worker: usize,
    /// The core it is pinned to.
    pub cpu: Option<usize>,
    /// Whether it answers; if not, its ports carry nothing.
    pub answers: bool,
    /// Turns that found frames.
    pub busy_turns: u64,
    /// Turns that found none.
    pub idle_turns: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Frames it took.
    pub frames: u64,
    /// Nanoseconds in turns that took frames.
    pub busy_ns: u64,
}

/// Something that happened, once or several times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventBody {
    /// Grows with each event that is noted, also with one that repeats.
    #[serde(default)]
    pub id: u64,
    /// When it last happened, in seconds since the daemon started.
    pub at_s: u64,
    /// How often it happened.
    pub count: u64,
    /// What happened.
    pub text: String,
}

/// Whether a port carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateBody {
    /// It carries frames.
    Up,
    /// It carries none for now, and recovers by itself.
    Down,
    /// Its device failed and is retried every second, or its guest must restart.
    Broken,
}

impl StateBody {
    /// The word in API and tables.
    pub const fn name(self) -> &'static str {
        match self {
            StateBody::Up => "up",
            StateBody::Down => "down",
            StateBody::Broken => "broken",
        }
    }
}

/// Where a port comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The configuration file.
    #[default]
    File,
    /// The API; it is kept in the state directory, and there again after a restart.
    Api,
}

impl Origin {
    /// The word in API and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::File => "file",
            Origin::Api => "api",
        }
    }
}

/// One port.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PortBody {
    /// Its name.
    pub name: String,
    /// Where it comes from.
    #[serde(default)]
    pub origin: Origin,
    /// Kind and name of its device; at an open xdp port also the way that its frames come: `(native, zero-copy)`, `(native,
    /// copied)`, `(generic, copied)` or `(by packet)`.
    pub device: String,
    /// Which way it faces.
    pub role: PortRole,
    /// Whether it carries frames.
    pub state: StateBody,
    /// Why it is not up; empty if it is.
    pub reason: String,
    /// Largest IP packet in bytes; absent while the device is not open.
    pub mtu: Option<u16>,
    /// The device's own address.
    pub mac: Option<String>,
    /// Without an own address: the first that its guest sent from, to which the MAC-spoofing guard holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_mac: Option<String>,
    /// VLAN mode: `untagged`, or as in `access 10` or `trunk 10,20-30 native 1`.
    pub vlan: String,
    /// Coalescing toward the port, configured or by default.
    pub rsc: RscMode,
    /// Which worker serves which queue.
    pub queues: Vec<QueueBody>,
    /// Offloads of its egress: `csum`, `tso4`, `tso6`, `uso`, `ecn`.
    pub offloads: Vec<String>,
    /// What the kernel lacks and is done in software; at an xdp port what is lost, or why it is served by AF_PACKET.
    pub degraded: Vec<String>,
    /// How the flows of an uplink with several queues are spread over them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<SpreadBody>,
    /// The guest of a vhost-user port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestBody>,
    /// Over the last second.
    pub rates: RatesBody,
    /// Its configuration.
    pub config: PortConfig,
}

/// How the flows of an uplink with several queues are spread over them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "by")]
pub enum SpreadBody {
    /// By indirection tables, one for each vNIC, that an eBPF program reads.
    Tables,
    /// By the kernel's hash: a flow keeps its queue.
    KernelHash {
        /// Why not by tables.
        reason: String,
    },
}

/// The guest of a vhost-user port: what was agreed on and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuestBody {
    /// Whether a guest is connected.
    pub connected: bool,
    /// How often one has connected since the port was opened.
    pub connections: u64,
    /// Guest memory that is mapped.
    pub memory_bytes: u64,
    /// Regions in which it is mapped.
    #[serde(default)]
    pub memory_regions: usize,
    /// Most memory that may be mapped: by `memory-limit`, or the host's own; absent where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Queue pairs it uses; 0: its driver is not ready.
    pub queues: u16,
    /// Features the port offers, by their names in the virtio specification.
    pub offered: Vec<String>,
    /// Features that the guest's driver accepted.
    pub taken: Vec<String>,
    /// What follows from them, in words.
    pub follows: Vec<String>,
}

/// A port's traffic over the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RatesBody {
    /// Into the switch.
    pub ingress_frames_per_s: u64,
    /// Into the switch.
    pub ingress_bits_per_s: u64,
    /// Out of the switch.
    pub egress_frames_per_s: u64,
    /// Out of the switch.
    pub egress_bits_per_s: u64,
    /// Drops for all reasons.
    pub drops_per_s: u64,
}

/// A learned address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MacBody {
    /// The address.
    pub mac: String,
    /// VLAN inside the switch.
    pub vlan: u16,
    /// The port at which it was learned.
    pub port: String,
    /// Seconds since it was seen.
    pub age_s: u64,
}

/// What has become of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// A dry run: it would be taken.
    Planned,
    /// It is done.
    Done,
    /// It is not, or not whole. A port that does not open is tried again every second.
    Failed,
}

/// A step, and what has become of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepBody {
    /// The step.
    pub plan: Step,
    /// What has become of it.
    pub outcome: StepOutcome,
    /// Why it failed; empty if it did not.
    pub reason: String,
}

impl StepBody {
    /// A step of a dry run.
    pub fn planned(plan: Step) -> StepBody {
        StepBody { plan, outcome: StepOutcome::Planned, reason: String::new() }
    }

    /// A step that was taken.
    pub fn taken(plan: Step, result: Result<(), String>) -> StepBody {
        match result {
            Ok(()) => StepBody { plan, outcome: StepOutcome::Done, reason: String::new() },
            Err(reason) => StepBody { plan, outcome: StepOutcome::Failed, reason },
        }
    }
}

/// Where the configuration comes from and goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceBody {
    /// The configuration file; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The file in which ports are kept that the API has added.
    pub state: String,
    /// Why the newest state is not in it; empty if it is.
    pub not_kept: String,
}

/// Answer of `PUT /v1/config` and `POST /v1/config/reload`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanBody {
    /// The steps, in order.
    pub steps: Vec<StepBody>,
    /// Whether all of them are done; false for a dry run.
    pub applied: bool,
    /// The tag of the configuration in force, as in `ETag`.
    #[serde(default)]
    pub etag: String,
    /// The configuration in force.
    pub config: Config,
}
