//! Which devices of the ports that a plan adds are opened before its steps, many at the same time.

use config::PortConfig;
use config::plan::Step;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Devices opened at the same time, each by a thread of its own. What waits for the owner's thread
/// is done before the next ones.
pub(super) const AT_ONCE: usize = 64;

/// Returns the ports to be added whose devices are opened before the steps.
///
/// If two ports name the same socket by different paths, only the first is among them. Opened at
/// the same time, each would remove the other's socket as a stale one.
pub(super) fn ports(steps: &[Step]) -> Vec<&PortConfig> {
    let added = steps.iter().filter_map(|step| match step {
        Step::Add { port, .. } => Some(&**port),
        _ => None,
    });
    let mut seen = BTreeSet::new();
    added.filter(|port| devices(port).into_iter().all(|device| seen.insert(device))).collect()
}

/// The devices of a port, each with its network namespace. Links in paths are resolved.
fn devices(port: &PortConfig) -> Vec<(Option<PathBuf>, PathBuf)> {
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
