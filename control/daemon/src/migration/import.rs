//! Imports a port from another host: adds it, or changes the port of that name to match.

use super::check::{DEVICE_KEYS, Finding, Wanted, keys, lacks, occupied};
use super::{HostExport, PortExport};
use api::body::{PortBody, RssChange, RssEntry};
use api::client::{Client, ClientError};
use config::{Device, MacAddress, PortConfig, PortName, Scale, SocketPath};
use ports::steering::ENTRIES;
use problem::Problem;
use serde::Serialize;
use serde_json::{Map, Value};

/// Restrictions on an import. The author of the file may be less trusted than the operator who
/// imports it.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The port's name; `None` for the file's.
    pub name: Option<PortName>,
    /// Import the port only as a vhost-user port at this socket.
    pub vhost_user: Option<SocketPath>,
    /// Import the port only if its guest has this address.
    pub mac: Option<MacAddress>,
    /// Change the port even if a guest runs there.
    pub force: bool,
    /// Change nothing.
    pub dry_run: bool,
}

/// What an import does, or would do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Import {
    /// The port.
    pub port: String,
    /// Whether the import was refused, with nothing changed, because this host lacks something.
    pub refused: bool,
    /// Whether this was a dry run, with nothing changed.
    pub dry_run: bool,
    /// Whether the port was added.
    pub created: bool,
    /// The keys that change; null for a removed key.
    pub changes: Map<String, Value>,
    /// Whether the indirection table changes.
    pub table: bool,
    /// What this host lacks.
    pub lacks: Vec<Finding>,
}

/// Adds or changes a port, completely or not at all.
///
/// # Errors
/// The daemon does not answer, or refuses the port, or another client changed it meanwhile.
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

/// Changes the port only if its settings are still those seen.
fn change(client: &Client, seen: &PortBody, change: Map<String, Value>) -> Result<(), ClientError> {
    let (now, tag) = client.tagged_port(&seen.name)?;
    if now.config != seen.config {
        let problem = Problem::new(format!("port {} was changed meanwhile", seen.name))
            .seen("settings that differ from those just read")
            .wanted("no other change during the import")
            .remedy("import again");
        return Err(ClientError::Refused(Box::new(problem)));
    }
    client.change_tagged_port(&seen.name, &Value::Object(change), &tag).map(drop)
}

/// Undoes what was done before the error. Returns the error, or a problem that names both if
/// undoing fails.
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
    let problem = Problem::new(format!("port {name} was imported only in part: {error}"))
        .seen(format!("undoing the change failed: {why}"))
        .wanted("the port as it was")
        .remedy(format!("correct the port; `millrace port show {name}` shows its settings"));
    ClientError::Refused(Box::new(problem))
}

/// Finds an indirection table that the port cannot have.
fn table(export: &PortExport, wanted: &Wanted<'_>) -> Option<Finding> {
    let queues = usize::from(wanted.config.queue_pairs(Scale::ONE));
    let (entries, last) = (export.table.len(), export.table.iter().max().map_or(0, |last| *last));
    let fits = [0, ENTRIES].contains(&entries) && usize::from(last) < queues;
    let problem = Problem::new("the file's indirection table does not fit its port")
        .seen(format!("{entries} entries, highest queue {last}"))
        .wanted(format!("{ENTRIES} entries, queues 0 to {}", queues - 1))
        .remedy("export the port again");
    (!fits).then(|| wanted.finding("table", problem))
}

/// Returns the changes that make the existing port like the imported one.
fn changes(config: &PortConfig, there: Option<&PortBody>) -> Map<String, Value> {
    let mut wanted = keys(config);
    let Some(there) = there else { return wanted };
    // A new MTU reopens the port.
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

/// Sets the table if it differs. Returns whether it does. With `is_absent` the port does not exist,
/// because this is a dry run.
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
    /// Returns the file with the restrictions applied.
    fn applied(&self, export: &PortExport) -> PortExport {
        let mut export = export.clone();
        if let Some(name) = &self.name {
            export.port.name = name.clone();
        }
        if let Some(socket) = &self.vhost_user {
            export.port = PortConfig {
                vhost_user: Some(socket.clone()),
                tap: None,
                veth: None,
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

    /// Returns the restrictions that the existing port or the file violates.
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
        let problem =
            Problem::new(format!("port {} on this host has a different device", wanted.name))
                .seen(there.config.device())
                .wanted(format!("vhost-user {socket}"))
                .remedy("with --as, name the port that has this socket");
        let is_it = there.config.device() == Device::VhostUser(socket);
        (!is_it).then(|| wanted.finding("kind", problem))
    }

    /// Finds a running guest: keys that reopen the port would disconnect it.
    fn guest(&self, wanted: &Wanted<'_>, there: Option<&PortBody>) -> Option<Finding> {
        if self.force { None } else { occupied(wanted, there?) }
    }

    fn address(&self, wanted: &Wanted<'_>) -> Option<Finding> {
        let mac = self.mac?.0.to_string();
        let problem = Problem::new("the file belongs to another guest")
            .seen(wanted.mac.as_deref().unwrap_or("no address"))
            .wanted(&mac)
            .remedy("export the port of the guest with this address");
        (wanted.mac.as_ref() != Some(&mac)).then(|| wanted.finding("mac", problem))
    }
}

impl Import {
    /// Returns the import as text.
    pub fn text(&self) -> String {
        if self.refused {
            let found: Vec<String> = self.lacks.iter().map(|it| it.problem.to_string()).collect();
            return found.join("\n");
        }
        let would = if self.dry_run { "would be " } else { "" };
        let mut text = match (self.created, self.changes.is_empty() && !self.table) {
            (true, _) => format!("port {} {would}added\n", self.port),
            (false, true) => format!("port {} is unchanged\n", self.port),
            (false, false) => format!("port {} {would}changed\n", self.port),
        };
        for (key, value) in self.changes.iter().filter(|(key, _)| !self.created || *key != "name") {
            let value = match key.as_str() {
                _ if value.is_null() => "removed".to_owned(),
                // The key is not shown: output may end up in logs.
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
