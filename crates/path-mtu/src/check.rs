//! Carries out a check: connects to all responders, has the planned directions probed, searches for what a failing one does
//! carry, and judges.
//!
//! Each host probes its peers one after the other, all hosts side by side and each beginning with another peer, so no
//! responder gets the probes of all at once. A direction that fails is probed once more with more patience, when the others
//! are done: what was lost by chance is no finding.

use crate::frame::{Badge, LARGEST, Outcome, SIZES, SMALLEST};
use crate::judge::{self, Observation, judge, usual_mtu};
use crate::plan::{self, Direction};
use crate::report::{Checked, Report, Sampled};
use crate::session::{Host, Session, badge};
use control::Problem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long an acknowledgement is waited for at first: two tries, since what is missing is looked at twice.
const FIRST: Duration = Duration::from_millis(80);
/// And at a host where so many directions have failed that its others will.
const HASTY: Duration = Duration::from_millis(20);
const MANY: usize = 8;
/// And in a search, which begins with a second look at the MTU wanted.
const SEARCH: Duration = Duration::from_millis(700);
/// Searches of one host side by side.
const SEARCHERS: usize = 16;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The MTU that every direction has to carry; `None`: that of most devices.
    pub mtu: Option<u16>,
    /// Peers of each host; `None`: all.
    pub peers: Option<usize>,
    /// What a sample is drawn by.
    pub seed: u64,
    /// A direction that carries nothing is no finding: hosts need not reach each other.
    pub may_be_apart: bool,
}

/// Told how many directions of how many are done.
pub type Progress<'p> = &'p (dyn Fn(usize, usize) + Sync);

/// Checks all hosts against each other.
///
/// # Errors
/// Fewer than two hosts could be asked.
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
    // One byte more has to be a size as well.
    let wanted = wanted.min(LARGEST - 1);
    let directions = match options.peers {
        Some(peers) => plan::sample(ends.len(), peers, options.seed),
        None => plan::all(ends.len()),
    };
    let run = Run { addresses: ends.iter().map(|end| end.address).collect(), badge, wanted };
    let (mut observations, problems) = run.probe(&mut ends, &directions, progress);
    unchecked.extend(problems);
    observations.sort_by_key(|it| (it.from, it.to));
    let judged: Vec<judge::Host> = checked
        .iter()
        .zip(&run.addresses)
        .map(|(it, address)| judge::Host { name: it.name.clone(), ip: address.ip().to_canonical() })
        .collect();
    let is_judged = |it: &&Observation| it.carried > 0 || !options.may_be_apart;
    let counted: Vec<Observation> = observations.iter().filter(is_judged).cloned().collect();
    let findings = judge(&judged, &counted, wanted);
    let sampled = options.peers.filter(|_| directions.len() < judged.len() * (judged.len() - 1));
    let sampled = sampled.map(|peers| Sampled {
        peers: directions.len() / judged.len(),
        seed: options.seed,
        missed_one: plan::missed(judged.len(), peers, 1),
        missed_ten: plan::missed(judged.len(), peers, 10),
    });
    let healthy = findings.is_empty() && unchecked.is_empty();
    Ok(Report {
        healthy,
        wanted,
        sampled,
        hosts: checked,
        directions: observations,
        findings,
        unchecked,
    })
}

fn too_few() -> Problem {
    Problem::new("a path has two ends")
        .seen("fewer than two hosts that answer")
        .wanted("two or more")
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

/// Has each host say the MTU of the device toward its next peer.
fn look_at_devices(ends: &mut [End<'_>], unchecked: &mut Vec<Problem>) -> Vec<Checked> {
    let addresses: Vec<SocketAddr> = ends.iter().map(|end| end.address).collect();
    let next = addresses.iter().cycle().skip(1);
    let looks = ends.iter_mut().zip(next).collect();
    let outcomes = side_by_side(looks, |(end, to): (&mut End<'_>, &SocketAddr)| {
        let outcome = end.session.probe(*to, &[SMALLEST], FIRST);
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

/// What all directions of a check have in common.
struct Run {
    addresses: Vec<SocketAddr>,
    badge: Badge,
    wanted: u16,
}

impl Run {
    /// Probes the directions, and those that fail once more. All sessions stay open, since a responder acknowledges no longer
    /// than its own.
    fn probe(
        &self,
        ends: &mut [End<'_>],
        directions: &[Direction],
        progress: Progress<'_>,
    ) -> (Vec<Observation>, Vec<Problem>) {
        let done = AtomicUsize::new(0);
        let step = || progress(done.fetch_add(1, Ordering::Relaxed) + 1, directions.len());
        let first = side_by_side(ends.iter_mut().enumerate().collect(), |(from, end)| {
            let own = directions.iter().filter(|direction| direction.0 == from);
            let mut failed = 0;
            let probes = own.map(|(_, to)| {
                let patience = if failed < MANY { FIRST } else { HASTY };
                let outcome = self.first(&mut end.session, (from, *to), patience);
                failed += usize::from(outcome.as_ref().is_ok_and(|it| self.is_open(it)));
                step();
                outcome
            });
            (end.host, probes.collect::<Result<Vec<_>, _>>())
        });
        let (mut kept, mut failing, mut problems) = (Vec::new(), Vec::new(), Vec::new());
        for (host, observations) in first {
            match observations {
                Err(problem) => problems.push(problem),
                Ok(observations) => {
                    let (good, bad): (Vec<_>, Vec<_>) =
                        observations.into_iter().partition(|it| !self.is_open(it));
                    kept.extend(good);
                    let share = bad.len().div_ceil(SEARCHERS).max(1);
                    failing.extend(bad.chunks(share).map(|part| (host, part.to_vec())));
                }
            }
        }
        for searched in side_by_side(failing, |(host, part)| self.search_all(host, part)) {
            match searched {
                Ok(observations) => kept.extend(observations),
                Err(problem) => problems.push(problem),
            }
        }
        (kept, problems)
    }

    /// Whether it is not known yet what a direction carries. What the sender's own device refuses is.
    fn is_open(&self, it: &Observation) -> bool {
        let most = if it.device_mtu > 0 { it.device_mtu.min(self.wanted) } else { self.wanted };
        it.carried < most
    }

    /// Probes a direction at the MTU wanted, one byte above, and at the smallest size.
    fn first(
        &self,
        session: &mut Session,
        (from, to): Direction,
        patience: Duration,
    ) -> Result<Observation, Problem> {
        let mut it = Observation {
            from,
            to,
            interface: String::new(),
            device_mtu: 0,
            carried: 0,
            over: false,
            told: None,
        };
        let sizes = [SMALLEST, self.wanted, self.wanted.saturating_add(1)];
        self.note(&mut it, session, &sizes, patience)?;
        let device = it.device_mtu;
        if device > SMALLEST && device < self.wanted {
            self.note(&mut it, session, &[device], patience)?;
        }
        Ok(it)
    }

    fn note(
        &self,
        it: &mut Observation,
        session: &mut Session,
        sizes: &[u16],
        patience: Duration,
    ) -> Result<(), Problem> {
        let Some(to) = self.addresses.get(it.to) else { return Ok(()) };
        let outcome = session.probe(*to, sizes, patience)?;
        for (size, _) in sizes.iter().zip(&outcome.arrived).filter(|(_, arrived)| **arrived) {
            it.over |= *size > self.wanted;
            it.carried = it.carried.max((*size).min(self.wanted));
        }
        if outcome.device_mtu > 0 {
            it.device_mtu = outcome.device_mtu;
        }
        it.interface = outcome.interface;
        it.told = it.told.into_iter().chain(outcome.told).min_by_key(|told| told.1);
        Ok(())
    }

    /// Searches several directions of a host. The next mostly carries what the last did.
    fn search_all(
        &self,
        host: &Host,
        mut directions: Vec<Observation>,
    ) -> Result<Vec<Observation>, Problem> {
        let mut session = Session::open(host, self.badge)?;
        let mut likely = 0;
        for it in &mut directions {
            self.search(it, &mut session, likely)?;
            likely = it.carried;
        }
        Ok(directions)
    }

    /// Narrows down the largest packet that arrives, by 33 in each round.
    fn search(
        &self,
        it: &mut Observation,
        session: &mut Session,
        likely: u16,
    ) -> Result<(), Problem> {
        let mut refused = self.wanted;
        let told = it.told.map_or(0, |told| told.1);
        let mut sizes =
            guesses(&[self.wanted, told, told.saturating_add(1), likely, likely.saturating_add(1)]);
        loop {
            let room = SIZES - sizes.len();
            sizes.extend(ladder(it.carried, refused, room));
            let before = it.carried;
            self.note(it, session, &sizes, SEARCH)?;
            if !self.is_open(it) || it.carried == 0 {
                return Ok(());
            }
            let above = sizes.iter().copied().filter(|size| *size > it.carried);
            let smallest = above.min().unwrap_or(refused);
            // A size between two that were tried: the same again would say the same.
            if smallest - it.carried <= 1 || (smallest, it.carried) == (refused, before) {
                return Ok(());
            }
            (refused, sizes) = (smallest, Vec::new());
        }
    }
}

/// Sizes worth trying first.
fn guesses(sizes: &[u16]) -> Vec<u16> {
    sizes.iter().copied().filter(|size| *size > SMALLEST).collect()
}

/// Sizes between two, evenly spaced.
fn ladder(above: u16, below: u16, steps: usize) -> impl Iterator<Item = u16> {
    let (low, high) = (u32::from(above.max(SMALLEST - 1)), u32::from(below));
    let steps = u32::try_from(steps).unwrap_or_default();
    let at = move |step: u32| low + (high.saturating_sub(low) * step) / (steps + 1);
    let sizes = (1..=steps).map(at).filter(move |size| *size > low && *size < high);
    let mut last = 0;
    sizes.filter_map(move |size| {
        let size = u16::try_from(size).ok().filter(|size| *size != last)?;
        last = size;
        Some(size)
    })
}

/// Does the same with each, on threads of their own; the results in the same order.
fn side_by_side<T: Send, R: Send>(each: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = each.into_iter().map(|it| scope.spawn(move || work(it))).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        results
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_ladder_narrows_a_gap_by_its_steps(low in SMALLEST.., gap in 2..u16::MAX, steps in 1..=SIZES) {
            let high = low.saturating_add(gap);
            let sizes: Vec<u16> = ladder(low, high, steps).collect();
            prop_assert!(sizes.len() <= steps && sizes.iter().all(|size| *size > low && *size < high));
            let mut marks = vec![low];
            marks.extend(&sizes);
            marks.push(high);
            let most = usize::from(high - low).div_ceil(steps + 1);
            prop_assert!(marks.windows(2).all(|pair| usize::from(pair[1] - pair[0]) <= most));
        }
    }
}
