//! A port that comes from another host: made where there is none of its name, else set to what it was there.

use super::check::{DEVICE_KEYS, Finding, Wanted, keys, lacks, occupied};
use super::{HostExport, PortExport};
use crate::Problem;
use crate::body::{PortBody, RssChange, RssEntry};
use crate::client::{Client, ClientError};
use crate::config::{MacAddress, PortConfig, PortName, SocketPath};
use ports::steering::ENTRIES;
use serde::Serialize;
use serde_json::{Map, Value};

/// What an import is held to, whatever the file says: who made the file may be trusted with less than who imports it.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The port's name; `None`: the file's.
    pub name: Option<PortName>,
    /// It is a vhost-user port at this socket, and no other device.
    pub vhost_user: Option<SocketPath>,
    /// The address of its guest.
    pub mac: Option<MacAddress>,
    /// Set the port although a guest runs there.
    pub force: bool,
    /// Change nothing.
    pub dry_run: bool,
}

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

/// Makes or sets a port: all of it or nothing.
///
/// # Errors
/// The daemon does not answer, or refuses the port, or someone changed it meanwhile.
pub fn import(client: &Client, export: &PortExport, terms: &Terms) -> Result<Import, ClientError> {
    let export = &terms.applied(export);
    let (host, dry_run) = (HostExport::of(client)?, terms.dry_run);
    let (config, name) = (&export.port, export.port.name.as_str());
    let wanted = Wanted { name, config, mac: export.mac(), needs: export.needs() };
    let there = host.port(name);
    let mut import = Import {
        port: name.to_owned(),
        dry_run,
        created: there.is_none(),
        changes: changes(config, there),
        lacks: terms
            .lacks(&wanted, there)
            .chain(table(export, &wanted))
            .chain(lacks(&wanted, &host))
            .collect(),
        ..Import::default()
    };
    import.refused = !import.lacks.is_empty();
    if import.refused {
        return Ok(import);
    }
    match there {
        _ if dry_run => {}
        None => drop(client.add_port(config)?),
        Some(_) if import.changes.is_empty() => {}
        Some(there) => change(client, there, import.changes.clone())?,
    }
    match set_table(client, export, there.is_none() && dry_run, dry_run) {
        Ok(set) => import.table = set,
        Err(error) if dry_run => return Err(error),
        Err(error) => return Err(undone(client, name, there, &import.changes, error)),
    }
    Ok(import)
}

/// Changes the port that was looked at, and not what somebody has made of it since.
fn change(client: &Client, seen: &PortBody, change: Map<String, Value>) -> Result<(), ClientError> {
    let (now, tag) = client.tagged_port(&seen.name)?;
    if now.config != seen.config {
        let problem = Problem::new(format!("port {} was changed meanwhile", seen.name))
            .seen("other settings than a moment ago")
            .wanted("a port that nobody else changes")
            .remedy("import again");
        return Err(ClientError::Refused(Box::new(problem)));
    }
    client.change_tagged_port(&seen.name, &Value::Object(change), &tag).map(drop)
}

/// Takes back what was done before the error, which is returned; with why not, where that cannot be.
fn undone(
    client: &Client,
    name: &str,
    before: Option<&PortBody>,
    changes: &Map<String, Value>,
    error: ClientError,
) -> ClientError {
    let back = match before {
        None => client.remove_port(name),
        Some(before) => {
            let before = keys(&before.config);
            let value = |key: &String| before.get(key).cloned().unwrap_or(Value::Null);
            let change = changes.keys().map(|key| (key.clone(), value(key))).collect();
            client.change_port(name, &Value::Object(change)).map(drop)
        }
    };
    let Err(why) = back else { return error };
    let problem = Problem::new(format!("port {name} was imported in part: {error}"))
        .seen(format!("taking it back failed: {why}"))
        .wanted("the port as it was")
        .remedy(format!("`millrace port show {name}` says what it has"));
    ClientError::Refused(Box::new(problem))
}

/// An indirection table that no port can have.
fn table(export: &PortExport, wanted: &Wanted<'_>) -> Option<Finding> {
    let queues = usize::from(wanted.config.queues.map_or(1, |queues| queues.0));
    let (entries, last) = (export.table.len(), export.table.iter().max().map_or(0, |last| *last));
    let fits = [0, ENTRIES].contains(&entries) && usize::from(last) < queues;
    let problem = Problem::new("the file's indirection table does not fit its port")
        .seen(format!("{entries} entries, the last queue {last}"))
        .wanted(format!("{ENTRIES} entries, queues 0 to {}", queues - 1))
        .remedy("export the port again");
    (!fits).then(|| wanted.finding("table", problem))
}

/// What makes the port there like the one that comes.
fn changes(config: &PortConfig, there: Option<&PortBody>) -> Map<String, Value> {
    let mut wanted = keys(config);
    let Some(there) = there else { return wanted };
    // A new MTU opens the port anew.
    if there.mtu == config.mtu.map(|mtu| mtu.0) && there.config.mtu.is_none() {
        wanted.remove("mtu");
    }
    let there = keys(&there.config);
    let removed = there.keys().filter(|key| !wanted.contains_key(*key));
    let removed = removed.map(|key| (key.clone(), Value::Null));
    let set = wanted.iter().filter(|(key, value)| there.get(*key) != Some(value));
    let set = set.map(|(key, value)| (key.clone(), value.clone()));
    set.chain(removed).filter(|(key, _)| !DEVICE_KEYS.contains(&key.as_str())).collect()
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

impl Terms {
    /// The file, as far as it may say what the port is.
    fn applied(&self, export: &PortExport) -> PortExport {
        let mut export = export.clone();
        if let Some(name) = &self.name {
            export.port.name = name.clone();
        }
        if let Some(socket) = &self.vhost_user {
            export.port = PortConfig {
                vhost_user: Some(socket.clone()),
                tap: None,
                packet: None,
                xdp: None,
                team: None,
                team_algorithm: None,
                team_fail_back: None,
                vhost_client: None,
                socket_mode: None,
                socket_owner: None,
                socket_group: None,
                netns: None,
                ..export.port
            };
        }
        export
    }

    /// What the port there, or the file, is not.
    fn lacks(
        &self,
        wanted: &Wanted<'_>,
        there: Option<&PortBody>,
    ) -> impl Iterator<Item = Finding> {
        let found = [self.device(wanted, there), self.guest(wanted, there), self.address(wanted)];
        found.into_iter().flatten()
    }

    fn device(&self, wanted: &Wanted<'_>, there: Option<&PortBody>) -> Option<Finding> {
        let (socket, there) = (self.vhost_user.as_ref()?, there?);
        let problem = Problem::new(format!("port {} of this host is another device", wanted.name))
            .seen(there.config.device())
            .wanted(format!("vhost-user {socket}"))
            .remedy("name the port that has this socket");
        let is_it = there.config.vhost_user.as_ref() == Some(socket);
        (!is_it).then(|| wanted.finding("kind", problem))
    }

    /// Keys that open the port anew would cut its guest off.
    fn guest(&self, wanted: &Wanted<'_>, there: Option<&PortBody>) -> Option<Finding> {
        if self.force { None } else { occupied(wanted, there?) }
    }

    fn address(&self, wanted: &Wanted<'_>) -> Option<Finding> {
        let mac = self.mac?.0.to_string();
        let problem = Problem::new("the file is of another guest")
            .seen(wanted.mac.as_deref().unwrap_or("no address"))
            .wanted(&mac)
            .remedy("export the port of the guest with this address");
        (wanted.mac.as_ref() != Some(&mac)).then(|| wanted.finding("mac", problem))
    }
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
            let value = match key.as_str() {
                _ if value.is_null() => "removed".to_owned(),
                // Output ends up in logs.
                "rss-key" => "set".to_owned(),
                _ => value.to_string(),
            };
            text += &format!("  {key}: {value}\n");
        }
        if self.table {
            text += "  indirection table\n";
        }
        text
    }
}
