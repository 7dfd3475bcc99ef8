//! Rules between keys and between ports, which a configuration of valid values can still break.

use super::{Config, Device, HostName, Namespace, PortConfig, PortName, PortRole, Rule};
use problem::Problem;
use std::collections::HashMap;

/// A broken rule and the key at fault, so that the reader can find its line.
pub(crate) struct Broken {
    /// The port's index in the list.
    pub(crate) port: usize,
    /// Its name.
    pub(crate) name: String,
    /// The key at fault.
    pub(crate) key: &'static str,
    problem: Problem,
}

impl Broken {
    /// Returns the problem, prefixed with the port's name.
    pub(crate) fn problem(self) -> Problem {
        self.problem.at(format!("port {}", self.name))
    }
}

/// Returns the first broken rule, in the order of the file.
pub(crate) fn broken_rule(config: &Config) -> Option<Broken> {
    let others = Others::of(config);
    config.ports.iter().enumerate().find_map(|(place, port)| {
        let (key, problem) = own_rules(port).or_else(|| others.rules(place, port))?;
        Some(Broken { port: place, name: port.name.to_string(), key, problem })
    })
}

type Fault = (&'static str, Problem);

/// Checks the rules between keys of one port.
fn own_rules(port: &PortConfig) -> Option<Fault> {
    device_rules(port)
        .or_else(|| vlan_rules(port))
        .or_else(|| acl_rules(port))
        .or_else(|| bandwidth_rules(port))
        .or_else(|| transit_rule(port))
        .or_else(|| pinned_rule(port))
}

/// Checks that only an uplink has `transit`.
fn transit_rule(port: &PortConfig) -> Option<Fault> {
    let is_vnic = port.transit.is_some() && port.role() == PortRole::Vnic;
    is_vnic.then(|| ("transit", needs("transit", "role = \"uplink\"", "remove it")))
}

/// Checks that only a vNIC is pinned to a member of a team.
fn pinned_rule(port: &PortConfig) -> Option<Fault> {
    let member = port.team_member.as_ref().filter(|_| port.role() == PortRole::Uplink)?;
    let problem = Problem::new("an uplink cannot be pinned to a member of a team")
        .seen(member)
        .wanted("team-member on vNICs only: their frames leave by that member")
        .remedy("remove team-member here, and set it on a vNIC");
    Some(("team-member", problem))
}

fn bandwidth_rules(port: &PortConfig) -> Option<Fault> {
    if port.burst.is_some() && port.rate.is_none() {
        return Some(("burst", needs("burst", "rate", "add a rate such as \"1Gbit\"")));
    }
    let weight = port.weight.filter(|_| port.role() == PortRole::Uplink)?;
    let problem = Problem::new("an uplink cannot have a weight")
        .seen(weight.0)
        .wanted("weight on vNICs only: they share the uplinks by it")
        .remedy("remove weight here, and set it on the vNICs");
    Some(("weight", problem))
}

fn device_rules(port: &PortConfig) -> Option<Fault> {
    let devices: Vec<_> = port.devices().collect();
    match devices.as_slice() {
        [] => {
            let problem = Problem::new("the port names no device")
                .seen("no device key")
                .wanted("one of tap, veth, packet, xdp, team and vhost-user")
                .remedy("add tap = \"NAME\", veth = \"NAME\" or vhost-user = \"/PATH\" for a guest, packet = \"NAME\", xdp = \"NAME\" or team = [\"NAME\", ...] for an uplink");
            return Some(("name", problem));
        }
        [_] => {}
        [one, other, ..] => return Some((other.key(), excludes(one.key(), other.key()))),
    }
    let device = port.device();
    if port.promiscuous.is_some() && !device.is_interface() {
        return Some(("promiscuous", needs("promiscuous", "packet or xdp", "remove it")));
    }
    if port.napi.is_some() && !matches!(device, Device::Tap(_)) {
        return Some(("napi", needs("napi", "tap", "remove it")));
    }
    mtu_rule(port).or_else(|| team_rules(port)).or_else(|| socket_rules(port))
}

/// Largest IP packet that every kernel device carries as a frame.
const JUMBO: u16 = 9216;

fn mtu_rule(port: &PortConfig) -> Option<Fault> {
    let mtu = port.mtu.filter(|mtu| !port.device().is_guest() && mtu.0 > JUMBO)?;
    let problem = Problem::new("mtu is too large for a kernel device")
        .seen(mtu.0)
        .wanted(format!("68 to {JUMBO}; up to 65535 on a vhost-user port"))
        .remedy(format!("set mtu = {JUMBO} or less"));
    Some(("mtu", problem))
}

/// Checks the rules of keys that concern a team or one of its members.
fn team_rules(port: &PortConfig) -> Option<Fault> {
    let Device::Team(members) = port.device() else {
        let keys = [
            ("team-algorithm", port.team_algorithm.is_some()),
            ("team-fail-back", port.team_fail_back.is_some()),
        ];
        let (key, _) = keys.into_iter().find(|(_, said)| *said)?;
        return Some((key, needs(key, "team", "remove it")));
    };
    if port.queues.is_some() {
        return Some(("queues", excludes("team", "queues")));
    }
    if port.team_member.is_some() {
        return Some(("team-member", excludes("team", "team-member")));
    }
    let is_repeated = |(place, name): &(usize, &HostName)| {
        members.iter().take(*place).any(|other| other == *name)
    };
    let problem = if let Some((_, name)) = members.iter().enumerate().find(is_repeated) {
        Problem::new("a team has a member twice").seen(name).wanted("each member once")
    } else if !(1..=8).contains(&members.len()) {
        Problem::new("a team has too few or too many members").seen(members.len()).wanted("1 to 8")
    } else {
        return None;
    };
    Some(("team", problem.remedy("correct the members; `ip link` lists network devices")))
}

/// Checks the rules of keys that concern a vhost-user socket, or one that the switch creates.
fn socket_rules(port: &PortConfig) -> Option<Fault> {
    let of_created = [
        ("socket-mode", port.socket_mode.is_some()),
        ("socket-owner", port.socket_owner.is_some()),
        ("socket-group", port.socket_group.is_some()),
    ];
    if port.device().is_guest() {
        if port.netns.is_some() {
            return Some(("netns", excludes("vhost-user", "netns")));
        }
        // The listening side creates the socket.
        let (key, _) = of_created.into_iter().find(|(_, said)| *said)?;
        return port.vhost_client?.then(|| (key, excludes("vhost-client", key)));
    }
    let of_any = [
        ("vhost-client", port.vhost_client.is_some()),
        ("memory-limit", port.memory_limit.is_some()),
        ("compat", port.compat.is_some()),
        ("follow-uplink", port.follow_uplink.is_some()),
    ];
    let (key, _) = of_any.into_iter().chain(of_created).find(|(_, said)| *said)?;
    Some((key, needs(key, "vhost-user", "remove it")))
}

fn vlan_rules(port: &PortConfig) -> Option<Fault> {
    if port.vlan.is_some() && port.trunk.is_some() {
        return Some(("trunk", excludes("vlan", "trunk")));
    }
    if port.native.is_some() && port.trunk.is_none() {
        return Some(("native", needs("native", "trunk", "use vlan = N for an access port")));
    }
    None
}

/// Checks the rules of the ACL. The second of two equal ones never matches.
fn acl_rules(port: &PortConfig) -> Option<Fault> {
    let earlier = |place| port.acl.get(..place).unwrap_or_default();
    let repeated = port.acl.iter().enumerate().find(|(place, rule)| earlier(*place).contains(rule));
    if let Some((_, rule)) = repeated {
        let problem = Problem::new("a rule is repeated")
            .seen(rule)
            .wanted("each rule once")
            .remedy("remove the second, which never matches: the first match wins");
        return Some(("acl", problem));
    }
    let out = port.acl.iter().filter(|rule| rule.is_out()).count();
    let count = out.max(port.acl.len() - out);
    (count > Rule::MAX).then(|| {
        let problem = Problem::new("too many rules")
            .seen(format!("{count} in one direction"))
            .wanted(format!("at most {}", Rule::MAX))
            .remedy("combine rules by prefixes and port ranges");
        ("acl", problem)
    })
}

/// The ports of a configuration, for the rules between them.
struct Others<'c> {
    config: &'c Config,
    /// The first port of each name, by its place.
    names: HashMap<&'c PortName, usize>,
    /// The first port of each device.
    devices: HashMap<(Option<&'c Namespace>, String), usize>,
}

impl<'c> Others<'c> {
    fn of(config: &'c Config) -> Others<'c> {
        let (mut names, mut devices) = (HashMap::new(), HashMap::new());
        for (place, port) in config.ports.iter().enumerate() {
            names.entry(&port.name).or_insert(place);
            for device in port.device().names() {
                devices.entry((port.netns.as_ref(), device)).or_insert(place);
            }
        }
        Others { config, names, devices }
    }

    /// Checks the rules between a port and the others.
    fn rules(&self, place: usize, port: &PortConfig) -> Option<Fault> {
        if self.names.get(&port.name).is_some_and(|first| *first < place) {
            let problem = Problem::new("the name is used twice")
                .seen(&port.name)
                .wanted("a different name for each port")
                .remedy("rename one of the two ports");
            return Some(("name", problem));
        }
        let firsts = port.device().names().into_iter();
        let firsts = firsts.filter_map(|name| self.devices.get(&(port.netns.as_ref(), name)));
        let first = firsts.min().filter(|first| **first < place);
        if let Some(other) = first.and_then(|first| self.config.ports.get(*first)) {
            let problem = Problem::new("its device belongs to another port")
                .seen(format!("{}, the device of port {}", port.device(), other.name))
                .wanted("a different device for each port")
                .remedy("name another device, or remove one of the two ports");
            return Some((port.device().key(), problem));
        }
        member_rule(self.config, port).or_else(|| self.mirror_rule(port))
    }

    fn mirror_rule(&self, port: &PortConfig) -> Option<Fault> {
        let target = port.mirror_to.as_ref()?;
        let problem = if *target == port.name {
            Problem::new("mirrors to itself").seen(target).wanted("another port")
        } else if !self.names.contains_key(target) {
            Problem::new("mirrors to a port that does not exist")
                .seen(target)
                .wanted(format!("one of {}", names(self.config, port)))
        } else {
            return None;
        };
        Some(("mirror-to", problem.remedy("name another port, or remove mirror-to")))
    }
}

fn member_rule(config: &Config, port: &PortConfig) -> Option<Fault> {
    let name = port.team_member.as_ref()?;
    let members: Vec<String> = config.ports.iter().flat_map(PortConfig::members).collect();
    (!members.iter().any(|member| member == name.as_str())).then(|| {
        let wanted = if members.is_empty() {
            "a member of a team (there are no teams)".into()
        } else {
            members.join(", ")
        };
        let problem = Problem::new("it is pinned to a member that no team has")
            .seen(name)
            .wanted(wanted)
            .remedy("name a member of a team, or remove team-member");
        ("team-member", problem)
    })
}

fn names(config: &Config, but: &PortConfig) -> String {
    let names: Vec<&str> = config
        .ports
        .iter()
        .filter(|port| port.name != but.name)
        .map(|port| port.name.as_str())
        .collect();
    if names.is_empty() { "another port (there are none)".to_owned() } else { names.join(", ") }
}

fn excludes(one: &str, other: &str) -> Problem {
    Problem::new(format!("{one} and {other} exclude each other"))
        .seen("both")
        .wanted("one of them")
        .remedy(format!("remove {one} or {other}"))
}

fn needs(key: &str, needed: &str, remedy: &str) -> Problem {
    Problem::new(format!("{key} has no effect without {needed}"))
        .seen(format!("{key} alone"))
        .wanted(format!("{key} with {needed}"))
        .remedy(remedy)
}
