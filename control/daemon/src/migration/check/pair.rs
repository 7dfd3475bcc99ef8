//! Compares a port with the port of the same name at the destination.

use super::{DEVICE_KEYS, Finding, HostExport, Wanted, keys};
use crate::settings;
use api::body::{GuestBody, PortBody, StateBody};
use config::{PortConfig, Scale, from_value};
use ports::vhost::{REGIONS_OWN, REGIONS_SHARED};
use problem::Problem;
use serde_json::{Map, Value};

/// Keys that have a check of their own.
const JUDGED_KEYS: [&str; 8] =
    ["name", "mtu", "mac", "queues", "rsc", "memory-limit", "compat", "rss-key"];

/// Keys that are compared by the resulting data path settings, not by spelling: `vlan = 0` equals
/// no `vlan`.
const SETTINGS_KEYS: [&str; 24] = [
    "path-mtu",
    "role",
    "vlan",
    "trunk",
    "native",
    "mac-spoofing",
    "mac-limit",
    "storm",
    "isolated",
    "rate",
    "burst",
    "back-pressure",
    "kernel-path",
    "rsc-ipv4",
    "rsc-ipv6",
    "length-limit",
    "ack-limit",
    "flows",
    "steer",
    "rss-types",
    "dhcp-guard",
    "router-guard",
    "ip-guard",
    "acl",
];

/// The port at the source and at the destination.
pub(super) struct Pair<'p> {
    pub(super) wanted: &'p Wanted<'p>,
    pub(super) from: &'p PortBody,
    pub(super) to: &'p PortBody,
    /// The whole destination host.
    pub(super) host: &'p HostExport,
}

impl Pair<'_> {
    pub(super) fn findings(&self) -> Vec<Finding> {
        if let Some(found) = self.kind() {
            return vec![found];
        }
        let single = [
            self.state(),
            self.features(),
            self.queues(),
            self.mtu(),
            self.memory(),
            self.slots(),
            self.mac(),
            self.announced(),
            self.rsc(),
        ];
        single.into_iter().flatten().chain(self.settings()).collect()
    }

    fn finding(&self, about: &str, problem: Problem) -> Option<Finding> {
        Some(self.wanted.finding(about, problem))
    }

    fn guest(&self) -> Option<&GuestBody> {
        self.from.guest.as_ref().filter(|guest| guest.queues > 0)
    }

    fn kind(&self) -> Option<Finding> {
        if self.to.config.device().is_guest() {
            return None;
        }
        let problem = Problem::new("the destination's port is not a vhost-user port")
            .seen(self.to.config.device())
            .wanted("a vhost-user port")
            .remedy("remove the port there and add one with --vhost-user");
        self.finding("kind", problem)
    }

    fn state(&self) -> Option<Finding> {
        if self.to.state != StateBody::Broken {
            return occupied(self.wanted, self.to);
        }
        let seen = self.to.reason.clone();
        let problem = Problem::new("the destination's port cannot take a guest")
            .seen(seen)
            .wanted("a port that waits for its guest")
            .remedy("fix the reason shown: restart its guest, or let its front end reconnect");
        self.finding("state", problem)
    }

    fn features(&self) -> Option<Finding> {
        let offered = &self.to.guest.as_ref()?.offered;
        let missing = self.guest()?.taken.iter().filter(|taken| !offered.contains(taken));
        // Queue pairs and the address have their own checks.
        let missing = missing.map(String::as_str).filter(|it| !["mq", "mac"].contains(it));
        let missing: Vec<&str> = missing.collect();
        if missing.is_empty() {
            return None;
        }
        let missing = missing.join(" ");
        let problem = Problem::new("the guest has accepted features that the destination does not offer")
            .seen(format!("not offered: {missing}"))
            .wanted(&missing)
            .remedy("turn these off on QEMU's virtio-net device and reboot the guest, or run the same Millrace version with the same `compat` on both hosts");
        self.finding("features", problem)
    }

    fn queues(&self) -> Option<Finding> {
        let pairs = |port: &PortBody| port.config.queue_pairs(Scale::ONE);
        let (from, to) = (pairs(self.from), pairs(self.to));
        let problem = Problem::new("the destination's port has fewer queue pairs")
            .seen(to)
            .wanted(format!("{from} or more"))
            .remedy(format!("`millrace port set {} queues={from}` there", self.to.name));
        (to < from).then(|| self.finding("queues", problem)).flatten()
    }

    fn mtu(&self) -> Option<Finding> {
        let (from, to) = (self.from.mtu?, self.to.mtu?);
        let problem =
            Problem::new("the guest was told a larger MTU than the destination's port has")
                .seen(to)
                .wanted(from)
                .remedy(format!("`millrace port set {} mtu={from}` there", self.to.name));
        (to < from).then(|| self.finding("mtu", problem)).flatten()
    }

    /// Finds a guest with more memory than the effective limit: `memory-limit`, or the host's
    /// memory.
    fn memory(&self) -> Option<Finding> {
        let in_force = self.to.guest.as_ref().and_then(|guest| guest.memory_limit);
        let by_key = self.to.config.memory_limit.map(|limit| limit.0).filter(|limit| *limit > 0);
        let (limit, needed) = (in_force.or(by_key)?, self.from.guest.as_ref()?.memory_bytes);
        let remedy = match by_key {
            Some(_) => {
                format!(
                    "`millrace port set {} memory-limit=` there, or set a larger one",
                    self.to.name
                )
            }
            None => format!(
                "move the guest to a host with more memory, or `millrace port set {} memory-limit=0` there",
                self.to.name
            ),
        };
        let problem = Problem::new("the guest has more memory than the destination's port may map")
            .seen(format!("memory-limit {limit}"))
            .wanted(format!("{needed} bytes or more"))
            .remedy(remedy);
        (limit < needed).then(|| self.finding("memory-limit", problem)).flatten()
    }

    /// Finds a guest with more memory regions than the destination has free. Regions beyond a
    /// port's own allowance come from a pool that all ports of a host share.
    fn slots(&self) -> Option<Finding> {
        let beyond = |guest: &GuestBody| guest.memory_regions.saturating_sub(REGIONS_OWN);
        let needed = beyond(self.guest()?);
        let others = self.host.ports.iter().filter(|port| port.name != self.to.name);
        let taken: usize = others.filter_map(|port| port.guest.as_ref().map(beyond)).sum();
        let left = REGIONS_SHARED.saturating_sub(taken);
        let problem = Problem::new(
            "the guest has more memory regions than the destination has free",
        )
        .seen(format!("{left} free of the {REGIONS_SHARED} that all ports share"))
        .wanted(format!("{needed}, beyond each port's own {REGIONS_OWN}"))
        .remedy(
            "move the guest to another host, or move others away; fewer, larger memory devices need fewer regions",
        );
        (left < needed).then(|| self.finding("memory-regions", problem)).flatten()
    }

    /// Finds another address to which the destination holds the guest, and which it announces.
    fn mac(&self) -> Option<Finding> {
        let there = self.to.config.mac.map(|mac| mac.0.to_string());
        let Some(own) = self.wanted.mac.as_deref() else {
            let problem = Problem::new(
                "the destination's port holds its guest to an address; the source's does not",
            )
            .seen(there?)
            .wanted("not set")
            .remedy(format!("`millrace port set {} mac=` there", self.to.name));
            return self.finding("mac", problem);
        };
        let what = match there {
            Some(_) => "the destination's port holds its guest to another address",
            None => {
                "the destination's port has no `mac`, so the guest is neither held to it nor announced"
            }
        };
        let is_wrong = match &there {
            Some(there) => there != own,
            None => self.from.config.mac.is_some(),
        };
        let problem = Problem::new(what)
            .seen(there.as_deref().unwrap_or("not set"))
            .wanted(own)
            .remedy(format!("`millrace port set {} mac={own}` there", self.to.name));
        is_wrong.then(|| self.finding("mac", problem)).flatten()
    }

    /// Finds a guest that nothing announces. The switch announces a guest that does not announce
    /// itself, if it knows the address.
    fn announced(&self) -> Option<Finding> {
        let announces = self.guest()?.taken.iter().any(|taken| taken == "guest-announce");
        if announces || self.to.config.mac.is_some() || self.from.config.mac.is_some() {
            return None;
        }
        let own = self.wanted.mac.as_deref().unwrap_or("ADDRESS");
        let problem = Problem::new("the guest does not announce itself, and the destination's port has no `mac`")
            .seen("neither guest-announce nor mac")
            .wanted("one of them")
            .remedy(format!(
                "`millrace port set {} mac={own}` there; without it the guest is announced only if the front end sends VHOST_USER_SEND_RARP (QEMU)",
                self.to.name
            ));
        self.finding("announce", problem)
    }

    fn rsc(&self) -> Option<Finding> {
        let word = |port: &PortBody| text(serde_json::to_value(port.rsc).unwrap_or_default());
        let (from, to) = (word(self.from), word(self.to));
        let problem = Problem::new("coalescing toward the guest differs at the destination")
            .seen(&to)
            .wanted(&from)
            .remedy(format!("`millrace port set {} rsc={from}` there", self.to.name));
        (from != to).then(|| self.finding("rsc", problem)).flatten()
    }

    /// Returns whether this key's value at the destination means the same for the source's port.
    fn means_the_same(&self, key: &str) -> bool {
        let mut other = keys(&self.from.config);
        match keys(&self.to.config).remove(key) {
            Some(value) => other.insert(key.to_owned(), value),
            None => other.remove(key),
        };
        let other = from_value::<PortConfig>(Value::Object(other));
        let same = |other| settings::of_keys(&other) == settings::of_keys(&self.from.config);
        SETTINGS_KEYS.contains(&key) && other.is_ok_and(same)
    }

    /// Finds every other key that differs.
    fn settings(&self) -> Vec<Finding> {
        let (from, to) = (keys(&self.from.config), keys(&self.to.config));
        let all = from.keys().chain(to.keys().filter(|key| !from.contains_key(*key)));
        let is_compared = |key: &&String| {
            let key = key.as_str();
            !DEVICE_KEYS.contains(&key) && !JUDGED_KEYS.contains(&key)
        };
        let differs = |key: &&String| from.get(*key) != to.get(*key) && !self.means_the_same(key);
        let finding = |key: &String| {
            let value =
                |map: &Map<String, Value>| map.get(key).cloned().map_or("not set".to_owned(), text);
            let (seen, wanted) = (value(&to), value(&from));
            let set = from.get(key).cloned().map_or(String::new(), |value| word(&text(value)));
            let problem = Problem::new(format!("`{key}` of the port differs at the destination"))
                .seen(seen)
                .wanted(&wanted)
                .remedy(format!(
                    "`millrace port set {} {key}={set}` there, or `port export` and `port import`",
                    self.to.name
                ));
            self.wanted.finding(key, problem)
        };
        all.filter(is_compared).filter(differs).map(finding).collect()
    }
}

/// Finds another guest at the port.
pub(in super::super) fn occupied(wanted: &Wanted<'_>, to: &PortBody) -> Option<Finding> {
    let runs = to.guest.as_ref().is_some_and(|guest| guest.queues > 0);
    let problem = Problem::new("the destination's port cannot take a guest")
        .seen("a guest runs there")
        .wanted("a port that waits for its guest")
        .remedy("stop that guest");
    runs.then(|| wanted.finding("state", problem))
}

/// Returns a value as written on the command line.
fn text(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Array(list) => list.into_iter().map(text).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Quotes a word for a shell, because remedies are meant to be typed.
fn word(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.,:/@+".contains(&byte);
    if text.bytes().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
