//! The agent: a host that its user started on another machine, for experiments that span both.
//!
//! A peer is served once it has said the token, and one experiment at a time; whoever else comes is told so. A peer that
//! says something else than a request for traffic or counters, or says nothing for long, or vanishes, ends its own
//! experiment with all its connections, and the agent waits for the next. It runs no programs and changes nothing.

use super::agent::{Agent, put};
use super::lines::{Lines, Patient, Refusal};
use super::protocol::{PROTOCOL, ROUND_TRIPS_MAX, Reply, Request};
use super::token::Token;
use crate::LabError;
use crate::interrupt::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A peer that has not said the token by then never will.
const HELLO: Duration = Duration::from_secs(5);
/// An experiment that is over takes a moment to end its connections.
const AFTER_ANOTHER: Duration = Duration::from_secs(2);
/// A peer asks for something more often than that. It is silent during an interval, which may be as long as the longest
/// round trips.
const SILENCE: Duration = ROUND_TRIPS_MAX.saturating_add(Duration::from_secs(30));
/// A peer that does not take an answer for so long has gone.
const ANSWER: Duration = Duration::from_secs(10);
/// Most connections at once. One is an experiment, the others are told that it runs.
const PEERS_MAX: usize = 8;
/// How often a wait for peers looks at the interrupt.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// See the module.
pub struct Listening {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// What all connections share.
struct Shared {
    token: Token,
    interrupt: Interrupt,
    /// An experiment runs.
    busy: AtomicBool,
    /// Connections.
    peers: AtomicUsize,
    /// Told what happens, a line each.
    say: Box<dyn Fn(&str) + Send + Sync>,
}

impl Listening {
    /// Listens. `say` is told what happens, for people.
    ///
    /// # Errors
    /// The address is not this host's, or the port is taken.
    pub fn start(
        at: SocketAddr,
        token: Token,
        interrupt: Interrupt,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Listening, LabError> {
        let doing = || LabError::io(format!("listening on {at}"));
        let listener = TcpListener::bind(at).map_err(doing())?;
        listener.set_nonblocking(true).map_err(doing())?;
        let shared = Shared {
            token,
            interrupt,
            busy: AtomicBool::default(),
            peers: AtomicUsize::default(),
            say: Box::new(say),
        };
        Ok(Listening { listener, shared: Arc::new(shared) })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> Result<SocketAddr, LabError> {
        self.listener.local_addr().map_err(LabError::io("reading its own address"))
    }

    /// Serves peers until it is interrupted, and then until each has noticed.
    pub fn serve(&self) {
        while !self.shared.interrupt.is_set() {
            // Whether a peer came is for `accept` to say.
            let _ = poll(&mut [PollFd::new(&self.listener, PollFlags::IN)], Some(&GLANCE));
            let Ok((stream, peer)) = self.listener.accept() else { continue };
            let Some(seat) = Seat::take(&self.shared) else { continue };
            std::thread::spawn(move || seat.0.meet(stream, peer));
        }
        let end = Instant::now() + ANSWER;
        while self.shared.peers.load(SeqCst) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A place among [`PEERS_MAX`], until it is dropped.
struct Seat(Arc<Shared>);

impl Seat {
    fn take(shared: &Arc<Shared>) -> Option<Seat> {
        let seat = Seat(shared.clone());
        (shared.peers.fetch_add(1, SeqCst) < PEERS_MAX).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.peers.fetch_sub(1, SeqCst);
    }
}

/// The one experiment, until it is dropped.
struct Turn<'s>(&'s Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, SeqCst);
    }
}

impl Shared {
    /// From a peer's first byte to its end, and says how it went.
    fn meet(&self, stream: TcpStream, peer: SocketAddr) {
        let told = match self.talk(stream, peer) {
            Ok(()) => format!("{peer}: the experiment is over"),
            Err(refusal) => format!("{peer}: {refusal}"),
        };
        (self.say)(&told);
    }

    fn talk(&self, stream: TcpStream, peer: SocketAddr) -> Result<(), Refusal> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(ANSWER))?;
        let mut out = stream.try_clone()?;
        let until = Instant::now() + HELLO;
        let mut lines = Lines::new(Patient { stream, until, interrupt: self.interrupt.clone() });
        let served = self.greet(&mut lines).and_then(|turn| {
            (self.say)(&format!("{peer}: an experiment begins"));
            put(&mut out, &Reply::done(()))?;
            serve(&mut lines, &mut out)?;
            drop(turn);
            Ok(())
        });
        if let Err(refusal) = &served {
            // It may have gone already.
            let _ = put(&mut out, &Reply::Error { message: refusal.to_string() });
        }
        served
    }

    /// The right to an experiment: the token, and nobody else at work.
    fn greet(&self, lines: &mut Lines<Patient>) -> Result<Turn<'_>, Refusal> {
        let forbidden = |why: &str| Err(Refusal::Forbidden(why.to_owned()));
        let Some(Request::Hello { protocol, token }) = lines.any_request()? else {
            return forbidden("no token was sent");
        };
        if !self.token.matches(&token) {
            return forbidden("the token is not the one that this agent printed");
        }
        if protocol != PROTOCOL {
            return forbidden(&format!(
                "this agent speaks version {PROTOCOL}, not {protocol}: use the same Millrace on both hosts"
            ));
        }
        self.turn().ok_or_else(|| {
            Refusal::Forbidden("another experiment is running here: wait until it ends".to_owned())
        })
    }

    /// The one experiment, once the one before it is over.
    fn turn(&self) -> Option<Turn<'_>> {
        let until = Instant::now() + AFTER_ANOTHER;
        while self.busy.swap(true, SeqCst) {
            if Instant::now() >= until || self.interrupt.is_set() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Turn(self))
    }
}

/// Does what a peer asks for until it ends. All load ends with this.
fn serve(lines: &mut Lines<Patient>, out: &mut TcpStream) -> Result<(), Refusal> {
    let mut agent = Agent::default();
    loop {
        lines.source().until = Instant::now() + SILENCE;
        let Some(request) = lines.request()? else { return Ok(()) };
        put(out, &agent.handle(request))?;
    }
}

#[cfg(test)]
mod tests;
