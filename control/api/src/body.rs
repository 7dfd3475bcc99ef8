//! The API's view of the running switch, written by the daemon and read by the command line and the
//! lab.
//!
//! Settings are spelled as in the file (`mac-ageing`), facts in snake case (`ingress_frames`), and
//! coalescing as in `Get-NetAdapterRsc` and `Get-NetAdapterStatistics` (`IPv4OperationalState`,
//! `CoalescedBytes`).

mod acl;
mod capture;
mod counters;
mod flow;
mod health;
mod history;
mod log;
mod mtu;
mod page;
mod queue;
mod rsc;
mod rss;
mod team;
mod trace;
mod vmmq;

pub use acl::{AclAdd, AclBody, AclRuleBody};
pub use capture::{CaptureBody, CaptureStart, CaptureState};
pub use counters::{CountersBody, DepthBody, RscCountersBody};
pub use flow::{CarriedBy, FlowBody, FlowsBody};
pub use health::{FindingBody, HealthBody, Severity};
pub use history::{HistoryBody, HistoryResolution};
pub use log::{LogBody, LogChange, LogLevel};
pub use mtu::{MtuBody, MtuLinkBody, MtuPortBody};
pub use page::PageKeyBody;
pub use queue::{QueueBody, QueueMove, QueueVnicBody, WaitBody, WaitRangeBody};
pub use rsc::{RscBody, RscChange, RscSetting, SwitchRscBody, SwitchRscChange};
pub use rss::{GuestRssBody, RssBody, RssChange, RssEntry};
pub use team::{TeamBody, TeamChange, TeamHomeBody, TeamMapping, TeamMemberBody};
pub use trace::{
    TraceBody, TraceDropBody, TraceFrameBody, TraceRequest, TraceStepBody, TraceTurnBody,
};
pub use vmmq::{
    HeldBody, OrderBody, VmmqLoadBody, VmmqMoveBody, VmmqQueueBody, VmmqTableBody, VmmqWorkerBody,
};

use config::plan::Step;
use config::{Config, PortConfig, PortRole, RscMode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The switch as a whole.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SwitchBody {
    /// Version of the daemon.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Number of configured ports.
    pub ports: usize,
    /// Number of ports that carry frames.
    pub ports_up: usize,
    /// Number of learned addresses.
    pub macs: usize,
    /// The workers.
    pub workers: Vec<WorkerBody>,
    /// The restrictions on the daemon.
    pub sandbox: SandboxBody,
    /// Changed keys of `[switch]` that take effect after a restart.
    pub restart_needed: Vec<String>,
    /// The last events, oldest first.
    pub events: Vec<EventBody>,
}

/// What the daemon gave up at startup.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SandboxBody {
    /// Access to files that it does not need.
    pub files: RestrictionBody,
    /// System calls that it never makes.
    pub system_calls: RestrictionBody,
    /// The right to enter network namespaces (CAP_SYS_ADMIN), which a helper process keeps.
    pub namespaces: RestrictionBody,
}

/// A restriction that the kernel enforces.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RestrictionBody {
    /// Whether the restriction is in force.
    pub in_force: bool,
    /// The mechanism, or why it is not in force.
    pub detail: String,
}

/// One worker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerBody {
    /// Its number.
    pub worker: usize,
    /// The core it is pinned to.
    pub cpu: Option<usize>,
    /// Whether it answers. If not, its ports carry no frames.
    pub answers: bool,
    /// Turns that found frames.
    pub busy_turns: u64,
    /// Turns that found no frames.
    pub idle_turns: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Frames taken from ports.
    pub frames: u64,
    /// Nanoseconds in turns that took frames.
    pub busy_ns: u64,
    /// Nanoseconds for which it wanted to run and other programs had its processor.
    #[serde(default)]
    pub waited_ns: u64,
}

/// An event, possibly repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventBody {
    /// Increases with every event, including repetitions.
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
    /// It carries no frames for now, and recovers by itself.
    Down,
    /// Its device failed and is retried every second, or its guest must restart.
    Broken,
}

impl StateBody {
    /// Returns the name in API and tables.
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
    /// The fleet. The port is stored in the state directory and survives a restart.
    Fleet,
    /// The API. The port is stored in the state directory and survives a restart.
    Api,
}

impl Origin {
    /// Returns the name in API and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Origin::File => "file",
            Origin::Fleet => "fleet",
            Origin::Api => "api",
        }
    }

    /// Returns the words that follow "added" in a sentence.
    pub const fn by(self) -> &'static str {
        match self {
            Origin::File => "by the file",
            Origin::Fleet => "by the fleet",
            Origin::Api => "through the API",
        }
    }

    /// Returns the name in a sentence.
    pub const fn named(self) -> &'static str {
        match self {
            Origin::File => "the file",
            Origin::Fleet => "the fleet",
            Origin::Api => "the API",
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
    /// Kind and name of its device; for an open xdp port also its receive mode:
    /// `(native, zero-copy)`, `(native, copied)`, `(generic, copied)` or `(by packet)`.
    pub device: String,
    /// Which way the port faces.
    pub role: PortRole,
    /// Whether it carries frames.
    pub state: StateBody,
    /// Why it is not up; empty if it is.
    pub reason: String,
    /// Largest IP packet in bytes; absent while the device is not open.
    pub mtu: Option<u16>,
    /// The port's address: the configured one, otherwise the device's.
    pub mac: Option<String>,
    /// If the port has no address: the first from which its guest sent, to which the MAC-spoofing
    /// guard holds the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_mac: Option<String>,
    /// VLAN mode: `untagged`, or such as `access 10` or `trunk 10,20-30 native 1`.
    pub vlan: String,
    /// Coalescing toward the port, configured or by default.
    pub rsc: RscMode,
    /// The port's queues with their workers.
    pub queues: Vec<QueueBody>,
    /// Egress offloads: `csum`, `tso4`, `tso6`, `uso`, `ecn`.
    pub offloads: Vec<String>,
    /// Offloads that the kernel lacks and the switch does in software; for an xdp port its limits,
    /// or why it uses AF_PACKET.
    pub degraded: Vec<String>,
    /// How the flows of an uplink with several queues are spread over them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<SpreadBody>,
    /// The guest of a vhost-user port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestBody>,
    /// Whether the kernel carries its established flows; absent while the device is not open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_path: Option<KernelPathBody>,
    /// Rates over the last second.
    pub rates: RatesBody,
    /// Its configuration.
    pub config: PortConfig,
}

/// Whether the kernel may carry flows from and to a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KernelPathBody {
    /// Whether it may carry flows to the port.
    pub carries: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it may carry no flow from the port; absent if it may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_reason: Option<String>,
}

/// How the flows of an uplink with several queues are spread over them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "by")]
pub enum SpreadBody {
    /// By indirection tables, one per vNIC, read by an eBPF program.
    Tables,
    /// By the kernel's hash: each flow stays on its queue.
    KernelHash {
        /// Why tables are not used.
        reason: String,
    },
}

/// The guest of a vhost-user port: what was negotiated, and the consequences.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GuestBody {
    /// Whether a guest is connected.
    pub connected: bool,
    /// How often a guest has connected since the port was opened.
    pub connections: u64,
    /// Bytes of mapped guest memory.
    pub memory_bytes: u64,
    /// Number of mapped memory regions.
    #[serde(default)]
    pub memory_regions: usize,
    /// Most memory that may be mapped: `memory-limit`, or the host's memory; absent if there is no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Queue pairs that it uses; 0 if its driver is not ready.
    pub queues: u16,
    /// Features that the port offers, named as in the virtio specification.
    pub offered: Vec<String>,
    /// Features that the guest's driver accepted.
    pub taken: Vec<String>,
    /// The consequences, in words.
    pub follows: Vec<String>,
}

/// A port's traffic over the last second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RatesBody {
    /// From the port into the switch.
    pub ingress_frames_per_s: u64,
    /// From the port into the switch.
    pub ingress_bits_per_s: u64,
    /// From the switch to the port.
    pub egress_frames_per_s: u64,
    /// From the switch to the port.
    pub egress_bits_per_s: u64,
    /// Drops for all reasons.
    pub drops_per_s: u64,
}

/// A learned address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MacBody {
    /// The address.
    pub mac: String,
    /// VLAN in the switch.
    pub vlan: u16,
    /// The port on which it was learned.
    pub port: String,
    /// Seconds since it last sent a frame.
    pub age_s: u64,
}

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepOutcome {
    /// A dry run: the step would be carried out.
    Planned,
    /// The step was carried out.
    Done,
    /// The step failed, at least in part. A port that cannot be opened is retried every second.
    Failed,
}

/// A step and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StepBody {
    /// The step.
    pub plan: Step,
    /// Its outcome.
    pub outcome: StepOutcome,
    /// Why it failed; empty if it did not.
    pub reason: String,
}

impl StepBody {
    /// Returns a step of a dry run.
    pub fn planned(plan: Step) -> StepBody {
        StepBody { plan, outcome: StepOutcome::Planned, reason: String::new() }
    }

    /// Returns a step that was carried out, with its outcome.
    pub fn taken(plan: Step, result: Result<(), String>) -> StepBody {
        match result {
            Ok(()) => StepBody { plan, outcome: StepOutcome::Done, reason: String::new() },
            Err(reason) => StepBody { plan, outcome: StepOutcome::Failed, reason },
        }
    }
}

/// The files of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SourceBody {
    /// The configuration file; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The file that stores ports added through the API.
    pub state: String,
    /// Why that file lacks the newest state; empty if it is current.
    pub not_kept: String,
}

/// Answer of `PUT /v1/config` and `POST /v1/config/reload`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanBody {
    /// The steps, in order.
    pub steps: Vec<StepBody>,
    /// Whether all steps were carried out; false for a dry run.
    pub applied: bool,
    /// The tag of the running configuration, as in `ETag`.
    #[serde(default)]
    pub etag: String,
    /// The running configuration.
    pub config: Config,
}
