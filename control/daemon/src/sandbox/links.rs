//! Where the files that are reread may be after their links have been swapped.
//!
//! A release, or a Kubernetes ConfigMap, is put in place by a new link: `current -> v1` becomes
//! `current -> v2`. The kernel's rules are about directories as they are at the start, so the
//! directory in which `v1` lies must be readable then.

use std::path::{Component, Path, PathBuf};

/// Returns the directories in which the targets of the links in this path lie. A link beside its
/// target is the usual case; what else lies there becomes readable too, so no directory is returned
/// that holds more than one thing's files: `/`, one below it such as `/etc`, or a user's home.
pub(super) fn around(file: &Path) -> Vec<PathBuf> {
    let links = file.ancestors().filter(|path| path.is_symlink());
    let directories = links.filter_map(|link| {
        let target = link.canonicalize().ok()?;
        // What is swapped is a directory; of a file, the one that it is in.
        let swapped = if target.is_dir() { Some(target.as_path()) } else { target.parent() };
        Some(swapped?.parent()?.to_owned())
    });
    directories.filter(|directory| is_of_one(directory)).collect()
}

/// Whether a directory is deep enough to belong to one thing.
fn is_of_one(directory: &Path) -> bool {
    let names = directory.components().filter(|part| matches!(part, Component::Normal(_))).count();
    names >= if directory.starts_with("/home") { 3 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_that_may_be_swapped_opens_the_directory_of_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for directory in ["releases/v1", "map/..1"] {
            fs::create_dir_all(root.join(directory)).unwrap();
            fs::write(root.join(directory).join("m.toml"), "").unwrap();
        }
        symlink("releases/v1", root.join("current")).unwrap();
        symlink("releases/v1/m.toml", root.join("m.toml")).unwrap();
        symlink("..1", root.join("map/..data")).unwrap();
        symlink("..data/m.toml", root.join("map/m.toml")).unwrap();
        let around = |file: &str| super::around(&root.join(file));
        assert_eq!(around("current/m.toml"), [root.join("releases")]);
        assert_eq!(around("m.toml"), [root.join("releases")]);
        assert_eq!(around("map/m.toml"), [root.join("map")]);
        assert_eq!(around("releases/v1/m.toml"), Vec::<PathBuf>::new());
    }

    #[test]
    fn a_directory_of_many_things_is_not_opened_for_a_link() {
        for directory in ["/", "/etc", "/root", "/home", "/home/user", "/srv"] {
            assert!(!is_of_one(Path::new(directory)), "{directory}");
        }
        for directory in ["/srv/releases", "/etc/millrace", "/home/user/releases"] {
            assert!(is_of_one(Path::new(directory)), "{directory}");
        }
    }
}
