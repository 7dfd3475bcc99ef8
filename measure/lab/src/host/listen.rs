//! The agent: a host that a user started on another machine, for experiments that span both.
//!
//! The agent serves a peer that sends the token, one experiment at a time, and refuses others with
//! that reason. A forbidden request, a long silence or a lost connection ends the peer's experiment
//! with all its connections; then the agent waits for the next peer. It runs no programs, and
//! changes no settings.

use super::agent::Agent;
use super::protocol::{ROUND_TRIPS_MAX, Reply, Request};
use super::router::{Refusal, router, serve};
use crate::LabError;
use crate::interrupt::Interrupt;
use axum::Router;
use axum::extract::{self, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use problem::token::Token;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strangers::{Strangers, Visit};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// Time in which a peer must send the token.
const HELLO: Duration = Duration::from_secs(2);
/// How long a peer waits for the previous experiment to end its connections.
const AFTER_ANOTHER: Duration = Duration::from_secs(2);
/// Longest time without a request before a peer is disconnected. A peer is silent during an
/// interval, which may last as long as the longest round trips.
const SILENCE: Duration = ROUND_TRIPS_MAX.saturating_add(Duration::from_secs(30));
/// How long an interrupted agent waits for its connections to end.
const END: Duration = Duration::from_secs(10);
/// How long an interrupted agent waits for its peer's next request, to answer it with the reason.
const FAREWELL: Duration = Duration::from_secs(3);
/// Maximum number of connections. One has the experiment, the others are refused with that reason;
/// one without the token makes room for a further one.
const PEERS_MAX: usize = 8;
/// Answer of an interrupted agent.
const INTERRUPTED: &str = "the agent was interrupted";
/// How often the agent polls for new connections, and a connection checks whether to end.
const GLANCE: Duration = Duration::from_millis(20);
/// How often the agent looks for a free seat, and after how many looks it ends another connection.
const BEAT: Duration = Duration::from_millis(2);
const BEATS: u32 = 10;

/// A listening agent.
pub struct Listening {
    listener: TcpListener,
    token: Token,
    targets: Targets,
    interrupt: Interrupt,
    /// One permit for each connection.
    seats: Arc<Semaphore>,
    /// One permit, for the experiment.
    experiment: Arc<Semaphore>,
    /// Called with each event, as one line of text.
    say: Box<dyn Fn(&str) + Send + Sync>,
}

/// Start of the refusal of a load that would go to another address than the client's.
pub(crate) const ONLY_TO_CLIENT: &str = "this agent sends only to";

/// Addresses to which an agent sends load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Any address.
    Any,
    /// Only the address that the client connects from, so that an untrusted client cannot aim load
    /// at others.
    Client,
}

impl Targets {
    /// Returns why the agent refuses this request of the client at this address; `None` if it does
    /// not.
    fn forbid(self, request: &Request, client: IpAddr) -> Option<String> {
        let (Request::Send { to, .. } | Request::RoundTrips { to, .. }) = request else {
            return None;
        };
        let (to, client) = (to.ip().to_canonical(), client.to_canonical());
        (self == Targets::Client && to != client)
            .then(|| format!("{ONLY_TO_CLIENT} {client}, which asks, not to {to}"))
    }
}

impl Listening {
    /// Starts to listen. `say` is called with each event, as text for people.
    ///
    /// # Errors
    /// The address is not this host's, or the port is taken.
    pub fn start(
        at: SocketAddr,
        (token, targets): (Token, Targets),
        interrupt: Interrupt,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Arc<Listening>, LabError> {
        let doing = || LabError::io(format!("listening on {at}"));
        let listener = TcpListener::bind(at).map_err(doing())?;
        listener.set_nonblocking(true).map_err(doing())?;
        let [seats, experiment] = [PEERS_MAX, 1].map(|most| Arc::new(Semaphore::new(most)));
        let say = Box::new(say);
        Ok(Arc::new(Listening { listener, token, targets, interrupt, seats, experiment, say }))
    }

    /// Returns the address that the agent listens on.
    ///
    /// # Errors
    /// The kernel does not return the socket's address.
    pub fn address(&self) -> Result<SocketAddr, LabError> {
        self.listener.local_addr().map_err(LabError::io("reading its own address"))
    }

    /// Serves peers until the interrupt is set, then waits until their connections have ended, for
    /// at most ten seconds.
    pub fn serve(self: &Arc<Listening>) {
        let mut strangers = Strangers::default();
        while !self.interrupt.is_set() {
            let Ok((stream, at)) = self.listener.accept() else {
                std::thread::sleep(GLANCE);
                continue;
            };
            let Some(seat) = self.seat(&mut strangers) else { break };
            // Without a descriptor left the connection is closed.
            let Ok(visit) = strangers.add(&stream, at.ip()) else { continue };
            let peer = Peer::new(self, at, Some(visit));
            std::thread::spawn(move || {
                peer.meet(stream);
                drop(seat);
            });
        }
        let end = Instant::now() + END;
        while self.seats.available_permits() < PEERS_MAX && Instant::now() < end {
            std::thread::sleep(GLANCE);
        }
    }

    /// Waits for a seat, which a connection without the token may have to leave; `None` if the agent
    /// is interrupted.
    fn seat(&self, strangers: &mut Strangers) -> Option<OwnedSemaphorePermit> {
        for beat in 0.. {
            if self.interrupt.is_set() {
                break;
            }
            if let Ok(seat) = self.seats.clone().try_acquire_owned() {
                return Some(seat);
            }
            if beat % BEATS == 0 {
                strangers.make_room();
            }
            std::thread::sleep(BEAT);
        }
        None
    }

    /// Returns the router of a peer's connection, with `handle` in place of the agent; for the fuzz
    /// target.
    pub fn router(
        self: &Arc<Listening>,
        handle: impl FnMut(Request) -> Reply + Send + 'static,
    ) -> Router {
        Peer::new(self, ([127, 0, 0, 1], 0).into(), None).router(handle)
    }
}

/// A connection.
struct Peer {
    at: SocketAddr,
    agent: Arc<Listening>,
    state: Mutex<Conversation>,
}

/// State of a conversation.
struct Conversation {
    /// The connection's part among those without the token.
    visit: Option<Visit>,
    /// Permit for the experiment; held once a valid token was sent.
    turn: Option<OwnedSemaphorePermit>,
    /// When the conversation ends unless a request arrives before.
    until: Instant,
}

impl Peer {
    fn new(agent: &Arc<Listening>, at: SocketAddr, visit: Option<Visit>) -> Arc<Peer> {
        let state = Mutex::new(Conversation { visit, turn: None, until: Instant::now() + HELLO });
        Arc::new(Peer { at, agent: agent.clone(), state })
    }

    /// Serves the connection until it ends. All its load ends with it; then another peer may start
    /// an experiment.
    fn meet(self: Arc<Peer>, stream: TcpStream) {
        let open = || {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            tokio::net::TcpStream::from_std(stream)
        };
        let mut agent = Agent::default();
        let router = self.router(move |request| agent.handle(request));
        match serve(open, router, self.over()) {
            Err(error) => self.say(&error.to_string()),
            Ok(()) if self.state().turn.is_some() => self.say("the experiment is over"),
            Ok(()) => self.say("the client disconnected"),
        }
    }

    /// Returns a router that requires the token, and passes permitted requests to `handle`.
    fn router(
        self: &Arc<Peer>,
        mut handle: impl FnMut(Request) -> Reply + Send + 'static,
    ) -> Router {
        let (targets, client) = (self.agent.targets, self.at.ip());
        let permitted = move |request: Request| match request
            .forbidden()
            .or_else(|| targets.forbid(&request, client))
        {
            Some(why) => Err(Refusal(StatusCode::FORBIDDEN, why)),
            None => Ok(handle(request)),
        };
        router(permitted).layer(from_fn_with_state(self.clone(), admit))
    }

    /// Checks the token, and acquires the permit for the experiment.
    async fn enter(&self, authorization: Option<&HeaderValue>) -> Result<(), Refusal> {
        let stranger = |why: &str| Err(Refusal(StatusCode::UNAUTHORIZED, why.to_owned()));
        match authorization.and_then(|given| given.to_str().ok()?.strip_prefix("Bearer ")) {
            Some(token) if self.agent.token.matches(token) => {}
            Some(_) => return stranger("the token is not the one that this agent printed"),
            None => return stranger("no token was sent"),
        }
        // The wait for the permit below must not count as silence.
        self.state().until = Instant::now() + SILENCE;
        self.state().visit.iter().for_each(Visit::is_known);
        if self.agent.interrupt.is_set() {
            return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, INTERRUPTED.to_owned()));
        }
        if self.state().turn.is_none() {
            let turn = self.agent.experiment.clone().acquire_owned();
            let Ok(Ok(turn)) = timeout(AFTER_ANOTHER, turn).await else {
                let why = "another experiment is running on this agent: wait until it ends";
                return Err(Refusal(StatusCode::CONFLICT, why.to_owned()));
            };
            self.say("an experiment begins");
            self.state().turn = Some(turn);
        }
        Ok(())
    }

    /// Waits until the conversation has to end, and returns the reason.
    async fn over(&self) -> io::Error {
        let mut farewell = FAREWELL;
        while Instant::now() < self.state().until {
            sleep(GLANCE).await;
            if self.agent.interrupt.is_set() {
                farewell = farewell.saturating_sub(GLANCE);
                if farewell.is_zero() || self.state().turn.is_none() {
                    return io::Error::other(INTERRUPTED);
                }
            }
        }
        io::Error::new(io::ErrorKind::TimedOut, "the client made no request for too long")
    }

    fn state(&self) -> MutexGuard<'_, Conversation> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, what: &str) {
        (self.agent.say)(&format!("{}: {what}", self.at));
    }
}

/// Middleware that checks each request of a peer, and extends its time after each answer.
async fn admit(State(peer): State<Arc<Peer>>, request: extract::Request, next: Next) -> Response {
    let response = match peer.enter(request.headers().get(AUTHORIZATION)).await {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    match response.extensions().get() {
        Some(Refusal(_, why)) => peer.say(why),
        None => peer.state().until = Instant::now() + SILENCE,
    }
    response
}

#[cfg(test)]
mod tests;
