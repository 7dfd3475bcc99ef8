//! Teaming: an uplink of one member against one of two, and how long a guest is not heard when its
//! member's link is lost.

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
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The arms, the second the baseline.
const ARMS: [&str; 2] = ["two", "one"];

/// How often the guest's member is pulled, by each algorithm, where nothing else is said.
pub const PULLS: u16 = 10;
/// The port that a guest's datagrams go to.
const PORT: u16 = 4998;
/// What is measured of a pull at least, before and after it.
const BEFORE: Duration = Duration::from_millis(100);
const AFTER: Duration = Duration::from_millis(500);
/// A guest that is not heard by then will not be.
const PATIENCE: Duration = Duration::from_secs(10);

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

/// `millrace validate team`.
pub fn campaign(options: &Options) -> Campaign {
    let labels = ["Two members", "One member"].map(str::to_owned);
    Campaign::reopening(&Team, options, ARMS.into_iter().zip(labels), Vec::new())
}

fn switch(daemon: &Daemon, arm: &str) -> Result<(), LabError> {
    let members = if arm == ARMS[1] { &MEMBERS[..1] } else { &MEMBERS };
    let keys = json!({ "packet": null, "team": members, "team-algorithm": "dynamic", "team-fail-back": 0 });
    daemon.reopen(&keys, &json!({}))
}

/// Pulls the guest's member, some times by each algorithm.
fn checks(topology: &mut Topology, daemon: &mut Daemon) -> Result<Vec<Check>, LabError> {
    switch(daemon, ARMS[0])?;
    let mut found = Vec::new();
    for algorithm in ["hyper-v-port", "dynamic"] {
        daemon.reopen(&json!({ "team-algorithm": algorithm }), &json!({}))?;
        let pulls = (0..topology.pulls).map(|_| outage(topology, daemon));
        let outages = pulls.map(|pull| pull.map(|outage| outage.as_secs_f64() * 1e3));
        let mut outages = outages.collect::<Result<Vec<f64>, LabError>>()?;
        outages.sort_by(f64::total_cmp);
        let ms = |part| quantile(&outages, part).unwrap_or_default();
        let seen = format!(
            "median {:.1} ms, 95 % within {:.1} ms, longest {:.1} ms, of {} pulls of the guest's member",
            ms(0.5),
            ms(0.95),
            ms(1.0),
            outages.len()
        );
        let name = format!("Outage of the guest after a pull, by {algorithm}");
        found.push(Check { name, passed: true, seen });
    }
    switch(daemon, ARMS[1])?;
    Ok(found)
}

/// Pulls the member that stands for the guest, and plugs it in again: the longest time in which
/// nothing of what the guest sends meanwhile was heard.
fn outage(topology: &mut Topology, daemon: &Daemon) -> Result<Duration, LabError> {
    let to = SocketAddr::new(topology.address(Route::Switch), PORT);
    let failed = || LabError::io("opening a socket in a host");
    let listener = topology.receiver.within(|| UdpSocket::bind(to)).map_err(failed())?;
    let sender = topology.sender.within(|| UdpSocket::bind("0.0.0.0:0")).map_err(failed())?;
    listener.set_read_timeout(Some(PATIENCE)).map_err(LabError::io("waiting for datagrams"))?;
    let _ = sender.send_to(&0u64.to_ne_bytes(), to);
    let (start, done) = (Instant::now(), AtomicBool::new(false));
    let now = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let heard = std::thread::scope(|scope| {
        // Each datagram says when it was sent.
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
        let heard = longest_silence(&listener, pull, now);
        done.store(true, Relaxed);
        heard
    });
    let (silence, (member, link)) = heard?;
    topology.receiver.set_up(link, true)?;
    daemon.wait_for_member(&member)?;
    Ok(Duration::from_nanos(silence))
}

/// Calls `pull` after [`BEFORE`]; the longest time, in nanoseconds, between two datagrams in a row
/// from then on, the later of which came [`AFTER`] it at most or was the next.
fn longest_silence<T>(
    listener: &UdpSocket,
    pull: impl FnOnce() -> Result<T, LabError>,
    now: impl Fn() -> u64,
) -> Result<(u64, T), LabError> {
    let (mut last, mut longest, mut bytes) = (0, 0, [0; 8]);
    let (mut pull, mut pulled) = (Some(pull), None);
    loop {
        let received = listener.recv(&mut bytes);
        received.map_err(LabError::io("waiting for the guest's datagrams after a pull"))?;
        let sent = u64::from_ne_bytes(bytes);
        if let Some((at, of)) = pulled.take() {
            longest = longest.max(sent.saturating_sub(last));
            if u128::from(sent) > u128::from(at) + AFTER.as_nanos() {
                return Ok((longest, of));
            }
            pulled = Some((at, of));
        } else if u128::from(sent) > BEFORE.as_nanos()
            && let Some(pull) = pull.take()
        {
            let of = pull()?;
            pulled = Some((now(), of));
        }
        last = sent;
    }
}

/// That two members carried more than one alone can.
fn proof(case: &Case) -> Option<Check> {
    let [two, one] = ARMS.map(|arm| case.median(arm, "throughput_bps"));
    let (one, two) = (one? / 1e6, two? / 1e6);
    let seen = format!("{one:.0} Mbit/s with one member of {:.0}, {two:.0} with two", RATE.1);
    proven(one < RATE.1 && (case.setting.connections < 4 || two > RATE.1), seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The gap that begins before the pull and ends after it counts, one before does not, and the
    /// last gap counts however long.
    #[test]
    fn a_silence_is_found_from_the_pull_on_however_long_it_is() {
        let listener = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let ms = |ms: u64| ms * 1_000_000;
        for sent in [0, 90, 101, 102, 140, 150, 1_800, 1_801].map(ms) {
            sender.send_to(&sent.to_ne_bytes(), listener.local_addr().unwrap()).unwrap();
        }
        let silence = longest_silence(&listener, || Ok(()), || ms(101)).unwrap();
        assert_eq!(silence, (ms(1_650), ()));
        listener.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        assert!(longest_silence(&listener, || Ok(()), || ms(101)).is_err());
    }
}
