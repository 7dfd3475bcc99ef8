//! Receive-side scaling: shown, and changed while frames flow.
//!
//! Entries are set in the port's configured table, by the switch's thread, whether a guest is
//! connected or not. What a guest's driver sets by commands is shown beside it.

use super::Running;
use super::port::RunningPort;
use super::ports::Ports;
use super::report::Report;
use api::body::{GuestRssBody, RssBody, RssChange, RssEntry};
use config::{PortName, RssKey, RssTypes, hex};
use datapath::{GuestRss, RssInfo, Switch};
use ports::steering::ENTRIES;
use problem::Problem;
use std::time::Instant;

/// Returns how frames toward each port are spread.
pub(crate) fn bodies(report: &Report<'_>) -> Vec<RssBody> {
    report.ports.iter().map(|(name, port)| body_of(report, name, port)).collect()
}

/// Returns how frames toward one port are spread.
///
/// # Errors
/// There is no such port.
pub(crate) fn body(report: &Report<'_>, name: &str) -> Result<RssBody, Problem> {
    let (name, port) = report.ports.port(name)?;
    Ok(body_of(report, name, port))
}

fn body_of(report: &Report<'_>, name: &PortName, port: &RunningPort) -> RssBody {
    let config = &port.config;
    let info = port.open().and_then(|open| report.switch.rss(open.id).ok());
    let info = info.as_ref();
    RssBody {
        port: name.to_string(),
        steer: config.steer(),
        types: config.rss_types.unwrap_or(RssTypes(Default::default())),
        key: config.rss_key.unwrap_or(RssKey(None)),
        key_in_force: info.map(|info| hex(&info.key)),
        queues: info.map_or(0, |info| info.queues),
        queues_in_use: info.map_or(0, |info| info.in_use),
        configured: info.map_or(Vec::new(), |info| info.configured.to_vec()),
        in_force: info.map_or(Vec::new(), |info| info.in_force.to_vec()),
        guest: info.and_then(guest_of),
    }
}

/// Returns what the guest's driver has set.
fn guest_of(info: &RssInfo) -> Option<GuestRssBody> {
    let GuestRss { key, types, table, unclassified } = info.guest.clone()?;
    let (in_force, key) = (info.is_by_guest, hex(&key));
    Some(GuestRssBody { in_force, types: RssTypes(types).to_string(), key, table, unclassified })
}

impl Running {
    /// Makes one change to a port's steering; it is in force when this returns.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port, or if the steering refuses the change.
    pub(crate) fn change_rss(
        &mut self,
        name: &str,
        change: RssChange,
        now: Instant,
    ) -> Result<(), Problem> {
        self.ports.port(name)?;
        match change {
            RssChange { entries: Some(entries), equal: None, key: None, types: None } => {
                set_entries(&self.ports, &mut self.switch, name, &entries)
            }
            RssChange { entries: None, equal: Some(queues), key: None, types: None } => {
                let entries = equal_entries(&self.ports, &self.switch, name, queues)?;
                set_entries(&self.ports, &mut self.switch, name, &entries)
            }
            RssChange { entries: None, equal: None, key: Some(key), types: None } => {
                self.change(now, |ports, wanted| {
                    ports.wanted(wanted, name)?.rss_key = Some(key);
                    Ok(())
                })
            }
            RssChange { entries: None, equal: None, key: None, types: Some(types) } => {
                self.change(now, |ports, wanted| {
                    ports.wanted(wanted, name)?.rss_types = Some(types);
                    Ok(())
                })
            }
            _ => Err(Problem::new("the request does not make exactly one change")
                .seen(serde_json::to_string(&change).unwrap_or_default())
                .wanted("one of `entries`, `equal`, `key` and `types`")
                .remedy("send one request per change")),
        }
    }
}

fn set_entries(
    ports: &Ports,
    switch: &mut Switch,
    name: &str,
    entries: &[RssEntry],
) -> Result<(), Problem> {
    let id = ports.open_port(name)?.id;
    let queues = switch.queues_of(id).len();
    for RssEntry { entry, queue } in entries {
        if *entry >= ENTRIES {
            return Err(Problem::new(format!("an indirection table has no entry {entry}"))
                .seen(entry)
                .wanted("0 to 127")
                .remedy("name an entry from 0 to 127: the flow's hash modulo 128"));
        }
        if *queue >= queues {
            return Err(Problem::new(format!("port {name} has no queue {queue}"))
                .seen(queue)
                .wanted(within(queues))
                .remedy("use one of these, or raise `queues` of the port"));
        }
    }
    let entries: Vec<_> = entries.iter().map(|it| (it.entry, it.queue)).collect();
    let refused = |error: datapath::SwitchError| Problem::new(error.to_string());
    switch.set_rss_entries(id, &entries).map_err(refused)
}

/// Entries that spread frames equally over so many queues.
fn equal_entries(
    ports: &Ports,
    switch: &Switch,
    name: &str,
    count: usize,
) -> Result<Vec<RssEntry>, Problem> {
    let queues = switch.queues_of(ports.open_port(name)?.id).len();
    if !(1..=queues).contains(&count) {
        return Err(Problem::new(format!("port {name} cannot spread over {count} queues"))
            .seen(count)
            .wanted(if queues == 1 { "1".to_owned() } else { format!("1 to {queues}") })
            .remedy("use one of these, or raise `queues` of the port"));
    }
    let entry = |entry| RssEntry { entry, queue: entry % count };
    Ok((0..ENTRIES).map(entry).collect())
}

/// The numbers of so many queues.
pub(super) fn within(queues: usize) -> String {
    match queues {
        1 => "0: the port has one queue".to_owned(),
        _ => format!("0 to {}", queues.saturating_sub(1)),
    }
}
