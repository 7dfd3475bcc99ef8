//! Others' receive-side scaling: DPDK's, and QEMU's with and without the kernel.

pub(crate) mod device;
pub(crate) mod dpdk;
mod qtest;

use proptest::collection::vec;
use proptest::prelude::*;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use wire::toeplitz::HashTypes;

/// Queues of the table.
pub(crate) const QUEUES: u8 = 16;

/// How frames are to be spread.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    pub(crate) key: [u8; 40],
    pub(crate) types: HashTypes,
    /// The queue of each entry.
    pub(crate) table: Vec<u8>,
}

/// Settings of any key and table, with some of these types.
pub(crate) fn setting(types: impl Strategy<Value = HashTypes>) -> impl Strategy<Value = Setting> {
    let key = vec(any::<u8>(), 40).prop_map(|key| key.try_into().unwrap());
    (key, types, vec(0..QUEUES, 128)).prop_map(|(key, types, table)| Setting { key, types, table })
}

/// Returns the directory in which `cargo xtask guests` put a kind of guest.
pub(crate) fn guests(kind: &str) -> PathBuf {
    std::env::var_os("MILLRACE_GUESTS")
        .map_or_else(
            || [env!("CARGO_TARGET_TMPDIR"), "..", "guests"].iter().collect(),
            PathBuf::from,
        )
        .join(kind)
}

/// For `LD_LIBRARY_PATH`: Debian's packages use both folders, and only a merged system makes them
/// one.
fn libraries(root: &Path) -> OsString {
    let folders = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];
    std::env::join_paths(folders.map(|folder| root.join(folder))).unwrap()
}
