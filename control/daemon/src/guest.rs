//! Describes the guest behind a vhost-user port in words for people.
//!
//! A guest connects, disconnects and breaks its rings while its port stays open, so its state is
//! read on demand.

use crate::devices::Condition;
use api::body::GuestBody;
use ports::vhost::{Features, Milestone, Negotiated, SocketRole, State, Status, Step};
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Returns whether frames can reach the guest, and if not, why.
pub(crate) fn condition(status: &Status, socket: &Path, role: SocketRole) -> Condition {
    let socket = socket.display();
    match (&status.state, role) {
        (State::Running, _) => Condition::Up,
        (State::Connected, _) if status.awaits_log => Condition::Down(
            "its rings wait for the dirty log of a migration: the front end turned logging on without naming the log (SET_LOG_BASE)"
                .to_owned(),
        ),
        (State::Connected, _) => {
            Condition::Down("a guest is connected, but its driver is not ready".to_owned())
        }
        (State::Waiting, _) if status.is_unplugged => Condition::Down(
            "its guest's link is down because no uplink carries its frames (`follow-uplink`)"
                .to_owned(),
        ),
        (State::Waiting, SocketRole::Server) => {
            Condition::Down(format!("waiting for a guest to connect to {socket}"))
        }
        (State::Waiting, SocketRole::Client) => {
            Condition::Down(format!("waiting for a guest to listen on {socket}"))
        }
        (State::Broken(fault), _) => Condition::Broken(fault.clone()),
    }
}

/// Returns the guest as the API shows it.
pub(crate) fn body(status: &Status, memory_limit: Option<u64>) -> GuestBody {
    GuestBody {
        connected: matches!(status.state, State::Connected | State::Running),
        connections: status.connections,
        memory_bytes: status.memory,
        memory_regions: status.mapped.len(),
        memory_limit,
        queues: status.negotiated.pairs,
        offered: status.offered.names(),
        taken: status.taken.names(),
        follows: follows(status.negotiated),
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
    };
    let time = milestone.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (second, ms) = (time.as_secs() % 86400, time.subsec_millis());
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{hour:02}:{minute:02}:{:02}.{ms:03} UTC: {what}", second % 60)
}

/// Returns the consequences of the negotiated features, in sentences; empty while no driver is
/// ready.
fn follows(negotiated: Negotiated) -> Vec<String> {
    if negotiated.pairs == 0 {
        return Vec::new();
    }
    let features = negotiated.features;
    let lacks = CONSEQUENCES.iter().filter(|(needed, _)| !features.contains(*needed));
    let ring = if features.contains(Features::RING_PACKED) { "packed" } else { "split" };
    let rings = format!("its rings are {ring}");
    std::iter::once(rings).chain(lacks.map(|(_, text)| (*text).to_owned())).collect()
}

/// The consequences if a guest does not accept these features.
const CONSEQUENCES: [(Features, &str); 8] = [
    (
        Features::GUEST_CSUM,
        "the switch completes checksums and segments trains before they reach it",
    ),
    (
        Features::GUEST_TSO4,
        "it receives no TCP trains over IPv4: RSC is off, and the switch segments LSO trains toward it",
    ),
    (
        Features::GUEST_TSO6,
        "it receives no TCP trains over IPv6: RSC is off, and the switch segments LSO trains toward it",
    ),
    (
        Features::GUEST_USO4.union(Features::GUEST_USO6),
        "it receives no UDP trains: the switch segments USO trains toward it",
    ),
    (Features::HOST_TSO4, "it segments TCP over IPv4 itself"),
    (Features::HOST_TSO6, "it segments TCP over IPv6 itself"),
    (Features::CSUM, "it completes checksums itself"),
    (Features::MRG_RXBUF, "a frame must fit into one of its receive buffers"),
];

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

    #[test]
    fn what_follows_names_what_was_not_taken() {
        let all = Negotiated { features: Features::all(), pairs: 1 };
        assert_eq!(follows(all), ["its rings are packed"]);
        let without = Features::all() - Features::GUEST_TSO4 - Features::RING_PACKED;
        let told = follows(Negotiated { features: without, pairs: 1 });
        assert_eq!(told.len(), 2);
        assert_eq!(told[0], "its rings are split");
        assert!(told[1].contains("IPv4") && told[1].contains("RSC"), "{told:?}");
        assert_eq!(follows(Negotiated::default()), Vec::<String>::new());
    }
}
