//! The directory of the state file: opened once, locked, and written to by its descriptor alone.

use super::LONGEST;
use crate::Problem;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, flock, fstat, fsync, open, openat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The state.
const FILE: &str = "ports.json";
/// The next one, until it is complete.
const NEXT: &str = "ports.json.next";

/// A state directory of this process alone.
pub(crate) struct StateDirectory {
    path: PathBuf,
    /// The lock ends with it.
    folder: OwnedFd,
}

impl StateDirectory {
    /// Opens and locks it; `None` if there is none.
    pub(crate) fn open(path: &Path) -> Result<Option<StateDirectory>, Problem> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match open(path, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(trouble(path, "cannot be opened", &error)),
        };
        if let Some(flaw) = flaw(&folder) {
            return Err(trouble(path, "is not to be trusted", &flaw));
        }
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StateDirectory { path: path.to_owned(), folder })),
            Err(Errno::WOULDBLOCK) => {
                Err(Problem::new(format!("another daemon keeps its state in {}", path.display()))
                    .seen("a locked directory")
                    .wanted("a state directory for each daemon")
                    .remedy("stop the other one, or name another directory with --state-dir"))
            }
            Err(error) => Err(trouble(path, "cannot be locked", &error)),
        }
    }

    /// Makes it where there is none.
    pub(crate) fn make(path: &Path) -> Result<StateDirectory, Problem> {
        if let Some(found) = StateDirectory::open(path)? {
            return Ok(found);
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| trouble(path, "cannot be made", &error))?;
        StateDirectory::open(path)?.ok_or_else(|| trouble(path, "is gone", &Errno::NOENT))
    }

    /// Where the state file is.
    pub(crate) fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    /// The state file's bytes; `None` if there is none.
    pub(crate) fn read(&self) -> Result<Option<Vec<u8>>, Problem> {
        let failed = |error: &dyn std::fmt::Display| trouble(&self.file(), "cannot be read", error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, FILE, flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let facts = fstat(&file).map_err(|error| failed(&error))?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(failed(&"not a regular file"));
        }
        if let Some(flaw) = flaw(&file) {
            return Err(failed(&flaw));
        }
        let mut bytes = Vec::new();
        let read = File::from(file).take(LONGEST + 1).read_to_end(&mut bytes);
        read.map_err(|error| failed(&error))?;
        if bytes.len() as u64 > LONGEST {
            return Err(failed(&format!("longer than {LONGEST} bytes")));
        }
        Ok(Some(bytes))
    }

    /// Puts a file in the state file's place. It is on the disk when this returns.
    pub(crate) fn write(&self, text: &str) -> Result<(), Problem> {
        self.replace(text).map_err(|error| trouble(&self.file(), "cannot be written", &error))
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        match unlinkat(&self.folder, NEXT, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut next = File::from(openat(&self.folder, NEXT, flags, Mode::RUSR | Mode::WUSR)?);
        next.write_all(text.as_bytes())?;
        next.sync_all()?;
        renameat(&self.folder, NEXT, &self.folder, FILE)?;
        Ok(fsync(&self.folder)?)
    }

    /// Gives the state file another name, under which no start looks for it. Returns that name.
    pub(crate) fn set_aside(&self) -> Result<PathBuf, Problem> {
        let stat = |name: &String| statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let free = |name: &String| stat(name).err() == Some(Errno::NOENT);
        let name = (1..10_000).map(|number| format!("{FILE}.broken-{number}")).find(free);
        let name = name.unwrap_or_else(|| format!("{FILE}.broken"));
        renameat(&self.folder, FILE, &self.folder, &name)
            .map_err(|error| trouble(&self.file(), "cannot be set aside", &error))?;
        Ok(self.path.join(name))
    }
}

/// Why a directory or file may hold what another user wrote: ports that the daemon, which may be root, would open.
fn flaw(of: &OwnedFd) -> Option<String> {
    let facts = fstat(of).ok()?;
    let is_trusted = [0, geteuid().as_raw()].contains(&facts.st_uid);
    let is_closed = facts.st_mode & 0o022 == 0;
    (!is_trusted || !is_closed)
        .then(|| format!("owner {} and mode {:04o}", facts.st_uid, facts.st_mode & 0o7777))
}

fn trouble(path: &Path, what: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(format!("the state {} {what}", path.display()))
        .seen(error)
        .wanted("a directory that only root or the daemon's user may write to, on a disk with room")
        .remedy("name one with --state-dir or `state-directory` in [switch]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_daemon_and_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/state");
        assert!(StateDirectory::open(&path).unwrap().is_none());
        let state = StateDirectory::make(&path).unwrap();
        assert_eq!(state.read().unwrap(), None);
        let problem = StateDirectory::make(&path).err().unwrap();
        assert!(problem.error.contains("another daemon"), "{problem}");
        for text in ["one", "two"] {
            state.write(text).unwrap();
            assert_eq!(state.read().unwrap(), Some(text.into()));
        }
        // What a kill left behind is in nobody's way.
        std::fs::write(path.join(NEXT), "half").unwrap();
        state.write("three").unwrap();
        let aside = [state.set_aside().unwrap(), {
            state.write("four").unwrap();
            state.set_aside().unwrap()
        }];
        assert_eq!(aside.map(|path| std::fs::read_to_string(path).unwrap()), ["three", "four"]);
        assert_eq!(state.read().unwrap(), None);
        drop(state);
        StateDirectory::make(&path).unwrap();
    }

    /// Root's daemon would open the ports that another user has written into it.
    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        for (mode, is_trusted) in [(0o700, true), (0o755, true), (0o770, false), (0o1777, false)] {
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            let opened = StateDirectory::open(folder.path());
            assert_eq!(opened.is_ok(), is_trusted, "{mode:o}");
        }
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(folder.path(), Some(65534), None).unwrap();
            let problem = StateDirectory::open(folder.path()).err().unwrap();
            assert!(problem.seen.contains("owner 65534"), "{problem}");
        }
    }

    /// As it was left by a daemon that had the directory of another user.
    #[test]
    fn a_file_that_others_may_write_is_not_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::make(folder.path()).unwrap();
        state.write("ports").unwrap();
        let permit = |mode| std::fs::set_permissions(state.file(), PermissionsExt::from_mode(mode));
        permit(0o666).unwrap();
        assert!(state.read().unwrap_err().seen.contains("mode 0666"));
        permit(0o600).unwrap();
        assert!(state.read().is_ok());
        if geteuid().is_root() {
            std::os::unix::fs::chown(state.file(), Some(65534), None).unwrap();
            assert!(state.read().unwrap_err().seen.contains("owner 65534"));
        }
    }

    /// A link or a FIFO in the file's place is neither followed nor waited for.
    #[test]
    fn only_a_regular_file_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::make(folder.path()).unwrap();
        std::fs::write(folder.path().join("other"), "secret").unwrap();
        std::os::unix::fs::symlink("other", state.file()).unwrap();
        assert!(state.read().is_err());
        state.set_aside().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, state.file(), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(state.read().unwrap_err().seen.contains("regular"));
    }
}
