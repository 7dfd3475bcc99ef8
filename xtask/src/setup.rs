//! Checks what building and testing need, and installs what is missing where it may.
//!
//! `make` calls it first. A missing system package is no error: what it would be needed for is
//! named and skipped. The host's network is never touched.

mod downloads;
mod system;
mod tools;

use crate::guests;
use crate::program::{has, program, succeeds, words};
use crate::tree;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use tools::Tools;

pub(crate) const HELP: &str = "\
Usage: cargo xtask setup [lint|docs|test|bench|fuzz|packages|peers]

Checks what building and testing need, and installs what is missing.

  cargo xtask setup           what `make demo` needs
  cargo xtask setup lint      what `make lint` needs as well: checkers of spelling, licences and dependencies, and the
                              maker of the book, below the target directory
  cargo xtask setup docs      what `make docs` needs as well: the maker of the book, below the target directory
  cargo xtask setup test      what `make test` needs as well: those checkers, the runner of tests, a browser, and the
                              guests of the stories
  cargo xtask setup bench     what `make bench` needs as well
  cargo xtask setup fuzz      what `make fuzz` needs as well
  cargo xtask setup packages  what `make packages` needs as well: cargo-deb and cargo-generate-rpm, below the target
                              directory
  cargo xtask setup peers     the switches that `make bench-peers` measures against

Without a system package it says what will be skipped, and goes on. System packages are installed as root where there is
apt-get. The host's network is never touched.";

/// A task of `make` that needs more than a Rust build does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Demo,
    Lint,
    Docs,
    Test,
    Bench,
    Fuzz,
    Packages,
    Peers,
}

impl Purpose {
    fn of(words: &[&str]) -> Option<Self> {
        Some(match words {
            [] => Self::Demo,
            ["lint"] => Self::Lint,
            ["docs"] => Self::Docs,
            ["test"] => Self::Test,
            ["bench"] => Self::Bench,
            ["fuzz"] => Self::Fuzz,
            ["packages"] => Self::Packages,
            ["peers"] => Self::Peers,
            _ => return None,
        })
    }
}

/// Tells people something.
fn say(text: impl std::fmt::Display) {
    eprintln!("setup: {text}");
}

/// Sets up for the purpose that the words name. Returns `None` if they name none.
///
/// # Errors
/// A part of the toolchain is missing, or a tool without which the purpose is pointless.
pub(crate) fn run(words: &[&str]) -> Result<Option<ExitCode>> {
    let Some(purpose) = Purpose::of(words) else { return Ok(None) };
    tree::enter()?;
    has_toolchain()?;
    system::install(purpose);
    let tools = Tools::below(&tree::target()?);
    match purpose {
        Purpose::Demo => {}
        Purpose::Lint => lint(&tools),
        Purpose::Docs => tools.install_mdbook(),
        Purpose::Test => test(&tools)?,
        // The runner and the library must have the same version.
        Purpose::Bench => tools::install("gungraun-runner", Some(&version_of("gungraun")?))?,
        Purpose::Fuzz => tools::install("cargo-bolero", None)?,
        Purpose::Packages => tools.build_packagers()?,
        Purpose::Peers => check_huge_pages(),
    }
    Ok(Some(ExitCode::SUCCESS))
}

/// Checks that all parts of the toolchain are installed. Cargo itself refuses a Rust that is older
/// than `rust-version`, before this program exists.
fn has_toolchain() -> Result<()> {
    for part in ["rustfmt", "cargo-clippy"] {
        let is_there = has(part)
            || has("rustup") && succeeds(&mut words("rustup -q component add rustfmt clippy"));
        if !is_there {
            bail!("{part} is missing; try: rustup component add rustfmt clippy");
        }
    }
    Ok(())
}

fn lint(tools: &Tools) {
    tools.install_typos();
    tools.install_checker("cargo-deny", tools::CARGO_DENY, "licences");
    tools.install_checker("cargo-shear", tools::CARGO_SHEAR, "unused dependencies");
    tools.install_mdbook();
    // cargo-deny reads the licences of all crates, including those for other systems.
    if !succeeds(&mut words("cargo fetch --quiet --locked")) {
        say("not all crates can be fetched");
    }
}

/// Stories that need a missing guest are skipped with a message.
fn test(tools: &Tools) -> Result<()> {
    lint(tools);
    tools.install_checker("cargo-nextest", tools::CARGO_NEXTEST, "all tests");
    thread::scope(|scope| {
        // The processors build them while the network brings the rest.
        let packagers = scope.spawn(|| tools.build_packagers());
        downloads::install_axe(tools);
        downloads::install_cni(tools);
        if !guests::bring_all(&tools.target) {
            say("some guests cannot be had; their stories are skipped");
        }
        downloads::bring_etcd(&tools.target);
        if !succeeds(&mut program("scripts/systemd")) {
            say("no root with a systemd can be had; its stories are skipped");
        }
        packagers.join().unwrap_or_else(|_| bail!("the thread that builds the packagers panicked"))
    })
}

/// Says whether the kernel has huge pages. The peers reserve them themselves while they run.
fn check_huge_pages() {
    if !Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB").is_dir() {
        say(
            "the kernel has no huge pages of 2 MiB; skipped without them: testpmd and OVS-DPDK as peers",
        );
    }
}

/// Returns the version of a dependency of the workspace.
fn version_of(dependency: &str) -> Result<String> {
    let manifest = fs::read_to_string("Cargo.toml").context("Cargo.toml cannot be read")?;
    let version = version_in(&manifest, dependency);
    version.map(str::to_owned).with_context(|| {
        format!("Cargo.toml has no line `{dependency} = \"VERSION\"`: add it, or correct setup.rs")
    })
}

/// Finds the first string that starts with a digit in a dependency's line.
fn version_in<'m>(manifest: &'m str, dependency: &str) -> Option<&'m str> {
    let mut values = manifest
        .lines()
        .filter_map(|line| line.strip_prefix(dependency)?.strip_prefix(" = ")?.split('"').nth(1));
    values.find(|value| value.starts_with(|first: char| first.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_either_form_of_a_dependency() {
        let manifest = "\
gungraun-macros = \"0.1\"
# gungraun = \"0.2\"
gungraun = \"0.20.0\"
zerocopy = { version = \"0.8.63\", features = [\"derive\"] }
wire = { path = \"switch/wire\" }";
        assert_eq!(version_in(manifest, "gungraun"), Some("0.20.0"));
        assert_eq!(version_in(manifest, "zerocopy"), Some("0.8.63"));
        assert_eq!(version_in(manifest, "wire"), None);
        assert_eq!(version_in(manifest, "loom"), None);
    }

    #[test]
    fn the_workspace_names_the_library_of_the_benches_runner() {
        let manifest = include_str!("../../Cargo.toml");
        assert!(version_in(manifest, "gungraun").is_some());
    }

    #[test]
    fn words_that_are_no_purpose_are_refused() {
        assert_eq!(Purpose::of(&[]), Some(Purpose::Demo));
        assert_eq!(Purpose::of(&["test"]), Some(Purpose::Test));
        assert_eq!(Purpose::of(&["tests"]), None);
        assert_eq!(Purpose::of(&["lint", "test"]), None);
    }
}
