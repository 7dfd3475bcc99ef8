//! Writes the state on a thread of its own: a disk may be slow, and the thread that owns the switch
//! must not wait for it.
//!
//! One slot holds the text to write next, however long the disk takes: the newest text wins, and
//! requests that arrive meanwhile share the next write. The history of traffic is megabytes where that
//! text is kilobytes, so it comes after it, on one more thread: no change waits for it.

use super::{FILE, HISTORY, Kept, StateDirectory, from_bytes, to_text};
use problem::Problem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// How often the writer looks whether the state is still where it was written.
const LOOK: Duration = Duration::from_secs(1);
/// Longest time that a client waits for the disk.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Puts the history on the disk.
type Store = fn(&StateDirectory, &[u8]) -> Result<(), Problem>;

/// Writes the state. Clones use the same thread.
#[derive(Clone)]
pub(crate) struct Keeper {
    slot: Arc<Mutex<Slot>>,
    /// Wakes the writer; one message suffices for many requests.
    bell: SyncSender<()>,
    found: Arc<Mutex<Found>>,
    file: PathBuf,
}

/// What the writer found on the disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Found {
    /// Why the newest text is not there.
    pub(crate) trouble: Option<Problem>,
    /// Files that were set aside, now or at an earlier start.
    pub(crate) aside: Vec<PathBuf>,
}

/// What the writer does next.
#[derive(Default)]
struct Slot {
    /// The newest text.
    text: Option<String>,
    /// The newest history.
    history: Option<Vec<u8>>,
    /// Whether there is nothing more to write and the lock must be released.
    ends: bool,
    /// Clients to notify once the text is written.
    waiting: Vec<oneshot::Sender<Result<(), Problem>>>,
}

impl Slot {
    fn put(&mut self, text: Option<String>, done: oneshot::Sender<Result<(), Problem>>) {
        match text {
            Some(text) => self.text = Some(text),
            None => self.ends = true,
        }
        // Drop clients that gave up or never waited.
        self.waiting.retain(|waiting| !waiting.is_closed());
        self.waiting.push(done);
    }
}

/// Creates the directory if needed, locks it, and reads the state. If it cannot be created, that is
/// retried when there is something to write.
///
/// # Errors
/// The directory exists, but cannot be opened or trusted, or another process has locked it.
pub(crate) fn open(path: &Path) -> Result<(Writer, Kept), Problem> {
    let directory = match StateDirectory::make(path, FILE) {
        Err(problem) if path.exists() => return Err(problem),
        made => made.ok(),
    };
    let (kept, last) = match &directory {
        Some(directory) => read(directory),
        None => (Kept::default(), to_text(&[], &[]).ok()),
    };
    let has_file = directory.as_ref().is_some_and(StateDirectory::has_file);
    let writer = Writer {
        path: path.to_owned(),
        directory,
        last,
        has_file,
        history: None,
        storing: None,
        store: |file, history| file.write(history),
    };
    Ok((writer, kept))
}

/// Checks a directory without its lock, which another daemon may have.
///
/// # Errors
/// The directory exists, but cannot be opened or trusted.
pub(crate) fn trusted(path: &Path) -> Result<(), Problem> {
    StateDirectory::look(path).map(drop)
}

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(mut writer: Writer) -> Result<Keeper, Problem> {
        let (bell, rings) = sync_channel(1);
        let (slot, found) = (Arc::<Mutex<Slot>>::default(), Arc::<Mutex<Found>>::default());
        let file = writer.path.join(FILE);
        writer.look(&found);
        let (todo, told) = (Arc::clone(&slot), Arc::clone(&found));
        std::thread::Builder::new()
            .name("state".into())
            .spawn(move || writer.run(&rings, &todo, &told))
            .map_err(|error| {
                Problem::new("the thread that writes the state cannot be started").seen(error)
            })?;
        Ok(Keeper { slot, bell, found, file })
    }

    /// Returns the state file's path.
    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Queues a text at once; the future waits until it is on the disk.
    ///
    /// # Errors
    /// The future fails if the text cannot be written, or not within 10 s.
    pub(crate) fn keep(&self, text: String) -> impl Future<Output = Result<(), Problem>> + use<> {
        self.hand_over(Some(text))
    }

    /// Queues the history, which no client waits for.
    pub(crate) fn keep_history(&self, history: Vec<u8>) {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).history = Some(history);
        // Without the thread there is nothing to be done.
        let _ = self.bell.try_send(());
    }

    /// Waits until everything is written and the directory is unlocked.
    ///
    /// # Errors
    /// The future fails if something cannot be written, or not within 10 s.
    pub(crate) fn end(&self) -> impl Future<Output = Result<(), Problem>> + use<> {
        self.hand_over(None)
    }

    fn hand_over(&self, text: Option<String>) -> impl Future<Output = Result<(), Problem>> + use<> {
        let (done, written) = oneshot::channel();
        let gone = || Problem::new("the thread that writes the state has ended");
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).put(text, done);
        let has_ended = matches!(self.bell.try_send(()), Err(TrySendError::Disconnected(())));
        async move {
            if has_ended {
                return Err(gone());
            }
            match tokio::time::timeout(WRITE_TIMEOUT, written).await {
                Ok(answer) => answer.map_err(|_| gone())?,
                Err(_) => Err(Problem::new("the state was not written within 10 s")
                    .wanted("a disk that responds")
                    .remedy("check the disk; the state is written as soon as it responds")),
            }
        }
    }

    /// Returns what the writer found on the disk last.
    pub(crate) fn found(&self) -> Found {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads the state file. A file with unreadable parts is set aside. Also returns the text on the
/// disk, if it matches the ports.
fn read(directory: &StateDirectory) -> (Kept, Option<String>) {
    let mut kept = match directory.read() {
        Ok(None) => return (Kept::default(), to_text(&[], &[]).ok()),
        Ok(Some(bytes)) => from_bytes(&bytes),
        Err(problem) => Kept { refused: vec![problem], ..Kept::default() },
    };
    let text = to_text(&kept.ports, &kept.fleet).ok();
    if kept.refused.is_empty() {
        return (kept, text);
    }
    // The readable part is the state from now on, even if nothing changes before the next start.
    let aside = directory.set_aside().and_then(|aside| {
        text.as_ref().map_or(Ok(()), |text| directory.write(text))?;
        Ok(aside)
    });
    let file = directory.file();
    let place = match &aside {
        Ok(aside) => format!("{} was set aside as {}", file.display(), aside.display()),
        Err(_) => file.display().to_string(),
    };
    kept.refused = kept.refused.into_iter().map(|problem| problem.at(&place)).collect();
    let on_disk = text.filter(|_| aside.is_ok());
    kept.refused.extend(aside.err());
    (kept, on_disk)
}

/// The thread's data: the directory, and what is known to be in it.
pub(crate) struct Writer {
    path: PathBuf,
    directory: Option<StateDirectory>,
    /// The text on the disk, if known.
    last: Option<String>,
    /// Whether there is a file with that text; an empty state needs none.
    has_file: bool,
    /// The newest history, which waits for the one before.
    history: Option<Vec<u8>>,
    /// The thread that writes a history, until it was found to have ended.
    storing: Option<JoinHandle<()>>,
    store: Store,
}

impl Writer {
    /// Reads the history with `parse`; `None` if there is none. A file that is refused is set aside.
    ///
    /// # Errors
    /// The history cannot be read.
    pub(crate) fn history<T>(
        &self,
        parse: impl FnOnce(&[u8]) -> Result<T, Problem>,
    ) -> Result<Option<T>, Problem> {
        let Some(Ok(file)) = self.directory.as_ref().map(|all| all.beside(HISTORY)) else {
            return Ok(None);
        };
        let Some(bytes) = file.read()? else { return Ok(None) };
        parse(&bytes).map(Some).map_err(|problem| match file.set_aside() {
            Ok(aside) => {
                let (file, aside) = (file.file(), aside.display().to_string());
                problem.at(format!("{} was set aside as {aside}", file.display()))
            }
            Err(_) => problem.at(file.file().display()),
        })
    }

    /// Starts writing the history, if there is a new one and the one before is written. The directory
    /// is made with the ports, if ever: it is not made for this.
    fn store_history(&mut self) {
        if self.storing.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (Some(history), Some(directory)) = (self.history.take(), &self.directory) else {
            return;
        };
        let (file, store) = (directory.beside(HISTORY), self.store);
        let started = file.and_then(|file| {
            std::thread::Builder::new().name("history".into()).spawn(move || {
                if let Err(problem) = store(&file, &history) {
                    tracing::warn!(target: "control::state", "{problem}");
                }
            })
        });
        self.storing = started
            .inspect_err(|error| {
                tracing::warn!(target: "control::state", "the history cannot be written: {error}");
            })
            .ok();
    }

    /// Waits until the newest history is written.
    fn finish_history(&mut self) {
        self.storing.take().map(JoinHandle::join);
        self.store_history();
        self.storing.take().map(JoinHandle::join);
    }

    /// Returns the directory.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn run(&mut self, rings: &Receiver<()>, slot: &Mutex<Slot>, found: &Mutex<Found>) {
        loop {
            match rings.recv_timeout(LOOK) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.look(found);
                    self.store_history();
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let todo = std::mem::take(&mut *slot.lock().unwrap_or_else(PoisonError::into_inner));
            self.history = todo.history.or(self.history.take());
            if todo.waiting.is_empty() {
                // An earlier wake-up has already served it, or there is only a history.
                self.store_history();
                continue;
            }
            let result = todo.text.map_or(Ok(()), |text| self.write(text));
            if todo.ends {
                self.finish_history();
                self.directory = None;
            }
            found.lock().unwrap_or_else(PoisonError::into_inner).trouble = result.clone().err();
            for done in todo.waiting {
                // The client may have given up.
                let _ = done.send(result.clone());
            }
            if todo.ends {
                return;
            }
            self.store_history();
        }
    }

    /// Looks for files that were set aside, and writes the state again if it is gone.
    fn look(&mut self, found: &Mutex<Found>) {
        let aside = self.directory.as_ref().map(StateDirectory::aside).unwrap_or_default();
        let written = self.last.clone().filter(|_| self.is_gone()).map(|text| self.write(text));
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        found.aside = aside;
        if let Some(written) = written {
            found.trouble = written.err();
        }
    }

    /// Returns whether the directory or its file was removed or replaced since it was written.
    fn is_gone(&self) -> bool {
        let Some(directory) = &self.directory else { return false };
        !directory.is_in_place() || self.has_file && !directory.has_file()
    }

    fn write(&mut self, text: String) -> Result<(), Problem> {
        if self.is_gone() {
            self.last = None;
            self.directory.take_if(|directory| !directory.is_in_place());
        }
        if self.last.as_ref() == Some(&text) {
            return Ok(());
        }
        let directory = match self.directory.take() {
            Some(directory) => directory,
            None => StateDirectory::make(&self.path, FILE).map_err(confined)?,
        };
        let written = directory.write(&text);
        self.directory = Some(directory);
        written?;
        (self.last, self.has_file) = (Some(text), true);
        Ok(())
    }
}

/// Adds what helps a daemon with a sandbox, which lets it write only into the directory that was
/// there at its start.
fn confined(problem: Problem) -> Problem {
    match crate::sandbox::in_force().files.in_force {
        true => problem.remedy("restart the daemon: its sandbox does not let it make a new one"),
        false => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Config;

    fn ports(text: &str) -> Vec<config::PortConfig> {
        Config::from_toml("t", text).unwrap().ports
    }

    fn start(path: &Path) -> Result<(Keeper, Kept), Problem> {
        let (writer, kept) = open(path)?;
        Keeper::start(writer).map(|keeper| (keeper, kept))
    }

    fn keep(keeper: &Keeper, text: String) -> Result<(), Problem> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(keeper.keep(text))
    }

    /// Opens the state again: the lock is released once the old thread has seen that it has no more
    /// clients.
    fn start_again(path: &Path) -> (Keeper, Kept) {
        (0..1000)
            .find_map(|_| {
                std::thread::sleep(Duration::from_millis(1));
                start(path).ok()
            })
            .unwrap()
    }

    #[test]
    fn what_was_kept_is_there_at_the_next_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let (keeper, kept) = start(&path).unwrap();
        assert_eq!(kept, Kept::default());
        keep(&keeper, to_text(&[], &[]).unwrap()).unwrap();
        assert!(!path.join("ports.json").exists(), "nothing was added, so nothing is written");
        let one = ports("[[port]]\nname='a'\ntap='t'");
        keep(&keeper, to_text(&one, &[]).unwrap()).unwrap();
        drop(keeper);
        let (keeper, kept) = start_again(&path);
        assert_eq!(kept.ports, one);
        keep(&keeper, to_text(&[], &[]).unwrap()).unwrap();
        drop(keeper);
        assert_eq!(start_again(&path).1, Kept::default());
    }

    /// While a disk hung, one more text was queued each second.
    #[test]
    fn one_text_waits_for_the_disk_however_many_came() {
        let mut slot = Slot::default();
        let (done, _patient) = oneshot::channel();
        slot.put(Some("first".into()), done);
        for number in 0..1000 {
            slot.put(Some(number.to_string()), oneshot::channel().0);
        }
        assert_eq!((slot.text.as_deref(), slot.waiting.len()), (Some("999"), 2));
    }

    #[test]
    fn a_broken_file_is_set_aside_and_what_can_be_read_of_it_stays() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ports.json");
        std::fs::write(&file, "{\"version\": 1, \"ports\": [").unwrap();
        let (keeper, kept) = start(folder.path()).unwrap();
        assert!(kept.refused[0].error.contains("ports.json.broken-1"), "{:?}", kept.refused);
        drop(keeper);
        let half =
            r#"{"version": 1, "ports": [{"name": "a", "knob": 1}, {"name": "b", "tap": "u"}]}"#;
        std::fs::write(&file, half).unwrap();
        for refused in [1, 0] {
            let (keeper, kept) = start_again(folder.path());
            assert_eq!((kept.ports.len(), kept.refused.len()), (1, refused));
            drop(keeper);
        }
        let aside = std::fs::read_to_string(folder.path().join("ports.json.broken-2")).unwrap();
        assert_eq!(aside, half);
    }

    /// A change was answered, and at the end written, only after a history of up to 56 MB.
    #[test]
    fn no_change_waits_for_the_history() {
        static DISK: Mutex<()> = Mutex::new(());
        let folder = tempfile::tempdir().unwrap();
        let busy = DISK.lock().unwrap();
        let (mut writer, _) = open(folder.path()).unwrap();
        writer.store = |file, history| {
            let _free = DISK.lock().unwrap();
            file.write(history)
        };
        let keeper = Keeper::start(writer).unwrap();
        let text = |name| to_text(&ports(&format!("[[port]]\nname='{name}'\ntap='t'")), &[]);
        keeper.keep_history(b"first".to_vec());
        keep(&keeper, text("a").unwrap()).unwrap();
        keeper.keep_history(b"second".to_vec());
        let last = text("b").unwrap();
        drop(keeper.keep(last.clone()));
        let end = keeper.end();
        let is_written = || std::fs::read_to_string(keeper.file()).unwrap() == last;
        waiting::until("the last text is on the disk", is_written);
        assert!(!folder.path().join("history").exists());
        drop(busy);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(end).unwrap();
        assert_eq!(std::fs::read(folder.path().join("history")).unwrap(), b"second");
    }

    #[test]
    fn a_disk_that_refuses_is_told_and_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        let above = folder.path().join("above");
        std::fs::write(&above, "a file in a directory's place").unwrap();
        let (keeper, _) = start(&above.join("state")).unwrap();
        let text = to_text(&ports("[[port]]\nname='a'\ntap='t'"), &[]).unwrap();
        assert!(keep(&keeper, text.clone()).is_err() && keeper.found().trouble.is_some());
        std::fs::remove_file(&above).unwrap();
        keep(&keeper, text).unwrap();
        assert_eq!(keeper.found().trouble, None);
    }

    /// The daemon went on writing into a directory that was no more.
    #[test]
    fn a_directory_or_file_that_was_removed_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("above/state");
        let (keeper, _) = start(&path).unwrap();
        let text = to_text(&ports("[[port]]\nname='a'\ntap='t'"), &[]).unwrap();
        keep(&keeper, text.clone()).unwrap();
        let is_there = || std::fs::read_to_string(keeper.file()).ok().as_ref() == Some(&text);
        assert!(is_there());
        std::fs::remove_file(keeper.file()).unwrap();
        waiting::until("the file is there again", is_there);
        std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
        waiting::until("the directory is there again", is_there);
        std::fs::remove_dir_all(&path).unwrap();
        keep(&keeper, text.clone()).unwrap();
        assert!(is_there());
        assert_eq!(keeper.found().trouble, None);
    }

    #[test]
    fn files_that_were_set_aside_are_found_until_they_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ports.json"), "{").unwrap();
        let (keeper, _) = start(folder.path()).unwrap();
        let aside = folder.path().join("ports.json.broken-1");
        assert_eq!(keeper.found().aside, std::slice::from_ref(&aside));
        drop(keeper);
        let (keeper, kept) = start_again(folder.path());
        assert_eq!((kept, keeper.found().aside), (Kept::default(), vec![aside.clone()]));
        std::fs::remove_file(aside).unwrap();
        waiting::until("it is not found any more", || keeper.found().aside.is_empty());
    }
}
