// UNSAFETY: between fork and exec a child limits its files and asks the kernel for a signal when
// its parent ends, which are two system calls.
//! The host's part in `fleet validate`: the sender's measurement agent, or the receiver's `millrace
//! validate`. Each is a process of this program, which ends with the experiment and with the agent,
//! so the agent's rounds never wait for either.
//!
//! A host takes part only if its agent was started with `--lab-address`. The token by which the
//! receiver uses the sender comes in an order below the host's own name, and goes to the process by
//! its environment: no other host and no other user sees it.
#![allow(unsafe_code)]

use super::watcher::News;
use super::written::Written;
use crate::Name;
use crate::etcd::Lease;
use crate::store::{ExperimentAnswer, ExperimentRequest, LONGEST_ANSWER, Outcome, Store};
use problem::Problem;
use problem::token::Token;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, kill_process, set_parent_process_death_signal, setrlimit,
};
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most bytes of a file that a part writes: each connection to the sender's agent makes it print a
/// line.
const LARGEST_FILE: u64 = 16 << 20;
/// After this time an agent ends its part, even if the request is still in etcd.
const LIMIT: Duration = Duration::from_hours(2);
/// How long a process may take to end by itself: it restores the settings that it has toggled.
const GRACE: Duration = Duration::from_secs(20);
/// The interval at which the process is checked.
const LOOK: Duration = Duration::from_millis(50);
/// Most bytes of a process's output that are kept.
const LONGEST_TEXT: u64 = 128 << 10;

/// Settings of a host that takes part in experiments.
#[derive(Clone, Debug)]
pub struct Lab {
    /// Its own address behind its switch, and the port of the sender's agent.
    pub address: SocketAddr,
    /// This program.
    pub program: PathBuf,
    /// The daemon's socket.
    pub socket: PathBuf,
}

/// The host's part in `fleet validate`.
pub(super) struct Bench {
    host: Name,
    /// `None` if this host takes part in no experiments.
    lab: Option<Lab>,
    /// The directory in which a part keeps its files while it runs.
    directory: PathBuf,
    /// Wakes the agent when there is an answer.
    news_sender: Sender<News>,
    part: Option<Part>,
    /// The thread of the last part, which may still end its process.
    thread: Option<JoinHandle<()>>,
    /// The number of the last experiment that this agent has seen; empty if it has seen that there
    /// is none. `None` before the first read: an experiment found then is one that an earlier agent
    /// of this host had begun.
    last: Option<String>,
    written: Written<ExperimentAnswer>,
}

/// A running part of an experiment. Its process ends once this is dropped.
struct Part {
    told: Told,
    ends: Arc<AtomicBool>,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// The answer of a part. The part's thread changes it, and the agent writes it.
#[derive(Clone)]
struct Told {
    answer: Arc<Mutex<ExperimentAnswer>>,
    news_sender: Sender<News>,
}

impl Told {
    fn answer(&self) -> ExperimentAnswer {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut ExperimentAnswer)) {
        change(&mut self.answer.lock().unwrap_or_else(PoisonError::into_inner));
        // If this fails, the agent has ended and needs no answer.
        let _ = self.news_sender.send(News::Answer);
    }
}

impl Bench {
    pub(super) fn new(
        host: &Name,
        lab: Option<Lab>,
        directory: &Path,
        news_sender: Sender<News>,
    ) -> Bench {
        let (host, directory) = (host.clone(), directory.to_owned());
        Bench {
            host,
            lab,
            directory,
            news_sender,
            part: None,
            thread: None,
            last: None,
            written: Written::default(),
        }
    }

    /// Begins or ends this host's part as the request in etcd says.
    pub(super) fn hear(
        &mut self,
        store: &Store,
        request: Option<&ExperimentRequest>,
    ) -> Result<(), Problem> {
        let last = self.last.get_or_insert_with(|| {
            request.map(|request| request.number.clone()).unwrap_or_default()
        });
        let own = request.filter(|it| it.from == self.host || it.to == self.host);
        let Some(request) = own else {
            self.part = None;
            return Ok(());
        };
        // The receiver begins once the sender listens.
        let begins = request.from == self.host || request.sender.is_some();
        let Some(lab) = self.lab.clone().filter(|_| begins && *last != request.number) else {
            return Ok(());
        };
        let token = store.experiment_token(&self.host, &request.number)?;
        self.last = Some(request.number.clone());
        self.part = Some(self.begin(lab, request.clone(), token));
        Ok(())
    }

    fn begin(&mut self, lab: Lab, request: ExperimentRequest, token: Option<Token>) -> Part {
        tracing::info!("{} measures {}: takes part", request.author, request.experiment);
        let answer = ExperimentAnswer { number: request.number.clone(), ..Default::default() };
        let told =
            Told { answer: Arc::new(Mutex::new(answer)), news_sender: self.news_sender.clone() };
        let part = Part { told: told.clone(), ends: Arc::default() };
        let (ends, before) = (Arc::clone(&part.ends), self.thread.take());
        let (directory, host) = (self.directory.clone(), self.host.clone());
        let work = move || {
            // The last experiment's process may still restore the settings that it has toggled. A
            // panic of its thread was logged.
            let _ = before.map(JoinHandle::join);
            match Process::start(&directory, &lab, &request, &host, token) {
                Ok(process) => process.watch(&ends, &told),
                Err(problem) => told.change(|answer| answer.problem = Some(problem)),
            }
        };
        match std::thread::Builder::new().name("experiment".into()).spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => part.told.change(|answer| answer.problem = Some(not_started(&error))),
        }
        part
    }

    /// Writes the answer to an experiment under the lease, and deletes it after that.
    pub(super) fn write_answer(
        &mut self,
        store: &Store,
        lease: Option<Lease>,
    ) -> Result<(), Problem> {
        let (answer, host) = (self.answer(), &self.host);
        self.written.set(
            answer,
            lease,
            |answer, lease| store.answer_experiment(host, answer, lease),
            || store.forget_experiment(host),
        )
    }

    /// Returns the current answer.
    fn answer(&self) -> Option<ExperimentAnswer> {
        self.part.as_ref().map(|part| part.told.answer())
    }
}

fn not_started(error: &dyn std::fmt::Display) -> Problem {
    Problem::new("the host's part in the experiment cannot be started")
        .seen(error)
        .wanted("a process of this program, with files in the agent's state directory")
        .remedy("see the agent's log, and check its --state-dir")
}

fn too_long() -> Problem {
    Problem::new("the experiment took too long, and was ended")
        .seen(format!("{} min", LIMIT.as_secs() / 60))
        .wanted("an experiment that is shorter")
        .remedy("measure fewer connection counts or repetitions at once")
}

/// The process of a part, and its files. It is killed when this is dropped, and the files are
/// removed.
struct Process {
    child: Child,
    directory: PathBuf,
    /// The address at which the sender's agent listens; `None` at the receiver.
    listens: Option<SocketAddr>,
}

impl Process {
    fn start(
        directory: &Path,
        lab: &Lab,
        request: &ExperimentRequest,
        host: &Name,
        token: Option<Token>,
    ) -> Result<Process, Problem> {
        let token = token.ok_or_else(|| not_started(&"no order for this host in etcd"))?;
        let directory = directory.join(format!("experiment-{}", request.number));
        let sends = request.from == *host;
        let mut command = Command::new(&lab.program);
        if sends {
            // The receiver is not trusted to name other targets.
            let listen = lab.address.to_string();
            command.args(["lab", "agent", "--only-to-client", "--listen", &listen]);
            command.env("MILLRACE_LAB_TOKEN", token.to_string());
        } else {
            let sender = request.sender.map(|at| format!("{token}@{at}"));
            command.args(arguments(lab, request)).arg("--output").arg(directory.join("report"));
            command.env("MILLRACE_LAB_SENDER", sender.unwrap_or_default());
        }
        let started = fs::DirBuilder::new().mode(0o700).create(&directory).and_then(|()| {
            let file = |name| File::create(directory.join(name));
            command.stdin(Stdio::null()).stdout(file("out")?).stderr(file("err")?);
            // A Ctrl-C on the agent's terminal ends the agent, which then ends the process.
            command.process_group(0);
            // SAFETY: the closure makes two system calls and touches no memory that the parent
            // shares.
            unsafe {
                command.pre_exec(|| {
                    let most = Some(LARGEST_FILE);
                    setrlimit(Resource::Fsize, Rlimit { current: most, maximum: most })?;
                    Ok(set_parent_process_death_signal(Some(Signal::INT))?)
                });
            }
            command.spawn()
        });
        match started {
            Ok(child) => Ok(Process { child, directory, listens: sends.then_some(lab.address) }),
            Err(error) => {
                let _ = fs::remove_dir_all(&directory);
                Err(not_started(&error))
            }
        }
    }

    /// Watches the process until it ends, or has to end, and updates the answer.
    fn watch(mut self, ends: &AtomicBool, told: &Told) {
        let begun = Instant::now();
        while !ends.load(Ordering::Relaxed) && begun.elapsed() < LIMIT {
            std::thread::sleep(LOOK);
            let answer = told.answer();
            if self.listens.is_some() && answer.sender.is_none() && !self.printed("out").is_empty()
            {
                told.change(|answer| answer.sender = self.listens);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return match self.outcome(status) {
                    Ok(outcome) => told.change(|answer| answer.outcome = Some(outcome)),
                    Err(problem) => told.change(|answer| answer.problem = Some(problem)),
                };
            }
        }
        if begun.elapsed() >= LIMIT {
            told.change(|answer| answer.problem = Some(too_long()));
        }
        self.end();
    }

    fn outcome(&self, status: ExitStatus) -> Result<Outcome, Problem> {
        let failed = |seen: String| {
            Problem::new("the host's part in the experiment failed")
                .seen(seen)
                .wanted("a process that ends with a report")
                .remedy("see the agent's log on that host")
        };
        let errors = self.printed("err");
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let report = fs::read_to_string(self.directory.join("report/report.json"));
        let (Some(code), None, Ok(report)) = (code, self.listens, report) else {
            tracing::warn!("the experiment failed ({status}): {errors}");
            return Err(failed(format!("{status}: {}", last_lines(&errors))));
        };
        if report.len() > LONGEST_ANSWER / 2 {
            return Err(failed(format!("a report of {} bytes", report.len()))
                .wanted(format!("at most {} bytes, which etcd takes", LONGEST_ANSWER / 2))
                .remedy("measure fewer connection counts or repetitions at once"));
        }
        let report = serde_json::from_str(&report).map_err(|error| failed(error.to_string()))?;
        let text = self.printed("out").lines().map(str::to_owned).collect();
        Ok(Outcome { code, text, report })
    }

    /// Returns what the process has printed so far to the file `name`.
    fn printed(&self, name: &str) -> String {
        let mut bytes = Vec::new();
        let read = File::open(self.directory.join(name))
            .and_then(|file| file.take(LONGEST_TEXT).read_to_end(&mut bytes));
        drop(read);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Ends the process, which first restores the settings that it has toggled.
    fn end(&mut self) {
        if let Some(process) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(process, Signal::INT);
        }
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < GRACE {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // This has no effect on a process that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the arguments of the receiver's command.
fn arguments(lab: &Lab, request: &ExperimentRequest) -> Vec<String> {
    let mut all = vec!["validate".to_owned(), request.experiment.name().to_owned()];
    let mut add = |option: &str, value: String| all.extend([option.to_owned(), value]);
    add("--socket", lab.socket.display().to_string());
    add("--to", lab.address.ip().to_string());
    let extent = &request.extent;
    if let Some(port) = &extent.port {
        add("--port", port.to_string());
    }
    if !extent.connections.is_empty() {
        let counts = extent.connections.iter().map(u16::to_string).collect::<Vec<_>>();
        add("--connections", counts.join(","));
    }
    if let Some(repetitions) = extent.repetitions {
        add("--repetitions", repetitions.to_string());
    }
    if extent.quick {
        all.push("--quick".to_owned());
    }
    all
}

fn last_lines(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().rev().take(4).collect();
    lines.reverse();
    lines.join(" / ")
}

/// Removes the files of an agent that was killed during an experiment.
pub(super) fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("experiment-") {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
