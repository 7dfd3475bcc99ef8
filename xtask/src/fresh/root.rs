//! The bare root: made once with debootstrap, from the mirror that apt uses here.

use super::say;
use crate::mirror::Release;
use crate::program::{call, program};
use crate::{stamp, tree};
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::Path;

/// What README asks for, Rust apart; iproute2 and the rest are what `make` has to bring itself.
const PACKAGES: &str = "git,make,gcc,libc6-dev,ca-certificates";

/// This file is the recipe. Whatever changes in it makes the root anew.
const RECIPE: &str = include_str!("root.rs");

/// Options of apt, which the mirror may need.
const OPTIONS: &str = "etc/apt/apt.conf.d";

/// Makes the root in `root` of a directory, if it is not there or its recipe has changed. A half
/// made one is never found, because its stamp comes last.
///
/// # Errors
/// apt knows no mirror of this release, or debootstrap fails.
pub(super) fn make(fresh: &Path) -> Result<()> {
    let version = stamp::of([RECIPE.as_bytes()]);
    if stamp::is_on(fresh, &version) {
        return Ok(());
    }
    let mirror = Release::of_this_host().mirror()?;
    say(format_args!("making a bare root of {}", mirror.suite));
    let root = fresh.join("root");
    // The stamp of the old root.
    stamp::put_on(fresh, "none")?;
    tree::remove(&root)?;
    let log = fresh.join("debootstrap.log");
    let output = File::create(&log)?;
    let mut debootstrap = program("debootstrap");
    debootstrap.args(["--variant=minbase", &format!("--include={PACKAGES}"), &mirror.suite]);
    debootstrap.arg(&root).arg(&mirror.uri).stdout(output.try_clone()?).stderr(output);
    call(&mut debootstrap).with_context(|| end_of(&log))?;
    adapt(&root)?;
    stamp::put_on(fresh, &version)
}

/// Copies the options that the mirror needs; the suites that this host adds stay outside. Writes
/// the file of hosts as Debian's installer does; debootstrap leaves it out.
fn adapt(root: &Path) -> Result<()> {
    let options = fs::read_dir(Path::new("/").join(OPTIONS)).into_iter().flatten().flatten();
    for file in options.filter(|file| file.path().is_file()) {
        fs::copy(file.path(), root.join(OPTIONS).join(file.file_name()))?;
    }
    Ok(fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?)
}

/// Returns the last five lines of debootstrap's log.
fn end_of(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let end = lines[lines.len().saturating_sub(5)..].join("\n");
    format!("debootstrap cannot make the root ({}); it ends with:\n{end}\n", log.display())
}
