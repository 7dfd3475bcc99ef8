//! `--wait STATE` for commands that change a port.

use crate::output::Failure;
use api::body::{PortBody, StateBody};
use api::client::Client;
use clap::{Args, ValueEnum};
use problem::Problem;
use std::time::{Duration, Instant};

/// Polling interval.
const EVERY: Duration = Duration::from_millis(50);

#[derive(Args, Default)]
pub(super) struct Wait {
    /// Wait until the port is in this state; fail after --timeout.
    #[arg(long, value_name = "STATE")]
    wait: Option<State>,
    /// Longest time to wait.
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
    /// Waits until the port is in the wanted state, and returns it.
    ///
    /// # Errors
    /// The time is over, or the daemon does not answer.
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
            .remedy(format!(
                "the change is made; `millrace port show {}` shows the reason",
                port.name
            ))
    }
}
