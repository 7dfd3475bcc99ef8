//! What tests of sessions share.

use std::path::Path;
use vhost_user::{Access, Options, SocketRole};

/// Returns a session that waits for a front end at the socket.
pub(crate) fn options(socket: &Path, pairs: u16) -> Options {
    Options {
        socket: socket.to_owned(),
        role: SocketRole::Server,
        access: Access::default(),
        pairs,
        mtu: 1500,
        mac: None,
        memory_limit: u64::MAX,
        speed: None,
        compat: None,
        changed: Box::new(|_| {}),
        commanded: Box::new(|_| {}),
        replaced: Box::new(|| {}),
        announcement: Box::new(|_| Vec::new()),
    }
}
