//! `--wait STATE` of the commands that change a port.

use crate::output::Failure;
use clap::{Args, ValueEnum};
use control::Problem;
use control::body::{PortBody, StateBody};
use control::client::Client;
use std::time::{Duration, Instant};

/// How often it is asked.
const EVERY: Duration = Duration::from_millis(50);

#[derive(Args, Default)]
pub(super) struct Wait {
    /// Return when the port is in this state, and fail if it is not in time.
    #[arg(long, value_name = "STATE")]
    wait: Option<State>,
    /// Wait so many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "wait")]
    timeout: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum State {
    Up,
    Down,
    Broken,
}

impl State {
    fn of(port: &PortBody) -> State {
        match port.state {
            StateBody::Up => State::Up,
            StateBody::Down => State::Down,
            StateBody::Broken => State::Broken,
        }
    }
}

impl Wait {
    /// The port, when it is in the state that is waited for.
    pub(super) fn until(&self, client: &Client, mut port: PortBody) -> Result<PortBody, Failure> {
        let Some(wanted) = self.wait else { return Ok(port) };
        let end = Instant::now() + Duration::from_secs(self.timeout);
        while State::of(&port) != wanted {
            if Instant::now() >= end {
                return Err(self.too_late(&port, wanted).into());
            }
            std::thread::sleep(EVERY);
            port = client.port(&port.name)?;
        }
        Ok(port)
    }

    fn too_late(&self, port: &PortBody, wanted: State) -> Problem {
        let reason = if port.reason.is_empty() { "" } else { ": " };
        let wanted = wanted.to_possible_value().map_or_else(String::new, |it| it.get_name().into());
        Problem::new(format!("port {} is not {wanted} after {} s", port.name, self.timeout))
            .seen(format!("{}{reason}{}", port.state.name(), port.reason))
            .wanted(wanted)
            .remedy("the change is in force; `millrace port show` says what the port waits for")
    }
}
