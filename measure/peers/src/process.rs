//! A child program with a log, which never outlives this process; it may have its own network
//! namespace.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use traffic::measure::ProcessSample;

/// Time after SIGTERM after which a program is killed.
const TERMINATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Lines of the log that an error quotes.
const LAST_LINES: usize = 6;

/// A running program; dropping it ends the program.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: &'static str,
    log: PathBuf,
}

/// Returns a command in its own network namespace, so that devices that a switch creates never
/// collide with the host's. The kernel kills it if this process ends.
pub(crate) fn in_own_namespace(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--", "setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// Returns a command in this process's network namespace. The kernel kills it if this process ends.
pub(crate) fn in_our_namespace(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program);
    command
}

impl Process {
    /// Starts a command; its output goes into a file in `directory`.
    pub(crate) fn start(
        name: &'static str,
        command: &mut Command,
        directory: &Path,
    ) -> Result<Process> {
        let log = directory.join(name).with_extension("log");
        let file = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let child = command
            // Some programs end at the end of their input, so the pipe stays open.
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("{name} does not start"))?;
        Ok(Process { child, name, log })
    }

    /// Returns an error with its last output if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status}): {}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Returns the processor time of all its threads.
    pub(crate) fn processor(&self) -> Result<ProcessSample> {
        let sample = ProcessSample::read(self.child.id());
        sample.with_context(|| format!("{} has ended", self.name))
    }

    /// Returns the last lines of its log, on one line.
    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
    }

    /// Sends a signal to it.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(pid.map_or(Ok(()), |pid| kill_process(pid, signal))?)
    }

    fn end(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > TERMINATION_TIMEOUT {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A program that has already ended needs no signal; the kernel kills one that stays when
        // this process ends.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.end();
        }
    }
}

/// Runs a short command, and returns its output.
///
/// # Errors
/// The command does not start or fails: the error quotes its standard error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("{name} does not start"))?;
    ensure!(
        output.status.success(),
        "{name} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_words_are_the_end_of_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "for i in 1 2 3 4 5 6 7 8; do echo line $i; echo; done; read end"]);
        let mut process = Process::start("sh", &mut command, directory.path()).unwrap();
        drop(process.child.stdin.take());
        process.child.wait().unwrap();
        let told = process.check().unwrap_err().to_string();
        assert!(told.starts_with("sh ended (exit status: 1): line 3 | line 4"), "{told}");
        assert!(told.ends_with("line 8"), "{told}");
    }

    #[test]
    fn a_failing_command_says_why() {
        let told = output(Command::new("sh").args(["-c", "echo no >&2; exit 3"])).unwrap_err();
        assert_eq!(told.to_string(), "sh failed (exit status: 3): no");
    }
}
