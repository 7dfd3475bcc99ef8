//! The parent's handle of a child process that is a host.

use super::COMMAND;
use super::client::Client;
use crate::LabError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a child may take to end after SIGTERM before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// A child process that is a host; dropping it ends the process.
pub(super) struct Child {
    process: std::process::Child,
    /// The child's standard error.
    log: File,
}

impl Child {
    /// Starts the child, and connects to it. `program` is this binary, and `directory` holds the
    /// log.
    ///
    /// # Errors
    /// The log cannot be opened, or the process does not start.
    pub(super) fn start(
        name: &str,
        program: &Path,
        arguments: &[&str],
        directory: &Path,
    ) -> Result<(Child, Client), LabError> {
        let doing = || LabError::io(format!("starting the {name} host"));
        let path = directory.join(format!("{name}.log"));
        let mut options = File::options();
        let log = options.create(true).append(true).read(true).open(&path).map_err(doing())?;
        let (ours, theirs) = UnixStream::pair().map_err(doing())?;
        let process = Command::new(program)
            .arg(COMMAND)
            .args(arguments)
            // The child's configuration file names the daemon's socket; the variable would override
            // it.
            .env_remove("MILLRACE_SOCKET")
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(log.try_clone().map_err(doing())?)
            // The parent handles Ctrl-C on the terminal, and the child ends with its parent.
            .process_group(0)
            .spawn()
            .map_err(doing())?;
        let child = Child { process, log };
        Ok((child, Client::of_child(ours).map_err(doing())?))
    }

    /// Returns the process id.
    pub(super) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns whether the process still runs.
    pub(super) fn lasts(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Returns the last three lines of the log, on one line.
    pub(super) fn last_words(&self) -> String {
        let (mut log, mut text) = (&self.log, String::new());
        let read = log.seek(SeekFrom::Start(0)).and_then(|_| log.read_to_string(&mut text));
        if read.is_err() || text.trim().is_empty() {
            return "it printed nothing".to_owned();
        }
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Some(process) = i32::try_from(self.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(process, Signal::TERM);
        }
        let begin = Instant::now();
        while self.lasts() && begin.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
