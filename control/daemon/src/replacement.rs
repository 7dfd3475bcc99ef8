//! Replaces a file atomically: writes a new one beside it, and renames that at the end.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use tempfile::{Builder, TempPath};

/// A replacement of a file while it is being written. Dropping it before [`Replacement::finish`]
/// leaves the old file.
pub struct Replacement {
    path: PathBuf,
    /// The new file's path; `None` if `path` is a pipe or a device, which is written directly.
    partial: Option<TempPath>,
    /// The file to write to.
    pub file: File,
}

impl Replacement {
    /// Writes a file.
    ///
    /// # Errors
    /// Those of [`Replacement::begin`] and [`Replacement::finish`], and a full disk.
    pub fn write(path: &Path, text: &str) -> io::Result<()> {
        let mut new = Replacement::begin(path)?;
        new.file.write_all(text.as_bytes())?;
        new.finish()
    }

    /// Opens a new file beside `path`.
    ///
    /// # Errors
    /// The path cannot be written. This is found here, before there is anything to write.
    pub fn begin(path: &Path) -> io::Result<Replacement> {
        // A symbolic link stays: its target is replaced; a dangling link is an error.
        let path = if path.is_symlink() { path.canonicalize()? } else { path.to_owned() };
        let old = match OpenOptions::new().write(true).open(&path) {
            Ok(file) => Some((file.metadata()?, file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let old = match old {
            Some((old, file)) if !old.is_file() => {
                return Ok(Replacement { path, partial: None, file });
            }
            old => old.map(|(old, _)| old),
        };
        let (file, partial) = beside(&path, 0o666)?;
        if let Some(old) = old {
            // An ordinary user cannot change the owner, and need not: the directory is the user's
            // own.
            let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
            file.set_permissions(old.permissions())?;
        }
        Ok(Replacement { path, partial: Some(partial), file })
    }

    /// Opens a new file beside `path` that only this user can read, from the moment it exists. It
    /// takes over nothing of what it replaces, neither owner nor mode nor where a link points,
    /// because another user may have put that there.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn begin_secret(path: &Path) -> io::Result<Replacement> {
        let (file, partial) = beside(path, 0o600)?;
        Ok(Replacement { path: path.to_owned(), partial: Some(partial), file })
    }

    /// Replaces the old file with the new one.
    ///
    /// # Errors
    /// The file cannot be renamed or does not reach the disk. A file that cannot be renamed stays;
    /// the error names it.
    pub fn finish(self) -> io::Result<()> {
        let Some(partial) = self.partial else { return Ok(()) };
        // After a power failure there is the old file or the new one, never an empty one.
        self.file.sync_all()?;
        partial.persist(&self.path).map_err(|failed| {
            let error = failed.error;
            match failed.path.keep() {
                Ok(kept) => io::Error::new(
                    error.kind(),
                    format!("{error}; the new file is {}", kept.display()),
                ),
                Err(_) => error,
            }
        })
    }
}

/// Creates a new file in the same directory. Its name is random, because anyone who can write to
/// the directory could plant links.
fn beside(path: &Path, mode: u32) -> io::Result<(File, TempPath)> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let new = Builder::new()
        .prefix(".millrace-")
        .suffix(".part")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(directory)?;
    Ok(new.into_parts())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(of: &Path) -> Vec<String> {
        let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let names = of.read_dir().unwrap().map(name);
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_old_file_is_whole_until_the_new_one_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("load.json");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        for is_finished in [false, true] {
            let mut new = Replacement::begin(&path).unwrap();
            new.file.write_all(b"new").unwrap();
            assert_eq!((read().as_str(), names(directory.path()).len()), ("old", 2));
            if is_finished {
                new.finish().unwrap();
            }
        }
        assert_eq!((read().as_str(), names(directory.path())), ("new", vec!["load.json".into()]));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn a_link_and_a_device_stay_what_they_are() {
        let directory = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "file"].map(|name| directory.path().join(name));
        std::fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&link, Path::new("/dev/null")] {
            let mut new = Replacement::begin(path).unwrap();
            new.file.write_all(b"new").unwrap();
            new.finish().unwrap();
        }
        assert!(link.is_symlink() && !Path::new("/dev/null").is_file());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(names(directory.path()), ["file", "link"]);
    }

    #[test]
    fn a_secret_goes_neither_to_the_target_of_a_link_nor_to_the_owner_of_the_old_file() {
        let directory = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "file"].map(|name| directory.path().join(name));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        for path in [&link, &file] {
            let mut new = Replacement::begin_secret(path).unwrap();
            assert_eq!(new.file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            new.file.write_all(b"new").unwrap();
            new.finish().unwrap();
            let seen = path.symlink_metadata().unwrap();
            assert!(seen.is_file() && seen.permissions().mode() & 0o777 == 0o600);
            let left = if *path == link { "old" } else { "new" };
            assert_eq!(std::fs::read_to_string(&file).unwrap(), left);
        }
        assert_eq!(names(directory.path()), ["file", "link"]);
    }

    #[test]
    fn what_cannot_be_written_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        for path in [directory.path().to_owned(), directory.path().join("none/load.json")] {
            assert!(Replacement::begin(&path).is_err(), "{}", path.display());
        }
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(directory.path().join("none"), &link).unwrap();
        assert!(Replacement::begin(&link).is_err());
        assert_eq!(names(directory.path()), ["link"]);
    }

    #[test]
    fn what_cannot_take_its_place_is_kept_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("load.json");
        let mut new = Replacement::begin(&path).unwrap();
        new.file.write_all(b"new").unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = new.finish().unwrap_err().to_string();
        let kept = names(directory.path()).remove(0);
        assert!(error.contains(&kept), "{error}");
        assert_eq!(std::fs::read_to_string(directory.path().join(kept)).unwrap(), "new");
    }
}
