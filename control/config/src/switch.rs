//! `[switch]`: the switch as a whole.

use super::port::RscMode;
use super::quantity::Seconds;
use super::value::{Account, FileMode, MacEntries};
use problem::Problem;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::num::NonZero;
use std::path::PathBuf;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, OneOfBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// How an idle worker waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Poll {
    /// Keeps polling.
    Always,
    /// Polls briefly, then sleeps.
    #[default]
    Adaptive,
    /// Sleeps at once.
    Never,
}

/// Whether the kernel carries established flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KernelPathMode {
    /// Where this host and the ports allow it. Flows from a vNIC only where the kernel's programs can
    /// check what a guest says about its checksums.
    Auto,
    /// Never.
    #[default]
    Off,
}

/// Format of the log's lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The workers: by the host's processors, a count, or the core of each worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Workers {
    /// Half as many as the host has processors, 1 to 4, on any core.
    #[default]
    Auto,
    /// This many, on any core.
    Count(u16),
    /// One on each of these cores.
    Cores(Vec<u16>),
}

/// `[switch]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct SwitchConfig {
    /// The number of workers, a list of cores with one worker each, or `auto`: half as many as the
    /// daemon may use processors, 1 to 4.
    pub workers: Workers,
    /// How an idle worker waits.
    pub poll: Poll,
    /// Maximum number of learned addresses.
    #[schema(value_type = u32, minimum = 16, maximum = 1_048_576)]
    pub mac_entries: MacEntries,
    /// Time after which an address that sends no frame is forgotten.
    #[schema(example = "5min")]
    pub mac_ageing: Seconds,
    /// Socket of the API, unless the command line or the environment names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "/run/millrace/api.sock")]
    pub socket: Option<PathBuf>,
    /// Permissions of the API's socket, in octal.
    #[schema(value_type = String, pattern = "^0?[0-7]{3}$", example = "0660")]
    pub socket_mode: FileMode,
    /// Group of the API's socket. Its members may read everything except guests' frames.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "millrace")]
    pub socket_group: Option<Account>,
    /// Members of this group may change everything, like root and the daemon's own user. If it
    /// differs from `socket-group`, the socket's mode lets every user connect; the daemon refuses
    /// users in neither group.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "millrace-admin")]
    pub admin_group: Option<Account>,
    /// Directory for ports added through the API, unless the command line names one. Default: with
    /// the default socket `/var/lib/millrace` for root and `$XDG_STATE_HOME/millrace` for others,
    /// otherwise the socket's path with `.state` appended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "/var/lib/millrace")]
    pub state_directory: Option<PathBuf>,
    /// Whether the daemon, at startup, gives up access to files that it does not need, system calls
    /// that it never makes, and CAP_SYS_ADMIN, which a helper process keeps that enters the network
    /// namespaces of ports.
    pub sandbox: bool,
    /// Directories in which ports added later may have their vhost-user sockets, in addition to
    /// `/run`, the directory for temporary files and those of the sockets at startup. They must
    /// exist when the daemon starts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, example = json!(["/var/lib/vms"]))]
    pub socket_directories: Vec<PathBuf>,
    /// Format of the log's lines: text for people, or a JSON object. In systemd's journal each line
    /// has its level as priority in either case.
    pub log: LogFormat,
    /// Coalescing toward vNICs whose port has no `rsc` key.
    pub rsc: RscMode,
    /// Whether the switch coalesces at all, whatever `rsc` says here and in ports.
    pub software_rsc: bool,
    /// Whether the workers look at some of their frames, so that `millrace flows` can say who talks
    /// to whom. It takes at most 1 % of their time.
    pub flows: bool,
    /// Whether the kernel carries established TCP and UDP flows between `veth` and `packet` ports by
    /// itself, as the switch has decided them. With `off` no port is attached, whatever it says.
    pub kernel_path: KernelPathMode,
    /// Whether guests may migrate here by post-copy: they run before their memory has arrived. Only
    /// for hosts whose monitors (QEMU) can be trusted, because they can then use memory and processes
    /// of the switch.
    pub post_copy: bool,
}

impl Default for SwitchConfig {
    fn default() -> SwitchConfig {
        SwitchConfig {
            workers: Workers::Auto,
            poll: Poll::Adaptive,
            mac_entries: MacEntries(8192),
            mac_ageing: Seconds(300),
            socket: None,
            socket_mode: FileMode(0o660),
            socket_group: None,
            admin_group: None,
            state_directory: None,
            sandbox: true,
            socket_directories: Vec::new(),
            log: LogFormat::Text,
            rsc: RscMode::Ndis,
            software_rsc: true,
            flows: true,
            kernel_path: KernelPathMode::Off,
            post_copy: false,
        }
    }
}

impl SwitchConfig {
    /// Returns half of `mac-entries`: the most that one uplink may fill, so that the stations behind
    /// it leave room for those of other ports.
    pub fn half_of_macs(&self) -> u16 {
        u16::try_from(self.mac_entries.0 / 2).unwrap_or(u16::MAX)
    }
}

/// What defaults of ports depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The switch's workers.
    pub workers: u16,
    /// The processors that the daemon may use.
    pub processors: u16,
}

impl Scale {
    /// One worker on one processor.
    pub const ONE: Scale = Scale { workers: 1, processors: 1 };

    /// Returns the scale of a switch with these workers on this host.
    pub fn of(workers: &Workers) -> Scale {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let processors = u16::try_from(processors).unwrap_or(u16::MAX);
        Scale { workers: workers.count(processors), processors }
    }
}

impl Workers {
    /// Most workers of a switch.
    const MAX: i64 = 256;
    /// Most workers of a switch without the key. Each may take a core of the host's guests.
    const MAX_AUTO: u16 = 4;
    /// The value for as many as suit the host.
    const AUTO: &str = "auto";
    /// Highest core that can be named.
    const LAST_CORE: i64 = 4095;

    /// Returns how many there are on a host with so many processors.
    pub fn count(&self, processors: u16) -> u16 {
        match self {
            Workers::Auto => (processors / 2).clamp(1, Workers::MAX_AUTO),
            Workers::Count(count) => *count,
            Workers::Cores(cores) => u16::try_from(cores.len()).unwrap_or(u16::MAX),
        }
    }

    fn counted(number: i64) -> Result<Workers, Problem> {
        let count = u16::try_from(number).ok().filter(|_| (1..=Workers::MAX).contains(&number));
        count.map(Workers::Count).ok_or_else(|| Workers::wrong(number))
    }

    fn named(text: &str) -> Result<Workers, Problem> {
        (text == Workers::AUTO).then_some(Workers::Auto).ok_or_else(|| Workers::wrong(text))
    }

    fn wrong(seen: impl fmt::Display) -> Problem {
        Problem::new("not a number of workers")
            .seen(seen)
            .wanted("1 to 256, a list of cores such as [2, 3], or \"auto\"")
            .remedy("write the number of workers, or the core of each")
    }

    fn cores(cores: &[i64]) -> Result<Workers, Problem> {
        let wrong = |error: &str| {
            Problem::new(error)
                .seen(format!("{cores:?}"))
                .wanted("1 to 256 different cores from 0 to 4095")
                .remedy("name each core once; `lscpu -e` shows them")
        };
        let good = |core: &i64| (0..=Workers::LAST_CORE).contains(core);
        if cores.is_empty() || cores.len() > 256 || !cores.iter().all(good) {
            return Err(wrong("not a list of cores"));
        }
        let mut list: Vec<u16> =
            cores.iter().filter_map(|core| u16::try_from(*core).ok()).collect();
        let written = list.clone();
        list.sort_unstable();
        list.dedup();
        if list.len() != written.len() {
            return Err(wrong("a core is named twice"));
        }
        Ok(Workers::Cores(written))
    }
}

struct WorkersVisitor;

impl<'de> Visitor<'de> for WorkersVisitor {
    type Value = Workers;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a number of workers, a list of cores or \"auto\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Workers, E> {
        Workers::counted(number).map_err(|problem| E::custom(problem.pack()))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Workers, E> {
        self.visit_i64(i64::try_from(number).unwrap_or(i64::MAX))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Workers, E> {
        Workers::named(text).map_err(|problem| E::custom(problem.pack()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Workers, A::Error> {
        let mut cores = Vec::new();
        while let Some(core) = seq.next_element::<i64>()? {
            cores.push(core);
        }
        Workers::cores(&cores).map_err(|problem| A::Error::custom(problem.pack()))
    }
}

impl PartialSchema for Workers {
    fn schema() -> RefOr<Schema> {
        let number = |min: i64, max: i64| {
            ObjectBuilder::new().schema_type(Type::Integer).minimum(Some(min)).maximum(Some(max))
        };
        let cores = ArrayBuilder::new()
            .items(number(0, Workers::LAST_CORE))
            .min_items(Some(1))
            .max_items(usize::try_from(Workers::MAX).ok())
            .unique_items(true);
        let either = OneOfBuilder::new()
            .item(number(1, Workers::MAX).description(Some("this many, on any core")))
            .item(cores.description(Some("one on each of these cores")))
            .item(
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .enum_values(Some([Workers::AUTO]))
                    .description(Some("half as many as there are processors, 1 to 4")),
            );
        let what = "The workers: a count, the core of each, or as many as suit the host";
        Schema::from(either.description(Some(what))).into()
    }
}

impl ToSchema for Workers {}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Workers, D::Error> {
        input.deserialize_any(WorkersVisitor)
    }
}

impl Serialize for Workers {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        match self {
            Workers::Auto => Workers::AUTO.serialize(output),
            Workers::Count(count) => count.serialize(output),
            Workers::Cores(cores) => cores.serialize(output),
        }
    }
}
