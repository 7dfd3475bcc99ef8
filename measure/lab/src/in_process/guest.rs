//! A guest: a TCP stack and an application on a thread of its own.

use super::device::GuestDevice;
use crate::load::Load;
use hdrhistogram::Histogram;
use ports::memory::Peer;
use rustix::time::{ClockId, clock_gettime};
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as StackInstant;
use smoltcp::wire::{EthernetAddress, IpCidr, Ipv4Address};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The receiver's first TCP port, as in NTttcp.
const PORT: u16 = 5001;
/// Receive buffers of all sockets together, in bytes: enough for a full window, and less than the
/// port's queue holds.
const BUFFERS: usize = 1 << 20;
/// Rounds without work before a guest sleeps, and the length of that sleep.
const IDLE_ROUNDS: u32 = 64;
const NAP: Duration = Duration::from_micros(20);

/// Which end of the connections a guest is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Sender,
    Receiver,
}

/// State that a guest's thread shares with the bench.
#[derive(Default)]
pub(super) struct Shared {
    /// Set by the bench to end the guest.
    pub(super) stop: AtomicBool,
    /// Bytes the application received.
    pub(super) bytes: AtomicU64,
    /// Processor time of the guest's thread, in nanoseconds.
    pub(super) cpu_ns: AtomicU64,
    /// Frames dropped for a wrong checksum.
    pub(super) bad_checksums: AtomicU64,
    /// Round trips since the bench last took them; `None` if the bench wants none.
    pub(super) round_trips: Mutex<Option<Histogram<u64>>>,
}

pub(super) struct Guest {
    end: End,
    load: Load,
    device: GuestDevice,
    interface: Interface,
    sockets: SocketSet<'static>,
    handles: Vec<SocketHandle>,
    shared: Arc<Shared>,
    begin: Instant,
    /// When the unanswered request was sent.
    asked: Option<Instant>,
}

impl Guest {
    /// Creates a guest and opens its sockets; `mtu` is the largest IP packet that it sends or
    /// accepts.
    pub(super) fn new(end: End, load: Load, peer: Peer, mtu: usize, shared: Arc<Shared>) -> Guest {
        let mut device = GuestDevice::new(peer, mtu);
        let begin = Instant::now();
        let station = if end == End::Sender { 1 } else { 2 };
        let address = EthernetAddress([2, 0x4d, 0x52, 0, 0, station]);
        let mut interface =
            Interface::new(Config::new(address.into()), &mut device, StackInstant::ZERO);
        interface.update_ip_addrs(|list| {
            // The address list of a new interface is empty and has room.
            let _ = list.push(IpCidr::new(Ipv4Address::new(10, 77, 0, station).into(), 24));
        });
        let (sockets, handles) = (SocketSet::new(Vec::new()), Vec::new());
        let mut guest =
            Guest { end, load, device, interface, sockets, handles, shared, begin, asked: None };
        guest.open();
        guest
    }

    fn open(&mut self) {
        let count = match self.load {
            Load::Bulk(bulk) => u16::try_from(bulk.connections).unwrap_or(u16::MAX),
            Load::RoundTrips(_) => 1,
        };
        let room = BUFFERS / usize::from(count.max(1));
        for place in 0..count {
            let buffer = || tcp::SocketBuffer::new(vec![0; room]);
            let mut socket = tcp::Socket::new(buffer(), buffer());
            socket.set_nagle_enabled(false);
            if let Load::RoundTrips(_) = self.load {
                socket.set_ack_delay(None);
            }
            let receiver = (Ipv4Address::new(10, 77, 0, 2), PORT + place % 1000);
            // Neither call fails for a new socket and a valid port.
            let _ = match self.end {
                End::Receiver => socket.listen(receiver.1).is_ok(),
                End::Sender => {
                    socket.connect(self.interface.context(), receiver, 20_000 + place).is_ok()
                }
            };
            self.handles.push(self.sockets.add(socket));
        }
    }

    /// Runs until told to stop.
    pub(super) fn run(mut self) {
        let mut idle = 0u32;
        while !self.shared.stop.load(Relaxed) {
            let now = StackInstant::from_micros(
                i64::try_from(self.begin.elapsed().as_micros()).unwrap_or(i64::MAX),
            );
            let polled = self.interface.poll(now, &mut self.device, &mut self.sockets);
            let moved = self.application();
            idle = if moved || polled == PollResult::SocketStateChanged { 0 } else { idle + 1 };
            if idle.is_multiple_of(IDLE_ROUNDS) {
                self.publish();
            }
            match (idle >= IDLE_ROUNDS, self.load) {
                (true, Load::Bulk(_)) => std::thread::sleep(NAP),
                (true, Load::RoundTrips(_)) => std::thread::yield_now(),
                (false, _) => {}
            }
        }
    }

    fn publish(&self) {
        let used = Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default();
        self.shared.cpu_ns.store(u64::try_from(used.as_nanos()).unwrap_or(u64::MAX), Relaxed);
        self.shared.bad_checksums.store(self.device.bad_checksums, Relaxed);
    }

    /// Runs the application once for each connection. Returns whether a byte moved.
    fn application(&mut self) -> bool {
        let mut moved = false;
        for place in 0..self.handles.len() {
            let Some(handle) = self.handles.get(place).copied() else { break };
            moved |= match (self.load, self.end) {
                (Load::Bulk(_), End::Sender) => self.send_all(handle),
                (Load::Bulk(_), End::Receiver) => self.receive_all(handle) > 0,
                (Load::RoundTrips(_), End::Sender) => self.ask(handle),
                (Load::RoundTrips(_), End::Receiver) => self.answer(handle),
            };
        }
        moved
    }

    fn send_all(&mut self, handle: SocketHandle) -> bool {
        // The content does not matter, so the buffer is sent as it is; a closed socket sends
        // nothing.
        let sent =
            self.sockets.get_mut::<tcp::Socket<'_>>(handle).send(|room| (room.len(), room.len()));
        sent.is_ok_and(|count| count > 0)
    }

    /// Receives all pending bytes, and returns their number.
    fn receive_all(&mut self, handle: SocketHandle) -> usize {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
        let mut total = 0;
        // One call returns contiguous bytes, and the ring buffer may wrap: so there are two.
        for _ in 0..2 {
            total += socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap_or(0);
        }
        self.shared.bytes.fetch_add(total as u64, Relaxed);
        total
    }

    /// Sends the next request once the last one is answered. Returns whether it sent one.
    fn ask(&mut self, handle: SocketHandle) -> bool {
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
        if let Some(asked) = self.asked {
            if socket.recv(|bytes| (bytes.len(), bytes.len())).unwrap_or(0) == 0 {
                return false;
            }
            let took = u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let trips = self.shared.round_trips.lock();
            if let Some(trips) = trips.unwrap_or_else(PoisonError::into_inner).as_mut() {
                trips.saturating_record(took);
            }
            self.asked = None;
        }
        let begin = Instant::now();
        let sent = socket.send_slice(b"?").unwrap_or(0) > 0;
        self.asked = sent.then_some(begin);
        sent
    }

    /// Answers each byte with a byte.
    fn answer(&mut self, handle: SocketHandle) -> bool {
        let count = self.receive_all(handle);
        let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
        for _ in 0..count {
            // Only one request is in flight, so there is room for its answer.
            let _ = socket.send_slice(b"!");
        }
        count > 0
    }
}
