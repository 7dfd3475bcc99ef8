//! The sender's synchronisation connection to one receiver.

use super::{
    Code, Garbled, Inbox, Message, Offer, Refusal, SenderSync, Step, clear_of_commands, word,
};
use crate::connect::Receiver;
use crate::event_fd::wait_readable;
use crate::plan::Plan;
use crate::progress::Wait;
use crate::report::Side;
use crate::{TrafficError, connect};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The program at the other end.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum PeerKind {
    /// Another Millrace: both ends' figures are in the report.
    Millrace,
    /// Another NTttcp: only this end's figures are known.
    Ntttcp,
    /// No synchronisation was asked for (`-N`, `-ns`), so the program is unknown.
    Unsynchronised,
}

/// Time after which a receiver that does not answer is given up.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The kind of synchronisation that a receiver offers.
pub(crate) enum Opened<'p> {
    /// That of ntttcp-for-linux.
    Session(Session<'p>),
    /// That of Windows NTttcp: a connection to this address that belongs to the test.
    Windows(SocketAddr, OwnedFd),
}

/// The sender's synchronisation connection to one receiver.
pub(crate) struct Session<'p> {
    address: SocketAddr,
    socket: OwnedFd,
    inbox: Inbox,
    sync: SenderSync,
    stop: &'p AtomicBool,
    /// Time that both ends take together, in seconds; 0 means until stopped.
    pub(crate) total_s: u32,
    /// The program at the other end.
    pub(crate) kind: PeerKind,
}

impl<'p> Session<'p> {
    /// Connects to `host`, asks for its state and agrees on the time. Calls `waits` once a second
    /// until it is connected.
    ///
    /// # Errors
    /// Fails if the receiver cannot be reached, is busy, refuses the test or breaks the protocol.
    pub(crate) fn open(
        plan: &'p Plan,
        host: IpAddr,
        waits: &mut dyn FnMut(Wait),
    ) -> Result<Opened<'p>, TrafficError> {
        let address = plan.sync_port(host);
        let Receiver { socket, windows } = connect::sync(plan, address, waits)?;
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

    /// Asks for the begin. [`Session::await_begin`] waits for the answer, so that several receivers
    /// can be asked first.
    ///
    /// # Errors
    /// Fails if the connection is lost.
    pub(crate) fn request_begin(&mut self) -> Result<(), TrafficError> {
        let request = self.sync.ready();
        self.write(&request, "asking for the begin")
    }

    /// Waits for the begin, however long the last sender takes; calls `waits` if the receiver waits
    /// for others.
    ///
    /// # Errors
    /// Fails if the connection is lost, the receiver refuses or the user stops the run.
    pub(crate) fn await_begin(&mut self, waits: &mut dyn FnMut()) -> Result<(), TrafficError> {
        let mut limit = Some(ANSWER_TIMEOUT);
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

    /// Tells the receiver that the test ended early.
    pub(crate) fn exit(&mut self) {
        // Fails if the receiver is gone, which ends the test too.
        let _ = self.write(&Message::Word(word::EXIT), "ending the test");
        let _ = self.read(Some(Duration::from_secs(2)), "ending the test");
    }

    /// Sends our figures to a Millrace receiver and returns its own.
    ///
    /// # Errors
    /// Fails if the connection is lost or the answer is no figures.
    pub(crate) fn exchange(&mut self, own: &Side) -> Result<Side, TrafficError> {
        let during = "exchanging the figures";
        let body = serde_json::to_vec(own).map_err(|error| self.garbled(&error.to_string()))?;
        self.write(&Message::Body(Code::Figures, body), during)?;
        match self.read(Some(ANSWER_TIMEOUT), during)? {
            Message::Body(Code::Figures, body) => {
                strict::from_json(&body).map_err(|error| self.garbled(&error.to_string()))
            }
            _ => Err(self.garbled("it answers figures with something else")),
        }
    }

    fn ask(&mut self, question: &Message, during: &'static str) -> Result<Step, TrafficError> {
        self.write(question, during)?;
        let answer = self.read(Some(ANSWER_TIMEOUT), during)?;
        self.step(&answer)
    }

    fn step(&mut self, answer: &Message) -> Result<Step, TrafficError> {
        let address = self.address;
        self.sync.on_answer(answer).map_err(|refusal| match refusal {
            Refusal::Busy => TrafficError::Busy { address },
            Refusal::Reason(reason) => TrafficError::Refused { address, reason },
            Refusal::Unexpected(detail) => {
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
                Err(Errno::AGAIN) if start.elapsed() < ANSWER_TIMEOUT => {
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

/// Receives bytes until `deadline`, or fails with `CANCELED` once `stop` is set.
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
            Err(Errno::AGAIN) => wait_readable(&[socket.as_fd()], POLL_INTERVAL),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes the error of a lost receiver, unless the user stopped the wait.
pub(super) fn lost(address: SocketAddr, during: &'static str, source: Errno) -> TrafficError {
    match source {
        Errno::CANCELED => TrafficError::StoppedEarly,
        _ => TrafficError::SyncLost { address, during, source },
    }
}
