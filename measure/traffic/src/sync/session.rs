//! The sender's synchronisation connection to one receiver.

use super::{
    Code, Garbled, Inbox, Message, Offer, Refusal, SenderSync, Step, clear_of_commands, word,
};
use crate::connect::Reached;
use crate::event_fd::wait_readable;
use crate::plan::Plan;
use crate::report::Side;
use crate::{TrafficError, connect};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Who is at the other end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PeerKind {
    /// Another Millrace: both ends' figures are in the report.
    Millrace,
    /// Another NTttcp: only this end's figures are known.
    Ntttcp,
    /// Nobody was asked (`-N`, `-ns`).
    Unsynchronised,
}

/// A receiver that does not answer a question within so long is given up.
pub(super) const ANSWER: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(100);

/// How a receiver answered.
pub(crate) enum Opened<'p> {
    /// As ntttcp-for-linux does.
    Session(Session<'p>),
    /// As Windows NTttcp does: a connection to this address that belongs to the test.
    Windows(SocketAddr, OwnedFd),
}

/// See the module.
pub(crate) struct Session<'p> {
    address: SocketAddr,
    socket: OwnedFd,
    inbox: Inbox,
    sync: SenderSync,
    stop: &'p AtomicBool,
    /// What both ends take together; 0 is an open end.
    pub(crate) total_s: u32,
    /// Who answered.
    pub(crate) kind: PeerKind,
}

impl<'p> Session<'p> {
    /// Connects to `host`, asks for its state and agrees on the time.
    pub(crate) fn open(plan: &'p Plan, host: IpAddr) -> Result<Opened<'p>, TrafficError> {
        let address = SocketAddr::new(host, plan.base_port.saturating_sub(1));
        let Reached { socket, windows } = connect::sync(plan, address)?;
        if let Some(address) = windows {
            return Ok(Opened::Windows(address, socket));
        }
        let offer = serde_json::to_vec(&Offer::of(plan, plan.ports_at(host)))
            .map_err(|error| TrafficError::Garbled { address, detail: error.to_string() })?;
        let sync = SenderSync::new(clear_of_commands(plan.total_s()), plan.last_client, offer);
        let (inbox, kind) = (Inbox::default(), PeerKind::Ntttcp);
        let mut session =
            Session { address, socket, inbox, sync, stop: &plan.stop, total_s: 0, kind };
        let mut question = session.sync.begin();
        loop {
            match session.ask(&question, "agreeing on the test")? {
                Step::Ask(next) => question = next,
                Step::Connect { total_s, ours } => {
                    session.total_s = total_s;
                    if ours {
                        session.kind = PeerKind::Millrace;
                    }
                    return Ok(Opened::Session(session));
                }
                Step::Wait | Step::Run => {
                    return Err(session.garbled("it runs before it was asked to"));
                }
            }
        }
    }

    /// Asks for the begin; the answer is waited for by [`Session::await_begin`], so that several
    /// receivers can be asked.
    pub(crate) fn request_begin(&mut self) -> Result<(), TrafficError> {
        let request = self.sync.ready();
        self.write(&request, "asking for the begin")
    }

    /// Waits for the begin, however long the last sender takes; `waits` is told that it is not yet
    /// there.
    pub(crate) fn await_begin(&mut self, waits: &mut dyn FnMut()) -> Result<(), TrafficError> {
        let mut limit = Some(ANSWER);
        loop {
            let answer = self.read(limit, "waiting for the begin")?;
            match self.step(&answer)? {
                Step::Run => return Ok(()),
                Step::Wait => {
                    limit = None;
                    waits();
                }
                Step::Ask(_) | Step::Connect { .. } => {
                    return Err(self.garbled("it answers what was not asked"));
                }
            }
        }
    }

    /// Tells the receiver that the test is over before its time.
    pub(crate) fn exit(&mut self) {
        // The receiver may be gone; then there is nobody to tell.
        let _ = self.write(&Message::Word(word::EXIT), "ending the test");
        let _ = self.read(Some(Duration::from_secs(2)), "ending the test");
    }

    /// Gives our figures to a Millrace receiver and takes its own.
    pub(crate) fn exchange(&mut self, own: &Side) -> Result<Side, TrafficError> {
        let during = "exchanging the figures";
        let body = serde_json::to_vec(own).map_err(|error| self.garbled(&error.to_string()))?;
        self.write(&Message::Body(Code::Figures, body), during)?;
        match self.read(Some(ANSWER), during)? {
            Message::Body(Code::Figures, body) => {
                serde_json::from_slice(&body).map_err(|error| self.garbled(&error.to_string()))
            }
            _ => Err(self.garbled("it answers figures with something else")),
        }
    }

    fn ask(&mut self, question: &Message, during: &'static str) -> Result<Step, TrafficError> {
        self.write(question, during)?;
        let answer = self.read(Some(ANSWER), during)?;
        self.step(&answer)
    }

    fn step(&mut self, answer: &Message) -> Result<Step, TrafficError> {
        let address = self.address;
        self.sync.on_answer(answer).map_err(|refusal| match refusal {
            Refusal::Busy => TrafficError::Busy { address },
            Refusal::Reason(reason) => TrafficError::Refused { address, reason },
            Refusal::Nonsense(detail) => {
                TrafficError::Garbled { address, detail: format!("it says {detail}") }
            }
        })
    }

    fn write(&self, message: &Message, during: &'static str) -> Result<(), TrafficError> {
        let bytes = message.encode();
        let mut rest = bytes.as_slice();
        let start = Instant::now();
        while !rest.is_empty() {
            match send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
                Err(Errno::AGAIN) if start.elapsed() < ANSWER => {
                    std::thread::sleep(Duration::from_millis(1))
                }
                Err(Errno::INTR) => {}
                Err(source) => return Err(self.lost(during, source)),
            }
        }
        Ok(())
    }

    fn read(
        &mut self,
        limit: Option<Duration>,
        during: &'static str,
    ) -> Result<Message, TrafficError> {
        let deadline = limit.map(|limit| Instant::now() + limit);
        let mut bytes = [0; 4096];
        loop {
            match self.inbox.pop() {
                Ok(Some(message)) => return Ok(message),
                Ok(None) => {}
                Err(Garbled { length }) => {
                    return Err(self.garbled(&format!("it announces {length} bytes")));
                }
            }
            let stop = limit.is_none().then_some(self.stop);
            let count = receive(&self.socket, &mut bytes, deadline, stop)
                .map_err(|source| self.lost(during, source))?;
            self.inbox.push(bytes.get(..count).unwrap_or_default());
        }
    }

    fn lost(&self, during: &'static str, source: Errno) -> TrafficError {
        lost(self.address, during, source)
    }

    fn garbled(&self, detail: &str) -> TrafficError {
        TrafficError::Garbled { address: self.address, detail: detail.to_string() }
    }
}

/// Receives what comes until `deadline`, or until `stop` is set: `CANCELED`.
pub(super) fn receive(
    socket: &OwnedFd,
    bytes: &mut [u8],
    deadline: Option<Instant>,
    stop: Option<&AtomicBool>,
) -> Result<usize, Errno> {
    loop {
        match recv(socket, &mut *bytes, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Errno::CONNRESET),
            Ok((count, _)) => return Ok(count),
            Err(Errno::AGAIN) if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) => {
                return Err(Errno::CANCELED);
            }
            Err(Errno::AGAIN) if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                return Err(Errno::TIMEDOUT);
            }
            Err(Errno::AGAIN) => wait_readable(&[socket.as_fd()], GLANCE),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Says that the receiver was lost, unless the user stopped the wait.
pub(super) fn lost(address: SocketAddr, during: &'static str, source: Errno) -> TrafficError {
    match source {
        Errno::CANCELED => TrafficError::StoppedEarly,
        _ => TrafficError::SyncLost { address, during, source },
    }
}
