//! The files that captures are written to.
//!
//! The daemon makes them, often as root. A client that is neither root nor the daemon's own user gets them in one directory
//! only: a file of its choice elsewhere could be read as configuration by another program.

use crate::Problem;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Where clients without further rights have their captures: below systemd's `StateDirectory`.
pub(crate) fn directory() -> PathBuf {
    let state = std::env::var_os("STATE_DIRECTORY").map(PathBuf::from);
    state.unwrap_or_else(|| "/var/lib/millrace".into()).join("captures")
}

/// A new file, below `directory` where there is one. An existing file is never overwritten.
pub(crate) fn create(file: &Path, directory: Option<&Path>) -> Result<File, Problem> {
    let Some(directory) = directory else {
        return OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o640)
            .open(file)
            .map_err(|error| cannot_create(file, &error));
    };
    let name = file.strip_prefix(directory).map_err(|_| {
        Problem::new("this user's captures are written to one directory")
            .seen(file.display())
            .wanted(format!("a file in {}", directory.display()))
            .remedy(format!("name one there, or run as root: -w {}/FILE", directory.display()))
    })?;
    create_beneath(name, directory).map_err(|error| cannot_create(file, &error))
}

fn create_beneath(name: &Path, directory: &Path) -> io::Result<File> {
    match std::fs::DirBuilder::new().mode(0o750).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = open(directory, flags, Mode::empty())?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    Ok(openat2(directory, name, flags, Mode::from_raw_mode(0o640), resolve)?.into())
}

fn cannot_create(file: &Path, error: &io::Error) -> Problem {
    Problem::new(format!("the capture's file {} cannot be created", file.display()))
        .seen(error)
        .wanted("a new file in a directory the daemon can write to")
        .remedy(
            "name a new file, in /var/lib/millrace for example; an existing file is not overwritten",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member of the socket's group had root create any file.
    #[test]
    fn no_path_leads_out_of_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let captures = folder.path().join("captures");
        let inside = |name: &str| create(&captures.join(name), Some(&captures));
        let file = inside("vm1.pcapng").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 0);
        assert!(inside("vm1.pcapng").unwrap_err().remedy.contains("not overwritten"));
        std::os::unix::fs::symlink(folder.path(), captures.join("out")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("x"), captures.join("link")).unwrap();
        for name in ["../x", "out/x", "link", "", "deep/../../x"] {
            assert!(inside(name).is_err(), "{name}");
        }
        let problem = create(&folder.path().join("x"), Some(&captures)).unwrap_err();
        assert!(problem.wanted.contains("captures"), "{problem}");
        assert!(!folder.path().join("x").exists());
        create(&folder.path().join("x"), None).unwrap();
    }
}
