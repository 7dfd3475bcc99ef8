//! A checker's connection to one responder.

use crate::frame::{Answer, Badge, Hello, LEN, Order, Outcome, ProbeRequest, SIZES, Status};
use problem::Problem;
use problem::token::Whereabouts;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;
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
        let reach = |error: io::Error| {
            Problem::new(format!("the responder on {} cannot be reached", host.name))
                .seen(error)
                .wanted("a TCP connection")
                .remedy("start `millrace mtu responder` there, and let firewalls pass its port, TCP and UDP")
        };
        let stream = connect(&host.at.at, host.netns.as_deref()).map_err(reach)?;
        let address = stream.peer_addr().map_err(reach)?;
        let mut session = Session { stream, name: host.name.clone(), address };
        let hello = Hello::new(&host.at.token.to_string(), badge);
        let answer = session.ask(hello.as_bytes()).map_err(|error| {
            Problem::new(format!("the responder on {} refuses the token", host.name))
                .seen(error)
                .wanted("the token that it printed")
                .remedy(
                    "copy TOKEN@ADDRESS:PORT from its output; a restarted responder has a new token",
                )
        })?;
        answer.read(0).map_err(|status| session.refused(status))?;
        Ok(session)
    }

    /// Returns the address at which the responder listens.
    pub fn address(&self) -> SocketAddr {
        self.address
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
