//! What a host lives as: a child of ours, or an agent that someone started elsewhere and that we talk to over TCP.

use super::COMMAND;
use super::lines::Lines;
use super::token::Whereabouts;
use crate::LabError;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{IpAddr, Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::time::{Duration, Instant};

/// How long a child may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);
/// An agent that cannot be reached or does not listen by then.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module. It ends when this is dropped.
pub(super) enum Life {
    /// A process, and what it says on standard error.
    Child { child: Child, log: File },
    /// A connection.
    Agent(TcpStream),
}

/// Where requests go in and replies come out.
pub(super) struct Wires {
    /// Dropped to tell the other side to end.
    pub(super) requests: Box<dyn Write + Send>,
    pub(super) replies: Receiver<String>,
}

impl Life {
    /// Starts a child. `program` is this binary, and `directory` holds the child's log.
    pub(super) fn child(
        name: &str,
        program: &Path,
        arguments: &[&str],
        directory: &Path,
    ) -> Result<(Life, Wires), LabError> {
        let doing = || LabError::io(format!("starting the {name} host"));
        let path = directory.join(format!("{name}.log"));
        let mut options = File::options();
        let log = options.create(true).append(true).read(true).open(&path).map_err(doing())?;
        let mut child = Command::new(program)
            .arg(COMMAND)
            .args(arguments)
            // The daemon's socket is named by its file, whatever the user's own daemon listens on.
            .env_remove("MILLRACE_SOCKET")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log.try_clone().map_err(doing())?)
            // A Ctrl-C on the terminal is ours to handle, the child ends with us.
            .process_group(0)
            .spawn()
            .map_err(doing())?;
        let (requests, out) = (child.stdin.take(), child.stdout.take());
        let life = Life::Child { child, log };
        let (Some(requests), Some(out)) = (requests, out) else {
            return Err(LabError::HostDied {
                host: name.to_owned(),
                doing: "start".into(),
                output: "it has no standard streams".into(),
            });
        };
        let (sender, replies) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // The daemon's own output is read and forgotten once nobody listens.
                let _ = sender.send(line);
            }
        });
        Ok((life, Wires { requests: Box::new(requests), replies }))
    }

    /// Connects to an agent.
    pub(super) fn agent(at: &Whereabouts) -> Result<(Life, Wires), LabError> {
        let doing = || LabError::io(format!("connecting to the agent at {}", at.at));
        let addresses = at.at.to_socket_addrs().map_err(doing())?;
        let mut last = std::io::ErrorKind::NotFound.into();
        for address in addresses {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return Life::talking(stream).map_err(doing()),
                Err(error) => last = error,
            }
        }
        Err(doing()(last))
    }

    fn talking(stream: TcpStream) -> std::io::Result<(Life, Wires)> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let (requests, mut lines) = (stream.try_clone()?, Lines::new(stream.try_clone()?));
        // An agent that answers more than it is asked waits.
        let (sender, replies) = sync_channel(1);
        std::thread::spawn(move || {
            while let Ok(Some(line)) = lines.line() {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok((Life::Agent(stream), Wires { requests: Box::new(requests), replies }))
    }

    /// The child's process id; 0, which is nobody's, of an agent.
    pub(super) fn process(&self) -> u32 {
        match self {
            Life::Child { child, .. } => child.id(),
            Life::Agent(_) => 0,
        }
    }

    /// Our and the agent's address, by the connection between us.
    pub(super) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let Life::Agent(stream) = self else { return None };
        Some((stream.local_addr().ok()?.ip(), stream.peer_addr().ok()?.ip()))
    }

    /// Whether it is there still. Of an agent the next answer says so.
    pub(super) fn lasts(&mut self) -> bool {
        match self {
            Life::Child { child, .. } => matches!(child.try_wait(), Ok(None)),
            Life::Agent(_) => true,
        }
    }

    /// The last lines of a child's log.
    pub(super) fn last_words(&self) -> String {
        let Life::Child { log, .. } = self else {
            return "the agent has closed the connection".to_owned();
        };
        let (mut log, mut text) = (log, String::new());
        let read = log.seek(SeekFrom::Start(0)).and_then(|_| log.read_to_string(&mut text));
        if read.is_err() || text.trim().is_empty() {
            return "it printed nothing".to_owned();
        }
        let lines: Vec<&str> = text.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        match self {
            // It may have closed first.
            Life::Agent(stream) => drop(stream.shutdown(Shutdown::Both)),
            Life::Child { child, .. } => {
                if let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                    let _ = kill_process(process, Signal::TERM);
                }
                let begin = Instant::now();
                while matches!(child.try_wait(), Ok(None)) && begin.elapsed() < GRACE {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}
