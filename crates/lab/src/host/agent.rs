//! The child's side of a host: makes its namespace, then does what it is asked until its standard input ends.

use super::load::Ends;
use super::protocol::{Reading, Reply, Request};
use super::{namespace, round_trip};
use ports::link::{Link, LinkOffload};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, BufRead, Write};
use std::net::{Ipv6Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[derive(Default)]
struct Agent {
    ends: Ends,
    /// Programs that were started and may still run.
    started: Vec<Child>,
}

/// Serves the parent on standard input and output. Returns when the parent closes the input.
///
/// # Errors
/// The kernel refuses a network namespace, or the parent cannot be written to.
pub fn serve() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    let mut out = io::stdout().lock();
    let ready = match namespace::leave_network() {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Error { message: error.to_string() },
    };
    put(&mut out, &ready)?;
    let mut agent = Agent::default();
    for line in io::stdin().lock().lines() {
        let reply = match serde_json::from_str(&line?) {
            Ok(Request::Become { program, arguments }) => {
                put(&mut out, &Reply::Done)?;
                failed(&program, &Command::new(&program).args(arguments).exec())
            }
            Ok(request) => agent.handle(request),
            Err(error) => Reply::Error { message: format!("not a request: {error}") },
        };
        put(&mut out, &reply)?;
    }
    Ok(())
}

fn put(out: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let line = serde_json::to_string(reply).map_err(io::Error::other)?;
    writeln!(out, "{line}")?;
    out.flush()
}

impl Agent {
    fn handle(&mut self, request: Request) -> Reply {
        match request {
            Request::Run { program, arguments } => run(&program, &arguments),
            Request::Offload { link, segmentation, coalescing } => {
                done(offload(&link, segmentation, coalescing))
            }
            Request::Start { program, arguments } => self.start(&program, &arguments),
            Request::Listen { port, bulk } => done(self.ends.receive(port, bulk)),
            Request::Answer { port } => done(answer(port)),
            Request::Send { to, bulk } => done(self.ends.send(to, bulk)),
            Request::StopSending => {
                self.ends.stop();
                Reply::Done
            }
            Request::Read { link } => Reply::Reading(self.read(&link)),
            Request::RoundTrips { to, milliseconds } => {
                match round_trip::ask(to, Duration::from_millis(milliseconds)) {
                    Ok(trips) => Reply::RoundTrips(trips),
                    Err(error) => Reply::Error { message: error.to_string() },
                }
            }
            Request::Become { program, .. } => failed(&program, &io::ErrorKind::Unsupported.into()),
        }
    }

    /// The program ends with this process, however that ends.
    fn start(&mut self, program: &str, arguments: &[String]) -> Reply {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]).args(arguments);
        match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => {
                self.started.push(child);
                Reply::Done
            }
            Err(error) => failed("setpriv", &error),
        }
    }

    fn read(&self, link: &str) -> Reading {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let [arrived_bytes, arrived_frames, sent_bytes, sent_frames] =
            carried(&text("/proc/self/net/dev"), link).unwrap_or_default();
        let now = clock_gettime(ClockId::Monotonic);
        Reading {
            at_ns: u64::try_from(Duration::try_from(now).unwrap_or_default().as_nanos())
                .unwrap_or(0),
            received_bytes: self.ends.received(),
            given_bytes: self.ends.given(),
            connections: self.ends.connections(),
            retransmits: retransmits(&text("/proc/self/net/snmp")).unwrap_or(0),
            sent_frames,
            sent_bytes,
            arrived_frames,
            arrived_bytes,
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        for child in &mut self.started {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn done<E: std::fmt::Display>(result: Result<(), E>) -> Reply {
    match result {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Error { message: error.to_string() },
    }
}

fn answer(port: u16) -> io::Result<()> {
    // The IPv6 wildcard takes IPv4 too.
    round_trip::answer(TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?);
    Ok(())
}

fn run(program: &str, arguments: &[String]) -> Reply {
    match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            Reply::Output { text: String::from_utf8_lossy(&output.stdout).into_owned() }
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Reply::Error { message: format!("{} ({})", said.trim(), output.status) }
        }
        Err(error) => failed(program, &error),
    }
}

fn failed(program: &str, error: &io::Error) -> Reply {
    match error.kind() {
        io::ErrorKind::NotFound => Reply::Missing { program: program.to_owned() },
        _ => Reply::Error { message: format!("{program}: {error}") },
    }
}

fn offload(link: &str, segmentation: bool, coalescing: bool) -> io::Result<()> {
    let set = |offload, on| {
        let link = Link::open(link, None).map_err(io::Error::other)?;
        link.set_offload(offload, on).map_err(io::Error::other)
    };
    set(LinkOffload::Tso, segmentation)?;
    set(LinkOffload::Gso, segmentation)?;
    set(LinkOffload::Gro, coalescing)
}

/// Bytes and frames that arrived over a link, and bytes and frames it sent, from the text of `/proc/net/dev`: fields
/// 1, 2, 9 and 10 after the name.
fn carried(dev: &str, link: &str) -> Option<[u64; 4]> {
    let line =
        dev.lines().find_map(|line| line.trim_start().strip_prefix(link)?.strip_prefix(':'))?;
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let field = |place: usize| fields.get(place)?.parse().ok();
    Some([field(0)?, field(1)?, field(8)?, field(9)?])
}

/// `RetransSegs` from the text of `/proc/net/snmp`: a line of names above a line of numbers.
fn retransmits(snmp: &str) -> Option<u64> {
    let mut tcp = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let place = tcp.next()?.split_ascii_whitespace().position(|name| name == "RetransSegs")?;
    tcp.next()?.split_ascii_whitespace().nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let dev = "Inter-|\n face |bytes\n  wire0: 1 2 0 0 0 0 0 0 1514 9 0 0 0 0 0 0\n";
        assert_eq!(carried(dev, "wire0"), Some([1, 2, 1514, 9]));
        assert_eq!(carried(dev, "wire"), None);
        let snmp = "Ip: A B\nIp: 1 2\nTcp: InSegs RetransSegs\nTcp: 5 7\n";
        assert_eq!(retransmits(snmp), Some(7));
        assert_eq!(retransmits("Tcp: RetransSegs\n"), None);
    }

    #[test]
    fn a_program_that_is_missing_or_fails_is_told_apart() {
        assert_eq!(
            run("no-such-program-here", &[]),
            Reply::Missing { program: "no-such-program-here".into() }
        );
        assert!(matches!(run("false", &[]), Reply::Error { .. }));
        assert_eq!(run("echo", &["hi".into()]), Reply::Output { text: "hi\n".into() });
    }
}
