//! Carries out a check: connects to all responders, makes them probe the planned directions,
//! searches for the largest size that a failing direction carries, and judges the results.
//!
//! Each host probes its peers one after the other, all hosts side by side and each beginning with
//! another peer, so no responder gets the probes of all hosts at once. A direction that fails is
//! probed once more with a longer timeout, when the others are done, so that a chance loss is no
//! finding.

use crate::frame::{Badge, LARGEST, Outcome, SMALLEST};
use crate::judge::{Observation, usual_mtu};
use crate::plan::{self, Direction};
use crate::probing::{FIRST_TIMEOUT, Probing, side_by_side};
use crate::report::{Checked, Found, Report};
use crate::session::{Host, Session, badge};
use problem::Problem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Options of a check.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The MTU that every direction has to carry; `None` for that of most devices.
    pub mtu: Option<u16>,
    /// Number of peers of each host; `None` for all.
    pub peers: Option<usize>,
    /// The seed by which a sample of peers is drawn.
    pub seed: u64,
    /// Whether hosts may be unable to reach each other: then a direction that carries nothing is no
    /// finding.
    pub may_be_apart: bool,
}

/// Called with the number of directions that are done, and the number of all.
pub type Progress<'p> = &'p (dyn Fn(usize, usize) + Sync);

/// Checks all hosts against each other.
///
/// # Errors
/// Fails if fewer than two hosts could be reached.
pub fn check(hosts: &[Host], options: &Options, progress: Progress<'_>) -> Result<Report, Problem> {
    let badge = badge().map_err(|error| Problem::new("drawing a random number").seen(error))?;
    let (mut ends, mut unchecked) = (Vec::new(), Vec::new());
    for opened in side_by_side(hosts.iter().collect(), |host| End::open(host, badge)) {
        match opened {
            Ok(end) => ends.push(end),
            Err(problem) => unchecked.push(problem),
        }
    }
    if ends.len() < 2 {
        return Err(unchecked.into_iter().next().unwrap_or_else(too_few));
    }
    let checked = look_at_devices(&mut ends, &mut unchecked);
    let wanted = options.mtu.or_else(|| usual_mtu(checked.iter().map(|it| it.mtu)));
    let wanted = wanted.ok_or_else(|| unchecked.first().cloned().unwrap_or_else(too_few))?;
    // A size one byte larger is probed as well, so it must be possible.
    let wanted = wanted.min(LARGEST - 1);
    let directions = plan::directions(ends.len(), options.peers, options.seed);
    let addresses: Vec<SocketAddr> = ends.iter().map(|end| end.address).collect();
    let ips = addresses.iter().map(|address| address.ip().to_canonical()).collect();
    let probing = Probing { addresses, wanted };
    let (observations, problems) = probe(&probing, badge, &mut ends, &directions, progress);
    unchecked.extend(problems);
    let &Options { peers, seed, may_be_apart, .. } = options;
    let hosts = checked;
    Ok(Report::of(Found { wanted, peers, seed, may_be_apart, hosts, ips, observations, unchecked }))
}

fn too_few() -> Problem {
    Problem::new("there is no path to check")
        .seen("fewer than two hosts that answer")
        .wanted("two or more hosts")
        .remedy("name two or more responders as TOKEN@ADDRESS:PORT")
}

/// A host and its session.
struct End<'h> {
    host: &'h Host,
    session: Session,
    address: SocketAddr,
}

impl<'h> End<'h> {
    fn open(host: &'h Host, badge: Badge) -> Result<End<'h>, Problem> {
        let session = Session::open(host, badge)?;
        let address = session.address();
        Ok(End { host, session, address })
    }
}

/// Asks each host for the MTU of the device toward its next peer.
fn look_at_devices(ends: &mut [End<'_>], unchecked: &mut Vec<Problem>) -> Vec<Checked> {
    let addresses: Vec<SocketAddr> = ends.iter().map(|end| end.address).collect();
    let next = addresses.iter().cycle().skip(1);
    let looks = ends.iter_mut().zip(next).collect();
    let outcomes = side_by_side(looks, |(end, to): (&mut End<'_>, &SocketAddr)| {
        let outcome = end.session.probe(*to, &[SMALLEST], FIRST_TIMEOUT);
        (end.host.name.clone(), end.address, outcome)
    });
    let checked = |(name, address, outcome): (String, SocketAddr, Result<Outcome, Problem>)| {
        let outcome = outcome.unwrap_or_else(|problem| {
            unchecked.push(problem);
            Outcome::default()
        });
        let Outcome { interface, device_mtu: mtu, .. } = outcome;
        Checked { name, address: address.to_string(), interface, mtu }
    };
    outcomes.into_iter().map(checked).collect()
}

/// Probes the directions, and those that fail once more. All sessions stay open, since a responder
/// acknowledges probes only while its own session is open.
fn probe(
    probing: &Probing,
    badge: Badge,
    ends: &mut [End<'_>],
    directions: &[Direction],
    progress: Progress<'_>,
) -> (Vec<Observation>, Vec<Problem>) {
    let done = AtomicUsize::new(0);
    let step = || progress(done.fetch_add(1, Ordering::Relaxed) + 1, directions.len());
    let first = side_by_side(ends.iter_mut().enumerate().collect(), |(from, end)| {
        let own = directions.iter().filter(|direction| direction.0 == from);
        let peers = own.map(|direction| direction.1);
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
