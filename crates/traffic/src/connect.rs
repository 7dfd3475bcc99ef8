//! Opening connections, with patience: a receiver that is just starting is tried again.

use crate::TrafficError;
use crate::plan::Plan;
use crate::socket::{bind_error, data_socket, sync_socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{bind, connect, sockopt};
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

/// Between two attempts, as NTttcp has it.
const PAUSE: Duration = Duration::from_millis(100);
/// So often a receiver that refuses synchronisation is asked whether it takes data. Our own opens both ports at once.
const ASK_EVERY: u32 = 5;
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

/// The synchronisation connection to the port below the first data port.
pub(crate) fn sync(plan: &Plan, peer: SocketAddr) -> Result<OwnedFd, TrafficError> {
    let refusals = Cell::new(0);
    attempt(plan, peer, || {
        // Each attempt after the first follows one that failed.
        if refusals.replace(refusals.get() + 1) % ASK_EVERY == ASK_EVERY - 1 {
            takes_data(plan, peer)?;
        }
        let socket = sync_socket(peer.ip())?;
        if plan.source.is_some() {
            let source = SocketAddr::new(source_for(plan, peer.ip()), 0);
            bind(&socket, &source).map_err(|error| bind_error(source, error))?;
        }
        Ok(socket)
    })
}

/// Refuses a receiver that takes data and no synchronisation.
fn takes_data(plan: &Plan, sync: SocketAddr) -> Result<(), TrafficError> {
    let address = SocketAddr::new(sync.ip(), plan.base_port);
    let open = |address: SocketAddr| Ok(once(&sync_socket(address.ip())?, address).is_ok());
    // In this order: a receiver that has just started opens its data ports first.
    if open(address)? && !open(sync)? {
        return Err(TrafficError::Unsynchronised { address });
    }
    Ok(())
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
