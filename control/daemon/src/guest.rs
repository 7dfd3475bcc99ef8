//! The guest behind a vhost-user port, as the API shows it.

use api::body::GuestBody;
use ports::vhost::{Features, Negotiated, State, Status};

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
