//! The agent: a host that its user started on another machine, for experiments that span both.
//!
//! A peer is served once it has sent the token, and one experiment at a time; others are told so. A
//! peer that asks for something else than traffic or counters, or for nothing for long, or
//! vanishes, ends its own experiment with all its connections, and the agent waits for the next. It
//! runs no programs and changes nothing.

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
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

/// A peer that has not sent the token by then never will, and others wait for its seat.
const HELLO: Duration = Duration::from_secs(2);
/// An experiment that is over takes a moment to end its connections.
const AFTER_ANOTHER: Duration = Duration::from_secs(2);
/// A peer asks for something more often than that, and takes the answer. It is silent during an
/// interval, which may be as long as the longest round trips.
const SILENCE: Duration = ROUND_TRIPS_MAX.saturating_add(Duration::from_secs(30));
/// An experiment that is interrupted has ended by then.
const END: Duration = Duration::from_secs(10);
/// A peer asks for something by then, mostly, and is told that the agent was interrupted.
const FAREWELL: Duration = Duration::from_secs(3);
/// Most connections at once. One is an experiment, the others are told that it runs; more wait to
/// be accepted.
const PEERS_MAX: usize = 8;
/// What the peers of an interrupted agent are told.
const INTERRUPTED: &str = "the agent was interrupted";
/// How often new peers are looked for, and whether to go on with one.
const GLANCE: Duration = Duration::from_millis(20);

/// See the module.
pub struct Listening {
    listener: TcpListener,
    token: Token,
    targets: Targets,
    interrupt: Interrupt,
    /// One for each connection.
    seats: Arc<Semaphore>,
    /// For the peer whose experiment runs.
    experiment: Arc<Semaphore>,
    /// Told what happens, a line each.
    say: Box<dyn Fn(&str) + Send + Sync>,
}

/// Begin of what a client is told whose load would go elsewhere.
pub(crate) const ONLY_TO_CLIENT: &str = "this agent sends only to";

/// Where an agent sends load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Wherever a client wants it.
    Any,
    /// To the address that the client connects from: a client that is not trusted aims at nobody
    /// else.
    Client,
}

impl Targets {
    /// Why the agent does not do this for a client at `client`. `None`: it does.
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
    /// Listens. `say` is told what happens, for people.
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

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn address(&self) -> Result<SocketAddr, LabError> {
        self.listener.local_addr().map_err(LabError::io("reading its own address"))
    }

    /// Serves peers until it is interrupted, and then until each has noticed.
    pub fn serve(self: &Arc<Listening>) {
        while !self.interrupt.is_set() {
            let seat = || self.seats.clone().try_acquire_owned().ok();
            let next = seat().and_then(|seat| Some((seat, self.listener.accept().ok()?)));
            let Some((seat, (stream, at))) = next else {
                std::thread::sleep(GLANCE);
                continue;
            };
            let peer = Peer::new(self, at);
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

    /// What a peer finds here, with `handle` in place of the agent: for the fuzz target.
    pub fn router(
        self: &Arc<Listening>,
        handle: impl FnMut(Request) -> Reply + Send + 'static,
    ) -> Router {
        Peer::new(self, ([127, 0, 0, 1], 0).into()).router(handle)
    }
}

/// A connection.
struct Peer {
    at: SocketAddr,
    agent: Arc<Listening>,
    state: Mutex<Conversation>,
}

/// How far it has come.
struct Conversation {
    /// The right to an experiment, once the token was sent.
    turn: Option<OwnedSemaphorePermit>,
    /// It ends then, unless something is asked before.
    until: Instant,
}

impl Peer {
    fn new(agent: &Arc<Listening>, at: SocketAddr) -> Arc<Peer> {
        let state = Mutex::new(Conversation { turn: None, until: Instant::now() + HELLO });
        Arc::new(Peer { at, agent: agent.clone(), state })
    }

    /// From its first byte to its end. All load ends with this, and then another peer may have its
    /// turn.
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

    /// Everything behind the token, and of the requests those that are for peers.
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

    /// The token, and nobody else at work.
    async fn enter(&self, authorization: Option<&HeaderValue>) -> Result<(), Refusal> {
        let stranger = |why: &str| Err(Refusal(StatusCode::UNAUTHORIZED, why.to_owned()));
        match authorization.and_then(|given| given.to_str().ok()?.strip_prefix("Bearer ")) {
            Some(token) if self.agent.token.matches(token) => {}
            Some(_) => return stranger("the token is not the one that this agent printed"),
            None => return stranger("no token was sent"),
        }
        // It may have to wait for its turn.
        self.state().until = Instant::now() + SILENCE;
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

    /// Why it is not heard any longer, once that is so.
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

/// Lets a peer's requests through. Each that is answered wins it time.
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
