//! Whether the guest is to see its link up, and the front end that has been told that it is not.
//!
//! The protocol has a message for a change of the device's configuration (`CONFIG_CHANGE_MSG`),
//! which QEMU does not take for a network device (as of version 10). What it does pass on to the
//! guest, as a change of the link with an interrupt, is the end of the connection; a front end that
//! connects again shows the link up. So a guest that runs is cut off, and until the link is up
//! again the same process finds a socket that closes at once. Another one, of a guest that boots
//! meanwhile, is served until that guest runs, for QEMU does not start without.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Stands for a process with an unknown number.
const UNKNOWN: u32 = u32::MAX;

/// See the head of this file.
#[derive(Debug, Default)]
pub(crate) struct Plug {
    is_down: AtomicBool,
    /// The process of the front end that is connected, or was last; 0: there was none.
    connected: AtomicU32,
    /// That of the one that was told; 0: none.
    told: AtomicU32,
}

impl Plug {
    /// What the guest is to see. Called by the session's owner.
    pub(crate) fn set(&self, is_up: bool) {
        self.is_down.store(!is_up, Relaxed);
        if is_up {
            self.told.store(0, Relaxed);
        }
    }

    /// A front end is connected, of this process if that is known.
    pub(crate) fn connect(&self, process: Option<u32>) {
        self.connected.store(process.unwrap_or(UNKNOWN), Relaxed);
    }

    /// Whether the front end that is connected is to be cut off: it counts as told then.
    pub(crate) fn pull(&self) -> bool {
        let is_down = self.is_down.load(Relaxed);
        if is_down {
            self.told.store(self.connected.load(Relaxed), Relaxed);
        }
        is_down
    }

    /// Whether one of this process has been told, and is not served now.
    pub(crate) fn refuses(&self, process: Option<u32>) -> bool {
        self.is_down.load(Relaxed) && self.told.load(Relaxed) == process.unwrap_or(UNKNOWN)
    }

    /// Whether any has been told.
    pub(crate) fn has_told(&self) -> bool {
        self.is_down.load(Relaxed) && self.told.load(Relaxed) != 0
    }
}
