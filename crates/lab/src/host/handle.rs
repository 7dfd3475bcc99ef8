//! Our side of a host, child or agent alike: starts it or connects to it, asks it, and sees to it that it ends.

use super::life::{Life, Wires};
use super::protocol::{Identity, PROTOCOL, Reading, Reply, Request};
use super::token::Whereabouts;
use super::{HERE, IN};
use crate::LabError;
use crate::experiment::Values;
use crate::report;
use ports::link::{Link, LinkError, LinkOffload};
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// An answer that has not come by then will not.
const PATIENCE: Duration = Duration::from_secs(15);

/// What the host answers, in the order it was asked.
struct Replies {
    lines: Receiver<String>,
    /// Answers that were not waited for any longer. They still come, before those to later questions.
    late: Cell<usize>,
}

impl Replies {
    /// The answer to the last question.
    fn next(&self, patience: Duration) -> Result<String, RecvTimeoutError> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(_) if self.late.get() > 0 => self.late.set(self.late.get() - 1),
                Ok(line) => return Ok(line),
                Err(error) => {
                    self.late.set(self.late.get() + 1);
                    return Err(error);
                }
            }
        }
    }
}

/// See the module.
pub(crate) struct Host {
    name: String,
    /// Dropped to tell the host to end, before its life is.
    requests: Option<Box<dyn Write + Send>>,
    replies: Replies,
    life: Life,
    /// Every command it ran, for the report.
    commands: Vec<report::Command>,
}

impl Host {
    /// Starts a host of this name with a network namespace of its own. `program` is this binary, and `directory` holds
    /// the child's log.
    pub(crate) fn start(name: &str, program: &Path, directory: &Path) -> Result<Host, LabError> {
        let host = Host::new(name, Life::child(name, program, &[], directory)?);
        host.answer::<()>("start", PATIENCE)
            .map_err(|error| error.where_refused(LabError::NamespaceRefused))?;
        Ok(host)
    }

    /// Starts a host in a network namespace that is there already, or in our own.
    pub(crate) fn start_in(
        name: &str,
        program: &Path,
        namespace: Option<&Path>,
        directory: &Path,
    ) -> Result<Host, LabError> {
        let path = namespace.map_or(HERE.to_owned(), |path| path.display().to_string());
        let host = Host::new(name, Life::child(name, program, &[IN, &path], directory)?);
        host.answer::<()>(&format!("enter {path}"), PATIENCE)?;
        Ok(host)
    }

    /// Connects to an agent, which is a host elsewhere.
    pub(crate) fn connect(name: &str, at: &Whereabouts) -> Result<Host, LabError> {
        let mut host = Host::new(name, Life::agent(at)?);
        let hello = Request::Hello { protocol: PROTOCOL, token: at.token.to_string() };
        host.record(&format!("millrace lab agent --listen {}", at.at));
        let because = |why| LabError::Between(format!("the {name}'s agent at {}: {why}", at.at));
        host.ask::<()>(&hello, "greet", PATIENCE).map_err(|error| error.where_refused(because))?;
        Ok(host)
    }

    fn new(name: &str, (life, wires): (Life, Wires)) -> Host {
        Host {
            name: name.to_owned(),
            requests: Some(wires.requests),
            replies: Replies { lines: wires.replies, late: Cell::new(0) },
            life,
            commands: Vec::new(),
        }
    }

    /// Its process id, by which `ip link … netns PID` and `/proc/PID/ns/net` find its namespace; 0 of an agent.
    pub(crate) fn process(&self) -> u32 {
        self.life.process()
    }

    /// Our address and the agent's, as they see each other; `None` of a child.
    pub(crate) fn addresses(&self) -> Option<(IpAddr, IpAddr)> {
        self.life.addresses()
    }

    /// Every command it ran, once, in the order of their first run.
    pub(crate) fn commands(&self) -> &[report::Command] {
        &self.commands
    }

    /// Runs a command line of plain words to its end; what it printed.
    pub(crate) fn run(&mut self, line: &str) -> Result<String, LabError> {
        self.execute(line.split_ascii_whitespace().map(str::to_owned).collect(), line)
    }

    /// Runs a line by the shell, with mounts of its own.
    pub(crate) fn shell(&mut self, line: &str) -> Result<(), LabError> {
        let words = ["unshare", "--mount", "sh", "-c", line].map(str::to_owned).to_vec();
        self.execute(words, line).map(drop)
    }

    fn execute(&mut self, mut words: Vec<String>, line: &str) -> Result<String, LabError> {
        let arguments = words.split_off(words.len().min(1));
        let program = words.pop().unwrap_or_default();
        self.record(line);
        let failed = |output| LabError::Command { command: line.to_owned(), output };
        self.ask(&Request::Run { program, arguments }, line, PATIENCE)
            .map_err(|error| error.where_refused(failed))
    }

    /// Asks for something that has no answer but that it is done. `line` is the same as a command, for the report.
    pub(crate) fn order(&mut self, request: &Request, line: &str) -> Result<(), LabError> {
        self.record(line);
        let patience = match request {
            Request::Send { bulk, .. } => PATIENCE + connecting(bulk.connections),
            _ => PATIENCE,
        };
        self.ask(request, line, patience)
    }

    /// Sends at most so many bits a second from now on, on all bulk connections together. `None`: as fast as it can.
    pub(crate) fn limit(&mut self, bits_per_s: Option<u64>) -> Result<(), LabError> {
        let option = bits_per_s.map_or("no -B".to_owned(), |most| format!("-B {most}"));
        self.record(&format!("({option} from here on)"));
        let request = Request::Limit { bits_per_s };
        self.ask(&request, "limit what is sent", PATIENCE)
    }

    /// Changes the MTU of one of its links, in bytes. Also of the switch, which runs no commands any more.
    pub(crate) fn set_mtu(&mut self, link: &str, mtu: u16) -> Result<(), LabError> {
        let line = format!("ip link set {link} mtu {mtu}");
        self.set_link(link, &line, |link| link.set_mtu(mtu.into()))
    }

    /// Turns an offload of one of its links on or off; `name` is ethtool's.
    pub(crate) fn set_offload(
        &mut self,
        link: &str,
        offload: LinkOffload,
        name: &str,
        on: bool,
    ) -> Result<(), LabError> {
        let line = format!("ethtool -K {link} {name} {}", if on { "on" } else { "off" });
        self.set_link(link, &line, |link| link.set_offload(offload, on))
    }

    /// Turns segmentation (TSO and GSO) and coalescing (GRO) of one of its links on or off.
    pub(crate) fn set_offloads(
        &mut self,
        link: &str,
        segmentation: bool,
        coalescing: bool,
    ) -> Result<(), LabError> {
        let word = |on| if on { "on" } else { "off" };
        let (cut, join) = (word(segmentation), word(coalescing));
        let line = format!("ethtool -K {link} tso {cut} gso {cut} gro {join}");
        self.set_link(link, &line, |link| {
            link.set_offload(LinkOffload::Tso, segmentation)?;
            link.set_offload(LinkOffload::Gso, segmentation)?;
            link.set_offload(LinkOffload::Gro, coalescing)
        })
    }

    /// Whether an offload of one of its links is on.
    pub(crate) fn offload(&self, link: &str, offload: LinkOffload) -> Result<bool, LabError> {
        self.link(link)
            .and_then(|link| link.offload(offload))
            .map_err(|error| self.refused("read its offloads", &error.to_string()))
    }

    /// Changes a link from outside. `line` is the same as a command.
    fn set_link(
        &mut self,
        link: &str,
        line: &str,
        change: impl FnOnce(&Link) -> Result<(), LinkError>,
    ) -> Result<(), LabError> {
        self.record(line);
        self.link(link)
            .and_then(|link| change(&link))
            .map_err(|error| self.refused(line, &error.to_string()))
    }

    fn link(&self, name: &str) -> Result<Link, LinkError> {
        let namespace = PathBuf::from(format!("/proc/{}/ns/net", self.process()));
        Link::open(name, Some(&namespace))
    }

    /// Reads its counters.
    pub(crate) fn read(&mut self, link: &str) -> Result<Reading, LabError> {
        self.ask(&Request::Read { link: link.to_owned() }, "read its counters", PATIENCE)
    }

    /// What machine it is.
    pub(crate) fn identity(&mut self) -> Result<Identity, LabError> {
        self.ask(&Request::Machine, "describe its machine", PATIENCE)
    }

    /// The link that has an address.
    pub(crate) fn link_of(&mut self, address: IpAddr) -> Result<String, LabError> {
        self.ask(&Request::Link { address }, &format!("name the link of {address}"), PATIENCE)
    }

    /// Makes round trips for a time.
    pub(crate) fn round_trips(
        &mut self,
        to: SocketAddr,
        time: Duration,
    ) -> Result<Values, LabError> {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let request = Request::RoundTrips { to, milliseconds };
        self.ask(&request, "make round trips", time + PATIENCE)
    }

    /// Whether the child still runs; otherwise its last words.
    pub(crate) fn check(&mut self) -> Result<(), LabError> {
        if self.life.lasts() { Ok(()) } else { Err(self.died("running")) }
    }

    /// Notes a command for the report, once however often it runs.
    fn record(&mut self, line: &str) {
        if !self.commands.iter().any(|known| known.command == line) {
            let command = report::Command { host: self.name.clone(), command: line.to_owned() };
            self.commands.push(command);
        }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        doing: &str,
        patience: Duration,
    ) -> Result<T, LabError> {
        let line = serde_json::to_string(request)
            .map_err(|error| self.refused(doing, &error.to_string()))?;
        let written = self.requests.as_mut().map(|input| writeln!(input, "{line}"));
        if !matches!(written, Some(Ok(()))) {
            return Err(self.died(doing));
        }
        self.answer(doing, patience)
    }

    fn answer<T: DeserializeOwned>(&self, doing: &str, patience: Duration) -> Result<T, LabError> {
        let line = self.replies.next(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                self.refused(doing, &format!("no answer in {} s", patience.as_secs()))
            }
            RecvTimeoutError::Disconnected => self.died(doing),
        })?;
        match serde_json::from_str(&line) {
            Ok(Reply::Done { value }) => {
                serde_json::from_value(value).map_err(|_| self.refused(doing, &line))
            }
            Ok(Reply::Missing { program }) => Err(missing(program)),
            Ok(Reply::Error { message }) => Err(self.refused(doing, &message)),
            Err(_) => Err(self.refused(doing, &line)),
        }
    }

    fn refused(&self, doing: &str, output: &str) -> LabError {
        LabError::Refused {
            host: self.name.clone(),
            doing: doing.to_owned(),
            output: output.to_owned(),
        }
    }

    fn died(&self, doing: &str) -> LabError {
        LabError::HostDied {
            host: self.name.clone(),
            doing: doing.to_owned(),
            output: self.last_words(),
        }
    }

    /// The last lines of its log.
    pub(crate) fn last_words(&self) -> String {
        self.life.last_words()
    }
}

/// How long so many connections may take to open, all sharing the way with those that send already.
pub(crate) fn connecting(connections: u32) -> Duration {
    Duration::from_millis(5) * connections
}

fn missing(program: String) -> LabError {
    let package = match program.as_str() {
        "ip" => "iproute2",
        "ping" => "iputils-ping",
        "iperf3" => "iperf3",
        "ovsdb-tool" | "ovsdb-server" | "ovs-vsctl" => "openvswitch-switch",
        _ => "util-linux",
    };
    LabError::ProgramMissing { program, package }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.requests.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_came_too_late_is_not_taken_for_the_next_one() {
        let (host, lines) = std::sync::mpsc::channel();
        let replies = Replies { lines, late: Cell::new(0) };
        assert_eq!(replies.next(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        assert_eq!(replies.next(Duration::ZERO), Err(RecvTimeoutError::Timeout));
        for line in ["first", "second", "third"] {
            host.send(line.to_owned()).unwrap();
        }
        assert_eq!(replies.next(PATIENCE).as_deref(), Ok("third"));
        drop(host);
        assert_eq!(replies.next(PATIENCE), Err(RecvTimeoutError::Disconnected));
    }
}
