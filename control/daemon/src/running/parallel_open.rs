//! Which devices of ports are opened at the same time.

use config::PortConfig;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Steps taken at the same time; the devices of each are opened and closed by a thread of its own.
/// What waits for the owner's thread is done before the next ones.
pub(super) const AT_ONCE: usize = 64;

/// Returns the ports whose devices are opened at the same time.
///
/// If two ports name the same socket by different paths, only the first is among them. Opened at
/// the same time, each would remove the other's socket as a stale one.
pub(super) fn apart<'p>(ports: &[&'p PortConfig]) -> Vec<&'p PortConfig> {
    let mut seen = BTreeSet::new();
    let is_apart = |port: &&PortConfig| devices(port).into_iter().all(|device| seen.insert(device));
    ports.iter().copied().filter(is_apart).collect()
}

/// A device, with its network namespace. Links in paths are resolved.
pub(super) type Place = (Option<PathBuf>, PathBuf);

/// The devices of a port.
pub(super) fn devices(port: &PortConfig) -> Vec<Place> {
    let netns = port.netns.as_ref().map(|netns| resolved(&netns.path()));
    let device = |name: String| (netns.clone(), resolved(Path::new(&name)));
    port.device().names().into_iter().map(device).collect()
}

/// The path with all links in its folder resolved, or unchanged if there is no such folder. The
/// last part need not exist yet.
fn resolved(path: &Path) -> PathBuf {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    match (folder, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_paths_to_a_socket_are_one_device_and_two_sockets_are_two() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::fs::create_dir(folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", &link).unwrap();
        let port = |name: &str, path: PathBuf| PortConfig {
            vhost_user: Some(path.to_str().unwrap().parse().unwrap()),
            ..PortConfig::named(name.parse().unwrap())
        };
        let here = port("a", folder.path().join("real/s"));
        assert_eq!(devices(&here), devices(&port("b", link.join("s"))));
        assert_ne!(devices(&here), devices(&port("b", link.join("t"))));
    }
}
