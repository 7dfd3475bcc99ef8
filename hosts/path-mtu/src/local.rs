//! Checks one host: the MTUs of its daemon's ports, and the paths between TAPs with their other end
//! on this host, by probes.
//!
//! A TAP's address is in a network namespace that this process may enter, so it runs a responder
//! there during the check. TAPs in one VLAN and one IP network are probed against each other, if they
//! are in different namespaces: packets between addresses of one namespace do not leave it.

use crate::attachment::Subnet;
use crate::check::{Options, Progress, check};
use crate::report::Report;
use crate::session::Host;
use crate::{Address, Responder, addresses};
use api::body::{MtuBody, MtuPortBody};
use problem::Problem;
use problem::token::Token;
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The result of checking a host.
#[derive(Clone, Debug, Serialize)]
pub struct LocalReport {
    /// Whether there are no findings.
    pub healthy: bool,
    /// The ports' configuration, with its inconsistencies.
    pub configuration: MtuBody,
    /// One report for each network of TAPs.
    pub networks: Vec<Report>,
    /// Ports that were not probed, with the reasons.
    pub not_probed: Vec<String>,
}

impl LocalReport {
    /// Returns the report as text for people.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for port in &self.configuration.ports {
            let mtu = port.mtu.map_or_else(|| "not open".to_owned(), |mtu| mtu.to_string());
            let links = port.links.iter().map(|link| format!("{} {}", link.name, link.mtu));
            let links = links.collect::<Vec<_>>().join(", ");
            let links = match port.too_big {
                0 => links,
                count => format!("{links}; {count} frames were too big for it"),
            };
            lines.push(
                format!("port {}: {mtu} ({}) {links}", port.port, port.device)
                    .trim_end()
                    .to_owned(),
            );
        }
        lines.extend(self.configuration.findings.iter().map(ToString::to_string));
        lines.extend(self.networks.iter().map(Report::text));
        lines.extend(self.not_probed.iter().map(|why| format!("not probed: {why}")));
        if self.healthy && self.networks.is_empty() {
            lines.push("nothing found in the configuration; no path was probed".to_owned());
        }
        lines.join("\n")
    }
}

/// A TAP of this host and the responder behind it.
struct Tap {
    vlan: String,
    address: Address,
    namespace: Namespace,
    host: Host,
    _responder: Responder,
}

impl Tap {
    /// Returns its network's name: the subnet, and the VLAN.
    fn network(&self) -> String {
        let subnet = Subnet { ip: self.address.ip, prefix: self.address.prefix() };
        format!("{subnet} ({})", self.vlan)
    }
}

/// A network namespace: device and number of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Namespace(u64, u64);

impl Namespace {
    fn at(path: Option<&Path>) -> io::Result<Namespace> {
        let metadata = std::fs::metadata(path.unwrap_or(Path::new("/proc/thread-self/ns/net")))?;
        Ok(Namespace(metadata.dev(), metadata.ino()))
    }
}

/// Checks this host, from its daemon's answer about MTUs.
///
/// # Errors
/// Fails if the kernel returns no random numbers.
pub fn check_host(
    configuration: MtuBody,
    mtu: Option<u16>,
    progress: Progress<'_>,
) -> Result<LocalReport, Problem> {
    let token = Token::random().map_err(|error| Problem::new("drawing a token").seen(error))?;
    let (mut taps, mut not_probed) = (Vec::new(), Vec::new());
    for port in &configuration.ports {
        match open(port, &token) {
            Ok(tap) => taps.push(tap),
            Err(why) => not_probed.push(format!("{}: {why}", port.port)),
        }
    }
    let mut networks = Vec::new();
    while let Some(first) = taps.pop() {
        let (mut network, others): (Vec<_>, Vec<_>) = taps
            .into_iter()
            .partition(|tap| tap.vlan == first.vlan && first.address.is_near(tap.address.ip));
        taps = others;
        network.push(first);
        network.sort_by(|one, other| one.host.name.cmp(&other.host.name));
        not_probed.extend(leave_out_neighbours(&mut network));
        let hosts: Vec<Host> = network.iter().map(|tap| tap.host.clone()).collect();
        if hosts.len() < 2 {
            let name = &hosts.first().map(|host| host.name.clone()).unwrap_or_default();
            not_probed.push(format!(
                "{name}: no TAP of another network namespace is in its VLAN and its IP network"
            ));
            continue;
        }
        let options = Options { mtu, may_be_apart: true, ..Options::default() };
        let name = network.first().map(Tap::network).unwrap_or_default();
        networks.push((name, check(&hosts, &options, progress)?));
    }
    let networks = named(networks);
    let healthy = configuration.healthy && networks.iter().all(|network| network.healthy);
    Ok(LocalReport { healthy, configuration, networks, not_probed })
}

/// Names the networks if there are several.
fn named(networks: Vec<(String, Report)>) -> Vec<Report> {
    let are_several = networks.len() > 1;
    let named = |(name, report): (String, Report)| {
        if are_several { report.of_network(&name) } else { report }
    };
    networks.into_iter().map(named).collect()
}

/// Leaves out TAPs that share a namespace with one before, with the reasons.
fn leave_out_neighbours(network: &mut Vec<Tap>) -> Vec<String> {
    let all: Vec<(String, Namespace)> =
        network.iter().map(|tap| (tap.host.name.clone(), tap.namespace)).collect();
    let mut reasons = Vec::new();
    network.retain(|tap| match shares_with(&all, &tap.host.name) {
        None => true,
        Some(first) => {
            reasons.push(shared(&tap.host.name, &tap.address.interface, first));
            false
        }
    });
    reasons
}

/// Returns the first port, if it is another one, in the namespace of the port with this name.
fn shares_with<'a>(all: &'a [(String, Namespace)], name: &str) -> Option<&'a str> {
    let (_, own) = all.iter().find(|(it, _)| it == name)?;
    let (first, _) = all.iter().find(|(_, namespace)| namespace == own)?;
    (first != name).then_some(first)
}

fn shared(name: &str, device: &str, first: &str) -> String {
    format!(
        "{name}: its device {device} and that of {first} are in one network namespace, where the kernel delivers packets \
         between them without sending any: move one to a namespace of its own (`millrace port set {name} netns=NAME`), or \
         check {name} against another host by `millrace mtu responder`"
    )
}

/// Starts a responder behind a port. Fails, with the reason as text, if there can be none.
fn open(port: &MtuPortBody, token: &Token) -> Result<Tap, String> {
    let Some(device) = port.device.strip_prefix("tap ") else {
        return Err(format!(
            "the other end of {} is not on this host: run `millrace mtu responder` there",
            port.device
        ));
    };
    let netns = port.netns.as_ref().map(PathBuf::from);
    let listed: io::Result<_> = ports::namespace::within(netns.as_deref(), addresses).flatten();
    let entering = |error: io::Error| format!("entering its network namespace: {error}");
    let listed = listed.map_err(entering)?;
    let namespace = Namespace::at(netns.as_deref()).map_err(entering)?;
    let is_link_local = |address: &Address| match address.ip {
        std::net::IpAddr::V4(_) => false,
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let own = |address: &Address| address.interface == device && !is_link_local(address);
    let address =
        listed.into_iter().find(own).ok_or_else(|| format!("{device} has no IP address"))?;
    let mut options = crate::Options::new(SocketAddr::new(address.ip, 0), token.clone());
    options.netns.clone_from(&netns);
    let responder = Responder::start(options)
        .map_err(|error| format!("listening on {}: {error}", address.ip))?;
    let at = format!("{token}@{}", responder.address()).parse()?;
    let host = Host { name: port.port.clone(), at, netns };
    Ok(Tap { vlan: port.vlan.clone(), address, namespace, host, _responder: responder })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It said that there was no path to check, and asked for responders.
    #[test]
    fn of_taps_in_one_namespace_the_first_is_probed() {
        let all = [("a", 1), ("b", 1), ("c", 2), ("d", 1)];
        let all: Vec<_> = all.map(|(name, it)| (name.to_owned(), Namespace(4, it))).into();
        let first: Vec<_> = all.iter().map(|(name, _)| shares_with(&all, name)).collect();
        assert_eq!(first, [None, Some("a"), None, Some("a")]);
        let said = shared("b", "tap1", "a");
        assert!(said.starts_with("b: its device tap1 and that of a are in one network namespace"));
    }

    #[test]
    fn a_namespace_is_the_same_by_each_of_its_paths() {
        let here = Namespace::at(None).unwrap();
        assert_eq!(Namespace::at(Some(Path::new("/proc/self/ns/net"))).unwrap(), here);
        let other = ports::namespace::fresh(|| Namespace::at(None).unwrap());
        assert!(other.is_err() || other.is_ok_and(|other| other != here));
        assert!(Namespace::at(Some(Path::new("/nowhere"))).is_err());
    }
}
