//! A port that comes from another host: made where there is none of its name, else set to what it was there.

use super::check::{Finding, Wanted, keys, lacks};
use super::{HostExport, PortExport};
use crate::body::{RssChange, RssEntry};
use crate::client::{Client, ClientError};
use crate::config::PortConfig;
use serde::Serialize;
use serde_json::{Map, Value};

/// Keys that name what a host has. Where there is a port they stay.
const DEVICE: [&str; 10] = [
    "tap",
    "packet",
    "xdp",
    "team",
    "vhost-user",
    "vhost-client",
    "socket-mode",
    "socket-owner",
    "socket-group",
    "netns",
];

/// What an import does, or would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Import {
    /// The port.
    pub port: String,
    /// Something is missing at this host, and nothing was changed.
    pub refused: bool,
    /// Nothing was changed: it was only asked.
    pub dry_run: bool,
    /// There was no port of this name.
    pub created: bool,
    /// The keys that change, null where one is removed.
    pub changes: Map<String, Value>,
    /// The indirection table is set.
    pub table: bool,
    /// What is missing at this host.
    pub lacks: Vec<Finding>,
}

/// Makes or sets a port.
///
/// # Errors
/// The daemon does not answer, or refuses the port.
pub fn import(client: &Client, export: &PortExport, dry_run: bool) -> Result<Import, ClientError> {
    let host = HostExport::of(client)?;
    let (config, name) = (&export.port, export.port.name.as_str());
    let wanted = Wanted {
        name,
        config,
        mac: config.mac.map(|mac| mac.0.to_string()).or(export.held_mac.clone()),
        mtu: config.mtu.map(|mtu| mtu.0),
    };
    let there = host.port(name);
    let mut import = Import {
        port: name.to_owned(),
        dry_run,
        created: there.is_none(),
        changes: changes(config, there.map(|port| &port.config)),
        lacks: lacks(&wanted, &host),
        ..Import::default()
    };
    import.refused = !import.lacks.is_empty();
    if import.refused {
        return Ok(import);
    }
    let change = Value::Object(import.changes.clone());
    match there {
        _ if dry_run => {}
        None => drop(client.add_port(config)?),
        Some(_) if import.changes.is_empty() => {}
        Some(_) => drop(client.change_port(name, &change)?),
    }
    import.table = set_table(client, export, there.is_none() && dry_run, dry_run)?;
    Ok(import)
}

/// What makes the port there like the one that comes.
fn changes(config: &PortConfig, there: Option<&PortConfig>) -> Map<String, Value> {
    let wanted = keys(config);
    let Some(there) = there.map(keys) else { return wanted };
    let removed = there.keys().filter(|key| !wanted.contains_key(*key));
    let removed = removed.map(|key| (key.clone(), Value::Null));
    let set = wanted.iter().filter(|(key, value)| there.get(*key) != Some(value));
    let set = set.map(|(key, value)| (key.clone(), value.clone()));
    set.chain(removed).filter(|(key, _)| !DEVICE.contains(&key.as_str())).collect()
}

/// Sets the entries that differ; whether there are some. `is_absent`: the port would be there, and is not.
fn set_table(
    client: &Client,
    export: &PortExport,
    is_absent: bool,
    dry_run: bool,
) -> Result<bool, ClientError> {
    let is_plain = export.table.iter().all(|queue| *queue == 0);
    if export.table.is_empty() || is_absent {
        return Ok(!is_plain);
    }
    let name = export.port.name.as_str();
    let now = client.rss(Some(name))?.pop().map(|rss| rss.configured).unwrap_or_default();
    if now == export.table {
        return Ok(false);
    }
    let entry = |(entry, queue): (usize, &u8)| RssEntry { entry, queue: usize::from(*queue) };
    let entries = export.table.iter().enumerate().map(entry).collect();
    let change = RssChange { entries: Some(entries), ..RssChange::default() };
    if !dry_run {
        client.change_rss(name, &change)?;
    }
    Ok(true)
}

impl Import {
    /// As people read it.
    pub fn text(&self) -> String {
        if self.refused {
            let found: Vec<String> = self.lacks.iter().map(|it| it.problem.to_string()).collect();
            return found.join("\n");
        }
        let would = if self.dry_run { "would be " } else { "" };
        let mut text = match (self.created, self.changes.is_empty() && !self.table) {
            (true, _) => format!("port {} {would}added\n", self.port),
            (false, true) => format!("port {} is as it was\n", self.port),
            (false, false) => format!("port {} {would}changed\n", self.port),
        };
        for (key, value) in self.changes.iter().filter(|(key, _)| !self.created || *key != "name") {
            let value = if value.is_null() { "removed".to_owned() } else { value.to_string() };
            text += &format!("  {key}: {value}\n");
        }
        if self.table {
            text += "  indirection table\n";
        }
        text
    }
}
