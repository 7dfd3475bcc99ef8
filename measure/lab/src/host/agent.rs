//! The host's side of requests. A child enters its namespace, then serves its parent over its
//! standard input, a socket, until the parent closes it ([`serve`]). An agent serves peers over TCP
//! (`listen`).

use super::load::Endpoint;
use super::protocol::{Identity, Reply, Request};
use super::router::{self, router};
use super::{counters, delay, namespace};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Executes requests; dropping it kills the programs that it started.
#[derive(Default)]
pub(super) struct Agent {
    endpoint: Endpoint,
    /// Programs that this host started; some may have ended.
    started: Vec<Child>,
}

/// Serves the parent on standard input, in a network namespace of its own. Returns when the parent
/// closes the connection.
///
/// # Errors
/// Standard input is no socket, or the connection breaks.
pub fn serve() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    converse(namespace::leave_network())
}

/// Like [`serve`], in the network namespace at this path, or in this process's own for `None`.
///
/// # Errors
/// Standard input is no socket, or the connection breaks.
pub fn serve_in(namespace: Option<&Path>) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    match ports::namespace::within(namespace, || converse(Ok(()))) {
        Ok(served) => served,
        Err(error) => converse(Err(error)),
    }
}

/// Serves the parent's requests; if the namespace could not be entered, answers each with the
/// reason.
fn converse(ready: io::Result<()>) -> io::Result<()> {
    // A copy that is closed when this process executes another program: that tells the parent that
    // it succeeded.
    let stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    stream.set_nonblocking(true)?;
    let mut agent = Agent::default();
    let handle = move |request| match &ready {
        Ok(()) => Ok(agent.handle(request)),
        Err(why) => Ok(Reply::Error { message: why.to_string() }),
    };
    let open = || tokio::net::UnixStream::from_std(stream);
    router::serve(open, router(handle), std::future::pending())
}

impl Agent {
    /// Executes a request without checking whether the peer may make it: that is the caller's task.
    pub(super) fn handle(&mut self, request: Request) -> Reply {
        match request {
            Request::Run { program, arguments } => run(&program, &arguments),
            Request::Start { program, arguments } => self.start(&program, &arguments),
            Request::Listen { at, bulk } => Reply::of(self.endpoint.receive(at, bulk)),
            Request::Answer { port } => Reply::of(self.endpoint.answer(port)),
            Request::Delay { device, link, microseconds } => {
                Reply::of(delay::start(&device, &link, Duration::from_micros(microseconds)))
            }
            Request::Send { to, bulk } => Reply::of(self.endpoint.send(to, bulk)),
            Request::Limit { bits_per_s } => {
                self.endpoint.limit(bits_per_s);
                Reply::done(())
            }
            Request::StopSending => {
                self.endpoint.stop();
                Reply::done(())
            }
            Request::Read { link } => Reply::done(self.endpoint.add_to(counters::read(&link))),
            Request::RoundTrips { to, milliseconds } => {
                Reply::of(Endpoint::round_trips(to, Duration::from_millis(milliseconds)))
            }
            Request::Machine => Reply::done(Identity::own()),
            Request::Link { address } => Reply::of(
                counters::link_of(address)
                    .ok_or_else(|| format!("no link here has {address} or a route to it")),
            ),
            Request::Ready => Reply::done(()),
            Request::Become { program, arguments } => {
                let mut command = Command::new(&program);
                failed(&program, &command.args(arguments).stdin(Stdio::null()).exec())
            }
        }
    }

    /// Starts a program that the kernel kills when this process ends.
    fn start(&mut self, program: &str, arguments: &[String]) -> Reply {
        // Reaps the programs that have ended, which are zombies until then.
        self.started.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]).args(arguments);
        let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        match spawned.map(|child| self.started.push(child)) {
            Ok(()) => Reply::done(()),
            Err(error) => failed("setpriv", &error),
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
    use std::time::Instant;

    #[test]
    fn programs_that_have_ended_are_forgotten_when_another_starts() {
        let mut agent = Agent::default();
        let end = Instant::now() + Duration::from_secs(10);
        for started in 1.. {
            assert_eq!(agent.start("true", &[]), Reply::done(()));
            if agent.started.len() < started {
                return;
            }
            assert!(Instant::now() < end, "all {started} are kept");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

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
