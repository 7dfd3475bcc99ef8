//! What a guest and this back end have agreed on.

use crate::Features;

/// The agreement as it stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Negotiated {
    /// What the guest took, receive offloads it has turned off by command left out.
    pub features: Features,
    /// Queue pairs it uses: the first so many. 0: it is not there, or not ready.
    pub pairs: u16,
}
