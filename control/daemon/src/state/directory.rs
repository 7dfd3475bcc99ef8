//! The state file's directory: opened once, locked, and accessed only through its descriptor.

use super::LONGEST;
use problem::Problem;
use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, fsync, open, openat,
    renameat, stat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// What the names of files that were set aside have behind that of the state file.
const ASIDE: &str = ".broken";

/// Device and inode of a file, by which two processes know it whatever they call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    /// Returns the identity of what is at a path now; `None` if nothing is.
    pub(crate) fn of(path: &Path) -> Option<Identity> {
        stat(path).ok().map(|facts| Identity::from(&facts))
    }

    /// Writes it for another process, which reads it by [`Identity::read`].
    pub(crate) fn to_text(self) -> String {
        format!("{}:{}", self.device, self.inode)
    }

    /// Reads what [`Identity::to_text`] wrote; `None` if it is another text.
    pub(crate) fn read(text: &str) -> Option<Identity> {
        let (device, inode) = text.split_once(':')?;
        Some(Identity { device: device.parse().ok()?, inode: inode.parse().ok()? })
    }
}

impl From<&Stat> for Identity {
    #[allow(clippy::unnecessary_cast, reason = "their types differ by architecture")]
    fn from(facts: &Stat) -> Identity {
        Identity { device: facts.st_dev as u64, inode: facts.st_ino as u64 }
    }
}

/// A state directory with one file of state, locked by this process.
pub struct StateDirectory {
    path: PathBuf,
    /// The name of the state file.
    name: &'static str,
    /// The directory; closing it releases the lock.
    folder: OwnedFd,
}

impl StateDirectory {
    /// Opens and locks the directory; `None` if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be opened or trusted, or another process has locked it.
    pub(crate) fn open(path: &Path, name: &'static str) -> Result<Option<StateDirectory>, Problem> {
        let Some(folder) = StateDirectory::look(path)? else { return Ok(None) };
        match flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(StateDirectory { path: path.to_owned(), name, folder })),
            Err(Errno::WOULDBLOCK) => {
                Err(Problem::new(format!("another process keeps its state in {}", path.display()))
                    .seen("a locked directory")
                    .wanted("a state directory per daemon, and per agent")
                    .remedy("stop the other process, or name another directory with --state-dir"))
            }
            Err(error) => Err(trouble(path, "cannot be locked", &error)),
        }
    }

    /// Opens the directory without its lock; `None` if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be opened or trusted.
    pub(super) fn look(path: &Path) -> Result<Option<OwnedFd>, Problem> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = match open(path, flags, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(trouble(path, "cannot be opened", &error)),
        };
        match flaw(&folder) {
            Some(flaw) => Err(trouble(path, "cannot be trusted", &flaw).remedy(UNTRUSTED)),
            None => Ok(Some(folder)),
        }
    }

    /// Opens and locks the directory, in which the state file has this name. Creates it if it does
    /// not exist.
    ///
    /// # Errors
    /// The directory cannot be created, opened or trusted, or another process has locked it.
    pub fn make(path: &Path, name: &'static str) -> Result<StateDirectory, Problem> {
        if let Some(found) = StateDirectory::open(path, name)? {
            return Ok(found);
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
        made.map_err(|error| trouble(path, "cannot be created", &error))?;
        StateDirectory::open(path, name)?.ok_or_else(|| trouble(path, "is gone", &Errno::NOENT))
    }

    /// Returns the same directory, under the same lock, for another file. The lock is released once
    /// both are dropped.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub(super) fn beside(&self, name: &'static str) -> io::Result<StateDirectory> {
        let (path, folder) = (self.path.clone(), self.folder.try_clone()?);
        Ok(StateDirectory { path, name, folder })
    }

    /// Returns the state file's path.
    pub fn file(&self) -> PathBuf {
        self.path.join(self.name)
    }

    /// Returns whether the path still leads to this directory.
    pub(crate) fn is_in_place(&self) -> bool {
        fstat(&self.folder).is_ok_and(|here| Identity::of(&self.path) == Some((&here).into()))
    }

    /// Returns whether the state file exists.
    pub(crate) fn has_file(&self) -> bool {
        statat(&self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Returns the files that were [set aside](StateDirectory::set_aside).
    pub(crate) fn aside(&self) -> Vec<PathBuf> {
        let start = format!("{}{ASIDE}", self.name);
        let entries = Dir::read_from(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned));
        let mut aside: Vec<_> = names.filter(|name| name.starts_with(&start)).collect();
        aside.sort_unstable();
        aside.into_iter().map(|name| self.path.join(name)).collect()
    }

    /// Returns the name of the next state file, until it is complete.
    fn next(&self) -> String {
        format!("{}.next", self.name)
    }

    /// Reads the state file's bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, is not a regular file, may be written by others, or is too long.
    pub fn read(&self) -> Result<Option<Vec<u8>>, Problem> {
        let failed = |error: &dyn std::fmt::Display| trouble(&self.file(), "cannot be read", error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.folder, self.name, flags, Mode::empty()) {
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

    /// Replaces the state file. The new one is on the disk when this returns.
    ///
    /// # Errors
    /// The new file cannot be written, or does not reach the disk.
    pub fn write(&self, text: impl AsRef<[u8]>) -> Result<(), Problem> {
        self.replace(text.as_ref())
            .map_err(|error| trouble(&self.file(), "cannot be written", &error))
    }

    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let name = self.next();
        self.remove(&name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut next = File::from(openat(&self.folder, &name, flags, Mode::RUSR | Mode::WUSR)?);
        next.write_all(text)?;
        next.sync_all()?;
        renameat(&self.folder, &name, &self.folder, self.name)?;
        Ok(fsync(&self.folder)?)
    }

    /// Removes the state file, for a state that must not be found again although no newer one could
    /// be written.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn forget(&self) -> Result<(), Problem> {
        let removed = self.remove(self.name).and_then(|()| Ok(fsync(&self.folder)?));
        removed.map_err(|error| trouble(&self.file(), "cannot be removed", &error))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Renames the state file so that the next start does not find it. Returns the new name.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn set_aside(&self) -> Result<PathBuf, Problem> {
        let look = |name: &String| statat(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let free = |name: &String| look(name).err() == Some(Errno::NOENT);
        let name = (1..10_000).map(|number| format!("{}{ASIDE}-{number}", self.name)).find(free);
        let name = name.unwrap_or_else(|| format!("{}{ASIDE}", self.name));
        renameat(&self.folder, self.name, &self.folder, &name)
            .map_err(|error| trouble(&self.file(), "cannot be set aside", &error))?;
        Ok(self.path.join(name))
    }
}

/// Returns why another user may have written a directory or file. The daemon, possibly root, would
/// open the ports that it names.
fn flaw(of: &OwnedFd) -> Option<String> {
    let facts = fstat(of).ok()?;
    let is_trusted = [0, geteuid().as_raw()].contains(&facts.st_uid);
    let is_closed = facts.st_mode & 0o022 == 0;
    (!is_trusted || !is_closed)
        .then(|| format!("owner {} and mode {:04o}", facts.st_uid, facts.st_mode & 0o7777))
}

/// What helps if a directory belongs to another user: mostly root has typed what a unit runs.
const UNTRUSTED: &str = "start it as the owner, as the unit does (`systemctl start millrace`), \
    correct owner and mode, or name another with --state-dir or `state-directory` in [switch]";

fn trouble(path: &Path, what: &str, error: &dyn std::fmt::Display) -> Problem {
    Problem::new(format!("the state {} {what}", path.display()))
        .seen(error)
        .wanted("a directory that only root or the daemon's user can write to, on a disk with room")
        .remedy("correct it, or name another with --state-dir or `state-directory` in [switch]")
}

#[cfg(test)]
mod tests {
    use super::super::FILE;
    use super::*;

    #[test]
    fn a_directory_has_one_daemon_and_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/state");
        assert!(StateDirectory::open(&path, FILE).unwrap().is_none());
        let state = StateDirectory::make(&path, FILE).unwrap();
        assert_eq!(state.read().unwrap(), None);
        let problem = StateDirectory::make(&path, FILE).err().unwrap();
        assert!(problem.error.contains("another process"), "{problem}");
        for text in ["one", "two"] {
            state.write(text).unwrap();
            assert_eq!(state.read().unwrap(), Some(text.into()));
        }
        // A file that a killed daemon left half-written does not matter.
        std::fs::write(path.join("ports.json.next"), "half").unwrap();
        state.write("three").unwrap();
        let aside = [state.set_aside().unwrap(), {
            state.write("four").unwrap();
            state.set_aside().unwrap()
        }];
        assert_eq!(aside.map(|path| std::fs::read_to_string(path).unwrap()), ["three", "four"]);
        assert_eq!(state.read().unwrap(), None);
        state.write("five").unwrap();
        state.forget().unwrap();
        state.forget().unwrap();
        assert_eq!(state.read().unwrap(), None);
        drop(state);
        StateDirectory::make(&path, FILE).unwrap();
    }

    /// Root's daemon would open the ports that another user has written into the directory.
    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        for (mode, is_trusted) in [(0o700, true), (0o755, true), (0o770, false), (0o1777, false)] {
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
            let opened = StateDirectory::open(folder.path(), FILE);
            assert_eq!(opened.is_ok(), is_trusted, "{mode:o}");
        }
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::chown(folder.path(), Some(65534), None).unwrap();
            let problem = StateDirectory::open(folder.path(), FILE).err().unwrap();
            assert!(problem.seen.contains("owner 65534"), "{problem}");
            assert!(problem.remedy.contains("as the owner"), "{problem}");
        }
    }

    /// A daemon that had the directory of another user left such a file.
    #[test]
    fn a_file_that_others_may_write_is_not_read() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::make(folder.path(), FILE).unwrap();
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
        let state = StateDirectory::make(folder.path(), FILE).unwrap();
        std::fs::write(folder.path().join("other"), "secret").unwrap();
        std::os::unix::fs::symlink("other", state.file()).unwrap();
        assert!(state.read().is_err());
        state.set_aside().unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, state.file(), FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(state.read().unwrap_err().seen.contains("regular"));
    }
}
