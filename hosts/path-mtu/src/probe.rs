//! Carries out one order: sends probes to a peer, again until they are acknowledged or the timeout
//! ends.

use crate::attachment::{neighbour, route};
use crate::frame::{Badge, Outcome, Probe, ProbeRequest, Status, overhead};
use crate::rate::Rate;
use crate::socket::{ProbeSocket, TooBig};
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Wait after the first try. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(30);
/// The longest timeout of an order.
const PROBE_TIMEOUT_MAX: Duration = Duration::from_secs(3);
/// A size that every device except loopback refuses, so that the kernel reports the device's MTU.
/// No order may name it.
const REFUSED: u16 = u16::MAX;

/// The settings that all orders of a responder share.
pub(crate) struct Sender<'s> {
    pub(crate) netns: Option<&'s Path>,
    pub(crate) from: Option<IpAddr>,
    pub(crate) badge: Badge,
    pub(crate) datagrams: &'s Rate,
    pub(crate) bytes: &'s Rate,
}

impl Sender<'_> {
    /// Probes one peer.
    pub(crate) fn probe(&self, request: &ProbeRequest, order: u16) -> Result<Outcome, Status> {
        let begun = Instant::now();
        let open = || {
            let socket = ProbeSocket::connect(self.from, request.to)?;
            // Not the device that has the address: packets may leave by another.
            let route = route(Some(socket.socket().local_addr()?.ip()), request.to);
            Ok((socket, route))
        };
        let opened: io::Result<_> = ports::namespace::within(self.netns, open).flatten();
        let (socket, route) = opened.map_err(|_| Status::Unable)?;
        let interface = route.as_ref().map(|(_, name)| name.clone()).unwrap_or_default();
        let arrived = vec![false; request.sizes.len()];
        let outcome = Outcome { interface, arrived, ..Outcome::default() };
        let refused = vec![false; request.sizes.len()];
        let mut round = Round { sender: self, request, order, socket, outcome, refused };
        round.find_device().map_err(|_| Status::Unable)?;
        round.run().map_err(|_| Status::Unable)?;
        let mut outcome = round.outcome;
        if let Some((route, _)) = route.filter(|_| !outcome.arrived.contains(&true)) {
            let asked = || neighbour(&route, request.to.ip(), begun);
            outcome.neighbour = ports::namespace::within(self.netns, asked).unwrap_or_default();
        }
        Ok(outcome)
    }
}

/// An order that is being carried out.
struct Round<'r> {
    sender: &'r Sender<'r>,
    request: &'r ProbeRequest,
    order: u16,
    socket: ProbeSocket,
    outcome: Outcome,
    /// For each size, whether this host's own device refused it.
    refused: Vec<bool>,
}

impl Round<'_> {
    /// Finds the device's MTU, by a probe that the device refuses.
    fn find_device(&mut self) -> io::Result<()> {
        self.send(REFUSED).map(drop)
    }

    fn run(&mut self) -> io::Result<()> {
        let timeout = Duration::from_millis(self.request.timeout_ms.into()).min(PROBE_TIMEOUT_MAX);
        let (end, mut wait) = (Instant::now() + timeout, FIRST_WAIT);
        while self.is_waiting() {
            for place in 0..self.request.sizes.len() {
                let Some(size) = self.request.sizes.get(place).copied() else { break };
                if self.is_open(place) && !self.send(size)? {
                    self.refused.get_mut(place).into_iter().for_each(|refused| *refused = true);
                }
            }
            let now = Instant::now();
            if now >= end {
                break;
            }
            self.listen((now + wait).min(end))?;
            wait *= 2;
        }
        self.note_errors();
        Ok(())
    }

    /// Whether the result of a size is not known yet.
    fn is_open(&self, place: usize) -> bool {
        let holds = |list: &[bool]| list.get(place).copied().unwrap_or(true);
        !holds(&self.outcome.arrived) && !holds(&self.refused)
    }

    fn is_waiting(&self) -> bool {
        (0..self.request.sizes.len()).any(|place| self.is_open(place))
    }

    /// Sends a probe. Returns `false` if the device refuses it.
    fn send(&mut self, size: u16) -> io::Result<bool> {
        self.sender.datagrams.wait(1);
        if size != REFUSED {
            self.sender.bytes.wait(size.into());
        }
        let mut datagram = vec![0; usize::from(size - overhead(self.request.to.ip()))];
        let probe = Probe::new(self.sender.badge, size, self.order);
        datagram.iter_mut().zip(probe.as_bytes()).for_each(|(place, byte)| *place = *byte);
        // A hop's report about an earlier probe is returned once, as the error of a later call.
        for _ in 0..3 {
            let Err(error) = self.socket.socket().send(&datagram) else {
                // Loopback accepts a size that every other device refuses.
                if size == REFUSED {
                    self.sender.bytes.wait(size.into());
                }
                return Ok(true);
            };
            let was_refused = self.note_errors();
            match error.raw_os_error() {
                Some(libc::EMSGSIZE) if was_refused => return Ok(false),
                Some(libc::EMSGSIZE | libc::ECONNREFUSED) => {}
                Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ENOBUFS) => return Ok(true),
                _ => return Err(error),
            }
        }
        Ok(true)
    }

    /// Receives acknowledgements until all sizes have a result, or until `until`.
    fn listen(&mut self, until: Instant) -> io::Result<()> {
        let mut room = [0; 64];
        while self.is_waiting() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.socket.socket().set_read_timeout(Some(left))?;
            match self.socket.socket().recv(&mut room) {
                Ok(length) => self.acknowledge(room.get(..length).unwrap_or_default()),
                Err(error) if is_timeout(&error) => break,
                // This is the error of an earlier probe. Its details are in the error queue.
                Err(_) => {
                    self.note_errors();
                }
            }
        }
        Ok(())
    }

    fn acknowledge(&mut self, datagram: &[u8]) {
        let Some(size) = Probe::acknowledged(datagram, self.sender.badge, self.order) else {
            return;
        };
        let device = Probe::arrival(datagram);
        if !device.is_empty() {
            self.outcome.arrives_by = device;
        }
        for (arrived, _) in
            self.outcome.arrived.iter_mut().zip(&self.request.sizes).filter(|(_, it)| **it == size)
        {
            *arrived = true;
        }
    }

    /// Reads the error queue. Returns whether the device refused a probe.
    fn note_errors(&mut self) -> bool {
        let mut was_refused = false;
        for error in self.socket.errors() {
            match error {
                TooBig::Device(mtu) => {
                    self.outcome.device_mtu = mtu;
                    was_refused = true;
                }
                TooBig::Hop(by, mtu) => {
                    let told = self.outcome.told.get_or_insert((by, mtu));
                    if mtu < told.1 {
                        *told = (by, mtu);
                    }
                }
            }
        }
        was_refused
    }
}

pub(crate) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// It went to any port of this host, 64 KiB for each order, past the limit.
    #[test]
    fn what_loopback_takes_to_find_its_mtu_is_paid_for() {
        let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
        let datagrams = Rate::new(1, 100);
        let bytes = Rate::new(1, 100_000);
        let badge = [7; 16];
        let sender =
            Sender { netns: None, from: None, badge, datagrams: &datagrams, bytes: &bytes };
        let request =
            ProbeRequest { to: peer.local_addr().unwrap(), sizes: vec![100], timeout_ms: 1 };
        sender.probe(&request, 0).unwrap();
        assert!(bytes.take(100_000 - 65_535, Instant::now()).is_err());
    }
}
