//! Arms of the storage experiment: the two paths to the LUN in each.

/// Properties of both paths in an arm.
pub(crate) struct Paths {
    /// Key in JSON.
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    /// MTU in bytes.
    pub(crate) mtu: u16,
    /// Queue pairs of each vNIC that the guest uses.
    pub(crate) pairs: u16,
}

/// Arms that form a ring: each differs from its neighbours in one thing, so that the steps and the
/// comparison of the last with the first are the four questions.
pub(crate) const PATHS: [Paths; 4] = [
    Paths { name: "mtu1500_1", label: "MTU 1500, 1 queue pair", mtu: 1500, pairs: 1 },
    Paths { name: "mtu9000_1", label: "MTU 9000, 1 queue pair", mtu: 9000, pairs: 1 },
    Paths { name: "mtu9000_4", label: "MTU 9000, 4 queue pairs", mtu: 9000, pairs: 4 },
    Paths { name: "mtu1500_4", label: "MTU 1500, 4 queue pairs", mtu: 1500, pairs: 4 },
];
