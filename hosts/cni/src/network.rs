//! The network's configuration as a runtime passes it at standard input. It is not trusted: each
//! name that is used in a path, as a program or by the switch is checked here.

use crate::attachment::{Attachment, is_identifier};
use crate::error::CniError;
use crate::outcome::Outcome;
use crate::request::Command;
use config::{HostName, MacAddress, PortConfig};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::path::PathBuf;

/// A supported version of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.3.0
    V0_3_0,
    /// 0.3.1
    V0_3_1,
    /// 0.4.0: CHECK.
    V0_4_0,
    /// 1.0.0: addresses without a version.
    V1_0_0,
    /// 1.1.0: STATUS and GC.
    V1_1_0,
}

impl Version {
    /// All supported versions.
    pub const ALL: [Version; 5] =
        [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0, Version::V1_0_0, Version::V1_1_0];

    /// Returns the version as it is written in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Version::V0_3_0 => "0.3.0",
            Version::V0_3_1 => "0.3.1",
            Version::V0_4_0 => "0.4.0",
            Version::V1_0_0 => "1.0.0",
            Version::V1_1_0 => "1.1.0",
        }
    }

    /// Whether this version has a command.
    pub(crate) fn has(self, command: Command) -> bool {
        self >= match command {
            Command::Add | Command::Del | Command::Version => Version::V0_3_0,
            Command::Check => Version::V0_4_0,
            Command::Status | Command::Gc => Version::V1_1_0,
        }
    }
}

/// The version of answers if the configuration's own version cannot be read.
const UNREADABLE: &str = "1.1.0";

/// Returns the version as it is written, for answers about a configuration that cannot be read
/// otherwise.
pub(crate) fn version_of(text: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(rename = "cniVersion")]
        version: String,
    }
    let read = strict::from_json::<Versioned>(text).map(|written| written.version);
    read.unwrap_or_else(|_| UNREADABLE.to_owned())
}

/// The kind of device that a pod's interface is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Device {
    /// A TAP device, the default: frames pass one kernel device.
    #[default]
    Tap,
    /// One end of a veth pair, which outlives the daemon.
    Veth,
}

impl Device {
    /// Returns the key of the port that names the device.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Device::Tap => "tap",
            Device::Veth => "veth",
        }
    }
}

/// The configuration as it is written. Keys that are not read here belong to the runtime.
#[derive(Deserialize)]
struct Written {
    #[serde(rename = "cniVersion", default = "oldest")]
    version: String,
    name: String,
    #[serde(default)]
    socket: Option<PathBuf>,
    #[serde(default)]
    device: Device,
    #[serde(default)]
    mtu: Option<Value>,
    #[serde(default)]
    port: Map<String, Value>,
    #[serde(default)]
    ipam: Option<Map<String, Value>>,
    #[serde(default)]
    dns: Option<Map<String, Value>>,
    #[serde(rename = "runtimeConfig", default)]
    runtime: Option<RuntimeConfig>,
    #[serde(rename = "prevResult", default)]
    previous: Option<Outcome>,
    #[serde(rename = "cni.dev/valid-attachments", default, deserialize_with = "listed")]
    valid: Option<Vec<Valid>>,
}

/// Returns the version of a configuration without one, by the specification.
fn oldest() -> String {
    "0.1.0".to_owned()
}

/// Reads a list that is present. Runtimes in Go write an empty one as null.
fn listed<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<Valid>>, D::Error> {
    Ok(Some(Option::deserialize(input)?.unwrap_or_default()))
}

/// Settings that a runtime adds for one pod.
#[derive(Default, Deserialize)]
struct RuntimeConfig {
    #[serde(default)]
    mac: Option<MacAddress>,
    #[serde(default)]
    bandwidth: Option<Bandwidth>,
}

/// A pod's limits, as seen from the pod: *ingress* is what it receives. Rates are in bits per
/// second, bursts in bits; 0 is no limit.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Bandwidth {
    ingress_rate: u64,
    egress_rate: u64,
    egress_burst: u64,
}

impl Bandwidth {
    /// The least burst that stands for "any": runtimes that are given a rate alone pass 2^31 - 1 or
    /// 2^32 - 1 bits. As a burst it would let minutes of traffic pass at a low rate.
    const ANY_BURST: u64 = (1 << 31) - 1;

    /// Sets the keys of the port. They replace those of the network.
    fn limit(&self, port: &mut Map<String, Value>) {
        if self.ingress_rate > 0 {
            port.insert("rate-to".to_owned(), self.ingress_rate.into());
        }
        if self.egress_rate > 0 {
            port.insert("rate".to_owned(), self.egress_rate.into());
            port.remove("burst");
            if (1..Bandwidth::ANY_BURST).contains(&self.egress_burst) {
                port.insert("burst".to_owned(), self.egress_burst.div_ceil(8).into());
            }
        }
    }
}

#[derive(Deserialize)]
struct Valid {
    #[serde(rename = "containerID")]
    container: String,
    ifname: HostName,
}

/// A network's configuration.
#[derive(Debug)]
pub struct Network {
    /// The version of answers.
    pub version: Version,
    /// Its name.
    pub name: String,
    /// The daemon's socket; `None` for the default path.
    pub socket: Option<PathBuf>,
    /// What a pod's interface is.
    pub device: Device,
    /// Keys of the port, as in the configuration file.
    pub port: Map<String, Value>,
    /// The MAC address that the runtime wants for this pod.
    pub mac: Option<MacAddress>,
    /// The IPAM plugin's name; `None` if the interface gets no address.
    pub ipam: Option<String>,
    /// Name servers of the network, in place of the IPAM plugin's. May be empty.
    pub(crate) dns: Map<String, Value>,
    /// The result of earlier plugins in the chain, or of ADD.
    pub(crate) previous: Option<Outcome>,
    /// Attachments that still exist, for GC.
    pub valid: Option<Vec<Attachment>>,
    /// The whole text, for the IPAM plugin.
    pub text: Vec<u8>,
}

impl Network {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// Fails if the text is not JSON of the right shape, the version is not supported, or a name in
    /// it is not valid.
    pub fn read(text: Vec<u8>) -> Result<Network, CniError> {
        let written: Written = strict::from_json(&text).map_err(|error| {
            CniError::new(CniError::DECODING, "the network's configuration cannot be read", error)
        })?;
        let version = version(&written.version)?;
        if !is_identifier(&written.name) {
            let wanted =
                format!("{:?}: letters, digits, `.`, `_` and `-` are wanted", written.name);
            return Err(CniError::new(CniError::NETWORK, "not a network's name", wanted));
        }
        let valid = written.valid.map(|valid| attachments(&written.name, valid)).transpose()?;
        let runtime = written.runtime.unwrap_or_default();
        let mut port = port(written.port, written.mtu)?;
        runtime.bandwidth.unwrap_or_default().limit(&mut port);
        Ok(Network {
            version,
            socket: written.socket,
            device: written.device,
            port,
            mac: runtime.mac,
            dns: written.dns.unwrap_or_default(),
            ipam: written.ipam.as_ref().and_then(|ipam| plugin(ipam).transpose()).transpose()?,
            previous: written.previous,
            valid,
            name: written.name,
            text,
        })
    }
}

fn version(written: &str) -> Result<Version, CniError> {
    Version::ALL.into_iter().find(|version| version.name() == written).ok_or_else(|| {
        let all = Version::ALL.map(Version::name).join(", ");
        let told = format!("{written:?}; this plugin has {all}");
        CniError::new(CniError::VERSION, "cniVersion is not supported", told)
    })
}

/// Returns the name of a program in `CNI_PATH`, which is never a path; `None` if `ipam` is empty.
fn plugin(ipam: &Map<String, Value>) -> Result<Option<String>, CniError> {
    if ipam.is_empty() {
        return Ok(None);
    }
    match ipam.get("type").and_then(Value::as_str) {
        Some(name) if is_identifier(name) => Ok(Some(name.to_owned())),
        other => {
            let told = format!("{other:?}: a name such as \"host-local\" is wanted");
            Err(CniError::new(CniError::NETWORK, "ipam has no usable type", told))
        }
    }
}

/// Keys of a port that only the plugin sets, beside those of the device: they differ between pods,
/// or choose the kind of port.
const OURS: [&str; 5] = ["name", "team", "team-algorithm", "team-fail-back", "mac"];

fn is_ours(key: &str) -> bool {
    OURS.contains(&key) || PortConfig::names_device(key)
}

fn port(mut keys: Map<String, Value>, mtu: Option<Value>) -> Result<Map<String, Value>, CniError> {
    if let Some(key) = keys.keys().find(|key| is_ours(key)) {
        let told = "the plugin sets this key; runtimeConfig.mac sets a pod's MAC address";
        return Err(CniError::new(CniError::NETWORK, format!("port has the key {key:?}"), told));
    }
    match mtu {
        Some(_) if keys.contains_key("mtu") => {
            let told = "remove one of them";
            return Err(CniError::new(CniError::NETWORK, "mtu is set twice, also in port", told));
        }
        Some(mtu) => keys.insert("mtu".to_owned(), mtu),
        None => None,
    };
    Ok(keys)
}

fn attachments(network: &str, valid: Vec<Valid>) -> Result<Vec<Attachment>, CniError> {
    valid
        .into_iter()
        .map(|valid| {
            if is_identifier(&valid.container) {
                return Ok(Attachment::new(network, &valid.container, valid.ifname));
            }
            let told = format!("{:?}", valid.container);
            Err(CniError::new(CniError::NETWORK, "not a container's id", told))
        })
        .collect()
}
