//! The configuration file as the daemon reads it; the command line overrides it.

use crate::sandbox;
use config::{Config, Fault, Poll, SwitchConfig};
use problem::Problem;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that a reload waits for the file.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The source of the configuration.
#[derive(Clone)]
pub(crate) struct Source {
    file: Option<PathBuf>,
    poll: Option<Poll>,
}

impl Source {
    pub(crate) fn new(file: Option<PathBuf>, poll: Option<Poll>) -> Source {
        Source { file, poll }
    }

    /// Returns the file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads the file; without one the configuration is empty.
    pub(crate) fn read(&self) -> Result<Config, Problem> {
        let config = self.file.as_deref().map_or(Ok(Config::default()), read_file)?;
        let poll = self.poll.unwrap_or(config.switch.poll);
        Ok(Config { switch: SwitchConfig { poll, ..config.switch }, ..config })
    }

    /// Rereads the file, in a thread that may wait for a disk or a pipe.
    pub(crate) async fn read_again(&self) -> Result<Config, Problem> {
        let Some(file) = self.file.clone() else {
            return Err(Problem::new("there is no configuration file to reread")
                .seen("a daemon without a file")
                .wanted("a daemon started with -c FILE")
                .remedy("start the daemon with -c FILE, or use `millrace config apply FILE`"));
        };
        let source = self.clone();
        let reading = tokio::task::spawn_blocking(move || source.read());
        let late = || {
            Problem::new(format!("{} could not be read within 10 s", file.display()))
                .wanted("a regular file on a disk that responds")
                .remedy("check the disk, or name a regular file with -c")
        };
        let read = tokio::time::timeout(READ_TIMEOUT, reading).await.map_err(|_| late())?;
        read.map_err(|error| Problem::new("the configuration file cannot be read").seen(error))?
    }
}

/// Reads the configuration file.
///
/// # Errors
/// The file cannot be read, or is no valid configuration.
pub fn read_file(path: &Path) -> Result<Config, Problem> {
    Config::from_toml(&path.display().to_string(), &text_of(path)?)
}

/// Reads the configuration file once. Returns the configuration, or all of the file's errors.
///
/// # Errors
/// The file cannot be read.
pub fn check_file(path: &Path) -> Result<Result<Config, Vec<Fault>>, Problem> {
    let (name, text) = (path.display().to_string(), text_of(path)?);
    match config::faults(&name, &text) {
        faults if faults.is_empty() => Config::from_toml(&name, &text).map(Ok),
        faults => Ok(Err(faults)),
    }
}

fn text_of(path: &Path) -> Result<String, Problem> {
    let name = path.display().to_string();
    std::fs::read_to_string(path).map_err(|error| {
        sandbox::unreadable(path, &error).unwrap_or_else(|| {
            Problem::new(format!("{name} cannot be read"))
                .seen(error)
                .wanted("a configuration file in UTF-8")
                .remedy("correct the path, or the file's permissions")
        })
    })
}
