//! A program that runs beside this one: in its own network namespace, with a log, and never longer
//! than this one.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use traffic::measure::ProcessSample;

/// A program that has not ended by itself after this time is killed.
const GRACE: Duration = Duration::from_secs(5);
/// Lines of a log that a message quotes.
const LAST_LINES: usize = 6;

/// See the module. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: &'static str,
    log: PathBuf,
}

/// A command in its own network namespace, so that devices that a switch creates never meet the
/// host's; the kernel kills it if we die.
pub(crate) fn contained(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--net", "--", "setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
    command
}

/// A command in our network namespace; the kernel kills it if we die.
pub(crate) fn tied(program: &Path) -> Command {
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
            // Some programs end when their input does: the child keeps this end of the pipe.
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("{name} does not start"))?;
        Ok(Process { child, name, log })
    }

    /// An error with its last output if it has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("{} ended ({status}): {}", self.name, self.last_words());
        }
        Ok(())
    }

    /// The processor time of all its threads.
    pub(crate) fn processor(&self) -> Result<ProcessSample> {
        let sample = ProcessSample::read(self.child.id());
        sample.with_context(|| format!("{} has ended", self.name))
    }

    /// The end of its log.
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join(" | ")
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        Ok(pid.map_or(Ok(()), |pid| kill_process(pid, signal))?)
    }

    fn end(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > GRACE {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // One that has already ended needs no signal; one that cannot be killed dies with us.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.end();
        }
    }
}

/// The output of a short command, or an error with its complaint.
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
