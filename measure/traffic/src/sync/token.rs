//! Windows NTttcp's synchronisation, after its public source (microsoft/ntttcp,
//! `SendReceiveToken`).
//!
//! For each data port there is a TCP connection to the port 1000 above it, on which each end sends
//! [`TOKEN`] and reads one byte. An end connects when all its data connections are open (with UDP:
//! its sockets bound), and begins when it has a token for each port. The length of the test is not
//! exchanged: each end goes by its own times.
//!
//! This is the sender's part; `SyncServer` has the receiver's.

use super::session::{ANSWER_TIMEOUT, lost, receive};
use crate::plan::Plan;
use crate::{TrafficError, connect};
use rustix::fd::OwnedFd;
use rustix::net::{SendFlags, send};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// The only byte of the protocol.
pub(crate) const TOKEN: &[u8] = b"X";

/// Exchanges the tokens of a receiver that has all its data connections. `kept` returns a
/// connection that is open already.
///
/// # Errors
/// Fails if the receiver cannot be reached, does not answer in time, or the user stops the run.
pub(crate) fn exchange(
    plan: &Plan,
    host: IpAddr,
    mut kept: impl FnMut(SocketAddr) -> Option<OwnedFd>,
) -> Result<(), TrafficError> {
    let lost = |address| move |source| lost(address, "exchanging tokens", source);
    let mut sockets = Vec::new();
    for address in plan.token_ports(host) {
        let socket = match kept(address) {
            Some(socket) => socket,
            None => connect::token(plan, address).map_err(|error| match error {
                TrafficError::Unreachable { .. } => {
                    TrafficError::Unsynchronised { address: plan.first_port(host) }
                }
                other => other,
            })?,
        };
        send(&socket, TOKEN, SendFlags::NOSIGNAL).map_err(lost(address))?;
        sockets.push((address, socket));
    }
    for (address, socket) in sockets {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        receive(&socket, &mut [0], Some(deadline), Some(&plan.stop)).map_err(lost(address))?;
    }
    Ok(())
}
