//! The state that the agent keeps on disk: its host's last configuration, so that neither a reboot
//! nor the loss of etcd changes traffic.

use config::{PortConfig, PortName, Workers, from_json};
use daemon::state::StateDirectory;
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The version of the file below. A file of another version is set aside.
const VERSION: u32 = 1;

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Kept {
    pub(super) version: u32,
    /// The number that distinguishes agents with one name; 0 if none was chosen yet.
    #[serde(default)]
    pub(super) agent: u64,
    /// The etcd cluster that was followed last; 0 if there was none.
    pub(super) cluster: u64,
    /// The cluster's revision when it was read last.
    pub(super) etcd_revision: i64,
    /// The cluster's revision at which the desired state that is followed was written.
    #[serde(default)]
    pub(super) desired_at: i64,
    /// Set while the host does not follow etcd, because etcd went back to an older state.
    #[serde(default)]
    pub(super) held: Option<Held>,
    /// The fleet's revision that the ports come from; 0 if there is none yet.
    pub(super) revision: u64,
    /// The host's ports.
    pub(super) ports: Vec<PortConfig>,
    /// The workers that the switch should have been started with.
    #[serde(default)]
    pub(super) workers: Option<Workers>,
    /// This host's claims by port: the claimed address, as text, and the fencing token.
    #[serde(default)]
    pub(super) claims: BTreeMap<PortName, (String, i64)>,
}

/// Why a host does not follow etcd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Held {
    /// etcd's revision when it was found to have gone back: a desired state written no later is not
    /// followed.
    pub(super) at: i64,
    /// The reason, for people.
    pub(super) why: String,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept {
            version: VERSION,
            agent: 0,
            cluster: 0,
            etcd_revision: 0,
            desired_at: 0,
            held: None,
            revision: 0,
            ports: Vec::new(),
            workers: None,
            claims: BTreeMap::new(),
        }
    }
}

/// The last state, in memory and in the agent's directory.
pub(super) struct Disk {
    /// The state directory, locked for this agent.
    directory: StateDirectory,
    kept: Kept,
    /// Whether `kept` is newer than the file, which could not be written.
    is_behind: bool,
}

impl Disk {
    /// Reads the state, and chooses the agent's number if it has none yet. Fails if the directory
    /// or the file cannot be used.
    pub(super) fn open(path: &Path) -> Result<Disk, Problem> {
        let directory = StateDirectory::make(path, FILE)?;
        let (mut kept, trouble) = read(&directory)?;
        if let Some(problem) = trouble {
            tracing::warn!("{problem}");
        }
        let is_behind = kept.agent == 0;
        if is_behind {
            kept.agent = fastrand::u64(1..);
        }
        Ok(Disk { directory, kept, is_behind })
    }

    /// Returns the last state.
    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    /// Whether the last state could not be written, so that it would be lost with the agent.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Keeps a state, on disk first, so that a power cut never leaves the switch ahead of the file.
    /// Returns whether the ports or their revision changed.
    pub(super) fn keep(&mut self, next: Kept) -> bool {
        let same = Kept { etcd_revision: next.etcd_revision, ..self.kept.clone() };
        if same == next && !self.is_behind {
            self.kept = next;
            return false;
        }
        let changed = self.kept.ports != next.ports || self.kept.revision != next.revision;
        let written = write(&self.directory, &next);
        if let Err(problem) = &written {
            tracing::error!("{problem}");
        }
        self.is_behind = written.is_err();
        self.kept = next;
        changed
    }
}

/// The file in the agent's state directory.
const FILE: &str = "fleet.json";

/// Reads the file; the default if it was never written. A file that cannot be read is set aside
/// under another name.
fn read(directory: &StateDirectory) -> Result<(Kept, Option<Problem>), Problem> {
    let read = match directory.read() {
        Ok(None) => return Ok((Kept::default(), None)),
        Ok(Some(bytes)) => from_json::<Kept>(&bytes),
        Err(problem) => Err(problem),
    };
    let problem = match read {
        Ok(kept) if kept.version == VERSION => return Ok((kept, None)),
        Ok(kept) => Problem::new("wrong version").seen(kept.version).wanted(VERSION),
        Err(problem) => problem,
    };
    let aside = directory.set_aside()?;
    let place = format!("{} was set aside as {}", directory.file().display(), aside.display());
    let remedy = "none is needed while etcd answers: the agent reads the host's part from there";
    Ok((Kept::default(), Some(problem.remedy(remedy).at(place))))
}

/// Replaces the file. If that fails the file is removed, because an older one would be given to the
/// switch after a restart.
fn write(directory: &StateDirectory, kept: &Kept) -> Result<(), Problem> {
    let text = serde_json::to_string_pretty(kept)
        .map_err(|error| Problem::new("the agent's state cannot be written").seen(error))?;
    directory.write(&text).map_err(|problem| {
        let _ = directory.forget();
        problem.remedy("make room on the disk; until then the agent needs etcd after a restart")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &std::path::Path) -> StateDirectory {
        StateDirectory::make(path, FILE).unwrap()
    }

    #[test]
    fn a_failed_write_leaves_no_older_state() {
        let folder = tempfile::tempdir().unwrap();
        let directory = directory(folder.path());
        write(&directory, &Kept { revision: 5, ..Kept::default() }).unwrap();
        // A directory has the next file's name, so that the next file cannot be made.
        std::fs::create_dir(folder.path().join("fleet.json.next")).unwrap();
        let kept = Kept { revision: 8, ..Kept::default() };
        let problem = write(&directory, &kept).unwrap_err();
        assert!(problem.remedy.contains("needs etcd after a restart"), "{problem}");
        assert_eq!(read(&directory), Ok((Kept::default(), None)));
    }

    #[test]
    fn two_agents_never_share_a_directory() {
        let folder = tempfile::tempdir().unwrap();
        let _first = directory(folder.path());
        let problem = StateDirectory::make(folder.path(), FILE).err().unwrap();
        assert!(problem.error.contains("another process keeps its state"), "{problem}");
    }

    #[test]
    fn a_written_state_is_read_and_a_broken_one_is_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/it");
        let directory = directory(&path);
        assert_eq!(read(&directory), Ok((Kept::default(), None)));
        let port: PortConfig = serde_json::from_str(r#"{"name": "vm1", "tap": "tap1"}"#).unwrap();
        let claims = BTreeMap::from([(port.name.clone(), ("02:00:00:00:00:01".to_owned(), 7))]);
        let held = Some(Held { at: 9, why: "it went back".to_owned() });
        let kept = Kept { revision: 3, ports: vec![port], claims, held, ..Kept::default() };
        write(&directory, &kept).unwrap();
        assert_eq!(read(&directory), Ok((kept, None)));
        for text in [
            "{",
            "{\"version\": 2, \"cluster\": 0, \"etcd-revision\": 0, \"revision\": 1, \"ports\": []}",
        ] {
            directory.write(text).unwrap();
            let (kept, problem) = read(&directory).unwrap();
            assert_eq!(kept, Kept::default());
            assert!(problem.unwrap().error.contains("was set aside as"));
        }
        assert!(path.join("fleet.json.broken-2").exists());
    }
}
