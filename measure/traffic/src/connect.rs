//! Opens connections, and retries while a receiver is still starting.

use crate::TrafficError;
use crate::plan::{Family, Plan, Transport};
use crate::progress::Wait;
use crate::socket::{bind_error, data_socket, sync_socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{bind, connect, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Pause between two attempts, as in NTttcp.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Attempts between two probes for Windows' synchronisation at a receiver that refuses ours. Our
/// own receiver opens all its ports at connect_once.
const PROBE_EVERY: u32 = 5;
/// Timeout of one attempt: the kernel has repeated a lost request after 1 s and 3 s.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(3500);
/// Attempts that a receiver may leave unanswered, if as many are allowed; more are made until all
/// attempts would have been refused.
const SILENT_ATTEMPTS: u32 = 2;
/// Interval between two looks at the plan's stop flag.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// A connection to a receiver, and the kind of receiver.
pub(crate) struct Receiver {
    pub(crate) socket: OwnedFd,
    /// The address that `socket` is connected to if the receiver is Windows NTttcp. `socket` is
    /// then a part of its test: the first data connection, or with UDP the first token's.
    pub(crate) windows: Option<SocketAddr>,
}

/// Opens a payload connection to `peer` from the plan's source address. Calls `waits` once a second
/// until it is open.
pub(crate) fn data(
    plan: &Plan,
    peer: SocketAddr,
    source_port: u16,
    waits: &mut dyn FnMut(Wait),
) -> Result<OwnedFd, TrafficError> {
    open_data(plan, peer, source_port, &mut each_second(peer, waits))
}

/// Returns a function that is called often while nothing is open, with whether nothing answers, and
/// that calls `waits` once a second.
fn each_second(peer: SocketAddr, waits: &mut dyn FnMut(Wait)) -> impl FnMut(bool) {
    let (start, mut seconds) = (Instant::now(), Seconds::default());
    move |is_silent| {
        let elapsed = start.elapsed();
        if seconds.is_due(elapsed) {
            waits(Wait { address: peer, is_silent, elapsed });
        }
    }
}

/// The whole seconds that have passed, so that reports come at an even pace however late one is.
#[derive(Default)]
struct Seconds(u64);

impl Seconds {
    /// Returns whether a second has ended since the last call that returned `true`.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        let is_due = elapsed.as_secs() > self.0;
        self.0 = self.0.max(elapsed.as_secs());
        is_due
    }
}

fn open_data(
    plan: &Plan,
    peer: SocketAddr,
    source_port: u16,
    glance: &mut dyn FnMut(bool),
) -> Result<OwnedFd, TrafficError> {
    let unbound = plan.source.is_none() && source_port == 0;
    let source = SocketAddr::new(source_for(plan, peer.ip()), source_port);
    let make_socket = || {
        let socket = data_socket(plan, peer.ip())?;
        if !unbound {
            sockopt::set_socket_reuseaddr(&socket, true)
                .map_err(|error| bind_error(source, error))?;
            bind(&socket, &source).map_err(|error| bind_error(source, error))?;
        }
        Ok(socket)
    };
    attempt(plan, peer, glance, make_socket, |_, _, _| Ok(None)).map(|receiver| receiver.socket)
}

/// Opens the connection of one Windows token.
pub(crate) fn token(plan: &Plan, peer: SocketAddr) -> Result<OwnedFd, TrafficError> {
    let make_socket = || sync_socket_of(plan, peer);
    let opened = attempt(plan, peer, &mut |_| {}, make_socket, |_, _, _| Ok(None));
    opened.map(|receiver| receiver.socket)
}

/// Opens the synchronisation connection to the port below the first data port, or what a Windows
/// receiver takes in its place. Calls `waits` once a second until it is open.
pub(crate) fn sync(
    plan: &Plan,
    peer: SocketAddr,
    waits: &mut dyn FnMut(Wait),
) -> Result<Receiver, TrafficError> {
    let make_socket = || sync_socket_of(plan, peer);
    attempt(plan, peer, &mut each_second(peer, waits), make_socket, |number, error, glance| {
        // A Windows firewall drops a connection request to a port without a listener.
        let is_silent = error == Errno::TIMEDOUT;
        let probes = is_silent || number % PROBE_EVERY == PROBE_EVERY - 1;
        if probes { probe_windows(plan, peer, &mut |_| glance(is_silent)) } else { Ok(None) }
    })
}

/// Probes for a receiver that takes data (with UDP, a token) but no synchronisation. A Windows
/// receiver takes one connection at each port, so the connection is kept for the test. A firewall
/// makes this last several seconds, in which `glance` is called often.
fn probe_windows(
    plan: &Plan,
    sync: SocketAddr,
    glance: &mut dyn FnMut(bool),
) -> Result<Option<Receiver>, TrafficError> {
    let connect_once = |socket: &OwnedFd, peer, glance: &mut dyn FnMut(bool)| {
        connect_once(socket, peer, &mut || {
            glance(true);
            may_go_on(plan)
        })
    };
    let data = plan.first_port(sync.ip());
    let (socket, address) = match plan.transport {
        Transport::Tcp => {
            let one_attempt = Plan { connect_attempts: 1, ..plan.clone() };
            (open_data(&one_attempt, data, plan.source_port.unwrap_or(0), glance), data)
        }
        Transport::Udp => {
            let Some(first) = plan.token_ports(sync.ip()).first().copied() else {
                return Ok(None);
            };
            let socket = sync_socket_of(plan, first)?;
            (
                connect_once(&socket, first, glance)
                    .map(|()| socket)
                    .map_err(TrafficError::system("connect")),
                first,
            )
        }
    };
    let Ok(socket) = socket else { return Ok(None) };
    // Data first, then synchronisation a moment later: one of our receivers that has just started
    // opens its data ports first.
    sleep(RETRY_INTERVAL);
    let socket_of_sync = sync_socket_of(plan, sync)?;
    let synchronises = connect_once(&socket_of_sync, sync, glance).is_ok();
    Ok((!synchronises).then_some(Receiver { socket, windows: Some(address) }))
}

fn sync_socket_of(plan: &Plan, peer: SocketAddr) -> Result<OwnedFd, TrafficError> {
    let socket = sync_socket(peer.ip())?;
    if plan.source.is_some() {
        let source = SocketAddr::new(source_for(plan, peer.ip()), 0);
        bind(&socket, &source).map_err(|error| bind_error(source, error))?;
    }
    Ok(socket)
}

fn source_for(plan: &Plan, peer: IpAddr) -> IpAddr {
    plan.source.unwrap_or_else(|| Family::of(peer).unspecified())
}

fn attempt(
    plan: &Plan,
    peer: SocketAddr,
    glance: &mut dyn FnMut(bool),
    make_socket: impl Fn() -> Result<OwnedFd, TrafficError>,
    on_failure: impl Fn(u32, Errno, &mut dyn FnMut(bool)) -> Result<Option<Receiver>, TrafficError>,
) -> Result<Receiver, TrafficError> {
    let (start, mut last) = (Instant::now(), Errno::CONNREFUSED);
    let attempts = plan.connect_attempts.max(1);
    let mut made = 0;
    while made < attempts {
        if !may_go_on(plan) {
            return Err(TrafficError::StoppedEarly);
        }
        if made > 0 {
            sleep(RETRY_INTERVAL);
        }
        let socket = make_socket()?;
        let opened = connect_once(&socket, peer, &mut || {
            glance(true);
            may_go_on(plan)
        });
        match opened {
            Ok(()) => return Ok(Receiver { socket, windows: None }),
            Err(error) => last = error,
        }
        glance(last == Errno::TIMEDOUT);
        if let Some(instead) = on_failure(made, last, glance)? {
            return Ok(instead);
        }
        made += 1;
        let is_late = start.elapsed() >= RETRY_INTERVAL * attempts;
        if last == Errno::TIMEDOUT && made >= SILENT_ATTEMPTS && is_late {
            break;
        }
    }
    if !may_go_on(plan) {
        return Err(TrafficError::StoppedEarly);
    }
    Err(TrafficError::Unreachable {
        address: peer,
        attempts: made,
        seconds: start.elapsed().as_secs(),
        source: last,
        remedy: remedy(plan, last),
    })
}

/// Returns what to do about a receiver that is not reached.
fn remedy(plan: &Plan, last: Errno) -> String {
    let [first, end] = plan.ports();
    let transport = if plan.transport == Transport::Udp { "UDP" } else { "TCP" };
    if last == Errno::TIMEDOUT {
        return format!(
            "nothing answered: open {transport} ports {first} to {end} in the receiver's firewall, or correct the address"
        );
    }
    "start the receiver first, and check its address, port and firewall".to_owned()
}

fn may_go_on(plan: &Plan) -> bool {
    !plan.stop.load(Ordering::Relaxed)
}

/// Connects within [`ATTEMPT_TIMEOUT`]. Asks `may_go_on` ten times a second meanwhile.
///
/// # Errors
/// [`Errno::TIMEDOUT`] if there is no answer, [`Errno::CANCELED`] if it may not go on, or the
/// answer.
fn connect_once(
    socket: &OwnedFd,
    peer: SocketAddr,
    may_go_on: &mut dyn FnMut() -> bool,
) -> Result<(), Errno> {
    match connect(socket, &peer) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    let start = Instant::now();
    while poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&SLICE))? == 0 {
        if !may_go_on() {
            return Err(Errno::CANCELED);
        }
        if start.elapsed() >= ATTEMPT_TIMEOUT {
            return Err(Errno::TIMEDOUT);
        }
    }
    sockopt::socket_error(socket)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Role;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    /// The reports went from 3 s to 7 s: meanwhile a probe for a Windows receiver waited in silence.
    #[test]
    fn a_probe_that_nothing_answers_is_no_silence() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        rustix::net::listen(&silent, 0).unwrap();
        let address = silent.local_addr().unwrap();
        let timeout = Duration::from_millis(200);
        // A full backlog drops connection requests, as a firewall does.
        let mut held = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, timeout) {
            held.push(stream);
        }
        let plan = Plan::new(Role::Sender, address.ip(), address.port(), 1);
        let mut glances = 0;
        let found = probe_windows(&plan, plan.sync_port(address.ip()), &mut |_| glances += 1);
        assert!(matches!(found, Ok(None)));
        assert!(glances > 1, "{glances}");
    }

    proptest! {
        #[test]
        fn a_report_is_due_once_in_each_second(steps in prop::collection::vec(1..400u64, 1..100)) {
            let (mut seconds, mut at, mut reported) = (Seconds::default(), 0, Vec::new());
            for step in steps {
                at += step;
                if seconds.is_due(Duration::from_millis(at)) {
                    reported.push(at / 1000);
                }
            }
            let wanted: Vec<u64> = (1..=at / 1000).collect();
            prop_assert_eq!(reported, wanted);
        }
    }
}
