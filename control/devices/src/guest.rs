//! Describes the guest behind a vhost-user port in words for people.
//!
//! A guest connects, disconnects and breaks its rings while its port stays open, so its state is
//! read on demand.

use crate::contract::Condition;
use ports::vhost::{Milestone, SocketRole, State, Status, Step};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Why a guest's port is down whose link was taken down.
const LINK_DOWN: &str =
    "its guest's link is down because no uplink carries its frames (`follow-uplink`)";

/// Returns whether frames can reach the guest, and if not, why.
pub(crate) fn condition(status: &Status, socket: &Path, role: SocketRole) -> Condition {
    let socket = socket.display();
    match (&status.state, role) {
        (State::Running, _) if status.is_told => Condition::Down(LINK_DOWN.to_owned()),
        (State::Running, _) => Condition::Up,
        (State::Connected, _) if status.awaits_log => Condition::Down(
            "its rings wait for the dirty log of a migration: the front end turned logging on without naming the log (SET_LOG_BASE)"
                .to_owned(),
        ),
        (State::Connected, _) => {
            Condition::Down("a guest is connected, but its driver is not ready".to_owned())
        }
        (State::Waiting, _) if status.is_unplugged => Condition::Down(LINK_DOWN.to_owned()),
        (State::Waiting, SocketRole::Server) => {
            Condition::Down(format!("waiting for a guest to connect to {socket}"))
        }
        (State::Waiting, SocketRole::Client) => {
            Condition::Down(format!("waiting for a guest to listen on {socket}"))
        }
        (State::Broken(fault), _) => Condition::Broken(fault.clone()),
    }
}

/// Returns a line for a step of a migration, with wall-clock time for comparison with the other
/// host's log.
pub(crate) fn milestone(milestone: &Milestone) -> String {
    let what = match milestone.step {
        Step::Logged => "a migration begins: writes to guest memory are logged".to_owned(),
        Step::Cancelled => "the migration was cancelled; the guest stays here".to_owned(),
        Step::Stopped(after) => {
            format!("the guest was stopped, {} ms after the migration began", after.as_millis())
        }
        Step::Returned(after) => {
            format!("its rings run again here, {} ms after they were stopped", after.as_millis())
        }
        Step::Arrived => {
            "a guest that ran elsewhere before runs here (or the switch was restarted)".to_owned()
        }
        Step::Awaited => {
            "a guest comes whose memory follows it (post-copy): while a page is awaited its frames are, too".to_owned()
        }
        Step::Complete => "all of the guest's memory is here (post-copy has ended)".to_owned(),
    };
    let time = milestone.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (second, ms) = (time.as_secs() % 86400, time.subsec_millis());
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}.{ms:03} UTC: {what}", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: State) -> Status {
        Status { state, ..Status::default() }
    }

    #[test]
    fn a_state_names_the_socket_or_the_fault() {
        let socket = Path::new("/run/v");
        let text = |state, role| match condition(&status(state), socket, role) {
            Condition::Down(reason) | Condition::Broken(reason) => reason,
            other => format!("{other:?}"),
        };
        assert!(text(State::Waiting, SocketRole::Server).contains("connect to /run/v"));
        assert!(text(State::Waiting, SocketRole::Client).contains("listen on /run/v"));
        assert_eq!(text(State::Broken("ring 1: x".into()), SocketRole::Server), "ring 1: x");
        assert_eq!(text(State::Running, SocketRole::Client), "Up");
    }

    #[test]
    fn a_milestone_has_the_time_of_day_to_the_millisecond() {
        let at = UNIX_EPOCH + std::time::Duration::from_millis(86_400_000 * 3 + 45_296_007);
        let step = Step::Stopped(std::time::Duration::from_millis(1240));
        let text = milestone(&Milestone { at, step });
        assert!(text.starts_with("12:34:56.007 UTC: the guest was stopped"), "{text}");
        assert!(text.ends_with("1240 ms after the migration began"), "{text}");
    }

    #[test]
    fn a_port_whose_rings_wait_for_a_log_says_so() {
        let waits = Status { awaits_log: true, ..status(State::Connected) };
        let Condition::Down(reason) = condition(&waits, Path::new("/v"), SocketRole::Server) else {
            panic!("not down")
        };
        assert!(reason.contains("SET_LOG_BASE"), "{reason}");
    }
}
