//! Arms and reads of the iSCSI experiment.

/// An arm: a link between the initiator and the target.
pub(crate) struct IscsiArm {
    /// Key in JSON.
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    /// How a worker of the switch waits; `None` if the link has no switch.
    pub(crate) poll: Option<&'static str>,
}

/// The arms, the baseline second.
pub(crate) const ARMS: [IscsiArm; 3] = [
    IscsiArm { name: "millrace", label: "Two TAP ports", poll: Some("adaptive") },
    IscsiArm { name: "veth", label: "A veth", poll: None },
    IscsiArm { name: "always", label: "Two TAP ports, poll = \"always\"", poll: Some("always") },
];

/// Runs of iscsi-perf: the key of a figure, the options, and the factor from requests per second to
/// that figure's unit.
pub(crate) const LOADS: [(&str, &str, f64); 3] = [
    (SEQUENTIAL, "-m 32 -b 256", 8.0 * 128.0 * 1024.0),
    (RANDOM, "-m 32 -b 8 -r", 1.0),
    (ONE_BY_ONE, "-m 1 -b 8 -r", 1.0),
];

/// Key of sequential reads, in bits per second.
pub(crate) const SEQUENTIAL: &str = "sequential_bps";
/// Key of random reads, 32 at a time, per second.
pub(crate) const RANDOM: &str = "random_32_per_s";
/// Key of random reads, one at a time, per second.
pub(crate) const ONE_BY_ONE: &str = "random_1_per_s";
