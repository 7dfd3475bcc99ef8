//! Opening connections, with patience: a receiver that is just starting is tried again.

use crate::TrafficError;
use crate::plan::Plan;
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
/// How long one attempt may stay unanswered.
const ATTEMPT: Timespec = Timespec { tv_sec: 3, tv_nsec: 0 };

/// A payload connection to `peer` from the plan's source address.
pub(crate) fn data(
    plan: &Plan,
    peer: SocketAddr,
    source_port: u16,
) -> Result<OwnedFd, TrafficError> {
    let unbound = plan.source.is_none() && source_port == 0;
    let source = SocketAddr::new(source_for(plan, peer.ip()), source_port);
    attempt(plan, peer, || {
        let socket = data_socket(plan, peer.ip())?;
        if !unbound {
            sockopt::set_socket_reuseaddr(&socket, true)
                .map_err(|error| bind_error(source, error))?;
            bind(&socket, &source).map_err(|error| bind_error(source, error))?;
        }
        Ok(socket)
    })
}

/// The synchronisation connection.
pub(crate) fn sync(plan: &Plan, peer: SocketAddr) -> Result<OwnedFd, TrafficError> {
    attempt(plan, peer, || {
        let socket = sync_socket(peer.ip())?;
        if plan.source.is_some() {
            let source = SocketAddr::new(source_for(plan, peer.ip()), 0);
            bind(&socket, &source).map_err(|error| bind_error(source, error))?;
        }
        Ok(socket)
    })
}

fn source_for(plan: &Plan, peer: IpAddr) -> IpAddr {
    let family = if peer.is_ipv4() { crate::Family::V4 } else { crate::Family::V6 };
    plan.source.unwrap_or_else(|| family.unspecified())
}

fn attempt(
    plan: &Plan,
    peer: SocketAddr,
    make: impl Fn() -> Result<OwnedFd, TrafficError>,
) -> Result<OwnedFd, TrafficError> {
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
            Ok(()) => return Ok(socket),
            Err(error) => last = error,
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
