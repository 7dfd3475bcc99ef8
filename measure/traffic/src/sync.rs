//! Synchronisation of two ends' begin and end: the protocol of ntttcp-for-linux, and our extension
//! for two Millrace ends.
//!
//! **The shared part.** The sender connects by TCP to the port below the first data port. Every
//! message is one signed 32-bit integer in network byte order; the sender asks, the receiver
//! answers:
//!
//! | sender | receiver |
//! | --- | --- |
//! | `X` | its state: 11 idle, 12 running, 13 finished |
//! | seconds of warm-up, test and cool-down together | what both take; 0 is "until stopped" |
//! | `R`, or `L` for the last of several senders | `R` run, or `W` wait (and `R` later), or `E` refused |
//! | `E`, stop now | 13 |
//!
//! `E`, `L`, `R` and `X` are 69, 76, 82 and 88, so a test of exactly so many seconds would be taken
//! for a command: [`clear_of_commands`] adds a second.
//!
//! **Our own part.** A sender ignores the answer to `X` unless it is 12, so a Millrace receiver
//! answers with its state plus [`MARK`]. Only a sender that has seen the mark says more, so another
//! NTttcp never meets any of this: an *offer* (do both ends mean the same test?) before the time,
//! and after the test an exchange of both ends' figures. Such messages are the mark with a code in
//! the low half, followed by a length and so many bytes of JSON.
//!
//! **Windows NTttcp's** has nothing in common with this: see `token`.
//!
//! [`ReceiverSync`] and [`SenderSync`] are pure: messages in, messages out. `SyncServer` and
//! `Session` have the sockets.

mod inbox;
mod offer;
mod receiver;
mod sender;
mod server;
mod session;
pub(crate) mod token;

pub use inbox::{BODY_MAX, Garbled, Inbox};
pub use offer::Offer;
pub use receiver::{Action, ClientId, ReceiverSync, Senders};
pub use sender::{Refusal, SenderSync, Step};
pub(crate) use server::SyncServer;
pub use session::PeerKind;
pub(crate) use session::{Opened, Session};

/// Added by a Millrace receiver to the state it answers to `X` ("MR" in the high half).
pub const MARK: i32 = 0x4d52_0000;

/// A message of either side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A plain integer, as every NTttcp understands it.
    Word(i32),
    /// A message of our own: a code and its JSON.
    Body(Code, Vec<u8>),
}

/// The kind of a message of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Sender: its options, an [`Offer`].
    Offer,
    /// Receiver: the options match its own.
    Accepted,
    /// Receiver: the options differ, with the reason as text.
    Refused,
    /// Either: its figures, a `Side` of the report.
    Figures,
}

impl Code {
    const ALL: [Code; 4] = [Code::Offer, Code::Accepted, Code::Refused, Code::Figures];

    fn word(self) -> i32 {
        MARK | match self {
            Code::Offer => 0x101,
            Code::Accepted => 0x102,
            Code::Refused => 0x103,
            Code::Figures => 0x201,
        }
    }

    fn of(word: i32) -> Option<Code> {
        Code::ALL.into_iter().find(|code| code.word() == word)
    }
}

impl Message {
    /// Returns the bytes on the wire. A body longer than [`BODY_MAX`] would be refused by the
    /// reader and is cut short here.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Message::Word(word) => word.to_be_bytes().to_vec(),
            Message::Body(code, body) => {
                let body = body.get(..BODY_MAX).unwrap_or(body);
                let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
                let mut bytes = code.word().to_be_bytes().to_vec();
                bytes.extend_from_slice(&length.to_be_bytes());
                bytes.extend_from_slice(body);
                bytes
            }
        }
    }
}

/// The integers of the shared protocol.
pub mod word {
    /// Sender: asks for the receiver's state.
    pub const QUERY: i32 = b'X' as i32;
    /// Sender: asks to start. Receiver: both start now.
    pub const RUN: i32 = b'R' as i32;
    /// Sender: asks to start, and is the last of several senders (`-L`).
    pub const RUN_LAST: i32 = b'L' as i32;
    /// Receiver: the sender has to wait until the last sender asks.
    pub const WAIT: i32 = b'W' as i32;
    /// Sender: asks the receiver to stop. Receiver: refuses the sender.
    pub const EXIT: i32 = b'E' as i32;
    /// Receiver: no test is running.
    pub const IDLE: i32 = 11;
    /// Receiver: a test is running.
    pub const RUNNING: i32 = 12;
    /// Receiver: the test is over.
    pub const FINISHED: i32 = 13;
}

/// Returns the total time to propose: `total_s`, or one second more if the peer would read that
/// number as a command.
pub fn clear_of_commands(total_s: u32) -> u32 {
    let commands = [word::QUERY, word::RUN, word::RUN_LAST, word::EXIT];
    let collides = i32::try_from(total_s).is_ok_and(|total| commands.contains(&total));
    if collides { total_s + 1 } else { total_s }
}
