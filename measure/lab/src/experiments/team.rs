//! Teaming: an uplink of one member against one of two, and the outage of a guest when its member's
//! link is lost.

use crate::LabError;
use crate::campaign::Campaign;
use crate::daemon::Daemon;
use crate::experiment::{Description, Experiment, Proof, proven};
use crate::load::Way;
use crate::options::Options;
use crate::report::{Case, Check};
use crate::topology::{MEMBERS, RATE, Route, Topology, Wiring, other_end};
use serde_json::json;
use statistics::quantile;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The arms, the baseline second.
const ARMS: [&str; 2] = ["two", "one"];

/// Default number of times that the guest's member is pulled with each algorithm.
pub const PULLS: u16 = 10;
/// UDP port that receives the guest's datagrams.
const PORT: u16 = 4998;
/// Shortest time that is measured before and after a pull.
const BEFORE: Duration = Duration::from_millis(100);
const AFTER: Duration = Duration::from_millis(500);
/// Most time that a datagram was under way on a path that works. The first ones of a run wait for
/// the answer to the guest's ARP request, for up to a second: then its socket is full, and it sends
/// nothing, which is no outage.
const FRESH: Duration = Duration::from_millis(50);
/// The goal for an outage, in milliseconds. The check holds the median to it, which interruptions by
/// other programs of the machine do not reach until they hit every second pull. Single pulls beyond
/// the goal are printed.
const GOAL_MS: f64 = 50.0;
/// The longest outage that the check permits, in milliseconds: ten times the goal. A longer one is
/// no interruption but a fault.
const LIMIT_MS: f64 = 500.0;
/// Time within which a datagram of the guest must arrive.
const DATAGRAM_TIMEOUT: Duration = Duration::from_secs(10);

/// `millrace validate team`.
#[derive(Debug)]
pub(crate) struct Team;

impl Experiment for Team {
    fn description(&self) -> Description {
        Description {
            name: "team",
            title: "Teaming: an uplink of one member or of two",
            note: Some(
                "Each member carries 200 Mbit/s (tc tbf), so that the links are the bottleneck. The algorithm is dynamic, because one guest has \
                 one home member. Connections are spread by hash, so a single connection gains nothing.",
            ),
            wiring: Wiring { way: Way::FromVnic, members: true, ..Wiring::PLAIN },
            ..Description::PLAIN
        }
    }

    fn switch(&self, _: &mut Topology, daemon: &mut Daemon, arm: &str) -> Result<(), LabError> {
        switch(daemon, arm)
    }

    fn checks(&self, topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
        checks(topology, daemon)
    }

    fn proof(&self) -> Option<Proof> {
        Some(proof)
    }
}

/// Returns the campaign of `millrace validate team`.
pub fn campaign(options: &Options) -> Campaign {
    let labels = ["Two members", "One member"].map(str::to_owned);
    Campaign::reopening(&Team, options, ARMS.into_iter().zip(labels), Vec::new())
}

fn switch(daemon: &Daemon, arm: &str) -> Result<(), LabError> {
    let members = if arm == ARMS[1] { &MEMBERS[..1] } else { &MEMBERS };
    let keys = json!({ "packet": null, "team": members, "team-algorithm": "dynamic", "team-fail-back": 0 });
    daemon.reopen(&keys, &json!({}))
}

/// Pulls the guest's member repeatedly with each algorithm, and reports the outages.
fn checks(topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
    switch(daemon, ARMS[0])?;
    let mut found = Vec::new();
    for algorithm in ["hyper-v-port", "dynamic"] {
        daemon.reopen(&json!({ "team-algorithm": algorithm }), &json!({}))?;
        let pulls = (0..topology.pulls).map(|_| outage(topology, daemon));
        let outages = pulls.map(|pull| pull.map(|outage| outage.as_secs_f64() * 1e3));
        found.push(judged(algorithm, outages.collect::<Result<_, LabError>>()?));
    }
    switch(daemon, ARMS[1])?;
    Ok(found)
}

/// Checks outages in milliseconds: the median by [`GOAL_MS`], the longest by [`LIMIT_MS`].
fn judged(algorithm: &str, mut outages: Vec<f64>) -> Check {
    outages.sort_by(f64::total_cmp);
    let ms = |part| quantile(&outages, part).unwrap_or(f64::INFINITY);
    let (median, longest) = (ms(0.5), ms(1.0));
    let missed = outages.iter().filter(|outage| **outage > GOAL_MS).count();
    let seen = format!(
        "median {median:.1} ms (at most {GOAL_MS:.0} wanted), 95 % within {:.1} ms, longest {longest:.1} ms (at most {LIMIT_MS:.0} wanted), \
         of {} pulls of the guest's member; the goal of {GOAL_MS:.0} ms a pull, which is not enforced, was missed by {missed}",
        ms(0.95),
        outages.len()
    );
    let name = format!("Outage of the guest after a pull, by {algorithm}");
    Check { name, passed: median <= GOAL_MS && longest <= LIMIT_MS, seen }
}

/// Pulls the guest's home member and plugs it in again. Returns the longest time in which none of
/// the datagrams that the guest sent arrived.
fn outage(topology: &mut Topology, daemon: &Daemon) -> Result<Duration, LabError> {
    let to = SocketAddr::new(topology.address(Route::Switch), PORT);
    let failed = || LabError::io("opening a socket in a host");
    let listener = topology.receiver.within(|| UdpSocket::bind(to)).map_err(failed())?;
    let sender = topology.sender.within(|| UdpSocket::bind("0.0.0.0:0")).map_err(failed())?;
    listener
        .set_read_timeout(Some(DATAGRAM_TIMEOUT))
        .map_err(LabError::io("waiting for datagrams"))?;
    let _ = sender.send_to(&0u64.to_ne_bytes(), to);
    let (start, done) = (Instant::now(), AtomicBool::new(false));
    let now = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let heard = std::thread::scope(|scope| {
        let (tell, hear) = mpsc::channel();
        // Receives while the member is pulled, too: the socket has room for a tenth of a second.
        let ears = scope.spawn(move || while tell.send(receive(&listener)).is_ok() {});
        // Each datagram contains the time at which it was sent.
        scope.spawn(|| {
            while !done.load(Relaxed) {
                let _ = sender.send_to(&now().to_ne_bytes(), to);
                std::thread::sleep(Duration::from_micros(250));
            }
        });
        let pull = || {
            let member = daemon.home_of_guest()?;
            let link = other_end(&member).unwrap_or_default();
            topology.receiver.set_up(link, false)?;
            Ok((member, link))
        };
        let heard = longest_silence(&hear, pull, now);
        drop(hear);
        // The next datagram ends it.
        let _ = ears.join();
        done.store(true, Relaxed);
        heard
    });
    let (silence, (member, link)) = heard?;
    topology.receiver.set_up(link, true)?;
    daemon.wait_for_member(&member)?;
    Ok(Duration::from_nanos(silence))
}

/// Receives a datagram. Returns when it was sent. Fails if none arrives in time.
fn receive(listener: &UdpSocket) -> io::Result<u64> {
    let mut bytes = [0; 8];
    listener.recv(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Calls `pull` at the first datagram that was sent after [`BEFORE`] and is [`FRESH`]. Returns the
/// longest time in nanoseconds between two successive datagrams from then on, up to the first that
/// was sent more than [`AFTER`] the pull. `heard` has the times at which those were sent that
/// arrived; one that others have overtaken counts as heard, and ends no silence.
fn longest_silence<T>(
    heard: &mpsc::Receiver<io::Result<u64>>,
    pull: impl FnOnce() -> Result<T, LabError>,
    now: impl Fn() -> u64,
) -> Result<(u64, T), LabError> {
    let (mut last, mut longest) = (0, 0);
    let (mut pull, mut pulled) = (Some(pull), None);
    loop {
        let received = heard.recv().unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let sent =
            received.map_err(LabError::io("waiting for the guest's datagrams after a pull"))?;
        if let Some((at, of)) = pulled.take() {
            longest = longest.max(sent.saturating_sub(last));
            if u128::from(sent) > u128::from(at) + AFTER.as_nanos() {
                return Ok((longest, of));
            }
            pulled = Some((at, of));
        } else if u128::from(sent) > BEFORE.as_nanos()
            && u128::from(now()) < u128::from(sent) + FRESH.as_nanos()
            && let Some(pull) = pull.take()
        {
            let of = pull()?;
            pulled = Some((now(), of));
        }
        last = last.max(sent);
    }
}

/// Proves that two members carried more than a single one can.
fn proof(case: &Case) -> Option<Check> {
    let [two, one] = ARMS.map(|arm| case.median(arm, "throughput_bps"));
    let (one, two) = (one? / 1e6, two? / 1e6);
    let seen = format!("{one:.0} Mbit/s with one member of {:.0}, {two:.0} with two", RATE.1);
    proven(one < RATE.1 && (case.setting.connections < 4 || two > RATE.1), seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check passed at 917 ms.
    #[test]
    fn outages_are_held_to_the_goal_at_the_median_and_to_a_limit_at_most() {
        let passes = |outages: &[f64]| judged("dynamic", outages.to_vec()).passed;
        assert!(passes(&[16.0, 20.0, 49.0]) && passes(&[16.0, 20.0, 180.0]));
        assert!(!passes(&[16.0, 20.0, 917.1]), "an outage that no scheduler makes");
        assert!(!passes(&[16.0, 51.0, 52.0]), "the median misses the goal");
        assert!(!passes(&[]), "nothing was measured");
        let seen = judged("dynamic", vec![16.0, 20.0, 180.0]).seen;
        assert!(
            seen.ends_with("the goal of 50 ms a pull, which is not enforced, was missed by 1"),
            "{seen}"
        );
    }

    /// A gap that spans the pull counts, a gap before it does not, and the last gap counts however
    /// long it is.
    #[test]
    fn a_silence_is_found_from_the_pull_on_however_long_it_is() {
        let (tell, hear) = mpsc::channel();
        let ms = |ms: u64| ms * 1_000_000;
        let sent = [0, 90, 101, 102, 140, 150, 1_800, 1_801].map(ms);
        sent.into_iter().for_each(|sent| tell.send(Ok(sent)).unwrap());
        let silence = longest_silence(&hear, || Ok(()), || ms(101)).unwrap();
        assert_eq!(silence, (ms(1_650), ()));
        tell.send(Err(io::ErrorKind::WouldBlock.into())).unwrap();
        assert!(longest_silence(&hear, || Ok(()), || ms(101)).is_err());
    }

    /// The guest's socket had room for 105 ms of datagrams, which came when its first ARP request was
    /// answered. One of them was older than `BEFORE` and began the pull, so the time for which the
    /// guest could not send, 0.9 s, was taken for an outage.
    #[test]
    fn datagrams_that_waited_for_an_address_begin_no_pull() {
        let (tell, hear) = mpsc::channel();
        let ms = |ms: u64| ms * 1_000_000;
        let sent = [0, 60, 101, 105, 1_028, 1_040, 1_200, 1_400, 1_530, 1_531].map(ms);
        sent.into_iter().for_each(|sent| tell.send(Ok(sent)).unwrap());
        assert_eq!(longest_silence(&hear, || Ok(()), || ms(1_030)).unwrap(), (ms(200), ()));
    }

    #[test]
    fn datagrams_that_were_overtaken_make_no_silence() {
        let (tell, hear) = mpsc::channel();
        let ms = |ms: u64| ms * 1_000_000;
        let sent = [0, 60, 1_025, 61, 82, 1_026, 1_200, 1_400, 1_526, 1_527].map(ms);
        sent.into_iter().for_each(|sent| tell.send(Ok(sent)).unwrap());
        assert_eq!(longest_silence(&hear, || Ok(()), || ms(1_026)).unwrap(), (ms(200), ()));
    }
}
