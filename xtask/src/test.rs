//! Runs all checks and tests, cheapest first. Takes no input, asks nothing, and needs no network
//! beyond the crates.

use crate::program::{has_on, is_root, printed, words};
use crate::step::{Steps, Told, show};
use crate::tally::Tally;
use crate::tree;
use anyhow::{Context, Result};
use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

pub(crate) const HELP: &str = "\
Usage: cargo xtask test [STEP...]

Runs all checks and tests, cheapest first.

  cargo xtask test            all of it, cheapest first; what `make test` and CI run
  cargo xtask test lint       format, spelling, licences, unused dependencies, lints, documents, the book
  cargo xtask test workspace  the OpenAPI document, unit tests, properties, examples and links in documents, stories
  cargo xtask test user       the stories once more, as an ordinary user
  cargo xtask test loom       all interleavings where threads or guests meet without a lock
  cargo xtask test asan       the crates with unsafe code under the address sanitizer

A step's output is shown where it fails. The last line is `N passed, N failed, N skipped`, summed over all steps; above
it stand the slowest tests, and what was skipped with the reason. Exits with 1 where anything failed.";

/// The steps, in their order.
const STEPS: [&str; 5] = ["lint", "workspace", "user", "loom", "asan"];

/// Filter for the tests of `millrace::stories` alone: `cargo nextest` neither lists nor runs
/// others.
const STORIES: &str = "binary_id(millrace::stories)";

/// Runs a test program of nextest's as user `nobody`, from a copy that this user may read.
const RUNNER: &str = r#"#!/bin/sh
shift
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$(dirname "$0")/stories" "$@"
"#;

/// Gives user `nobody` a TAP device file that it may open, in a mount namespace. Most distributions
/// give all users that file. Here it takes the place of the host's for the stories alone.
const AS_NOBODY: &str = "
    mount -t tmpfs tmpfs /mnt
    mknod -m 666 /mnt/tun c 10 200
    mount --bind /mnt/tun /dev/net/tun
    exec \"$@\"
";

/// Runs steps, or all of them, and prints their summary. Returns `None` if a word names no step.
///
/// # Errors
/// A command cannot be started.
pub(crate) fn run(steps: &[&str]) -> Result<Option<ExitCode>> {
    if !steps.iter().all(|step| STEPS.contains(step)) {
        return Ok(None);
    }
    let steps = if steps.is_empty() { &STEPS } else { steps };
    tree::enter()?;
    let target = tree::target()?;
    let scratch = tempfile::tempdir()?;
    let mut run = Steps { target, scratch: scratch.path().to_owned(), tally: Tally::default() };
    for step in steps {
        match *step {
            "lint" => run.lint()?,
            "workspace" => run.workspace()?,
            "user" => run.user()?,
            "loom" => run.loom()?,
            _ => run.asan()?,
        }
    }
    println!("\n{}", run.tally.summary());
    Ok(Some(ExitCode::from(u8::from(run.tally.has_failed()))))
}

impl Steps {
    /// Returns a command for a program that finds other programs by [`Steps::path`].
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.env("PATH", self.path());
        // A failing snapshot is shown, not written beside the old one.
        command.env("INSTA_UPDATE", "no");
        command
    }

    fn cargo(&self, words: &str) -> Command {
        let mut command = self.program("cargo");
        command.args(words.split(' '));
        command
    }

    /// Returns a run of nextest with two tests a processor, unless the caller says how many: half
    /// of a story's time is waiting.
    fn nextest(&self, words: &str) -> Command {
        let mut command =
            self.cargo("nextest run --no-fail-fast --cargo-quiet --status-level none");
        let twice = || thread_count(2).to_string();
        let threads = env::var("RUST_TEST_THREADS").unwrap_or_else(|_| twice());
        command.args(words.split(' ')).env("NEXTEST_TEST_THREADS", threads);
        // A story starts test programs again, so they must not inherit this.
        command.env_remove("RUST_TEST_THREADS").env("NEXTEST_NO_INPUT_HANDLER", "1");
        command
    }

    fn lint(&mut self) -> Result<()> {
        self.check("format", &mut self.cargo("fmt --check"))?;
        self.tool("spelling", &mut self.program("typos"))?;
        let mut deny = self.program("cargo-deny");
        deny.args("--log-level error --offline check licenses bans sources".split(' '));
        self.tool("licences and sources", &mut deny)?;
        self.tool("unused dependencies", &mut self.program("cargo-shear"))?;
        self.check("fuzz targets", self.program("fuzz/run").arg("check"))?;
        let mut faults = self.program("fuzz/prove");
        let told = self.check("faults to be put back", faults.arg("check"))?;
        show(&told);
        let lints = "clippy --quiet --workspace --all-targets -- -D warnings";
        self.check("lints", &mut self.cargo(lints))?;
        let mut documents = self.cargo("doc --quiet --workspace --no-deps");
        self.check("documents", documents.env("RUSTDOCFLAGS", "-D warnings"))?;
        self.book()
    }

    /// Makes the book, which fails if one of its links is dead.
    fn book(&mut self) -> Result<()> {
        if !has_on(&self.path(), "mdbook") {
            self.skip("book", "needs mdbook (cargo xtask setup lint)");
            return Ok(());
        }
        self.check("book", Command::new(env::current_exe()?).arg("book"))?;
        Ok(())
    }

    fn workspace(&mut self) -> Result<()> {
        self.check("tests built", &mut self.cargo(BUILD))?;
        self.openapi()?;
        let step = format!("tests as {}", user());
        self.tests(&step, &Told::Report, &mut self.nextest("--workspace"))?;
        let mut documents = self.cargo("test --quiet --doc --workspace --no-fail-fast");
        self.tests("examples in documents", &Told::Text, &mut documents)
    }

    /// Validates the API's document, if the validator can be installed.
    fn openapi(&mut self) -> Result<()> {
        let tools = self.program("scripts/openapi").arg("--tools").output()?;
        if !tools.status.success() {
            let reason = String::from_utf8_lossy(&tools.stdout);
            self.skip("OpenAPI document", reason.trim());
            return Ok(());
        }
        let mut validate = self.program("scripts/openapi");
        validate.arg(self.target.join("debug/millrace"));
        self.check("OpenAPI document", &mut validate)?;
        Ok(())
    }

    /// Runs the stories as user `nobody`, with binaries that this user may read. The whole
    /// workspace is named: for one package alone dependencies have other features, and most of the
    /// tree would be built again.
    fn user(&mut self) -> Result<()> {
        if !is_root() {
            self.skip("stories as root", "needs root");
            return Ok(());
        }
        let Some(stories) = self.stories()? else {
            self.check("stories built", &mut self.cargo(BUILD))?;
            return Ok(());
        };
        let place = |name: &str| self.scratch.join(name);
        fs::copy(stories, place("stories"))?;
        fs::copy(self.target.join("debug/millrace"), place("millrace"))?;
        fs::write(place("runner"), RUNNER)?;
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place("runner"), open.clone())?;
        fs::set_permissions(&self.scratch, open)?;
        let mut command = self.program("unshare");
        command.args(["--mount", "bash", "-euc", AS_NOBODY, "bash"]);
        let nextest = self.nextest("--workspace --filterset");
        command.arg(nextest.get_program()).args(nextest.get_args()).arg(STORIES);
        for (name, value) in nextest.get_envs() {
            value.map(|value| command.env(name, value));
        }
        let host = host()?.to_uppercase().replace('-', "_");
        command.env(format!("CARGO_TARGET_{host}_RUNNER"), place("runner"));
        command.env("MILLRACE", place("millrace"));
        self.tests("stories as an ordinary user", &Told::Filtered, &mut command)
    }

    /// Builds all tests and returns the program of the stories; `None` if they do not compile.
    fn stories(&self) -> Result<Option<PathBuf>> {
        let output = self.cargo(BUILD).output()?;
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| line.contains("tests/stories/main.rs ("));
        let path = line.and_then(|line| line.split_once("main.rs (")?.1.strip_suffix(')'));
        Ok(path.filter(|_| output.status.success()).map(PathBuf::from))
    }

    /// Runs the loom models. They are optimised, because there are many interleavings, but without
    /// LTO, which gains little.
    fn loom(&mut self) -> Result<()> {
        let target = self.target.join("loom");
        let words = [
            ("loom: mailbox", "--release --package millrace-datapath --lib mailbox"),
            ("loom: rings", "--release --package millrace-virtqueue --lib loom"),
        ];
        for (step, words) in words {
            let mut command = self.nextest(words);
            command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", &target);
            command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
            self.tests(step, &Told::Filtered, &mut command)?;
        }
        Ok(())
    }

    /// Runs tests with the address sanitizer. Tests that count allocations are left out: they
    /// replace the allocator that the sanitizer also replaces.
    fn asan(&mut self) -> Result<()> {
        let host = host()?;
        if !["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"].contains(&host.as_str()) {
            let reason =
                format!("needs x86_64 or aarch64 Linux with the GNU C library, this is {host}");
            self.skip("address sanitizer", &reason);
            return Ok(());
        }
        let target = self.target.join("asan");
        let mut command = self.nextest(&format!("--target {host} --lib --tests"));
        for package in ["wire", "guestmem", "virtqueue", "ports"] {
            command.args(["--package", &format!("millrace-{package}")]);
        }
        command.args(["--filterset", "not test(allocate_nothing)"]);
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", "-Zsanitizer=address");
        // What is built for this step alone is built once.
        command.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
        self.tests("address sanitizer", &Told::Filtered, &mut command)
    }
}

/// Builds the tests of all crates at once: built for some of them alone, dependencies have other
/// features, and most of the tree would be built again. Prints the path of each test program.
const BUILD: &str = "test --workspace --no-run --message-format short";

fn thread_count(times: usize) -> usize {
    times * std::thread::available_parallelism().map_or(1, usize::from)
}

fn user() -> String {
    printed(&mut words("id -un")).unwrap_or_default()
}

/// Returns the target triple of this host.
fn host() -> Result<String> {
    let told = printed(&mut words("rustc -vV"))?;
    let line = told.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc does not name its host")?.to_owned())
}
