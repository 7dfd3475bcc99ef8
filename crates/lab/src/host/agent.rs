//! What a host does when it is asked. A child makes its namespace first, then serves its parent until its standard input
//! ends ([`serve`]); an agent serves peers over TCP, by the same requests (`listen`).

use super::load::Ends;
use super::protocol::{Identity, Reading, Reply, Request};
use super::{counters, namespace};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[derive(Default)]
pub(super) struct Agent {
    ends: Ends,
    /// Programs that were started and may still run.
    started: Vec<Child>,
}

/// Serves the parent on standard input and output, in a network namespace of its own. Returns when the parent closes
/// the input.
///
/// # Errors
/// The parent cannot be written to.
pub fn serve() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    converse(namespace::leave_network())
}

/// The same in a network namespace that is there already, or in this process's own.
///
/// # Errors
/// The parent cannot be written to.
pub fn serve_in(namespace: Option<&Path>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    match ports::namespace::within(namespace, || converse(Ok(()))) {
        Ok(served) => served,
        Err(error) => converse(Err(error)),
    }
}

/// Says whether the host is ready, then does what it is asked.
fn converse(ready: io::Result<()>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    put(&mut out, &Reply::of(ready))?;
    let mut agent = Agent::default();
    for line in io::stdin().lock().lines() {
        let reply = match serde_json::from_str(&line?) {
            Ok(Request::Become { program, arguments }) => {
                put(&mut out, &Reply::done(()))?;
                failed(&program, &Command::new(&program).args(arguments).exec())
            }
            Ok(request) => agent.handle(request),
            Err(error) => Reply::Error { message: format!("not a request: {error}") },
        };
        put(&mut out, &reply)?;
    }
    Ok(())
}

/// Writes a reply as a line.
pub(super) fn put(out: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let line = serde_json::to_string(reply).map_err(io::Error::other)?;
    out.write_all(format!("{line}\n").as_bytes())?;
    out.flush()
}

impl Agent {
    /// Does it, whatever it is: who may ask for what is the caller's business.
    pub(super) fn handle(&mut self, request: Request) -> Reply {
        match request {
            Request::Run { program, arguments } => run(&program, &arguments),
            Request::Start { program, arguments } => self.start(&program, &arguments),
            Request::Listen { at, bulk } => Reply::of(self.ends.receive(at, bulk)),
            Request::Answer { port } => Reply::of(self.ends.answer(port)),
            Request::Send { to, bulk } => Reply::of(self.ends.send(to, bulk)),
            Request::Limit { bits_per_s } => {
                self.ends.limit(bits_per_s);
                Reply::done(())
            }
            Request::StopSending => {
                self.ends.stop();
                Reply::done(())
            }
            Request::Read { link } => Reply::done(self.read(&link)),
            Request::RoundTrips { to, milliseconds } => {
                Reply::of(Ends::round_trips(to, Duration::from_millis(milliseconds)))
            }
            Request::Machine => Reply::done(Identity::own()),
            Request::Link { address } => Reply::of(
                counters::link_of(address)
                    .ok_or_else(|| format!("no link here has {address} or a route to it")),
            ),
            Request::Hello { .. } => Reply::done(()),
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
                Reply::done(())
            }
            Err(error) => failed("setpriv", &error),
        }
    }

    fn read(&self, link: &str) -> Reading {
        Reading {
            received_bytes: self.ends.received(),
            given_bytes: self.ends.given(),
            undelivered_bytes: self.ends.undelivered(),
            connections: self.ends.connections(),
            ..counters::read(link)
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

fn run(program: &str, arguments: &[String]) -> Reply {
    match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            Reply::done(String::from_utf8_lossy(&output.stdout))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_or_fails_is_told_apart() {
        assert_eq!(
            run("no-such-program-here", &[]),
            Reply::Missing { program: "no-such-program-here".into() }
        );
        assert!(matches!(run("false", &[]), Reply::Error { .. }));
        assert_eq!(run("echo", &["hi".into()]), Reply::done("hi\n"));
    }
}
