//! Version stamps: what is made once carries a file `version`, and is made anew if the stamp of its
//! recipe is another one.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Returns the stamp of a recipe: 64 bits of FNV-1a in hexadecimal. Nobody gains by a collision, so
/// this saves every build of xtask a crate for a cryptographic hash.
pub(crate) fn of<'a>(recipe: impl IntoIterator<Item = &'a [u8]>) -> String {
    let bytes = recipe.into_iter().flatten();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Whether what is in this directory was made by the recipe with this stamp.
pub(crate) fn is_on(directory: &Path, stamp: &str) -> bool {
    fs::read_to_string(directory.join("version")).is_ok_and(|text| text.trim_end() == stamp)
}

/// Marks what is in this directory as complete.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn put_on(directory: &Path, stamp: &str) -> Result<()> {
    let file = directory.join("version");
    fs::write(&file, format!("{stamp}\n"))
        .with_context(|| format!("{} cannot be written", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values are from the authors' test vectors.
    #[test]
    fn a_stamp_is_the_fnv_1a_hash_of_all_parts() {
        assert_eq!(of([]), "cbf29ce484222325");
        assert_eq!(of([&b"foobar"[..]]), "85944171f73967e8");
        assert_eq!(of([&b"foo"[..], b"bar"]), of([&b"foobar"[..]]));
        assert_ne!(of([&b"foobaz"[..]]), of([&b"foobar"[..]]));
    }

    #[test]
    fn what_has_no_stamp_or_another_one_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_on(directory.path(), "1"), "half made");
        put_on(directory.path(), "1").unwrap();
        assert!(is_on(directory.path(), "1"));
        assert!(!is_on(directory.path(), "2"));
    }
}
