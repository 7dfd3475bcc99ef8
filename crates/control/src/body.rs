//! What the API says about the running switch: written by the daemon, read by the command line and the lab.
//!
//! Settings are spelled as in the file (`mac-ageing`), facts in snake case (`ingress_frames`), and coalescing in the words of
//! `Get-NetAdapterRsc` and `Get-NetAdapterStatistics` (`IPv4OperationalState`, `CoalescedBytes`).

use crate::Problem;
use crate::config::{self, Config, PortConfig, PortRole, RscMode, Rule};
use crate::plan::Step;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
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
    /// Changed keys of `[switch]` that take effect after a restart.
    pub restart_needed: Vec<String>,
    /// The last events, oldest first.
    pub events: Vec<EventBody>,
}

/// One worker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerBody {
    /// Its number.
    pub worker: usize,
    /// The core it is pinned to.
    pub cpu: Option<usize>,
    /// Turns that found frames.
    pub busy_turns: u64,
    /// Turns that found none.
    pub idle_turns: u64,
    /// Times it slept.
    pub sleeps: u64,
    /// Frames it took.
    pub frames: u64,
}

/// Something that happened, once or several times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventBody {
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

/// One port.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PortBody {
    /// Its name.
    pub name: String,
    /// Kind and name of its device.
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
    /// VLAN mode, as in `access 10` or `trunk 10,20-30 native 1`.
    pub vlan: String,
    /// Coalescing toward the port, configured or by default.
    pub rsc: RscMode,
    /// Which worker serves which queue.
    pub queues: Vec<QueueBody>,
    /// Offloads of its egress: `csum`, `tso4`, `tso6`, `uso`, `ecn`.
    pub offloads: Vec<String>,
    /// Offloads that the kernel lacks and that are done in software.
    pub degraded: Vec<String>,
    /// The guest of a vhost-user port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<GuestBody>,
    /// Over the last second.
    pub rates: RatesBody,
    /// Its configuration.
    pub config: PortConfig,
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
    /// Queue pairs it uses; 0: its driver is not ready.
    pub queues: u16,
    /// Features the port offers, by their names in the virtio specification.
    pub offered: Vec<String>,
    /// Features that the guest's driver accepted.
    pub taken: Vec<String>,
    /// What follows from them, in words.
    pub follows: Vec<String>,
}

/// One queue of a port.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct QueueBody {
    /// The port.
    pub port: String,
    /// The queue's number.
    pub queue: usize,
    /// The worker that serves it.
    pub worker: usize,
    /// The worker's core.
    pub cpu: Option<usize>,
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

/// One port's counters since it was opened. A train counts as one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CountersBody {
    /// Frames taken from the port.
    pub ingress_frames: u64,
    /// Bytes of these frames.
    pub ingress_bytes: u64,
    /// Frames delivered to the port.
    pub egress_frames: u64,
    /// Bytes of these frames.
    pub egress_bytes: u64,
    /// Copies delivered by flooding or multicast.
    pub flooded_frames: u64,
    /// Copies delivered by a mirror.
    pub mirrored_frames: u64,
    /// Trains cut into segments for the port.
    pub segmented_trains: u64,
    /// Segments they became.
    pub segments: u64,
    /// Ingress frames with a partial checksum (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
    #[serde(default)]
    pub unfinished_checksums: u64,
    /// Addresses learned at the port that made room for another of its own.
    #[serde(default)]
    pub evicted_addresses: u64,
    /// Transport checksums completed in software for the port.
    pub checksums: u64,
    /// Frames the device lost before the switch saw them.
    pub device_lost: u64,
    /// Drops by reason.
    pub drops: BTreeMap<String, u64>,
    /// Drops for all reasons.
    pub dropped: u64,
    /// Coalescing toward the port.
    pub rsc: RscCountersBody,
}

/// Coalescing, in the words of `Get-NetAdapterStatistics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct RscCountersBody {
    /// Payload of the segments that joined a train, in bytes.
    pub coalesced_bytes: u64,
    /// Segments that joined a train that was open.
    pub coalesced_packets: u64,
    /// Trains of more than one segment.
    pub coalescing_events: u64,
    /// Exceptions that NDIS counts as such.
    pub coalescing_exceptions: u64,
    /// All reasons for which trains ended.
    pub exceptions_by_reason: BTreeMap<String, u64>,
    /// Trains by number of segments, shortest first.
    pub train_depth: Vec<DepthBody>,
}

/// Trains of one range of depths.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase")]
pub struct DepthBody {
    /// `1`, `2`, `3-4`, … `65+`.
    pub segments: String,
    /// Number of trains.
    pub trains: u64,
}

/// Coalescing toward one port, in the words of `Get-NetAdapterRsc`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RscBody {
    /// The port.
    #[serde(rename = "Name")]
    pub name: String,
    /// The rules in force.
    #[serde(rename = "Policy")]
    pub policy: RscMode,
    /// Whether it is enabled.
    #[serde(rename = "IPv4Enabled")]
    pub ipv4_enabled: bool,
    /// Whether it is enabled.
    #[serde(rename = "IPv6Enabled")]
    pub ipv6_enabled: bool,
    /// Whether it is operational.
    #[serde(rename = "IPv4OperationalState")]
    pub ipv4_operational: bool,
    /// Whether it is operational.
    #[serde(rename = "IPv6OperationalState")]
    pub ipv6_operational: bool,
    /// Why it is not operational; `NoFailure` if it is.
    #[serde(rename = "IPv4FailureReason")]
    pub ipv4_failure_reason: String,
    /// Why it is not operational; `NoFailure` if it is.
    #[serde(rename = "IPv6FailureReason")]
    pub ipv6_failure_reason: String,
    /// What was coalesced.
    #[serde(rename = "Statistics")]
    pub statistics: RscCountersBody,
}

/// The coalescing to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RscWish {
    /// By NDIS rules toward a vNIC, by GRO rules toward an uplink. For all ports at once: vNICs only.
    On,
    /// No coalescing.
    Off,
    /// NDIS rules.
    Ndis,
    /// GRO rules.
    Gro,
}

/// Body of `PUT /v1/rsc` and `PUT /v1/ports/{name}/rsc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RscChange {
    /// The rules, on, or off.
    pub policy: RscWish,
}

/// The rules of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AclBody {
    /// The port.
    pub port: String,
    /// In their order: the first that matches decides.
    pub rules: Vec<AclRuleBody>,
}

/// A rule and what it matched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AclRuleBody {
    /// Its place, from 1.
    pub number: usize,
    /// As in the file.
    #[schema(value_type = String, example = "deny in tcp to 10.0.0.0/8 port 22-23")]
    pub rule: Rule,
    /// Frames it decided about since it was added; a train is one.
    pub hits: u64,
}

/// Body of `POST /v1/ports/{name}/acl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AclAdd {
    /// As in the file.
    #[schema(value_type = String, example = "deny in tcp to 10.0.0.0/8 port 22-23")]
    pub rule: Rule,
    /// The number it gets, from 1; behind the others where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub number: Option<usize>,
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

/// Result of the health check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HealthBody {
    /// Whether there are no findings.
    pub healthy: bool,
    /// In the order of the ports.
    pub findings: Vec<Problem>,
}

/// Answer of `PUT /v1/config`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PlanBody {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Whether the steps were carried out; false for a dry run.
    pub applied: bool,
    /// The configuration in force.
    pub config: Config,
}

/// Body of `POST /v1/captures`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CaptureStart {
    /// The port.
    pub port: String,
    /// Absolute path of the pcapng file. The daemon creates it and never overwrites an existing file.
    #[schema(value_type = String)]
    pub file: PathBuf,
    /// Most bytes kept of each frame; whole frames where absent.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config::ranged::<_, _, 14, 262_144>"
    )]
    #[schema(minimum = 14, maximum = 262_144)]
    pub snaplen: Option<u32>,
    /// Ends after at least this many frames; checked once a second.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config::ranged::<_, _, 1, { i64::MAX }>"
    )]
    #[schema(minimum = 1)]
    pub count: Option<u64>,
    /// Ends after this many seconds.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "config::ranged::<_, _, 1, { i64::MAX }>"
    )]
    #[schema(minimum = 1)]
    pub seconds: Option<u64>,
}

/// State of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaptureState {
    /// It is running.
    Running,
    /// It ended as requested.
    Done,
    /// It ended early; the file holds what was written until then.
    Failed,
}

/// A capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CaptureBody {
    /// The port.
    pub port: String,
    /// The file.
    #[schema(value_type = String)]
    pub file: PathBuf,
    /// Its state.
    pub state: CaptureState,
    /// Why it failed; empty if it did not.
    pub reason: String,
    /// Frames in the file.
    pub frames: u64,
    /// Bytes they take there.
    pub bytes: u64,
    /// Frames missing from the file because the disk was too slow.
    pub missed: u64,
}
