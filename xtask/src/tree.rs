//! This tree's directories: where it is, and where what is built belongs.

use anyhow::{Context, Result};
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Changes to the root of the tree. Paths and `CARGO_TARGET_DIR` are relative to it.
///
/// # Errors
/// The tree has gone since this program was built.
pub(crate) fn enter() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("a directory above")?;
    env::set_current_dir(root).with_context(|| format!("{} cannot be entered", root.display()))
}

/// Returns cargo's target directory, absolute.
///
/// # Errors
/// There is no current directory.
pub(crate) fn target() -> Result<PathBuf> {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(std::path::absolute(target)?)
}

/// Removes a directory, if it exists, with everything in it.
///
/// # Errors
/// It cannot be removed.
pub(crate) fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", directory.display()))
        }
        _ => Ok(()),
    }
}
