//! The record of a setup: a file beside the configuration that says what undoes it. It is written
//! before each step, so that it is there after a crash too.

use super::plan::Words;
use super::service::Service;
use daemon::Replacement;
use problem::Problem;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What a setup did.
#[derive(Serialize, Deserialize)]
pub(super) struct Record {
    /// The configuration's file.
    file: PathBuf,
    /// Its content before; `None` if there was none.
    before: Option<String>,
    /// Its content as it was written.
    after: String,
    /// The commands that move addresses back.
    pub(super) back: Vec<Words>,
    /// The service as it was.
    pub(super) service: Service,
}

impl Record {
    pub(super) fn new(file: &Path, before: Option<String>, service: Service) -> Record {
        Record { file: file.to_owned(), before, after: String::new(), back: Vec::new(), service }
    }

    /// # Errors
    /// There is a record of an earlier setup.
    pub(super) fn refuse_second(file: &Path) -> Result<(), Problem> {
        let path = path(file);
        if !path.exists() {
            return Ok(());
        }
        let problem = Problem::new("this host is set up already").seen(path.display());
        Err(problem.wanted("no earlier setup").remedy("`millrace setup --undo` undoes it"))
    }

    /// Reads the record of an earlier setup. It says which commands are run and which file is
    /// written, so only a file that no other user can have written is taken.
    ///
    /// # Errors
    /// There is none, it cannot be read, or another user may have written it.
    pub(super) fn read(file: &Path) -> Result<Record, Problem> {
        let path = path(file);
        let unreadable = |error: io::Error| {
            let problem = Problem::new("there is no setup to undo").seen(error);
            problem.wanted(path.display()).remedy("name the configuration: --file FILE")
        };
        let no_record = |seen: String| {
            let problem = Problem::new(format!("{} is no record of a setup", path.display()));
            problem.seen(seen).wanted("what `millrace setup` wrote").remedy("undo it by hand")
        };
        let mut opened = File::open(&path).map_err(unreadable)?;
        let about = opened.metadata().map_err(unreadable)?;
        let own = std::fs::metadata("/proc/self").map_err(unreadable)?.uid();
        if about.uid() != own || about.mode() & 0o022 != 0 || !about.is_file() {
            let seen = format!("owner {}, mode {:o}", about.uid(), about.mode() & 0o7777);
            return Err(no_record(seen));
        }
        let mut text = String::new();
        opened.read_to_string(&mut text).map_err(unreadable)?;
        let record: Record =
            serde_json::from_str(&text).map_err(|error| no_record(error.to_string()))?;
        if record.file != file {
            return Err(no_record(format!("a record of {}", record.file.display())));
        }
        Ok(record)
    }

    /// Copies the configuration if it is not as it was written. Returns where the copy is.
    ///
    /// # Errors
    /// It cannot be read or copied.
    pub(super) fn set_aside(&self) -> Result<Option<PathBuf>, Problem> {
        let Some(now) = content(&self.file)?.filter(|now| *now != self.after) else {
            return Ok(None);
        };
        let copy = beside(&self.file, ".undone");
        written(&copy, &now).map_err(|error| failed(&copy, &error))?;
        Ok(Some(copy))
    }

    /// Writes the record, then the configuration.
    ///
    /// # Errors
    /// One of them cannot be written.
    pub(super) fn write_configuration(&mut self, text: &str) -> Result<(), Problem> {
        text.clone_into(&mut self.after);
        self.write()?;
        let written = Replacement::write(&self.file, text);
        written.map_err(|error| {
            // Nothing was done yet.
            let _ = std::fs::remove_file(path(&self.file));
            failed(&self.file, &error)
        })
    }

    /// Notes how addresses come back, before they move.
    ///
    /// # Errors
    /// The record cannot be written.
    pub(super) fn note_moves(&mut self, back: &[Words]) -> Result<(), Problem> {
        self.back = back.to_vec();
        self.write()
    }

    /// Puts the configuration back as it was, and removes the record.
    ///
    /// # Errors
    /// One of them cannot be written.
    pub(super) fn restore(self) -> Result<(), Problem> {
        let restored = match &self.before {
            Some(text) => Replacement::write(&self.file, text),
            None => removed(&self.file),
        };
        restored.map_err(|error| failed(&self.file, &error))?;
        let path = path(&self.file);
        removed(&path).map_err(|error| failed(&path, &error))
    }

    fn write(&self) -> Result<(), Problem> {
        let path = path(&self.file);
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| Problem::new("writing JSON").seen(error))?;
        written(&path, &text).map_err(|error| failed(&path, &error))
    }
}

/// Returns the content of a configuration; `None` if there is no file.
///
/// # Errors
/// It cannot be read.
pub(super) fn content(file: &Path) -> Result<Option<String>, Problem> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(file, &error)),
    }
}

fn path(file: &Path) -> PathBuf {
    beside(file, ".setup.json")
}

fn beside(file: &Path, end: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(end);
    path.into()
}

/// Writes a file that only this user can read or write, whatever was there.
fn written(path: &Path, text: &str) -> io::Result<()> {
    let mut file = Replacement::begin_secret(path)?;
    file.file.write_all(text.as_bytes())?;
    file.finish()
}

fn removed(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn failed(file: &Path, error: &io::Error) -> Problem {
    let remedy = match error.kind() {
        ErrorKind::PermissionDenied => "run as root",
        _ => "make its directory, or name another file: --file FILE",
    };
    Problem::new(format!("{} cannot be written or read", file.display())).seen(error).remedy(remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_record_puts_the_file_back_and_a_second_setup_is_refused() {
        for before in [None, Some("# empty\n".to_owned())] {
            let directory = tempfile::tempdir().unwrap();
            let file = directory.path().join("m.toml");
            before.iter().for_each(|text| std::fs::write(&file, text).unwrap());
            let before = content(&file).unwrap();
            let mut record = Record::new(&file, before.clone(), Service::Absent);
            record.write_configuration("new").unwrap();
            record.note_moves(&[vec!["ip".to_owned()]]).unwrap();
            assert_eq!(content(&file).unwrap().as_deref(), Some("new"));
            assert!(Record::refuse_second(&file).is_err());
            let record = Record::read(&file).unwrap();
            assert_eq!(record.back.len(), 1);
            record.restore().unwrap();
            assert_eq!(content(&file).unwrap(), before);
            Record::refuse_second(&file).unwrap();
            assert!(Record::read(&file).is_err());
        }
    }

    /// A record says which commands root runs.
    #[test]
    fn a_record_that_others_could_write_or_of_another_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("m.toml");
        let mut record = Record::new(&file, None, Service::Absent);
        record.write_configuration("new").unwrap();
        let copy = directory.path().join("n.toml.setup.json");
        std::fs::copy(path(&file), copy).unwrap();
        assert!(Record::read(&directory.path().join("n.toml")).is_err());
        assert!(Record::read(&file).is_ok());
        std::fs::set_permissions(path(&file), PermissionsExt::from_mode(0o666)).unwrap();
        assert!(Record::read(&file).is_err());
    }

    /// Undoing a setup of months ago removed thirty ports.
    #[test]
    fn a_configuration_that_was_changed_since_is_copied() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("m.toml");
        let mut record = Record::new(&file, None, Service::Absent);
        record.write_configuration("new").unwrap();
        assert_eq!(record.set_aside().unwrap(), None);
        std::fs::write(&file, "thirty ports").unwrap();
        let copy = record.set_aside().unwrap().unwrap();
        assert_eq!(std::fs::read_to_string(copy).unwrap(), "thirty ports");
    }
}
