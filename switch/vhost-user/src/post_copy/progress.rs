//! The steps of post-copy, as a session takes them.

use super::handle::Ferry;
use std::sync::Arc;

/// How far the post-copy of one connection is.
#[derive(Debug, Default)]
pub(crate) enum PostCopy {
    /// There is none, or it has ended.
    #[default]
    None,
    /// The front end knows where it will hear of missing pages.
    Advised(Arc<Ferry>),
    /// It names its memory.
    Listening(Arc<Ferry>),
    /// It serves missing pages, and rings may run.
    Served(Arc<Ferry>),
}

impl PostCopy {
    /// Returns the ferry, if there is one.
    pub(crate) fn ferry(&self) -> Option<&Arc<Ferry>> {
        match self {
            PostCopy::None => None,
            PostCopy::Advised(ferry) | PostCopy::Listening(ferry) | PostCopy::Served(ferry) => {
                Some(ferry)
            }
        }
    }
}
