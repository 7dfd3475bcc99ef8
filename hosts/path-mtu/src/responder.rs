//! The responder, which sends and acknowledges a host's probes. Run by `millrace mtu responder`.
//!
//! A client that sends the token may order it to probe other responders. While the client's session
//! is open, the responder acknowledges probes that carry the session's badge. It answers nothing
//! else, sends no more than [`Options`] allow, and changes nothing on its host. A client that is
//! silent for long, or breaks the protocol, loses its session.

use crate::attachment::Attachment;
use crate::frame::{Answer, Badge, Hello, LEN, Order, Probe, Status};
use crate::probe::Sender;
use crate::rate::Rate;
use crate::socket;
use problem::token::Token;
use rustix::net::netdevice::index_to_name;
use rustix::net::{Shutdown, shutdown};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use strangers::{Strangers, Visit};
use zerocopy::{FromBytes, IntoBytes};

/// Timeout for a client to send the token.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for a client's next order.
const ORDER_TIMEOUT: Duration = Duration::from_secs(120);
/// Most connections at once; one without the token makes room for another.
const SEATS: usize = 32;
/// Interval between checks for a free seat while all are taken, and after how many of them another
/// connection ends.
const SEAT_INTERVAL: Duration = Duration::from_millis(2);
const LOOKS: u32 = 10;
/// Pause after an error of `accept`, which may last.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Options of a responder.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address at which it listens, for TCP and UDP. Port 0 means a free one.
    pub listen: SocketAddr,
    /// The token that a client has to send.
    pub token: Token,
    /// The network namespace it listens and sends in; `None` for the caller's own.
    pub netns: Option<PathBuf>,
    /// Most probes sent in a second, and at once. As many are acknowledged in addition.
    pub datagrams_per_s: u32,
    /// Most bytes of probes sent in a second, and at once.
    pub bytes_per_s: u32,
}

impl Options {
    /// Returns options with limits that let a fleet of a thousand hosts be checked quickly without
    /// filling a link.
    pub fn new(listen: SocketAddr, token: Token) -> Options {
        Options { listen, token, netns: None, datagrams_per_s: 2000, bytes_per_s: 16 << 20 }
    }
}

/// A responder that runs until it is dropped.
pub struct Responder {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
    /// The sockets that the threads wait at, to be shut down at the end.
    sockets: [OwnedFd; 2],
}

struct Shared {
    options: Options,
    stopped: AtomicBool,
    /// The badge of each open session.
    badges: Mutex<Vec<Badge>>,
    seats: AtomicUsize,
    datagrams: Rate,
    bytes: Rate,
    acknowledgements: Rate,
}

impl Responder {
    /// Starts a responder, on threads of its own.
    ///
    /// # Errors
    /// Fails if the address is not this host's, or the port is taken.
    pub fn start(options: Options) -> io::Result<Responder> {
        let open = || {
            let listener = TcpListener::bind(options.listen)?;
            let address = listener.local_addr()?;
            Ok((listener, UdpSocket::bind(address)?, address))
        };
        let opened: io::Result<_> =
            ports::namespace::within(options.netns.as_deref(), open).flatten();
        let (listener, probes, address) = opened?;
        let sockets = [listener.try_clone()?.into(), probes.try_clone()?.into()];
        socket::widen(&probes);
        socket::tell_devices(&probes);
        let shared = Arc::new(Shared {
            datagrams: Rate::new(options.datagrams_per_s, options.datagrams_per_s),
            acknowledgements: Rate::new(options.datagrams_per_s, options.datagrams_per_s),
            bytes: Rate::new(options.bytes_per_s, options.bytes_per_s),
            options,
            stopped: AtomicBool::new(false),
            badges: Mutex::default(),
            seats: AtomicUsize::new(0),
        });
        let mut responder =
            Responder { shared: shared.clone(), address, threads: Vec::new(), sockets };
        let other = shared.clone();
        let thread = || std::thread::Builder::new().name("mtu".into());
        // If the second thread cannot be made, the first ends when the responder is dropped.
        responder.threads.push(thread().spawn(move || shared.accept(&listener))?);
        responder.threads.push(thread().spawn(move || other.acknowledge(&probes))?);
        Ok(responder)
    }

    /// Returns the address at which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for its threads, which do not end by themselves.
    pub fn wait(mut self) {
        for thread in std::mem::take(&mut self.threads) {
            let _ = thread.join();
        }
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        for socket in &self.sockets {
            // It also ends the wait of a thread at a UDP socket, for which it says that there is no
            // connection.
            let _ = shutdown(socket, Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn accept(self: Arc<Shared>, listener: &TcpListener) {
        let mut strangers = Strangers::default();
        while !self.is_stopped() {
            match listener.accept() {
                Ok((stream, at)) => {
                    let Some(seat) = self.seat(&mut strangers) else { return };
                    // Without a descriptor left the connection is closed.
                    let Ok(visit) = strangers.add(&stream, at.ip()) else { continue };
                    // The error of a client that has gone is ignored.
                    let serve = move || drop(seat.serve(stream, &visit));
                    // If no thread can be made, the connection is closed, and its seat is free
                    // again.
                    let _ = std::thread::Builder::new().name("mtu".into()).spawn(serve);
                }
                Err(_) if self.is_stopped() => {}
                Err(_) => std::thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    /// Waits for a seat, which a connection without the token may have to leave; `None` if the
    /// responder ends.
    fn seat(self: &Arc<Shared>, strangers: &mut Strangers) -> Option<Seat> {
        for look in 0.. {
            if self.is_stopped() {
                break;
            }
            if let Some(seat) = Seat::take(self) {
                return Some(seat);
            }
            if look % LOOKS == 0 {
                strangers.make_room();
            }
            std::thread::sleep(SEAT_INTERVAL);
        }
        None
    }

    /// Serves a client until it ends or loses its session.
    fn serve(&self, mut stream: TcpStream, visit: &Visit) -> io::Result<()> {
        stream.set_nodelay(true)?;
        // A client that reads nothing must not keep its seat.
        stream.set_write_timeout(Some(HELLO_TIMEOUT))?;
        let mut bytes = [0; LEN];
        read_by(&mut stream, &mut bytes, Instant::now() + HELLO_TIMEOUT)?;
        let hello = Hello::read_from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData)?;
        if !hello.token().is_some_and(|token| self.options.token.matches(token)) {
            return Ok(());
        }
        visit.is_known();
        let _session = Session::open(self, hello.badge);
        stream.write_all(Answer::attached(&self.attachment(&stream)).as_bytes())?;
        let ip = self.options.listen.ip();
        let sender = Sender {
            netns: self.options.netns.as_deref(),
            from: (!ip.is_unspecified()).then_some(ip),
            badge: hello.badge,
            datagrams: &self.datagrams,
            bytes: &self.bytes,
        };
        let mut number: u16 = 0;
        while !self.is_stopped() {
            read_by(&mut stream, &mut bytes, Instant::now() + ORDER_TIMEOUT)?;
            stream.write_all(answer(&sender, &bytes, number).as_bytes())?;
            number = number.wrapping_add(1);
        }
        Ok(())
    }

    /// Returns where the address is attached at which the client reached this responder.
    fn attachment(&self, stream: &TcpStream) -> Attachment {
        let attached = || Some(Attachment::of(stream.local_addr().ok()?.ip()));
        let netns = self.options.netns.as_deref();
        ports::namespace::within(netns, attached).ok().flatten().unwrap_or_default()
    }

    /// Acknowledges probes of open sessions.
    fn acknowledge(&self, socket: &UdpSocket) {
        let mut room = vec![0; 1 << 16];
        while !self.is_stopped() {
            // Errors are about acknowledgements that did not arrive, and are ignored.
            let Ok(Some(received)) = socket::receive(socket, &mut room) else { continue };
            let datagram = room.get(..received.length).unwrap_or_default();
            let Some(probe) = self.known(datagram, received.from.ip()) else { continue };
            if self.acknowledgements.take(1, Instant::now()).is_ok() {
                let device = index_to_name(socket, received.device).unwrap_or_default();
                let _ = socket.send_to(&probe.reply(&device, datagram.len()), received.from);
            }
        }
    }

    /// Returns the probe of an open session that a datagram is.
    fn known(&self, datagram: &[u8], from: IpAddr) -> Option<Probe> {
        let probe = Probe::read(datagram)?;
        let is_known = holds(&ports::lock(&self.badges), probe.badge());
        (is_known && probe.is_whole(datagram.len(), from)).then_some(probe)
    }
}

/// Whether a badge is in the list, in constant time, so that it cannot be guessed byte by byte.
fn holds(badges: &[Badge], given: &Badge) -> bool {
    let same = |badge: &Badge| {
        let different = badge.iter().zip(given).fold(0, |sum, (a, b)| sum | (a ^ b));
        std::hint::black_box(different) == 0
    };
    badges.iter().fold(false, |found, badge| found | same(badge))
}

/// Checks and carries out an order. Returns the answer.
fn answer(sender: &Sender<'_>, bytes: &[u8; LEN], number: u16) -> Answer {
    let wish = Order::read_from_bytes(bytes).map_err(|_| Status::BadOrder);
    match wish.and_then(|order| order.read()).and_then(|wish| sender.probe(&wish, number)) {
        Ok(outcome) => Answer::new(&outcome),
        Err(status) => Answer::only(status),
    }
}

/// Fills `bytes` from the connection. Fails if that takes until `until`.
fn read_by(stream: &mut TcpStream, bytes: &mut [u8], until: Instant) -> io::Result<()> {
    let mut filled = 0;
    while let Some(room) = bytes.get_mut(filled..).filter(|room| !room.is_empty()) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

/// One of the [`SEATS`], which is free again when this is dropped.
struct Seat(Arc<Shared>);

impl Seat {
    fn take(shared: &Arc<Shared>) -> Option<Seat> {
        let more = |taken| (taken < SEATS).then_some(taken + 1);
        shared.seats.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Seat(shared.clone()))
    }

    fn serve(&self, stream: TcpStream, visit: &Visit) -> io::Result<()> {
        self.0.serve(stream, visit)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.seats.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An open session's badge, which is removed when this is dropped.
struct Session<'s>(&'s Shared, Badge);

impl<'s> Session<'s> {
    fn open(shared: &'s Shared, badge: Badge) -> Session<'s> {
        ports::lock(&shared.badges).push(badge);
        Session(shared, badge)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let mut badges = ports::lock(&self.0.badges);
        if let Some(place) = badges.iter().position(|badge| *badge == self.1) {
            badges.swap_remove(place);
        }
    }
}
