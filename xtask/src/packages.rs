//! Makes the .deb and the .rpm by what millrace/Cargo.toml says of them.
//!
//! The tools are cargo-deb and cargo-generate-rpm, which `cargo xtask setup packages` brings.
//! Nothing is fetched, and the times of files are the commit's, so that a commit and a toolchain
//! make the same packages. Signing is left to whoever publishes them.

use crate::program::{call, has_on, path, printed, printed_silently, program, words};
use crate::tree;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, ExitCode};

pub(crate) const HELP: &str = "\
Usage: cargo xtask packages [PROGRAM DIRECTORY REVISION deb|rpm]

Makes the .deb and the .rpm by what millrace/Cargo.toml says of them, and prints their paths.

  cargo xtask packages        of a release build, into target/packages
  cargo xtask packages target/debug/millrace /tmp/packages 1 deb
                              one kind, of this program, into this directory, hardly compressed: stories package what they
                              test

The tools are cargo-deb and cargo-generate-rpm, which `cargo xtask setup packages` brings. Signing is left to whoever
publishes the packages.";

/// Programs that make packages.
const PROGRAMS: [&str; 5] = ["cargo-deb", "cargo-generate-rpm", "dpkg-shlibdeps", "strip", "gzip"];

const SHELLS: [&str; 3] = ["bash", "zsh", "fish"];

/// A kind of package; also the ending of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deb,
    Rpm,
}

/// What to package, and where the packages go.
struct Order {
    program: PathBuf,
    directory: PathBuf,
    /// Orders packages of one version and tells them apart.
    revision: String,
    kinds: &'static [Kind],
    /// Whether to save time instead of room.
    is_fast: bool,
}

/// The tools, and where they find what they package.
struct Tools {
    path: String,
    /// A directory that is removed at the end, with `release` in it.
    world: PathBuf,
    /// The time of all files, in seconds since 1970.
    time: String,
}

/// Makes the packages that the words name. Returns `None` if the words are not understood.
///
/// # Errors
/// A tool is missing or fails.
pub(crate) fn run(words: &[&str]) -> Result<Option<ExitCode>> {
    let order = match words {
        [] => None,
        [program, directory, revision, "deb"] => {
            Some(Order::of_one(program, directory, revision, &[Kind::Deb])?)
        }
        [program, directory, revision, "rpm"] => {
            Some(Order::of_one(program, directory, revision, &[Kind::Rpm])?)
        }
        _ => return Ok(None),
    };
    tree::enter()?;
    let target = tree::target()?;
    let path = format!("{}:{}", target.join("tools/bin").display(), path());
    if let Some(missing) = PROGRAMS.iter().find(|name| !has_on(&path, name)) {
        bail!("needs {missing}: cargo xtask setup packages");
    }
    let order = order.map_or_else(|| Order::of_release(&target), Ok)?;
    let world = tempfile::tempdir()?;
    let tools = Tools { path, world: world.path().to_owned(), time: time_of_commit()? };
    for package in tools.package(&order)? {
        println!("{}", package.display());
    }
    Ok(Some(ExitCode::SUCCESS))
}

impl Kind {
    fn ending(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
        }
    }
}

impl Order {
    /// Orders one kind of packages of a program. Paths are relative to the caller's directory.
    fn of_one(
        program: &str,
        directory: &str,
        revision: &str,
        kinds: &'static [Kind],
    ) -> Result<Self> {
        let (program, directory) = (absolute(program)?, absolute(directory)?);
        Ok(Self { program, directory, revision: revision.to_owned(), kinds, is_fast: true })
    }

    /// Builds the release and orders all kinds of packages of it.
    fn of_release(target: &Path) -> Result<Self> {
        call(&mut words("cargo build --release --locked --package millrace"))?;
        Ok(Self {
            program: target.join("release/millrace"),
            directory: target.join("packages"),
            revision: revision(),
            kinds: &[Kind::Deb, Kind::Rpm],
            is_fast: false,
        })
    }
}

impl Tools {
    /// Returns the paths of the packages.
    fn package(&self, order: &Order) -> Result<Vec<PathBuf>> {
        self.lay_out(&order.program)?;
        let directory = &order.directory;
        fs::create_dir_all(directory)
            .with_context(|| format!("{} cannot be made", directory.display()))?;
        for kind in [Kind::Deb, Kind::Rpm] {
            for old in packages_in(directory, kind)? {
                fs::remove_file(old)?;
            }
        }
        let mut made = Vec::new();
        for kind in order.kinds {
            match kind {
                Kind::Deb => self.make_deb(order)?,
                Kind::Rpm => self.make_rpm(order)?,
            }
            made.extend(packages_in(directory, *kind)?);
        }
        Ok(made)
    }

    /// Lays out the files that the manifest takes from target/release.
    fn lay_out(&self, program: &Path) -> Result<()> {
        let release = self.world.join("release");
        let (man, completions) = (release.join("man"), release.join("completions"));
        fs::create_dir_all(&man)?;
        fs::create_dir_all(&completions)?;
        let millrace = release.join("millrace");
        call(self.program("strip").arg("-o").arg(&millrace).arg(program))?;
        call(self.program(&millrace).arg("man").arg(&man))?;
        call(self.program(&millrace).args(["man", "--toml"]).arg(&man))?;
        call(self.program("gzip").args(["-9", "--no-name"]).args(files_in(&man)?))?;
        for shell in SHELLS {
            let file = File::create(completions.join(format!("millrace.{shell}")))?;
            call(self.program(&millrace).args(["completions", shell]).stdout(file))?;
        }
        Ok(())
    }

    fn make_deb(&self, order: &Order) -> Result<()> {
        let mut deb = self.program("cargo-deb");
        deb.args("--quiet --package millrace --no-build --no-strip --offline --locked".split(' '));
        deb.args(["--deb-revision", &order.revision]);
        if order.is_fast {
            deb.arg("--fast");
        }
        // It prints the package's path.
        printed(deb.arg("--output").arg(as_directory(&order.directory))).map(drop)
    }

    fn make_rpm(&self, order: &Order) -> Result<()> {
        let mut rpm = self.program("cargo-generate-rpm");
        rpm.args("--package millrace --auto-req builtin --set-metadata".split(' '));
        rpm.arg(format!("release = \"{}\"", order.revision));
        if order.is_fast {
            rpm.args(["--payload-compress", "none"]);
        }
        call(rpm.arg("--output").arg(as_directory(&order.directory)))
    }

    /// Returns a command in the tools' environment. Both tools look for target/release below
    /// `CARGO_TARGET_DIR`.
    fn program(&self, name: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = program(name);
        command.env("PATH", &self.path).env("CARGO_TARGET_DIR", &self.world);
        command.env("SOURCE_DATE_EPOCH", &self.time);
        command
    }
}

/// Returns a path that ends with a slash, by which the tools recognise a directory.
fn as_directory(path: &Path) -> PathBuf {
    path.join("")
}

/// Returns the packages of a kind in a directory.
fn packages_in(directory: &Path, kind: Kind) -> Result<Vec<PathBuf>> {
    let is_package = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("millrace") && path.extension().is_some_and(|it| it == kind.ending())
    };
    Ok(files_in(directory)?.into_iter().filter(is_package).collect())
}

fn files_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory)?.map(|entry| Ok(entry?.path()));
    let mut files = entries.collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

/// Returns the revision: time and name of the commit, and whether files differ from it.
fn revision() -> String {
    let mut log =
        words("git log -1 --abbrev=10 --date=format-local:%Y%m%d.%H%M%S --format=%cd.g%h");
    let commit = printed_silently(log.env("TZ", "UTC"));
    let changed = printed_silently(&mut words("git status --porcelain --untracked-files=no"));
    revision_of(commit, &changed.unwrap_or_default())
}

fn revision_of(commit: Option<String>, changed: &str) -> String {
    let commit = commit.unwrap_or_else(|| "1".to_owned());
    if changed.is_empty() { commit } else { format!("{commit}.changed") }
}

/// Returns the commit's time, or this one's where there is no repository.
fn time_of_commit() -> Result<String> {
    match printed_silently(&mut words("git log -1 --format=%ct")) {
        Some(time) => Ok(time),
        None => printed(&mut words("date +%s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_tells_commits_and_changed_trees_apart() {
        let commit = || Some("20260102.030405.g0123456789".to_owned());
        assert_eq!(revision_of(commit(), ""), "20260102.030405.g0123456789");
        assert_eq!(revision_of(commit(), " M a"), "20260102.030405.g0123456789.changed");
        assert_eq!(revision_of(None, ""), "1");
    }

    #[test]
    fn only_packages_of_ours_are_found_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let place = |name: &str| directory.path().join(name);
        for name in ["millrace_1_amd64.deb", "millrace-1.rpm", "other.deb", "millrace"] {
            fs::write(place(name), "").unwrap();
        }
        let of = |kind| packages_in(directory.path(), kind).unwrap();
        assert_eq!(of(Kind::Deb), [place("millrace_1_amd64.deb")]);
        assert_eq!(of(Kind::Rpm), [place("millrace-1.rpm")]);
    }

    #[test]
    fn words_that_are_no_order_are_refused() {
        assert!(run(&["a", "b", "1", "zip"]).unwrap().is_none());
        assert!(run(&["deb"]).unwrap().is_none());
    }
}
