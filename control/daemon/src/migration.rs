//! Files for migrating a guest to another host's switch: a port ([`PortExport`]), and what a host
//! offers ([`HostExport`]).
//!
//! [`findings`] compares a guest's host with its destination before it moves; [`import`] applies
//! the port's settings there. Both use only the API.

mod check;
mod import;

pub use check::{Finding, findings, members};
pub use import::{Import, Terms, import};

use api::body::{CountersBody, MacBody, MtuBody, PortBody, RssBody, TeamBody};
use api::client::{Client, ClientError};
use config::{MacAddress, PortConfig, PortName, PortRole, RssKey, from_value};
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The schemas of these files, with their only version.
const PORT: &str = "millrace-port/1";
const HOST: &str = "millrace-host/1";
/// Most ports in a file: far more than a switch has, and few enough to compare at once.
const PORTS_MAX: usize = 4096;

/// A port, exported to another host with its guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortExport {
    /// `millrace-port/1`.
    pub schema: String,
    /// The running settings, spelled as in the file. Values drawn at random or taken from
    /// `[switch]` are spelled out.
    pub port: PortConfig,
    /// The largest packet that leaves the source host in each of its VLANs: the destination's
    /// uplinks need not carry larger ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink_mtu: Option<u16>,
    /// VLANs in which larger packets leave the source host.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub wider_vlans: BTreeMap<u16, u16>,
    /// VLANs of the port that no uplink of the source host carries (0 for untagged).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub internal_vlans: Vec<u16>,
    /// The queue that each entry of the indirection table names; empty if the port was not open.
    pub table: Vec<u8>,
    /// The address that the guest was held to, if there is no `mac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_mac: Option<String>,
    /// The counters at the source. Counters start at 0 at the destination, so add these for a
    /// total.
    pub counters: CountersBody,
}

/// The parts of a host's switch that matter to a migrating guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostExport {
    /// `millrace-host/1`.
    pub schema: String,
    /// Its ports.
    pub ports: Vec<PortBody>,
    /// The MTUs of ports, and of the devices below them.
    pub mtu: MtuBody,
    /// The host's teams.
    pub teams: Vec<TeamBody>,
    /// Learned addresses.
    pub macs: Vec<MacBody>,
}

impl PortExport {
    /// Fetches a port from a daemon.
    ///
    /// # Errors
    /// The daemon does not answer, or has no such port.
    pub fn of(client: &Client, name: &str) -> Result<PortExport, ClientError> {
        let (port, counters) = (client.port(name)?, client.counters(name)?);
        let rss = client.rss(Some(name))?.pop();
        let table = rss.as_ref().map(|rss| rss.configured.clone()).unwrap_or_default();
        let (schema, held_mac) = (PORT.to_owned(), port.held_mac.clone());
        let carried = check::Uplinks::of(&HostExport::of(client)?).widest(&port.config);
        let (uplink_mtu, wider_vlans, internal_vlans) = by_vlan(&carried, &port.config);
        let port = in_force(&port, rss.as_ref());
        Ok(PortExport {
            schema,
            port,
            uplink_mtu,
            wider_vlans,
            internal_vlans,
            table,
            held_mac,
            counters,
        })
    }

    /// Returns the guest's address, if known.
    fn mac(&self) -> Option<String> {
        self.port.mac.map(|mac| mac.0.to_string()).or(self.held_mac.clone())
    }

    /// Returns the largest packet that uplinks must carry for the port, by VLAN. An uplink itself
    /// needs no other uplink.
    fn needs(&self) -> BTreeMap<u16, Option<u16>> {
        let vlans = check::vlans(&self.port).filter(|vlan| !self.internal_vlans.contains(vlan));
        let own = self.port.mtu.map(|mtu| mtu.0);
        let carried = |vlan: u16| self.wider_vlans.get(&vlan).copied().or(self.uplink_mtu);
        let least = |vlan| (vlan, own.map(|mtu| mtu.min(carried(vlan).unwrap_or(u16::MAX))));
        vlans.filter(|_| self.port.role() == PortRole::Vnic).map(least).collect()
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The text is not such a file, or has a key that this version does not know.
    pub fn read(text: &str) -> Result<PortExport, Problem> {
        read(text, PORT, "millrace port export NAME")
    }
}

impl HostExport {
    /// Fetches a host's export from its daemon.
    ///
    /// # Errors
    /// The daemon does not answer.
    pub fn of(client: &Client) -> Result<HostExport, ClientError> {
        Ok(HostExport {
            schema: HOST.to_owned(),
            ports: client.ports()?,
            mtu: client.mtu()?,
            teams: client.teams(None)?,
            macs: client.get("/v1/macs")?,
        })
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// The text is not such a file, or has a key that this version does not know.
    pub fn read(text: &str) -> Result<HostExport, Problem> {
        let host: HostExport = read(text, HOST, "millrace migrate export")?;
        host.check()?;
        Ok(host)
    }

    /// Refuses invalid names and addresses, because remedies contain them and are meant to be
    /// typed.
    fn check(&self) -> Result<(), Problem> {
        let refuse = |what: &str, seen: &str, wanted: &str| {
            Err(Problem::new(format!("{what} in a host's file"))
                .seen(seen)
                .wanted(wanted)
                .remedy("write the file with `millrace migrate export`"))
        };
        if self.ports.len() > PORTS_MAX {
            let (seen, wanted) = (self.ports.len().to_string(), format!("at most {PORTS_MAX}"));
            return refuse("too many ports", &seen, &wanted);
        }
        for port in &self.ports {
            if port.name.parse::<PortName>().is_err() {
                return refuse(
                    "an invalid port name",
                    &port.name,
                    "letters, digits, `.`, `_`, `-`",
                );
            }
            let macs = [&port.mac, &port.held_mac].into_iter().flatten();
            if let Some(bad) = macs.into_iter().find(|mac| mac.parse::<MacAddress>().is_err()) {
                return refuse("an invalid MAC address", bad, "six bytes in hex");
            }
        }
        Ok(())
    }

    /// Returns the port with this name.
    pub fn port(&self, name: &str) -> Option<&PortBody> {
        self.ports.iter().find(|port| port.name == name)
    }
}

/// Summarises the VLANs of a port. Returns the MTU of most VLANs, the VLANs with a larger one, and
/// the VLANs that do not leave the host.
fn by_vlan(
    carried: &BTreeMap<u16, Option<u16>>,
    config: &PortConfig,
) -> (Option<u16>, BTreeMap<u16, u16>, Vec<u16>) {
    let known = || carried.iter().filter_map(|(vlan, mtu)| Some((*vlan, (*mtu)?)));
    let least = known().map(|(_, mtu)| mtu).min();
    let wider = known().filter(|(_, mtu)| Some(*mtu) > least).collect();
    (least, wider, check::vlans(config).filter(|vlan| !carried.contains_key(vlan)).collect())
}

/// Returns the configuration with every value spelled out that could differ at another host:
/// defaults of `[switch]`, the MTU, a random key.
fn in_force(port: &PortBody, rss: Option<&RssBody>) -> PortConfig {
    let mut config = port.config.clone();
    config.rsc = Some(port.rsc);
    config.mtu = config.mtu.or(port.mtu.map(config::Mtu));
    let key = rss.and_then(|rss| rss.key_in_force.as_ref()?.parse::<RssKey>().ok());
    config.rss_key = key.or(config.rss_key);
    config
}

/// Parses a file. Reads the schema first, so that a later version is refused as such.
fn read<T: serde::de::DeserializeOwned>(
    text: &str,
    schema: &str,
    made_by: &str,
) -> Result<T, Problem> {
    let mut value: serde_json::Value = config::from_json(text.as_bytes())?;
    clean(&mut value);
    let seen = value.get("schema").and_then(serde_json::Value::as_str).unwrap_or("none");
    if seen != schema {
        return Err(Problem::new("the file has another schema")
            .seen(seen)
            .wanted(schema)
            .remedy(format!("write the file with `{made_by}` of this version")));
    }
    from_value(value)
}

/// Replaces characters in all texts of a value that could control a terminal or reorder what is
/// printed.
pub fn clean(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::String(text) => *text = plain(text),
        Value::Array(list) => list.iter_mut().for_each(clean),
        Value::Object(map) => {
            let old = std::mem::take(map).into_iter();
            map.extend(old.map(|(key, mut value)| {
                clean(&mut value);
                (plain(&key), value)
            }));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces characters that could control a terminal or reorder text.
pub fn plain(text: &str) -> String {
    let turns = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| if c.is_control() || turns(c) { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(shown).collect()
}
