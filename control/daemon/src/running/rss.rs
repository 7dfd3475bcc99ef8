//! Receive-side scaling: shown, and changed while frames flow.
//!
//! Entries are set in the port's configured table, by the switch's thread, whether a guest is
//! connected or not.

use super::steps::all_done;
use super::{OpenPort, PortDevice, Running, RunningPort};
use api::body::{RssBody, RssChange, RssEntry};
use config::{PortConfig, PortName, RssKey, RssTypes, hex};
use ports::steering::ENTRIES;
use problem::Problem;
use std::time::Instant;

impl Running {
    /// How frames toward each port are spread.
    pub fn rss_bodies(&self) -> Vec<RssBody> {
        self.ports.iter().map(|(name, port)| self.rss_body_of(name, port)).collect()
    }

    /// How frames toward one port are spread.
    pub fn rss_body(&self, name: &str) -> Result<RssBody, Problem> {
        let (name, port) = self.port(name)?;
        Ok(self.rss_body_of(name, port))
    }

    fn rss_body_of(&self, name: &PortName, port: &RunningPort) -> RssBody {
        let config = &port.config;
        let info = port.open().and_then(|open| self.switch.rss(open.id).ok());
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
        }
    }

    /// Makes one change to a port's steering; it is in force when this returns.
    pub fn change_rss(
        &mut self,
        name: &str,
        change: RssChange,
        now: Instant,
    ) -> Result<(), Problem> {
        self.port(name)?;
        match change {
            RssChange { entries: Some(entries), equal: None, key: None, types: None } => {
                self.set_rss_entries(name, &entries)
            }
            RssChange { entries: None, equal: Some(queues), key: None, types: None } => {
                self.spread_equally(name, queues)
            }
            RssChange { entries: None, equal: None, key: Some(key), types: None } => {
                self.change_config(name, now, |port| port.rss_key = Some(key))
            }
            RssChange { entries: None, equal: None, key: None, types: Some(types) } => {
                self.change_config(name, now, |port| port.rss_types = Some(types))
            }
            _ => Err(Problem::new("the request does not make exactly one change")
                .seen(serde_json::to_string(&change).unwrap_or_default())
                .wanted("one of `entries`, `equal`, `key` and `types`")
                .remedy("send one request per change")),
        }
    }

    fn set_rss_entries(&mut self, name: &str, entries: &[RssEntry]) -> Result<(), Problem> {
        let id = self.open_port(name)?.id;
        let queues = self.switch.queues_of(id).len();
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
        self.switch.set_rss_entries(id, &entries).map_err(refused)
    }

    fn spread_equally(&mut self, name: &str, count: usize) -> Result<(), Problem> {
        let id = self.open_port(name)?.id;
        let queues = self.switch.queues_of(id).len();
        if !(1..=queues).contains(&count) {
            return Err(Problem::new(format!("port {name} cannot spread over {count} queues"))
                .seen(count)
                .wanted(if queues == 1 { "1".to_owned() } else { format!("1 to {queues}") })
                .remedy("use one of these, or raise `queues` of the port"));
        }
        let entry = |entry| RssEntry { entry, queue: entry % count };
        self.set_rss_entries(name, &(0..ENTRIES).map(entry).collect::<Vec<_>>())
    }

    fn change_config(
        &mut self,
        name: &str,
        now: Instant,
        change: impl FnOnce(&mut PortConfig),
    ) -> Result<(), Problem> {
        let mut wanted = self.config.clone();
        let port = wanted.ports.iter_mut().find(|port| port.name.as_str() == name);
        port.map(change).ok_or_else(|| self.no_such_port(name))?;
        self.reload(wanted, now).and_then(|steps| all_done(&steps))
    }

    /// A port whose device is open.
    pub(super) fn open_port(&self, name: &str) -> Result<&OpenPort, Problem> {
        let (_, port) = self.port(name)?;
        match &port.device {
            PortDevice::Open(open) => Ok(open),
            PortDevice::Closed { reason, .. } => {
                Err(Problem::new(format!("port {name} is not open"))
                    .seen(reason)
                    .wanted("an open port")
                    .remedy(format!("wait: opening is retried every second; `millrace port show {name}` shows the reason")))
            }
        }
    }
}

/// The numbers of so many queues.
pub(super) fn within(queues: usize) -> String {
    match queues {
        1 => "0: the port has one queue".to_owned(),
        _ => format!("0 to {}", queues.saturating_sub(1)),
    }
}
