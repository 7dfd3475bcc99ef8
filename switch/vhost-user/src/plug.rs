//! The link state that the guest is to see, and the front end that was cut off because the link is
//! down.
//!
//! The protocol has a message for a change of the device's configuration (`CONFIG_CHANGE_MSG`), which
//! crosvm and user-mode Linux pass on: their guests read the link's state in the configuration
//! space, and the connection stays. QEMU ignores it for a network device (as of version 10). QEMU
//! does show the guest the end of the connection, as a link that goes down, with an interrupt, and a
//! new connection as a link that comes up. So a running guest's front end that does not take the
//! message is cut off, and until the link is up again, connections of the same process are closed at
//! once. A front end of another process, which boots a guest meanwhile, is served until that guest
//! runs, because QEMU does not start without a back end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Stands for an unknown process id.
const UNKNOWN: u32 = u32::MAX;

/// The link state and the front end that was cut off, as the head of this file explains.
#[derive(Debug, Default)]
pub(crate) struct Plug {
    is_down: AtomicBool,
    /// Whether the connected front end's guest is told by a message.
    has_channel: AtomicBool,
    /// The process id of the front end that is connected, or was last; 0 if there was none.
    connected: AtomicU32,
    /// The process id of the front end that was cut off because the link is down; 0 if there is
    /// none.
    told: AtomicU32,
}

impl Plug {
    /// Sets the link state that the guest is to see. Called by the session's owner.
    pub(crate) fn set(&self, is_up: bool) {
        self.is_down.store(!is_up, Relaxed);
        if is_up {
            self.told.store(0, Relaxed);
        }
    }

    /// Notes that a front end has connected, of this process if that is known.
    pub(crate) fn connect(&self, process: Option<u32>) {
        self.connected.store(process.unwrap_or(UNKNOWN), Relaxed);
    }

    /// Whether the link is down.
    pub(crate) fn is_down(&self) -> bool {
        self.is_down.load(Relaxed)
    }

    /// Notes whether the connected front end's guest is told by a message.
    pub(crate) fn note_channel(&self, has_channel: bool) {
        self.has_channel.store(has_channel, Relaxed);
    }

    /// Whether the link is down and the connected front end's guest is told so by a message.
    pub(crate) fn is_told(&self) -> bool {
        self.is_down() && self.has_channel.load(Relaxed)
    }

    /// Returns whether the connected front end has to be cut off because the link is down, and if
    /// so notes it as cut off.
    pub(crate) fn pull(&self) -> bool {
        let is_down = self.is_down() && !self.has_channel.load(Relaxed);
        if is_down {
            self.told.store(self.connected.load(Relaxed), Relaxed);
        }
        is_down
    }

    /// Whether a front end of this process was cut off, and is not served while the link is down.
    pub(crate) fn refuses(&self, process: Option<u32>) -> bool {
        self.is_down.load(Relaxed) && self.told.load(Relaxed) == process.unwrap_or(UNKNOWN)
    }

    /// Whether any front end was cut off, and the link is still down.
    pub(crate) fn has_told(&self) -> bool {
        self.is_down.load(Relaxed) && self.told.load(Relaxed) != 0
    }
}
