//! The running switch with its store and source, shared by all that serve it.

use crate::running::Running;
use crate::source::Source;
use crate::state::Keeper;
use problem::Problem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The running switch, shared by handlers and the daemon.
#[derive(Clone)]
pub(crate) struct Shared {
    running: Arc<Mutex<Running>>,
    keeper: Keeper,
    source: Source,
}

impl Shared {
    /// Shares the switch.
    pub(crate) fn new(running: Running, keeper: Keeper, source: Source) -> Shared {
        Shared { running: Arc::new(Mutex::new(running)), keeper, source }
    }

    /// Locks the switch.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the ports added through the API; the future waits until they are on the disk.
    pub(crate) fn keep(&self) -> impl Future<Output = Result<(), Problem>> + use<> {
        // Under the lock, so that the keeper gets texts in the order of the changes.
        let kept = self.lock().state_text().map(|text| self.keeper.keep(text));
        async move { kept?.await }
    }

    /// Where the configuration comes from.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The store of ports added through the API.
    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }
}
