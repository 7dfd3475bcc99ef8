//! The default place of the API's socket.

use std::path::PathBuf;

/// Returns the API's default socket: `/run/millrace/api.sock` for root, under `$XDG_RUNTIME_DIR`
/// for others.
pub fn default_path() -> PathBuf {
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !rustix::process::geteuid().is_root());
    runtime.map_or_else(|| PathBuf::from("/run"), PathBuf::from).join("millrace/api.sock")
}
