//! Why a session cannot be opened.

use crate::Options;
use std::io;
use std::path::PathBuf;

/// Why a vhost-user session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// Not a number of queue pairs.
    #[error("{pairs} queue pairs wanted: a vhost-user port has 1 to {most}", most = Options::PAIRS)]
    Pairs {
        /// What was asked for.
        pairs: u16,
    },
    /// Somebody else serves this socket.
    #[error("another process listens on {path}: stop it, or choose another socket")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// It cannot be told, or is not ours to say, whether somebody uses this socket.
    #[error(
        "{path} is a socket that this switch may not replace ({why}): remove it, or choose another path"
    )]
    NotOurs {
        /// The socket.
        path: PathBuf,
        /// What was found.
        why: String,
    },
    /// What is there is no socket.
    #[error("{path} exists and is not a socket: remove it, or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A step failed.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
