//! The features and queue pairs that a guest and this back end have agreed on.

use crate::Features;

/// The current result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Negotiated {
    /// Features that the guest acknowledged, without receive offloads that it has turned off by
    /// command.
    pub features: Features,
    /// Number of queue pairs that the guest uses, from the first on. 0 if no guest is connected or
    /// it is not ready.
    pub pairs: u16,
}
