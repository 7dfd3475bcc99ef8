//! Why a session cannot be opened.

use crate::Options;
use std::io;
use std::path::PathBuf;

/// Why a vhost-user session cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The number of queue pairs is out of range.
    #[error("{pairs} queue pairs wanted: a vhost-user port has 1 to {most}", most = Options::PAIRS)]
    Pairs {
        /// The number that was asked for.
        pairs: u16,
    },
    /// Another process listens at this socket.
    #[error("another process listens on {path}: stop it, or choose another socket")]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The socket file may be in use, or belongs to another user, so it is not replaced.
    #[error(
        "{path} is a socket that this switch may not replace ({why}): remove it, or choose another path"
    )]
    NotOurs {
        /// The socket.
        path: PathBuf,
        /// What shows that.
        why: String,
    },
    /// The file at this path is not a socket.
    #[error("{path} exists and is not a socket: remove it, or choose another path")]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A step failed.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The step that failed.
        doing: &'static str,
        /// The socket's path.
        path: PathBuf,
        /// The kernel's error.
        #[source]
        source: io::Error,
    },
}
