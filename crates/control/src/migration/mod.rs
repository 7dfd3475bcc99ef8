//! What goes with a guest that moves to another host's switch, as files: a port ([`PortExport`]), and what a host offers
//! ([`HostExport`]).
//!
//! [`findings`] compares a guest at one host with another host before it moves; [`import`] gives the port its settings there. Both
//! work on what the API says, so they need nothing of the daemon that its clients cannot see.

mod check;
mod import;

pub use check::{Finding, findings};
pub use import::{Import, Terms, import};

use crate::Problem;
use crate::body::{CountersBody, MacBody, MtuBody, PortBody, RssBody, TeamBody};
use crate::client::{Client, ClientError};
use crate::config::{PortConfig, RssKey, from_value};
use serde::{Deserialize, Serialize};

/// What these files call themselves, and the one version that there is.
const PORT: &str = "millrace-port/1";
const HOST: &str = "millrace-host/1";

/// A port as it goes to another host with its guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortExport {
    /// `millrace-port/1`.
    pub schema: String,
    /// The settings in force, spelled as in the file: what is drawn or follows `[switch]` is spelled out.
    pub port: PortConfig,
    /// The largest packet that leaves its host in all its VLANs: the next one's uplinks need carry no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_mtu: Option<u16>,
    /// The queue that each entry of the indirection table names; empty: the port was not open.
    pub table: Vec<u8>,
    /// The address that its guest was held to, where `mac` does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_mac: Option<String>,
    /// What was counted at the host that it leaves: counters begin at 0 where it goes, so sums over both hosts begin with these.
    pub counters: CountersBody,
}

/// A host's switch, as far as a guest that comes or goes has to do with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostExport {
    /// `millrace-host/1`.
    pub schema: String,
    /// Its ports.
    pub ports: Vec<PortBody>,
    /// Their MTUs, and those of the devices below them.
    pub mtu: MtuBody,
    /// Its teams.
    pub teams: Vec<TeamBody>,
    /// Addresses that were learned.
    pub macs: Vec<MacBody>,
}

impl PortExport {
    /// Asks a daemon.
    ///
    /// # Errors
    /// It does not answer, or has no such port.
    pub fn of(client: &Client, name: &str) -> Result<PortExport, ClientError> {
        let (port, counters) = (client.port(name)?, client.counters(name)?);
        let rss = client.rss(Some(name))?.pop();
        let table = rss.as_ref().map(|rss| rss.configured.clone()).unwrap_or_default();
        let (schema, held_mac) = (PORT.to_owned(), port.held_mac.clone());
        let uplink_mtu = check::widest(&HostExport::of(client)?, &port.config);
        let port = in_force(&port, rss.as_ref());
        Ok(PortExport { schema, port, uplink_mtu, table, held_mac, counters })
    }

    /// The address of its guest, where it is known.
    fn mac(&self) -> Option<String> {
        self.port.mac.map(|mac| mac.0.to_string()).or(self.held_mac.clone())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is no such file, or has a key that this version does not know.
    pub fn read(text: &str) -> Result<PortExport, Problem> {
        read(text, PORT, "millrace port export NAME")
    }
}

impl HostExport {
    /// Asks a daemon.
    ///
    /// # Errors
    /// It does not answer.
    pub fn of(client: &Client) -> Result<HostExport, ClientError> {
        Ok(HostExport {
            schema: HOST.to_owned(),
            ports: client.ports()?,
            mtu: client.mtu()?,
            teams: client.teams(None)?,
            macs: client.get("/v1/macs")?,
        })
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It is no such file, or has a key that this version does not know.
    pub fn read(text: &str) -> Result<HostExport, Problem> {
        read(text, HOST, "millrace migrate export")
    }

    /// A port by its name.
    pub fn port(&self, name: &str) -> Option<&PortBody> {
        self.ports.iter().find(|port| port.name == name)
    }
}

/// The configuration, with what would be another value at another host: defaults of `[switch]`, the MTU, a key drawn at random.
fn in_force(port: &PortBody, rss: Option<&RssBody>) -> PortConfig {
    let mut config = port.config.clone();
    config.rsc = Some(port.rsc);
    config.mtu = config.mtu.or(port.mtu.map(crate::config::Mtu));
    let key = rss.and_then(|rss| rss.key_in_force.as_ref()?.parse::<RssKey>().ok());
    config.rss_key = key.or(config.rss_key);
    config
}

/// The schema first, so that a file of a later version is refused for what it is.
fn read<T: serde::de::DeserializeOwned>(
    text: &str,
    schema: &str,
    made_by: &str,
) -> Result<T, Problem> {
    let value: serde_json::Value = crate::config::from_json(text.as_bytes())?;
    let seen = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or("none");
    if seen != schema {
        return Err(Problem::new("another schema")
            .seen(seen)
            .wanted(schema)
            .remedy(format!("make the file by `{made_by}` of this version")));
    }
    from_value(value)
}
