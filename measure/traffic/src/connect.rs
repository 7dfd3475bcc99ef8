//! Opens connections, and retries while a receiver is still starting.

use crate::TrafficError;
use crate::plan::{Family, Plan, Transport};
use crate::socket::{bind_error, data_socket, sync_socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{bind, connect, sockopt};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

/// Pause between two attempts, as in NTttcp.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Attempts between two probes for Windows' synchronisation at a receiver that refuses ours. Our
/// own receiver opens all its ports at connect_once.
const PROBE_EVERY: u32 = 5;
/// Timeout of one attempt.
const ATTEMPT_TIMEOUT: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// A connection to a receiver, and the kind of receiver.
pub(crate) struct Receiver {
    pub(crate) socket: OwnedFd,
    /// The address that `socket` is connected to if the receiver is Windows NTttcp. `socket` is
    /// then a part of its test: the first data connection, or with UDP the first token's.
    pub(crate) windows: Option<SocketAddr>,
}

/// Opens a payload connection to `peer` from the plan's source address.
pub(crate) fn data(
    plan: &Plan,
    peer: SocketAddr,
    source_port: u16,
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
    attempt(plan, peer, make_socket, |_, _| Ok(None)).map(|receiver| receiver.socket)
}

/// Opens the connection of one Windows token.
pub(crate) fn token(plan: &Plan, peer: SocketAddr) -> Result<OwnedFd, TrafficError> {
    let make_socket = || sync_socket_of(plan, peer);
    attempt(plan, peer, make_socket, |_, _| Ok(None)).map(|receiver| receiver.socket)
}

/// Opens the synchronisation connection to the port below the first data port, or what a Windows
/// receiver takes in its place.
pub(crate) fn sync(plan: &Plan, peer: SocketAddr) -> Result<Receiver, TrafficError> {
    let make_socket = || sync_socket_of(plan, peer);
    attempt(plan, peer, make_socket, |number, error| {
        // A Windows firewall drops a connection request to a port without a listener.
        let probes = error == Errno::TIMEDOUT || number % PROBE_EVERY == PROBE_EVERY - 1;
        if probes { probe_windows(plan, peer) } else { Ok(None) }
    })
}

/// Probes for a receiver that takes data (with UDP, a token) but no synchronisation. A Windows
/// receiver takes one connection at each port, so the connection is kept for the test.
fn probe_windows(plan: &Plan, sync: SocketAddr) -> Result<Option<Receiver>, TrafficError> {
    let data = SocketAddr::new(sync.ip(), plan.base_port);
    let (socket, address) = match plan.transport {
        Transport::Tcp => {
            let one_attempt = Plan { connect_attempts: 1, ..plan.clone() };
            (self::data(&one_attempt, data, plan.source_port.unwrap_or(0)), data)
        }
        Transport::Udp => {
            let Some(first) = plan.token_ports(sync.ip()).first().copied() else {
                return Ok(None);
            };
            let socket = sync_socket_of(plan, first)?;
            (
                connect_once(&socket, first)
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
    let synchronises = connect_once(&sync_socket_of(plan, sync)?, sync).is_ok();
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
    make_socket: impl Fn() -> Result<OwnedFd, TrafficError>,
    on_failure: impl Fn(u32, Errno) -> Result<Option<Receiver>, TrafficError>,
) -> Result<Receiver, TrafficError> {
    let mut last = Errno::CONNREFUSED;
    let attempts = plan.connect_attempts.max(1);
    for number in 0..attempts {
        if plan.stop.load(Ordering::Relaxed) {
            return Err(TrafficError::StoppedEarly);
        }
        if number > 0 {
            sleep(RETRY_INTERVAL);
        }
        let socket = make_socket()?;
        match connect_once(&socket, peer) {
            Ok(()) => return Ok(Receiver { socket, windows: None }),
            Err(error) => last = error,
        }
        if let Some(instead) = on_failure(number, last)? {
            return Ok(instead);
        }
    }
    Err(TrafficError::Unreachable { address: peer, attempts, source: last })
}

fn connect_once(socket: &OwnedFd, peer: SocketAddr) -> Result<(), Errno> {
    match connect(socket, &peer) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    if poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&ATTEMPT_TIMEOUT))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    sockopt::socket_error(socket)?
}
