//! Opening connections, with patience: a receiver that is just starting is tried again.

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

/// Between two attempts, as NTttcp has it.
const PAUSE: Duration = Duration::from_millis(100);
/// So often a receiver that refuses synchronisation is asked whether it is Windows'. Our own opens
/// all its ports at once.
const ASK_EVERY: u32 = 5;
/// How long one attempt may stay unanswered.
const ATTEMPT: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// What answered where a receiver should be.
pub(crate) struct Reached {
    pub(crate) socket: OwnedFd,
    /// Windows NTttcp, and `socket` is a part of its test: the first data connection, with UDP the
    /// first token's.
    pub(crate) windows: Option<SocketAddr>,
}

/// A payload connection to `peer` from the plan's source address.
pub(crate) fn data(
    plan: &Plan,
    peer: SocketAddr,
    source_port: u16,
) -> Result<OwnedFd, TrafficError> {
    let unbound = plan.source.is_none() && source_port == 0;
    let source = SocketAddr::new(source_for(plan, peer.ip()), source_port);
    let make = || {
        let socket = data_socket(plan, peer.ip())?;
        if !unbound {
            sockopt::set_socket_reuseaddr(&socket, true)
                .map_err(|error| bind_error(source, error))?;
            bind(&socket, &source).map_err(|error| bind_error(source, error))?;
        }
        Ok(socket)
    };
    attempt(plan, peer, make, |_, _| Ok(None)).map(|reached| reached.socket)
}

/// A connection for one of Windows' tokens.
pub(crate) fn token(plan: &Plan, peer: SocketAddr) -> Result<OwnedFd, TrafficError> {
    let make = || sync_socket_of(plan, peer);
    attempt(plan, peer, make, |_, _| Ok(None)).map(|reached| reached.socket)
}

/// The synchronisation connection to the port below the first data port, or what a Windows receiver
/// takes in its place.
pub(crate) fn sync(plan: &Plan, peer: SocketAddr) -> Result<Reached, TrafficError> {
    let make = || sync_socket_of(plan, peer);
    attempt(plan, peer, make, |number, error| {
        // A Windows firewall answers nothing at a port where nobody listens.
        let asks = error == Errno::TIMEDOUT || number % ASK_EVERY == ASK_EVERY - 1;
        if asks { windows(plan, peer) } else { Ok(None) }
    })
}

/// A receiver that takes data, or with UDP a token, and no synchronisation. A Windows receiver
/// takes one connection at each port, so what is opened here is kept for the test.
fn windows(plan: &Plan, sync: SocketAddr) -> Result<Option<Reached>, TrafficError> {
    let data = SocketAddr::new(sync.ip(), plan.base_port);
    let (socket, address) = match plan.transport {
        Transport::Tcp => {
            let once = Plan { connect_attempts: 1, ..plan.clone() };
            (self::data(&once, data, plan.source_port.unwrap_or(0)), data)
        }
        Transport::Udp => {
            let Some(first) = plan.token_ports(sync.ip()).first().copied() else {
                return Ok(None);
            };
            let socket = sync_socket_of(plan, first)?;
            (once(&socket, first).map(|()| socket).map_err(TrafficError::system("connect")), first)
        }
    };
    let Ok(socket) = socket else { return Ok(None) };
    // In this order, and a moment later: a receiver of the other kind that has just started opens
    // its data ports first.
    sleep(PAUSE);
    let synchronises = once(&sync_socket_of(plan, sync)?, sync).is_ok();
    Ok((!synchronises).then_some(Reached { socket, windows: Some(address) }))
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
    make: impl Fn() -> Result<OwnedFd, TrafficError>,
    failed: impl Fn(u32, Errno) -> Result<Option<Reached>, TrafficError>,
) -> Result<Reached, TrafficError> {
    let mut last = Errno::CONNREFUSED;
    let attempts = plan.connect_attempts.max(1);
    for number in 0..attempts {
        if plan.stop.load(Ordering::Relaxed) {
            return Err(TrafficError::StoppedEarly);
        }
        if number > 0 {
            sleep(PAUSE);
        }
        let socket = make()?;
        match once(&socket, peer) {
            Ok(()) => return Ok(Reached { socket, windows: None }),
            Err(error) => last = error,
        }
        if let Some(instead) = failed(number, last)? {
            return Ok(instead);
        }
    }
    Err(TrafficError::Unreachable { address: peer, attempts, source: last })
}

fn once(socket: &OwnedFd, peer: SocketAddr) -> Result<(), Errno> {
    match connect(socket, &peer) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error),
    }
    if poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&ATTEMPT))? == 0 {
        return Err(Errno::TIMEDOUT);
    }
    sockopt::socket_error(socket)?
}
