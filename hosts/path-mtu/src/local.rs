//! Checks one host: the MTUs of its daemon's ports, and the paths between TAPs with their other end
//! on this host, by probes.
//!
//! A TAP's address is in a network namespace that this process may enter, so it runs a responder
//! there during the check. TAPs in one VLAN and one IP network are probed against each other.

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
use std::path::PathBuf;

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
    host: Host,
    _responder: Responder,
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
        let hosts: Vec<Host> = network.iter().map(|tap| tap.host.clone()).collect();
        if hosts.len() < 2 {
            let name = &hosts.first().map(|host| host.name.clone()).unwrap_or_default();
            not_probed.push(format!("{name}: no other TAP is in its VLAN and its IP network"));
            continue;
        }
        let options = Options { mtu, may_be_apart: true, ..Options::default() };
        networks.push(check(&hosts, &options, progress)?);
    }
    let healthy = configuration.healthy && networks.iter().all(|network| network.healthy);
    Ok(LocalReport { healthy, configuration, networks, not_probed })
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
    let listed = listed.map_err(|error| format!("entering its network namespace: {error}"))?;
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
    Ok(Tap { vlan: port.vlan.clone(), address, host, _responder: responder })
}
