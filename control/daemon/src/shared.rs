//! The way to the running switch, with its store and source, shared by all that serve it.

use crate::commands::{Commands, Ended};
use crate::running::Running;
use crate::source::Source;
use crate::state::Keeper;
use problem::Problem;
use std::time::Instant;

/// What handlers and the daemon's own tasks share.
#[derive(Clone)]
pub(crate) struct Shared {
    commands: Commands,
    keeper: Keeper,
    source: Source,
}

impl Shared {
    /// Shares the switch.
    pub(crate) fn new(commands: Commands, keeper: Keeper, source: Source) -> Shared {
        Shared { commands, keeper, source }
    }

    /// Sends the switch a [short command](Commands::run).
    ///
    /// # Errors
    ///
    /// If the switch's thread has ended.
    pub(crate) fn run<T, W>(&self, work: W) -> impl Future<Output = Result<T, Ended>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&mut Running) -> T + Send + 'static,
    {
        self.commands.run(work)
    }

    /// Sends the switch a [change](Commands::change), which may carry out a plan.
    ///
    /// # Errors
    ///
    /// If the daemon is stopping.
    pub(crate) fn change<T, W>(&self, work: W) -> impl Future<Output = Result<T, Ended>> + use<T, W>
    where
        T: Send + 'static,
        W: FnOnce(&mut Running) -> T + Send + 'static,
    {
        self.commands.change(work)
    }

    /// [Refuses further changes](Commands::finish_changes), and waits for the one in work.
    pub(crate) fn finish_changes(&self) -> impl Future<Output = ()> + use<> {
        self.commands.finish_changes()
    }

    /// Stores the ports added through the API. The command is queued when this returns; the future
    /// waits until they are on the disk.
    ///
    /// # Errors
    ///
    /// If they cannot be written, or the switch's thread has ended.
    pub(crate) fn keep(&self) -> impl Future<Output = Result<(), Problem>> + use<> {
        let keeper = self.keeper.clone();
        // By the switch's thread, so that the keeper gets texts in the order of the changes.
        let handed_over = self.run(move |running| {
            let text = running.state_text()?;
            Ok::<_, Problem>(keeper.keep(text))
        });
        let shared = self.clone();
        async move {
            let kept = handed_over.await??.await;
            if kept.is_err() {
                shared.look_at_state().await?;
            }
            kept
        }
    }

    /// Starts writing the history, with its seconds or without. The disk is not waited for.
    ///
    /// # Errors
    ///
    /// If the switch's thread has ended.
    pub(crate) fn keep_history(
        &self,
        with_seconds: bool,
    ) -> impl Future<Output = Result<(), Ended>> + use<> {
        let keeper = self.keeper.clone();
        self.run(move |running| keeper.keep_history(running.history.to_bytes(with_seconds)))
    }

    /// Tells the switch's journal what is with the state on the disk.
    ///
    /// # Errors
    ///
    /// If the switch's thread has ended.
    pub(crate) fn look_at_state(&self) -> impl Future<Output = Result<(), Ended>> + use<> {
        let found = self.keeper.found();
        self.run(move |running| running.journal.note_state(found, Instant::now()))
    }

    /// Returns the source of the configuration.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Returns the store of ports added through the API.
    pub(crate) fn keeper(&self) -> &Keeper {
        &self.keeper
    }
}
