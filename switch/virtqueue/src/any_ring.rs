//! A ring of either format, as a queue uses it.

use crate::packed::Packed;
use crate::ring::Ring;
use crate::split::Split;
use std::ops::{Deref, DerefMut};

/// A ring of either format. Matched where the loops over a burst begin, so that they are inlined;
/// else a [`Ring`].
#[derive(Debug)]
pub(crate) enum AnyRing {
    Split(Split),
    Packed(Packed),
}

impl Deref for AnyRing {
    type Target = dyn Ring;

    fn deref(&self) -> &(dyn Ring + 'static) {
        match self {
            AnyRing::Split(ring) => ring,
            AnyRing::Packed(ring) => ring,
        }
    }
}

impl DerefMut for AnyRing {
    fn deref_mut(&mut self) -> &mut (dyn Ring + 'static) {
        match self {
            AnyRing::Split(ring) => ring,
            AnyRing::Packed(ring) => ring,
        }
    }
}
