//! The receiver's synchronisation server: listeners below the data ports, listeners for Windows'
//! tokens, and the senders connected to them.

use super::{Action, ClientId, Code, Inbox, Message, Offer, ReceiverSync, Senders, token};
use crate::event_fd::{epoll_set, wait_for_events};
use crate::plan::Plan;
use crate::report::Side;
use crate::sender::TOKENS_NOTE;
use crate::{TrafficError, socket};
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Most clients connected at once, senders of the test or not; the oldest that is none makes room.
const CLIENTS_MAX: usize = 64;
/// The first client number; smaller numbers are listeners.
const FIRST_CLIENT: ClientId = 1 << 32;

/// Serves the synchronisation of all senders on one epoll set.
pub(crate) struct SyncServer {
    epoll: OwnedFd,
    listeners: Vec<OwnedFd>,
    clients: BTreeMap<ClientId, Client>,
    next: ClientId,
    state: ReceiverSync,
    /// Actions for the receiver; replies are sent here and never queued.
    events: VecDeque<Action>,
    /// Replies that let the traffic flow, held back until [`SyncServer::begin`].
    held: Option<Vec<(ClientId, Vec<u8>)>>,
    ended: bool,
    own_total_s: u32,
    /// The client that gave each port's token. The token listeners come last in `listeners`.
    tokens: Vec<Option<ClientId>>,
    by_tokens: bool,
    /// Sentences for the report.
    pub(crate) notes: Vec<String>,
}

struct Client {
    socket: OwnedFd,
    inbox: Inbox,
    /// The port for which this connection carries the token.
    token: Option<usize>,
}

impl SyncServer {
    /// Listens below the data ports of each of the plan's hosts.
    ///
    /// # Errors
    /// Fails if a port is taken or the kernel refuses a socket. Token ports that are taken become a
    /// note instead.
    pub(crate) fn open(plan: &Plan) -> Result<SyncServer, TrafficError> {
        let hosts = plan.hosts();
        let open = |host: &IpAddr| socket::sync_listener(plan.sync_port(*host));
        let mut listeners: Vec<OwnedFd> = hosts.iter().map(open).collect::<Result<_, _>>()?;
        let (mut tokens, mut notes) = (Vec::new(), Vec::new());
        if plan.tokens {
            let ports: Vec<SocketAddr> =
                hosts.iter().flat_map(|host| plan.token_ports(*host)).collect();
            match ports.into_iter().map(socket::sync_listener).collect::<Result<Vec<_>, _>>() {
                Ok(more) => {
                    tokens = vec![None; more.len()];
                    listeners.extend(more);
                }
                Err(error) => {
                    notes.push(format!("Windows NTttcp's tokens could not be taken: {error}"));
                }
            }
        }
        let numbered = listeners.iter().zip(0..);
        let epoll = epoll_set(numbered.map(|(one, place)| (one.as_fd(), place, EventFlags::IN)))?;
        let ports = hosts.iter().map(|host| plan.ports_at(*host)).min().unwrap_or(0);
        let senders =
            if plan.multi_client { Senders::UntilLast } else { Senders::Count(hosts.len()) };
        let state = ReceiverSync::new(plan.total_s(), Offer::of(plan, ports), senders);
        let (clients, events) = (BTreeMap::new(), VecDeque::new());
        Ok(SyncServer {
            epoll,
            listeners,
            clients,
            next: FIRST_CLIENT,
            state,
            events,
            held: None,
            ended: false,
            own_total_s: plan.total_s(),
            tokens,
            by_tokens: false,
            notes,
        })
    }

    /// Serves all clients with pending input, and returns the oldest action.
    pub(crate) fn poll(&mut self) -> Option<Action> {
        let mut ready = Vec::with_capacity(CLIENTS_MAX);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A signal may interrupt it; the caller polls again soon.
        let _ = wait_for_events(&self.epoll, &mut ready, Some(&now));
        for event in ready {
            let number = event.data.u64();
            if number >= FIRST_CLIENT { self.read_client(number) } else { self.accept(number) }
        }
        self.events.pop_front()
    }

    /// Marks the test as finished, which later queries are told.
    pub(crate) fn finish(&mut self) {
        self.state.finish();
    }

    /// Whether any client has ever connected.
    pub(crate) fn has_had_clients(&self) -> bool {
        self.next > FIRST_CLIENT
    }

    /// Whether a sender of the test is still connected.
    pub(crate) fn has_senders(&self) -> bool {
        self.clients.keys().any(|client| self.state.takes_part(*client))
    }

    /// Senders of the test.
    pub(crate) fn senders(&self) -> usize {
        self.state.senders()
    }

    /// Answers a sender's figures with ours.
    pub(crate) fn answer(&mut self, client: ClientId, own: &Side) {
        let Ok(body) = serde_json::to_vec(own) else { return };
        self.write(client, &Message::Body(Code::Figures, body).encode());
    }

    /// Tells the senders that traffic may flow.
    pub(crate) fn begin(&mut self) {
        for (client, message) in self.held.take().unwrap_or_default() {
            self.write(client, &message);
        }
    }

    /// Whether senders announce the end of their test: by tokens they do not.
    pub(crate) fn announces_end(&self) -> bool {
        !self.by_tokens
    }

    /// Whether a sender has ended the test. Figures that arrive before our own end are kept for
    /// [`SyncServer::poll`].
    pub(crate) fn peer_has_ended(&mut self) -> bool {
        match self.poll() {
            None | Some(Action::Start { .. } | Action::Reply(..)) => {}
            Some(Action::Stop) => self.ended = true,
            Some(figures @ Action::Figures(..)) => {
                self.ended = true;
                self.events.push_front(figures);
            }
        }
        self.ended
    }

    fn is_full(&self) -> bool {
        self.clients.len() >= CLIENTS_MAX + self.tokens.len()
    }

    fn accept(&mut self, listener: ClientId) {
        let place = usize::try_from(listener).unwrap_or(usize::MAX);
        let Some(listener) = self.listeners.get(place) else { return };
        let Ok(socket) = accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) else {
            return;
        };
        if self.is_full() {
            // One that takes no part makes room, or silent connections kept the sender away.
            let idle = self.clients.iter().find(|(number, client)| {
                client.token.is_none() && !self.state.takes_part(**number)
            });
            if let Some(number) = idle.map(|(number, _)| *number) {
                self.drop_client(number);
            }
        }
        let client = self.next;
        let watched = epoll::add(&self.epoll, &socket, EventData::new_u64(client), EventFlags::IN);
        if watched.is_ok() && !self.is_full() {
            let token = place.checked_sub(self.listeners.len() - self.tokens.len());
            self.next += 1;
            self.clients.insert(client, Client { socket, inbox: Inbox::default(), token });
        }
    }

    fn read_client(&mut self, number: ClientId) {
        let mut bytes = [0; 4096];
        let Some(client) = self.clients.get_mut(&number) else { return };
        match recv(&client.socket, &mut bytes[..], RecvFlags::empty()) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            Ok((0, _)) | Err(_) => return self.drop_client(number),
            Ok((count, _)) if client.token.is_some() => {
                let (port, said) = (client.token.unwrap_or(0), bytes.get(..count));
                return self.take_token(number, port, said == Some(token::TOKEN));
            }
            Ok((count, _)) => client.inbox.push(bytes.get(..count).unwrap_or_default()),
        }
        loop {
            let Some(client) = self.clients.get_mut(&number) else { return };
            match client.inbox.pop() {
                Ok(None) => return,
                Ok(Some(message)) => {
                    for action in self.state.on_message(number, message) {
                        self.act(action);
                    }
                }
                Err(_) => return self.drop_client(number),
            }
        }
    }

    /// Accepts a port's token; with the last one the test begins. A sender gives its token before
    /// it waits for ours.
    fn take_token(&mut self, client: ClientId, port: usize, is_one: bool) {
        let Some(slot) = self.tokens.get_mut(port).filter(|slot| is_one && slot.is_none()) else {
            return self.drop_client(client);
        };
        *slot = Some(client);
        if !self.tokens.iter().all(Option::is_some) || !self.state.is_idle() {
            return;
        }
        let answers = self.tokens.iter().flatten();
        self.held = Some(answers.map(|client| (*client, token::TOKEN.to_vec())).collect());
        self.by_tokens = true;
        self.state.occupy();
        self.notes.push(TOKENS_NOTE.into());
        self.events.push_back(Action::Start { total_s: self.own_total_s });
    }

    fn act(&mut self, action: Action) {
        match (action, &mut self.held) {
            (Action::Reply(client, message), Some(held)) => held.push((client, message.encode())),
            (Action::Reply(client, message), None) => self.write(client, &message.encode()),
            (event, held) => {
                if let Action::Start { .. } = event {
                    *held = Some(Vec::new());
                }
                self.events.push_back(event);
            }
        }
    }

    /// Writes to a client, or drops it: answers fit into an empty socket buffer.
    fn write(&mut self, number: ClientId, bytes: &[u8]) {
        let Some(client) = self.clients.get(&number) else { return };
        if send(&client.socket, bytes, SendFlags::NOSIGNAL) != Ok(bytes.len()) {
            self.drop_client(number);
        }
    }

    fn drop_client(&mut self, number: ClientId) {
        self.clients.remove(&number);
        self.tokens.iter_mut().filter(|slot| **slot == Some(number)).for_each(|slot| *slot = None);
        if self.state.takes_part(number) {
            self.events.push_back(Action::Stop);
        }
        self.state.on_closed(number);
    }
}

impl AsFd for SyncServer {
    /// Returns a descriptor that is readable while clients have pending input.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
