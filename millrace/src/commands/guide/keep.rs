//! The state file: the document of a guide for one port, written after each task and at the end.

use super::document::{Document, SCHEMA};
use crate::output::Failure;
use daemon::Replacement;
use daemon::state::xdg_state;
use problem::Problem;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A state file.
pub(super) struct Keep(PathBuf);

impl Keep {
    /// Returns the file as typed, or `guide-NAME-PORT.json` in the user's state directory: without
    /// `-PORT` if the guide is about several, and with the daemon's socket if that is not the usual
    /// one.
    ///
    /// # Errors
    /// The user has no state directory.
    pub(super) fn of(
        typed: Option<&Path>,
        of: &Document,
        socket: Option<&Path>,
    ) -> Result<Keep, Failure> {
        if let Some(path) = typed {
            return Ok(Keep(path.to_owned()));
        }
        let directory = xdg_state().ok_or_else(|| {
            Problem::new("there is no directory for the guide's state")
                .seen("neither XDG_STATE_HOME nor HOME")
                .wanted("an absolute path in one of them")
                .remedy("name a file with --state")
        })?;
        Ok(Keep(directory.join(name(of, socket))))
    }

    /// Returns where the file is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the document; `None` if there is none.
    ///
    /// # Errors
    /// The file cannot be read, or is of another guide or port.
    pub(super) fn read(&self, wanted: &Document) -> Result<Option<Document>, Failure> {
        let text = match std::fs::read_to_string(&self.0) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| self.problem("cannot be read").seen(error))?,
        };
        let found: Document = serde_json::from_str(&text)
            .map_err(|error| self.problem("is not the state of a guide").seen(error))?;
        let of = |it: &Document| {
            let port = it.port.as_deref().unwrap_or("none");
            format!("guide {}, port {port}, schema {}", it.guide, it.schema)
        };
        if (&found.guide, &found.port, found.schema) != (&wanted.guide, &wanted.port, SCHEMA) {
            let problem = self.problem("is the state of something else").seen(of(&found));
            return Err(problem.wanted(of(wanted)).into());
        }
        Ok(Some(found))
    }

    /// Writes the document in place of the former one.
    ///
    /// # Errors
    /// The directory or the file cannot be written.
    pub(super) fn write(&self, document: &Document) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            self.problem("cannot be written").seen(error).remedy("name another file with --state")
        };
        let text = serde_json::to_string_pretty(document)
            .map_err(|error| Problem::new("writing JSON").seen(error))?;
        if let Some(parent) = self.0.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        Ok(Replacement::write(&self.0, &text).map_err(failed)?)
    }

    fn problem(&self, what: &str) -> Problem {
        Problem::new(format!("{} {what}", self.0.display()))
            .remedy("begin anew with --restart, or name another file with --state")
    }
}

/// Returns the file's name. The names of ports are file names; of a socket's path the separators
/// are replaced.
fn name(of: &Document, socket: Option<&Path>) -> String {
    let port = of.port.as_ref().map(|port| format!("-{port}"));
    let at = socket.map(|path| path.to_string_lossy().replace(['/', '\\'], "-"));
    let at = at.map(|path| format!("@{}", path.trim_start_matches('-')));
    format!("guide-{}{}{}.json", of.guide, port.unwrap_or_default(), at.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_the_state_of_another_port_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/guide-rsc.json");
        let document = |port: &str| Document::new("rsc", "t", Some(port.to_owned()));
        let keep = Keep::of(Some(&path), &document("vm1"), None).ok().unwrap();
        assert!(matches!(keep.read(&document("vm1")), Ok(None)));
        keep.write(&document("vm1")).ok().unwrap();
        assert!(matches!(keep.read(&document("vm1")), Ok(Some(found)) if found == document("vm1")));
        let refused = match keep.read(&document("vm2")) {
            Err(Failure::Failed(problem)) => problem,
            _ => panic!("it is of vm1"),
        };
        assert!(refused.seen.contains("vm1") && refused.remedy.contains("--restart"), "{refused}");
    }

    /// All ports had one file, so that a guide for a second port was refused.
    #[test]
    fn each_guide_has_a_file_for_each_port() {
        let named = |guide, port: Option<&str>| {
            name(&Document::new(guide, "t", port.map(str::to_owned)), None)
        };
        assert_eq!(named("rsc", Some("vm1")), "guide-rsc-vm1.json");
        assert_eq!(named("rsc", Some("vm2")), "guide-rsc-vm2.json");
        assert_eq!(named("iscsi", None), "guide-iscsi.json");
    }

    /// A switch at another socket went on with the guide of the first one's port of that name.
    #[test]
    fn each_daemon_has_files_of_its_own() {
        let of = Document::new("rsc", "t", Some("vm1".to_owned()));
        let socket = Path::new("/run/lab/api.sock");
        assert_eq!(name(&of, Some(socket)), "guide-rsc-vm1@run-lab-api.sock.json");
    }
}
