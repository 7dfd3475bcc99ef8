//! The handshakes of front ends, one table for each, as their sources have them at the version named
//! there, or as one that ran sent them. None of them runs here: a [`Replay`](crate::Replay) sends what
//! a table says.

mod cloud_hypervisor;
mod crosvm;
mod openvmm;
mod qemu;
mod user_mode_linux;
mod virtio_user;

use crate::wire::Request;

/// A front end's handshake.
#[derive(Debug)]
pub struct FrontEnd {
    /// Its name, with the version that was read.
    pub name: &'static str,
    /// The features that it takes of those offered.
    pub(crate) features: u64,
    /// The protocol features that it takes of those offered.
    pub(crate) protocol: u64,
    /// The messages for which it wants an acknowledgement, once that is agreed on.
    pub(crate) acknowledged: Acknowledged,
    /// Whether the number of queues that it is told counts pairs. Most count rings.
    pub(crate) counts_pairs: bool,
    /// Whether it passes the control queue on.
    pub(crate) passes_commands: bool,
    /// Whether it takes features that need commands, keeps the commands, and greets like those that
    /// pass them on.
    pub(crate) takes_what_it_keeps: bool,
    /// What it signals and is signalled by.
    pub(crate) calls: Calls,
    /// The address that it gives for the first byte of guest memory.
    pub(crate) user: u64,
    /// From its connection until its guest's driver begins.
    pub(crate) greets: &'static [Step],
    /// When its guest's driver has begun.
    pub(crate) starts: &'static [Step],
    /// When its guest's driver resets the device.
    pub(crate) stops: &'static [Step],
    /// From another connection on, with a guest that runs; empty if it does not connect again.
    pub(crate) returns: &'static [Step],
}

/// Messages that are acknowledged.
#[derive(Debug)]
pub(crate) enum Acknowledged {
    /// Those among these.
    Among(&'static [Request]),
    /// All, and the flag is set in questions too.
    All,
}

/// What a ring's signals go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    Eventfd,
    /// A Unix stream socket.
    Stream,
}

/// One step of a handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Sends a request without content.
    Tell(Request),
    /// Asks for the features.
    AskFeatures,
    /// Acknowledges those that the guest's driver takes.
    TakeFeatures,
    AskProtocol,
    TakeProtocol,
    /// Asks for the number of queues, and goes on only if they are enough.
    AskQueues,
    AskSlots,
    /// Reads the first bytes of the configuration space.
    AskConfig(u32),
    /// Gives a channel for messages to it, if that is agreed on.
    GiveChannel,
    /// Gives all memory in one table.
    GiveMemory,
    /// Gives memory region by region.
    AddMemory,
    AskInflight,
    GiveInflight,
    AskStatus,
    SetStatus(u64),
    SetMtu(u64),
    /// All steps for the first ring, then all for the next.
    Each(&'static [RingStep]),
    /// All steps for the first pair, then all for the next.
    Pairs(&'static [Step]),
    /// Steps that are left out for all pairs but the first.
    Once(&'static [Step]),
    /// Steps that are left out for the first pair.
    Others(&'static [Step]),
    /// Steps that are left out once they were made at this connection.
    FirstTime(&'static [Step]),
}

/// One step for a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RingStep {
    Size,
    Addresses,
    Base(Base),
    Kick,
    Call,
    Error,
    Enable(bool),
    /// Asks where it stopped, which stops it.
    AskBase,
}

/// Where a front end says that a ring begins.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Base {
    /// 0, or in a packed ring 0 with the wrap counter of what is available.
    Zero,
    /// 0, or in a packed ring 0 with both wrap counters.
    ZeroTwice,
    /// What the driver has made available so far.
    Available,
    /// What the device has used so far.
    Used,
}

impl FrontEnd {
    /// Returns all of them.
    pub fn all() -> [&'static FrontEnd; 7] {
        [
            &qemu::SEVEN,
            &qemu::TEN,
            &cloud_hypervisor::NET,
            &openvmm::GENERIC,
            &crosvm::NET,
            &virtio_user::CLIENT,
            &user_mode_linux::NET,
        ]
    }

    /// Whether the switch gets the commands of its guest's driver.
    pub fn passes_commands(&self) -> bool {
        self.passes_commands
    }

    /// Whether it takes features that need commands and keeps the commands.
    pub fn takes_what_it_keeps(&self) -> bool {
        self.takes_what_it_keeps
    }

    /// Whether it connects again to a back end that was restarted.
    pub fn comes_back(&self) -> bool {
        !self.returns.is_empty()
    }

    /// Whether its guests can have packed rings.
    pub fn has_packed_rings(&self) -> bool {
        self.features & crate::feature::RING_PACKED != 0
    }
}

/// Returns the features with these numbers.
const fn bits(numbers: &[u32]) -> u64 {
    let (mut all, mut place) = (0, 0);
    while place < numbers.len() {
        all |= 1 << numbers[place];
        place += 1;
    }
    all
}
