//! Probes the directions of one host: each once, and those that fail once more with a longer
//! timeout, to search for the largest size that they carry.
//!
//! [`check`](mod@crate::check) uses it for all hosts, through sessions with their responders, and
//! an agent of a fleet for its own host.

use crate::attachment::Neighbour;
use crate::frame::{LARGEST, Outcome, SIZES, SMALLEST};
use crate::judge::Observation;
use crate::plan::Direction;
use crate::session::Session;
use problem::Problem;
use std::net::SocketAddr;
use std::time::Duration;

/// Timeout of the first probes. It is short, two tries, since a direction that fails is probed
/// again.
pub(crate) const FIRST_TIMEOUT: Duration = Duration::from_millis(80);
/// Timeout of the first probes at a host with so many failed directions that the others are likely
/// to fail.
const SHORT_TIMEOUT: Duration = Duration::from_millis(20);
const MANY: usize = 8;
/// Timeout in a search, which begins by probing the wanted MTU again.
pub(crate) const SEARCH_TIMEOUT: Duration = Duration::from_millis(700);
/// Timeout of the probes that confirm a search's result: few, so that they cause no loss themselves.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(250);
/// Rounds that must agree before a limit is believed, and most rounds until then.
const AGREEING: usize = 3;
const MOST_ROUNDS: usize = 10;
/// Most searches of one host at the same time.
const SEARCHERS: usize = 16;

/// Sends probes of one host.
pub trait Prober: Send {
    /// Probes a peer by packets of these sizes, at most [`SIZES`].
    ///
    /// # Errors
    /// Fails if the host cannot send.
    fn probe(
        &mut self,
        to: SocketAddr,
        sizes: &[u16],
        timeout: Duration,
    ) -> Result<Outcome, Problem>;
}

impl Prober for Session {
    fn probe(
        &mut self,
        to: SocketAddr,
        sizes: &[u16],
        timeout: Duration,
    ) -> Result<Outcome, Problem> {
        Session::probe(self, to, sizes, timeout)
    }
}

/// Settings that all directions of a check share.
pub struct Probing {
    /// The address of each host's responder.
    pub addresses: Vec<SocketAddr>,
    /// The MTU that every direction has to carry.
    pub wanted: u16,
}

impl Probing {
    /// Probes a host's directions to these peers. `open` makes another prober of that host, for
    /// searches at the same time.
    ///
    /// # Errors
    /// Fails if the host could probe no peer. If only some peers cannot be probed, they are left
    /// out.
    pub fn host<P: Prober>(
        &self,
        from: usize,
        peers: &[usize],
        open: impl Fn() -> Result<P, Problem> + Sync,
    ) -> Result<Vec<Observation>, Problem> {
        let (first, mut refused) = self.first_all(&mut open()?, from, peers.iter().copied(), || ());
        let (mut kept, failing) = self.split(first);
        for searched in side_by_side(failing, |part| self.search_all(&mut open()?, part)) {
            match searched {
                Ok(searched) => kept.extend(searched),
                Err(problem) => refused = Some(problem),
            }
        }
        match refused {
            Some(problem) if kept.is_empty() => Err(problem),
            _ => Ok(kept),
        }
    }

    /// Probes each direction once. `step` is called after each. A direction that cannot be probed,
    /// such as to an unreachable address, is left out, and the others are still probed. Returns the
    /// observations, and the last problem if there was one.
    pub(crate) fn first_all(
        &self,
        prober: &mut impl Prober,
        from: usize,
        peers: impl Iterator<Item = usize>,
        step: impl Fn(),
    ) -> (Vec<Observation>, Option<Problem>) {
        let mut failed = 0;
        let probes = peers.map(|to| {
            let timeout = if failed < MANY { FIRST_TIMEOUT } else { SHORT_TIMEOUT };
            let outcome = self.first(prober, (from, to), timeout);
            failed += usize::from(outcome.as_ref().is_ok_and(|it| self.is_open(it)));
            step();
            outcome
        });
        let (mut known, mut refused) = (Vec::new(), None);
        for outcome in probes {
            match outcome {
                Ok(outcome) => known.push(outcome),
                Err(problem) => refused = Some(problem),
            }
        }
        (known, refused)
    }

    /// Splits observations into those that are complete, and shares of those to be searched.
    pub(crate) fn split(
        &self,
        first: Vec<Observation>,
    ) -> (Vec<Observation>, Vec<Vec<Observation>>) {
        let (good, bad): (Vec<_>, Vec<_>) = first.into_iter().partition(|it| !self.is_open(it));
        let share = bad.len().div_ceil(SEARCHERS).max(1);
        (good, bad.chunks(share).map(<[Observation]>::to_vec).collect())
    }

    /// Searches several directions of a host, one after the other. It first tries the size that the
    /// last one carried, as they are usually equal.
    pub(crate) fn search_all(
        &self,
        prober: &mut impl Prober,
        mut directions: Vec<Observation>,
    ) -> Result<Vec<Observation>, Problem> {
        let mut likely = 0;
        for it in &mut directions {
            self.search(it, prober, likely)?;
            self.confirm(it, prober)?;
            likely = it.carried;
        }
        Ok(directions)
    }

    /// Confirms a limit, since a busy host or path loses packets of any size. A round agrees only
    /// if the largest size that has arrived arrives again, and none above does. With too few such
    /// rounds the direction is uncertain. Nothing at all is confirmed by rounds in which nothing
    /// arrives.
    fn confirm(&self, it: &mut Observation, prober: &mut impl Prober) -> Result<(), Problem> {
        let mut agreeing = 0;
        for _ in 0..MOST_ROUNDS {
            if !self.is_open(it) {
                return Ok(());
            }
            let control = it.carried.max(SMALLEST);
            let mut sizes = vec![control, control.saturating_add(1).min(self.wanted), self.wanted];
            sizes.dedup();
            let arrived = self.note(it, prober, &sizes, CONFIRM_TIMEOUT)?;
            if it.carried > control {
                self.search(it, prober, 0)?;
                agreeing = 0;
            } else if arrived || it.carried == 0 {
                agreeing += 1;
            }
            if agreeing == AGREEING {
                return Ok(());
            }
        }
        it.uncertain = true;
        Ok(())
    }

    /// Whether it is not known yet what a direction carries. A size that the sender's own device
    /// refuses counts as known.
    fn is_open(&self, it: &Observation) -> bool {
        let most = if it.device_mtu > 0 { it.device_mtu.min(self.wanted) } else { self.wanted };
        it.carried < most
    }

    /// Probes a direction at the MTU wanted, one byte above, and at the smallest size.
    fn first(
        &self,
        prober: &mut impl Prober,
        (from, to): Direction,
        timeout: Duration,
    ) -> Result<Observation, Problem> {
        let mut it = Observation { from, to, ..Observation::default() };
        let sizes = [SMALLEST, self.wanted, self.wanted.saturating_add(1)];
        self.note(&mut it, prober, &sizes, timeout)?;
        let device = it.device_mtu;
        if device > SMALLEST && device < self.wanted {
            self.note(&mut it, prober, &[device], timeout)?;
        }
        Ok(it)
    }

    /// Probes and notes the outcome. Returns whether the first size arrived.
    fn note(
        &self,
        it: &mut Observation,
        prober: &mut impl Prober,
        sizes: &[u16],
        timeout: Duration,
    ) -> Result<bool, Problem> {
        let Some(to) = self.addresses.get(it.to) else { return Ok(false) };
        let outcome = prober.probe(*to, sizes, timeout)?;
        for (size, _) in sizes.iter().zip(&outcome.arrived).filter(|(_, arrived)| **arrived) {
            it.over |= *size > self.wanted;
            it.carried = it.carried.max((*size).min(self.wanted));
        }
        if outcome.device_mtu > 0 {
            it.device_mtu = outcome.device_mtu;
        }
        it.interface = outcome.interface;
        if !outcome.arrives_by.is_empty() {
            it.arrives_by = outcome.arrives_by;
        }
        if outcome.neighbour != Neighbour::Unknown {
            it.neighbour = outcome.neighbour;
        }
        it.told = it.told.into_iter().chain(outcome.told).min_by_key(|told| told.1);
        Ok(outcome.arrived.first() == Some(&true))
    }

    /// Narrows down the largest packet that arrives, by 33 in each round.
    fn search(
        &self,
        it: &mut Observation,
        prober: &mut impl Prober,
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
            self.note(it, prober, &sizes, SEARCH_TIMEOUT)?;
            if !self.is_open(it) || it.carried == 0 {
                return Ok(());
            }
            let above = sizes.iter().copied().filter(|size| *size > it.carried);
            let smallest = above.min().unwrap_or(refused);
            // Probing the same sizes again would give the same result.
            if smallest - it.carried <= 1 || (smallest, it.carried) == (refused, before) {
                return Ok(());
            }
            (refused, sizes) = (smallest, Vec::new());
        }
    }
}

/// Returns the sizes to try first.
fn guesses(sizes: &[u16]) -> Vec<u16> {
    sizes.iter().copied().filter(|size| *size > SMALLEST && *size <= LARGEST).collect()
}

/// Returns sizes between two, evenly spaced.
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

/// Runs `work` on each item, on a thread of its own. Returns the results in the order of the items.
pub(crate) fn side_by_side<T: Send, R: Send>(each: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
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

    /// Prober of a path that carries 1500 bytes, where a hop claims the largest MTU there is.
    struct Lying;

    impl Prober for Lying {
        fn probe(
            &mut self,
            to: SocketAddr,
            sizes: &[u16],
            _: Duration,
        ) -> Result<Outcome, Problem> {
            assert!(sizes.iter().all(|size| (SMALLEST..=LARGEST).contains(size)), "{sizes:?}");
            if to.port() == 3 {
                return Err(Problem::new("no route"));
            }
            let arrived = sizes.iter().map(|size| *size <= 1500).collect();
            let told = Some((to.ip(), u16::MAX));
            Ok(Outcome { arrived, told, ..Outcome::default() })
        }
    }

    #[test]
    fn a_peer_that_cannot_be_probed_and_a_hop_that_lies_cost_no_other_direction() {
        let addresses = (1..=4).map(|port| SocketAddr::from(([10, 0, 0, 1], port))).collect();
        let probing = Probing { addresses, wanted: 9000 };
        let known = probing.host(0, &[1, 2, 3], || Ok(Lying)).unwrap();
        let mut carried: Vec<_> = known.iter().map(|it| (it.to, it.carried)).collect();
        carried.sort_unstable();
        assert_eq!(carried, [(1, 1500), (3, 1500)]);
        assert!(probing.host(0, &[2], || Ok(Lying)).is_err());
    }

    /// Prober of paths that carry so many bytes each, and lose probes and answers of any size.
    struct Lossy<'l> {
        carries: &'l [u16],
        loss: f64,
        random: fastrand::Rng,
    }

    impl Prober for Lossy<'_> {
        fn probe(
            &mut self,
            to: SocketAddr,
            sizes: &[u16],
            timeout: Duration,
        ) -> Result<Outcome, Problem> {
            // As probe.rs tries: waits of 30 ms, doubling.
            let tries = (0..6).take_while(|tries| 30 * ((1 << tries) - 1) < timeout.as_millis());
            let tries = tries.count();
            let carries = self.carries[usize::from(to.port())];
            let mut passes = || (0..2).all(|_| self.random.f64() >= self.loss);
            let arrived =
                sizes.iter().map(|size| *size <= carries && (0..tries).any(|_| passes())).collect();
            Ok(Outcome { arrived, ..Outcome::default() })
        }
    }

    /// A direction whose probes were lost was blamed for a limit that it does not have.
    #[test]
    fn loss_of_any_size_is_never_taken_for_a_limit() {
        let carries = [9000, 9000, 9000, 1500, 8996, 68, 0];
        let (mut uncertain, mut all) = (0, 0);
        for seed in 0..400 {
            let loss = f64::from(u32::try_from(seed % 7).unwrap()) * 0.05;
            let addresses =
                (0..carries.len()).map(|port| ([10, 0, 0, 1], u16::try_from(port).unwrap()).into());
            let probing = Probing { addresses: addresses.collect(), wanted: 9000 };
            let peers: Vec<usize> = (0..carries.len()).collect();
            let open = || {
                let random = fastrand::Rng::with_seed(seed);
                Ok(Lossy { carries: &carries, loss, random })
            };
            for it in probing.host(0, &peers, open).unwrap() {
                all += 1;
                uncertain += usize::from(it.uncertain);
                assert!(
                    it.uncertain || it.carried == carries[it.to],
                    "seed {seed}, loss {loss}: {it:?}"
                );
                assert!(loss > 0.0 || !it.uncertain, "{it:?}");
            }
        }
        assert!(uncertain * 50 < all, "{uncertain} of {all} are uncertain");
    }

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
