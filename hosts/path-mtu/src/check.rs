//! Carries out a check: connects to all responders, sorts them into networks, makes them probe the
//! planned directions, searches for the largest size that a failing direction carries, and judges
//! the results.
//!
//! Each host probes its peers one after the other, all hosts side by side and each beginning with
//! another peer, so no responder gets the probes of all hosts at once. A direction that fails is
//! probed once more with a longer timeout, when the others are done, so that a chance loss is no
//! finding.

use crate::attachment::Neighbour;
use crate::frame::{Badge, LARGEST, Outcome, SMALLEST};
use crate::judge::{Observation, usual_mtu};
use crate::networks::Places;
use crate::plan::{self, Direction};
use crate::probing::{FIRST_TIMEOUT, Probing, SEARCH_TIMEOUT, side_by_side};
use crate::report::{Checked, Found, Networks, Report};
use crate::session::{Closed, Host, Session, badge, told_by_neighbour};
use problem::Problem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options of a check.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The MTU that every direction has to carry; `None` for that of most devices of a network.
    pub mtu: Option<u16>,
    /// Number of peers of each host; `None` for all.
    pub peers: Option<usize>,
    /// The seed by which a sample of peers is drawn.
    pub seed: u64,
    /// Whether hosts may be unable to reach each other: then a direction that carries nothing is no
    /// finding.
    pub may_be_apart: bool,
}

/// Responders that are said to be in one network.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Its name, for people; `None` if it has none: then it may turn out to be several networks.
    pub name: Option<String>,
    /// Its responders.
    pub hosts: Vec<Host>,
}

/// Called with the number of directions that are done, and the number of all.
pub type Progress<'p> = &'p (dyn Fn(usize, usize) + Sync);

/// Checks all hosts against each other. They are in one network.
///
/// # Errors
/// Fails if fewer than two hosts could be reached.
pub fn check(hosts: &[Host], options: &Options, progress: Progress<'_>) -> Result<Report, Problem> {
    let badge = new_badge()?;
    let (ends, mut unchecked) = open_all(hosts, badge);
    if ends.len() < 2 {
        return Err(unchecked.into_iter().next().unwrap_or_else(too_few));
    }
    let mut part = Part::new(None, ends, options);
    let mut report = part.check(badge, options, &Counted::new(progress, part.directions.len()))?;
    report.unchecked.append(&mut unchecked);
    report.healthy &= report.unchecked.is_empty();
    Ok(report)
}

/// Checks the hosts of each network against each other.
///
/// # Errors
/// Fails if no network has two hosts that could be reached and that may probe each other.
pub fn check_networks(
    networks: &[Network],
    options: &Options,
    progress: Progress<'_>,
) -> Result<Networks, Problem> {
    let badge = new_badge()?;
    let (mut parts, mut unchecked) = (Vec::new(), Vec::new());
    for network in networks {
        let (mut found, problems) = parts_of(network, badge, options);
        if found.is_empty() && problems.is_empty() {
            unchecked.push(named(network.name.as_deref(), too_few()));
        }
        parts.append(&mut found);
        let name = network.name.as_deref();
        unchecked.extend(problems.into_iter().map(|problem| named(name, problem)));
    }
    if parts.is_empty() {
        return Err(unchecked.into_iter().next().unwrap_or_else(too_few));
    }
    let counted = Counted::new(progress, parts.iter().map(|part| part.directions.len()).sum());
    let mut reports = Vec::new();
    for part in &mut parts {
        match part.check(badge, options, &counted) {
            Ok(report) => reports.push(report),
            Err(problem) if networks.len() == 1 => return Err(problem),
            Err(problem) => unchecked.push(named(part.name.as_deref(), problem)),
        }
    }
    Ok(Networks::of(reports, unchecked))
}

fn new_badge() -> Result<Badge, Problem> {
    badge().map_err(|error| Problem::new("drawing a random number").seen(error))
}

fn too_few() -> Problem {
    Problem::new("there is no path to check")
        .seen("fewer than two hosts that answer")
        .wanted("two or more hosts")
        .remedy("name two or more responders as TOKEN@ADDRESS:PORT")
}

/// Prefixes a problem with its network.
fn named(network: Option<&str>, problem: Problem) -> Problem {
    match network {
        Some(name) => problem.at(name),
        None => problem,
    }
}

/// Counts directions that are done.
struct Counted<'p> {
    progress: Progress<'p>,
    done: AtomicUsize,
    all: usize,
}

impl<'p> Counted<'p> {
    fn new(progress: Progress<'p>, all: usize) -> Counted<'p> {
        Counted { progress, done: AtomicUsize::new(0), all }
    }

    fn step(&self) {
        (self.progress)(self.done.fetch_add(1, Ordering::Relaxed) + 1, self.all);
    }
}

/// A host and its session.
struct End<'h> {
    host: &'h Host,
    session: Session,
    address: SocketAddr,
}

impl<'h> End<'h> {
    fn open(host: &'h Host, badge: Badge) -> Result<End<'h>, Closed> {
        let session = Session::try_open(host, badge)?;
        let address = session.address();
        Ok(End { host, session, address })
    }
}

/// Connects to all hosts. Returns those that answer, and the problems of the others.
fn open_all(hosts: &[Host], badge: Badge) -> (Vec<End<'_>>, Vec<Problem>) {
    let (mut ends, mut closed) = (Vec::new(), Vec::new());
    for opened in side_by_side(hosts.iter().collect(), |host| End::open(host, badge)) {
        match opened {
            Ok(end) => ends.push(end),
            Err(it) => closed.push(it),
        }
    }
    let unchecked = closed.into_iter().map(|it| explain(it, &mut ends)).collect();
    (ends, unchecked)
}

/// Returns the problem of a host that was not reached, with what a host of its subnet says: ARP
/// tells a different VLAN from a firewall.
fn explain(closed: Closed, ends: &mut [End<'_>]) -> Problem {
    let Closed { problem, silent } = closed;
    let problem = *problem;
    let Some(silent) = silent else { return problem };
    let is_near = |end: &&mut End<'_>| {
        let subnet = end.session.attachment().subnet(end.address.ip());
        subnet.is_some_and(|subnet| subnet.has(silent.ip()))
    };
    let Some(end) = ends.iter_mut().find(is_near) else { return problem };
    let asked = end.session.probe(silent, &[SMALLEST], SEARCH_TIMEOUT);
    let state = asked.map_or(Neighbour::Unknown, |outcome| outcome.neighbour);
    told_by_neighbour(problem, &end.host.name, silent.ip(), state)
}

/// Connects to a network's hosts, and splits them into parts that probe each other. Also returns
/// the problems of those that cannot be checked.
fn parts_of<'h>(
    network: &'h Network,
    badge: Badge,
    options: &Options,
) -> (Vec<Part<'h>>, Vec<Problem>) {
    let (ends, mut unchecked) = open_all(&network.hosts, badge);
    let places = Places::of(ends.iter().map(|end| (end.address.ip(), end.session.attachment())));
    let sorted = places.sorted();
    if ends.len() > 1 {
        unchecked.extend(sorted.alone.iter().filter_map(|at| Some(alone(ends.get(*at)?))));
    }
    let is_one = sorted.networks.len() < 2;
    let mut ends: Vec<Option<End<'h>>> = ends.into_iter().map(Some).collect();
    let parts = sorted.networks.iter().map(|members| {
        let subnets = places.name(members);
        let name = match &network.name {
            name if is_one => name.clone(),
            Some(name) => Some(format!("{name} ({subnets})")),
            None => Some(subnets),
        };
        let own = members.iter().filter_map(|at| ends.get_mut(*at)?.take()).collect();
        Part::new(name, own, options)
    });
    (parts.collect(), unchecked)
}

/// Returns the problem of a host that no other may probe.
fn alone(end: &End<'_>) -> Problem {
    let subnet = end.session.attachment().subnet(end.address.ip());
    let subnet = subnet.map_or_else(|| "its subnet".to_owned(), |subnet| subnet.to_string());
    Problem::new(format!("no path of {} was probed", end.host.name))
        .seen(format!("no responder of another host in {subnet}"))
        .wanted("responders of two or more hosts in each subnet")
        .remedy(format!(
            "start `millrace mtu responder` at another host's address in {subnet}, and name it too; packets between \
             addresses of one host do not leave it"
        ))
}

/// Hosts that probe each other, and the directions in which they do.
struct Part<'h> {
    name: Option<String>,
    ends: Vec<End<'h>>,
    directions: Vec<Direction>,
}

impl<'h> Part<'h> {
    fn new(name: Option<String>, ends: Vec<End<'h>>, options: &Options) -> Part<'h> {
        let places =
            Places::of(ends.iter().map(|end| (end.address.ip(), end.session.attachment())));
        let mut directions = plan::directions(ends.len(), options.peers, options.seed);
        directions.retain(|(from, to)| places.may_pair(*from, *to));
        Part { name, ends, directions }
    }

    fn check(
        &mut self,
        badge: Badge,
        options: &Options,
        counted: &Counted<'_>,
    ) -> Result<Report, Problem> {
        let mut unchecked = Vec::new();
        let hosts = self.look_at_devices(&mut unchecked);
        let wanted = options.mtu.or_else(|| usual_mtu(hosts.iter().map(|it| it.mtu)));
        let wanted = wanted.ok_or_else(|| unchecked.first().cloned().unwrap_or_else(unknown))?;
        // A size one byte larger is probed as well, so it must be possible.
        let wanted = wanted.min(LARGEST - 1);
        let addresses: Vec<SocketAddr> = self.ends.iter().map(|end| end.address).collect();
        let ips = addresses.iter().map(|address| address.ip().to_canonical()).collect();
        let probing = Probing { addresses, wanted };
        let (observations, problems) = self.probe(&probing, badge, counted);
        unchecked.extend(problems);
        let &Options { peers, seed, may_be_apart, .. } = options;
        let network = self.name.clone();
        let found = Found {
            network,
            wanted,
            peers,
            seed,
            may_be_apart,
            hosts,
            ips,
            observations,
            unchecked,
        };
        Ok(Report::of(found))
    }

    /// Asks each host for the MTU of the device toward its first peer.
    fn look_at_devices(&mut self, unchecked: &mut Vec<Problem>) -> Vec<Checked> {
        let addresses: Vec<SocketAddr> = self.ends.iter().map(|end| end.address).collect();
        let first = |from: usize| {
            let direction = self.directions.iter().find(|direction| direction.0 == from);
            direction.and_then(|direction| addresses.get(direction.1))
        };
        let peers: Vec<_> = (0..self.ends.len()).map(first).collect();
        let looks = self.ends.iter_mut().zip(peers).collect();
        let outcomes = side_by_side(looks, |(end, to): (&mut End<'_>, Option<&SocketAddr>)| {
            let probe = |to: &SocketAddr| end.session.probe(*to, &[SMALLEST], FIRST_TIMEOUT);
            let outcome = to.map_or_else(|| Ok(Outcome::default()), probe);
            (end.host.name.clone(), end.address, end.session.attachment().clone(), outcome)
        });
        let checked = outcomes.into_iter().map(|(name, address, attachment, outcome)| {
            let outcome = outcome.unwrap_or_else(|problem| {
                unchecked.push(problem);
                Outcome::default()
            });
            let Outcome { interface, device_mtu: mtu, .. } = outcome;
            let subnet = attachment.subnet(address.ip()).map(|subnet| subnet.to_string());
            let address = address.to_string();
            Checked { name, address, interface, mtu, subnet, attachment }
        });
        checked.collect()
    }

    /// Probes the directions, and those that fail once more. All sessions stay open, since a
    /// responder acknowledges probes only while its own session is open.
    fn probe(
        &mut self,
        probing: &Probing,
        badge: Badge,
        counted: &Counted<'_>,
    ) -> (Vec<Observation>, Vec<Problem>) {
        let directions = &self.directions;
        let first = side_by_side(self.ends.iter_mut().enumerate().collect(), |(from, end)| {
            let own = directions.iter().filter(|direction| direction.0 == from);
            let peers = own.map(|direction| direction.1);
            let step = || counted.step();
            (end.host, probing.first_all(&mut end.session, from, peers, step))
        });
        let (mut kept, mut failing, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for (host, (observations, problem)) in first {
            problems.extend(problem);
            let (good, shares) = probing.split(observations);
            kept.extend(good);
            failing.extend(shares.into_iter().map(|share| (host, share)));
        }
        let search = |(host, share)| probing.search_all(&mut Session::open(host, badge)?, share);
        for searched in side_by_side(failing, search) {
            match searched {
                Ok(observations) => kept.extend(observations),
                Err(problem) => problems.push(problem),
            }
        }
        (kept, problems)
    }
}

fn unknown() -> Problem {
    Problem::new("the MTU to check is not known")
        .seen("no host with a device that refuses large packets; loopback takes any")
        .wanted("an MTU")
        .remedy("give it with --mtu, or listen on addresses of the network to check")
}
