//! A checker's connection to one responder.

use crate::attachment::{Attachment, Neighbour, neighbour, route};
use crate::frame::{Answer, Badge, Hello, LEN, Order, Outcome, ProbeRequest, SIZES, Status};
use crate::judge::diagnosis::Told;
use problem::Problem;
use problem::token::Whereabouts;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, IntoBytes};

/// Longest wait for a responder's answer to an order, which takes at most the order's own timeout,
/// after those that the responder carries out before it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// A responder, and the data by which it is reached.
#[derive(Clone, Debug)]
pub struct Host {
    /// The host's name, for people.
    pub name: String,
    /// Its token, address and port.
    pub at: Whereabouts,
    /// The network namespace to connect from; `None` for the caller's own.
    pub netns: Option<PathBuf>,
}

/// A session with a responder, over TCP.
pub struct Session {
    stream: TcpStream,
    name: String,
    address: SocketAddr,
    attachment: Attachment,
}

/// The reason why there is no session.
pub(crate) struct Closed {
    pub(crate) problem: Box<Problem>,
    /// The responder's address, if it was not reached, and a host of its subnet may tell more.
    pub(crate) silent: Option<SocketAddr>,
}

impl From<Problem> for Closed {
    fn from(problem: Problem) -> Closed {
        Closed { problem: Box::new(problem), silent: None }
    }
}

/// Returns a new random badge.
///
/// # Errors
/// Fails if the kernel returns no random numbers.
pub fn badge() -> io::Result<Badge> {
    let mut badge = Badge::default();
    File::open("/dev/urandom")?.read_exact(&mut badge)?;
    Ok(badge)
}

impl Session {
    /// Connects and presents the token.
    ///
    /// # Errors
    /// Fails if the responder is not reached, or refuses the token.
    pub fn open(host: &Host, badge: Badge) -> Result<Session, Problem> {
        Session::try_open(host, badge).map_err(|closed| *closed.problem)
    }

    /// Connects and presents the token. A failure says whether the responder was reached.
    pub(crate) fn try_open(host: &Host, badge: Badge) -> Result<Session, Closed> {
        let begun = Instant::now();
        let reach = |error: io::Error| unreached(host, &error, begun);
        let stream = connect(&host.at.at, host.netns.as_deref()).map_err(reach)?;
        let address = stream.peer_addr().map_err(reach)?;
        let attachment = Attachment::default();
        let mut session = Session { stream, name: host.name.clone(), address, attachment };
        let hello = Hello::new(&host.at.token.to_string(), badge);
        let answer = session.ask(hello.as_bytes()).map_err(|error| {
            Problem::new(format!("the responder on {} refuses the token", host.name))
                .seen(error)
                .wanted("the token that it printed")
                .remedy(
                    "copy TOKEN@ADDRESS:PORT from its output; a restarted responder has a new token",
                )
        })?;
        session.attachment = answer.attachment().map_err(|status| session.refused(status))?;
        Ok(session)
    }

    /// Returns the address at which the responder listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns where that address is attached.
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// Makes the host probe a peer by packets of these sizes, at most [`SIZES`].
    ///
    /// # Errors
    /// Fails if the responder has gone, or cannot send.
    pub fn probe(
        &mut self,
        to: SocketAddr,
        sizes: &[u16],
        timeout: Duration,
    ) -> Result<Outcome, Problem> {
        let sizes = sizes.get(..SIZES).unwrap_or(sizes).to_vec();
        let timeout_ms = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
        let count = sizes.len();
        let order = Order::new(&ProbeRequest { to, sizes, timeout_ms });
        let answer = self.ask(order.as_bytes()).map_err(|error| {
            Problem::new(format!("the responder on {} has ended", self.name))
                .seen(error)
                .remedy("start it again, and repeat the check")
        })?;
        answer.read(count).map_err(|status| self.refused(status))
    }

    fn ask(&mut self, message: &[u8]) -> io::Result<Answer> {
        self.stream.write_all(message)?;
        let mut bytes = [0; LEN];
        self.stream.read_exact(&mut bytes)?;
        Answer::read_from_bytes(&bytes).map_err(|_| io::ErrorKind::InvalidData.into())
    }

    fn refused(&self, status: Status) -> Problem {
        let problem = Problem::new(format!("the responder on {} sends no probes", self.name));
        match status {
            Status::Unable => problem
                .seen("its host has no route to a peer, or lost the address it listens on")
                .remedy("listen on an address in the network to check"),
            Status::Done | Status::BadOrder => problem
                .seen("it refused the order")
                .remedy("run the same version of Millrace on all hosts"),
        }
    }
}

/// Says that a responder is not reached, and why, as far as this host's own ARP tells.
fn unreached(host: &Host, error: &io::Error, begun: Instant) -> Closed {
    let address = host.at.at.to_socket_addrs().ok().and_then(|mut all| all.next());
    let problem = Problem::new(format!("the responder on {} cannot be reached", host.name))
        .seen(error)
        .wanted("a TCP connection");
    // The host itself refused.
    let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
    let asked = || {
        let (route, device) = route(None, address?)?;
        let is_near = route.gateway.is_none() && device != "lo";
        let state = neighbour(&route, address?.ip(), begun);
        is_near.then_some((state, device))
    };
    let near: Option<(Neighbour, String)> =
        ports::namespace::within(host.netns.as_deref(), asked).ok().flatten();
    match (near, address) {
        (Some((state, device)), Some(to)) if !is_refused => {
            told_by_neighbour(problem, &format!("{device} here"), to.ip(), state).into()
        }
        _ => {
            let problem = problem.remedy(
                "start `millrace mtu responder` there, and let firewalls pass its port, TCP and UDP",
            );
            Closed { problem: Box::new(problem), silent: address.filter(|_| !is_refused) }
        }
    }
}

/// Adds what ARP told a host in a responder's subnet, at a device of its own or by its name.
pub(crate) fn told_by_neighbour(
    problem: Problem,
    by: &str,
    to: IpAddr,
    state: Neighbour,
) -> Problem {
    let told = Told { neighbour: state, to: Some(to) };
    let (start, place) = match state {
        Neighbour::Silent => ("", format!(" at {by}")),
        Neighbour::Answers => (MISSING, format!(" at {by}")),
        Neighbour::Unknown => (MISSING, String::new()),
    };
    let seen = format!("{}{}{place}", problem.seen, told.seen());
    problem.seen(seen).remedy(format!("{start}{}", told.remedy()))
}

/// The other cause of silence, if the host is there.
const MISSING: &str = "start `millrace mtu responder` there if none runs; else ";

fn connect(at: &str, netns: Option<&Path>) -> io::Result<TcpStream> {
    let work = || {
        let mut last = io::ErrorKind::NotFound.into();
        for address in at.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    let stream = ports::namespace::within(netns, work).flatten()?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
