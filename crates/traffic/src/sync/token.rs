//! Windows NTttcp's synchronisation, of its public source (microsoft/ntttcp, `SendReceiveToken`).
//!
//! For each data port there is a TCP connection to the port [`AHEAD`] above it, on which each end sends [`TOKEN`] and reads one
//! byte. An end comes to it when all its data connections are open (with UDP: its sockets bound), and begins when
//! it has a token for each port. Nobody says how long the test takes: each end goes by its own times.
//!
//! This is the sender's part; `Desk` has the receiver's.

use crate::latch::wait_readable;
use crate::plan::Plan;
use crate::{TrafficError, connect};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The only byte that is ever said.
pub(crate) const TOKEN: &[u8] = b"X";
/// A token's port, less its data port's.
const AHEAD: u16 = 1000;
/// A receiver answers as soon as it has taken the connection.
const ANSWER: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(100);

/// Where the tokens of a host's data ports are exchanged; none where the numbers end before.
pub(crate) fn ports(plan: &Plan, host: IpAddr) -> Vec<SocketAddr> {
    let first = u32::from(plan.base_port) + u32::from(AHEAD);
    let ports = (first..first + plan.ports_at(host)).map(u16::try_from);
    let ports: Result<Vec<u16>, _> = ports.collect();
    ports.unwrap_or_default().into_iter().map(|port| SocketAddr::new(host, port)).collect()
}

/// Gives and takes all tokens of a receiver whose data connections are open. `kept` is a connection that is there already.
pub(crate) fn exchange(
    plan: &Plan,
    host: IpAddr,
    mut kept: impl FnMut(SocketAddr) -> Option<OwnedFd>,
) -> Result<(), TrafficError> {
    let mut sockets = Vec::new();
    for address in ports(plan, host) {
        let socket = match kept(address) {
            Some(socket) => socket,
            None => connect::token(plan, address).map_err(|error| match error {
                TrafficError::Unreachable { .. } => {
                    TrafficError::Unsynchronised { address: SocketAddr::new(host, plan.base_port) }
                }
                other => other,
            })?,
        };
        send(&socket, TOKEN, SendFlags::NOSIGNAL).map_err(lost(address))?;
        sockets.push((address, socket));
    }
    sockets.iter().try_for_each(|(address, socket)| take(plan, *address, socket))
}

fn take(plan: &Plan, address: SocketAddr, socket: &OwnedFd) -> Result<(), TrafficError> {
    let start = Instant::now();
    let mut byte = [0];
    loop {
        match recv(socket, &mut byte, RecvFlags::empty()) {
            Ok((0, _)) => return Err(lost(address)(Errno::CONNRESET)),
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN) if plan.stop.load(Ordering::Relaxed) => {
                return Err(TrafficError::StoppedEarly);
            }
            Err(Errno::AGAIN) if start.elapsed() < ANSWER => {
                wait_readable(&[socket.as_fd()], Some(GLANCE));
            }
            Err(Errno::AGAIN) => return Err(lost(address)(Errno::TIMEDOUT)),
            Err(Errno::INTR) => {}
            Err(source) => return Err(lost(address)(source)),
        }
    }
}

fn lost(address: SocketAddr) -> impl Fn(Errno) -> TrafficError {
    move |source| TrafficError::SyncLost { address, during: "exchanging tokens", source }
}
