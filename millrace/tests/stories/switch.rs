//! The daemon in this story's own namespace, and the command line that talks to it.

use crate::heard::Heard;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::env;
use std::process::{Child, Command, ExitStatus, Output};
use waiting::{eventually, until};

/// The daemon's default socket.
pub(crate) const SOCKET: &str = "/run/millrace/api.sock";
/// The configuration file.
pub(crate) const FILE: &str = "/run/millrace.toml";

/// Returns a command for the tested binary.
pub(crate) fn millrace() -> Command {
    let built = || env!("CARGO_BIN_EXE_millrace").into();
    let mut command = Command::new(env::var_os("MILLRACE").unwrap_or_else(built));
    command.env_remove("MILLRACE_SOCKET").env("MILLRACE_LOG", "warn");
    command
}

/// Runs a command line with words separated by spaces. Returns its output.
pub(crate) fn cli(line: &str) -> Output {
    millrace().args(line.split(' ')).heard()
}

/// Runs a command line. Returns its exit code and its message.
pub(crate) fn complaint(line: &str) -> (i32, String) {
    let output = cli(line);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

/// Writes the configuration file, with one worker on hosts of any size if it does not say how many.
pub(crate) fn write(configuration: &str) {
    const ONE: &str = "[switch]\nworkers = 1\n";
    let configuration = match configuration {
        _ if configuration.contains("workers") => configuration.to_owned(),
        _ if configuration.contains("[switch]\n") => configuration.replacen("[switch]\n", ONE, 1),
        _ => format!("{ONE}{configuration}"),
    };
    std::fs::write(FILE, configuration).unwrap();
}

/// A daemon that answers.
pub(crate) struct Switch(Child);

impl Switch {
    /// Starts a daemon with this configuration.
    pub(crate) fn start(configuration: &str) -> Switch {
        write(configuration);
        let mut command = millrace();
        command.args(["run", "-c", FILE]);
        Switch::by(command, ())
    }

    /// Starts a daemon by this command, which inherits `passed`; this process closes it.
    pub(crate) fn by(mut command: Command, passed: impl Sized) -> Switch {
        let daemon = command.spawn().unwrap();
        drop(passed);
        Switch::of(daemon)
    }

    /// Waits until a daemon at the usual socket answers.
    pub(crate) fn of(daemon: Child) -> Switch {
        let switch = Switch(daemon);
        until("the API answers", || cli("port list").status.success().then_some(()));
        switch
    }

    /// Starts another daemon that takes over, and waits until the old one has ended.
    pub(crate) fn take_over(self) -> Switch {
        let mut command = millrace();
        command.args(["run", "-c", FILE, "--take-over"]);
        self.take_over_by(command)
    }

    /// Does the same by this command.
    pub(crate) fn take_over_by(mut self, mut command: Command) -> Switch {
        let next = command.spawn().unwrap();
        let status = until("the old daemon has ended", || self.0.try_wait().unwrap());
        assert!(status.success(), "{status}");
        Switch::of(next)
    }

    /// Returns the daemon's process.
    pub(crate) fn process(&self) -> u32 {
        self.0.id()
    }

    /// Runs a command that must succeed.
    pub(crate) fn tell(&self, line: &str) {
        let output = cli(line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "millrace {line}: {error}");
    }

    /// Runs a command that must succeed. Returns its JSON.
    pub(crate) fn ask(&self, line: &str) -> Value {
        let output = cli(&format!("{line} --json"));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "millrace {line}: {error}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs a command whose words have spaces, and which must succeed. Returns its JSON.
    pub(crate) fn ask_words(&self, words: &[&str]) -> Value {
        let output = millrace().args(words).arg("--json").output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "millrace {words:?}: {error}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Returns one of a port's counters, by its path in the JSON: `/ingress_frames`.
    pub(crate) fn counter(&self, port: &str, path: &str) -> u64 {
        let shown = self.ask(&format!("port show {port}"));
        shown.pointer(&format!("/counters{path}")).and_then(Value::as_u64).unwrap()
    }

    /// Returns a port's state and its reason.
    pub(crate) fn state(&self, port: &str) -> (String, String) {
        let shown = self.ask(&format!("port show {port}"));
        let word = |key: &str| shown[key].as_str().unwrap().to_owned();
        (word("state"), word("reason"))
    }

    /// Waits until a port is in a state. Returns the reason.
    pub(crate) fn wait_for(&self, port: &str, wanted: &str) -> String {
        let mut seen = (String::new(), String::new());
        let is_so = || {
            seen = self.state(port);
            (seen.0 == wanted).then_some(())
        };
        assert!(eventually(is_so).is_some(), "port {port} is not {wanted} but {seen:?}");
        seen.1
    }

    /// Returns whether an event contains these words.
    pub(crate) fn noted(&self, words: &str) -> bool {
        let status = self.ask("status");
        let events = status["switch"]["events"].as_array().unwrap();
        events.iter().any(|event| event["text"].as_str().unwrap().contains(words))
    }

    /// Makes the daemon read its file again.
    pub(crate) fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        until("the daemon has ended", || self.0.try_wait().unwrap())
    }

    fn signal(&self, signal: Signal) {
        let process = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        kill_process(process, signal).unwrap();
    }
}
