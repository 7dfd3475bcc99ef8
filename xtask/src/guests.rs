//! Brings the guests of the stories and keeps them below the target directory.
//!
//! They are Debian's packages, from the mirror this machine uses anyway, also of suites it does not
//! use: by a list of apt's own that lies beside them. Nothing is installed, the system's
//! configuration stays as it is, and no root is needed.

mod apt;
mod initramfs;
mod kinds;
mod world;

use crate::{stamp, tree};
use anyhow::{Context, Result};
use apt::Apt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub(crate) const HELP: &str = "\
Usage: cargo xtask guests [uml|qemu|testpmd]...

Brings the guests of the stories, keeps them below the target directory, and prints a line `NAME DIRECTORY` for each.

  cargo xtask guests               all of them
  cargo xtask guests uml qemu      those

  uml      a whole Linux kernel as a process, whose virtio driver speaks vhost-user: boots in two seconds
  qemu     a virtual machine with Debian's cloud kernel; emulated, so it needs no hardware virtualisation. Its world is
           `initramfs`; `storage` is the same with iSCSI and multipath, for which tgtd is in usr/bin
  testpmd  DPDK's packet generator, whose virtio-user driver is a guest without a kernel

They are Debian's packages, from the mirror this machine uses anyway. Nothing is installed, and no root is needed. What
cannot be had is told with its reason, and the exit code is then 1.";

/// Files of the guests' world that are part of this tree.
const WORLD: &str = "millrace/tests/stories/guest";

/// The recipe in this tree, besides [`WORLD`]. Whatever changes in it makes every guest anew.
const RECIPE: [&str; 5] = [
    include_str!("guests.rs"),
    include_str!("guests/apt.rs"),
    include_str!("guests/initramfs.rs"),
    include_str!("guests/kinds.rs"),
    include_str!("guests/world.rs"),
];

/// A kind of guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Uml,
    Qemu,
    Testpmd,
}

const ALL: [Kind; 3] = [Kind::Uml, Kind::Qemu, Kind::Testpmd];

/// Brings the guests that the words name, or all. Returns `None` if a word names none.
///
/// # Errors
/// The tree cannot be entered.
pub(crate) fn run(words: &[&str]) -> Result<Option<ExitCode>> {
    let Some(kinds) = kinds_of(words) else { return Ok(None) };
    tree::enter()?;
    let target = tree::target()?;
    let mut has_failed = false;
    for kind in kinds {
        match told(kind, &target) {
            Some(directory) => println!("{} {}", kind.name(), directory.display()),
            None => has_failed = true,
        }
    }
    Ok(Some(ExitCode::from(u8::from(has_failed))))
}

/// Brings all guests. Returns whether all are there; what cannot be had is told with its reason.
/// The current directory is the tree's root.
pub(crate) fn bring_all(target: &Path) -> bool {
    ALL.map(|kind| told(kind, target).is_some()).iter().all(|is_there| *is_there)
}

fn kinds_of(words: &[&str]) -> Option<Vec<Kind>> {
    if words.is_empty() {
        return Some(ALL.to_vec());
    }
    words.iter().map(|word| ALL.into_iter().find(|kind| kind.name() == *word)).collect()
}

fn told(kind: Kind, target: &Path) -> Option<PathBuf> {
    let brought = kind.bring(&target.join("guests"));
    brought.inspect_err(|error| eprintln!("guests: {}: {error:#}", kind.name())).ok()
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Uml => "uml",
            Self::Qemu => "qemu",
            Self::Testpmd => "testpmd",
        }
    }

    /// Returns the directory of the guest. Makes it first if it is not there or its recipe has
    /// changed, in a directory beside its place, so that a half made one is never found.
    fn bring(self, root: &Path) -> Result<PathBuf> {
        let (place, new) = (root.join(self.name()), root.join(format!("{}.new", self.name())));
        let version = version()?;
        if !stamp::is_on(&place, &version) {
            tree::remove(&new)?;
            fs::create_dir_all(&new)?;
            let apt = Apt::of_this_host(&new)?;
            match self {
                Self::Uml => kinds::uml(&apt, &new)?,
                Self::Qemu => kinds::qemu(&apt, &new)?,
                Self::Testpmd => kinds::testpmd(&apt, &new)?,
            }
            apt.remove()?;
            tree::remove(&place)?;
            stamp::put_on(&new, &version)?;
            fs::rename(&new, &place)?;
        }
        Ok(place)
    }
}

fn version() -> Result<String> {
    let entries = fs::read_dir(WORLD).with_context(|| format!("{WORLD} cannot be read"))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    let files = files.into_iter().map(|file| Ok(fs::read(file)?)).collect::<Result<Vec<_>>>()?;
    let world = files.iter().map(Vec::as_slice);
    Ok(stamp::of(RECIPE.iter().map(|text| text.as_bytes()).chain(world)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_word_means_all_guests_and_an_unknown_word_none() {
        assert_eq!(kinds_of(&[]).unwrap(), ALL);
        assert_eq!(kinds_of(&["testpmd", "uml"]).unwrap(), [Kind::Testpmd, Kind::Uml]);
        assert_eq!(kinds_of(&["uml", "xen"]), None);
    }

    #[test]
    fn a_guest_with_the_version_of_its_recipe_is_not_made_anew() {
        tree::enter().unwrap();
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("uml");
        fs::create_dir(&place).unwrap();
        stamp::put_on(&place, &version().unwrap()).unwrap();
        assert_eq!(Kind::Uml.bring(root.path()).unwrap(), place);
        assert!(!root.path().join("uml.new").exists());
    }
}
