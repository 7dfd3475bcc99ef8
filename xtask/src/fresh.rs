//! Runs README's commands in a bare root: Debian with what README asks for, and nothing else of
//! this host.
//!
//! The root is copied for each run. Inside is a clone of the last commit. The Rust toolchain is
//! lent read-only, and the cache of crates, so that they are fetched once. CI runs it.

mod root;

use crate::program::{call, has, is_root, printed, program, succeeds_silently, words};
use crate::tree;
use anyhow::{Context, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use std::env;
use std::fs::{self, File, TryLockError};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, ExitStatus};
use std::time::Instant;

pub(crate) const HELP: &str = "\
Usage: cargo xtask fresh [--can | COMMAND...]

Runs README's two commands in a bare root: Debian with what README asks for and nothing else of this host.

  cargo xtask fresh            `make demo` and `make test`; notes the commit in target/fresh/passed where both pass
  cargo xtask fresh make lint  that command alone, with its exit code
  cargo xtask fresh --can      whether this host can do it, with the reason where it cannot

The root is made with debootstrap from the mirror that apt uses here, kept below the target directory, and copied for
each run. Inside is a clone of the last commit. The Rust toolchain is lent read-only, and the cache of crates, so that
they are fetched once. Needs root, and brings debootstrap itself.";

/// Enters the root, as process 1 of new namespaces, and runs the command line there.
const ENTER: &str = include_str!("fresh/enter.sh");

/// Runs a script in new mount, process, IPC and UTS namespaces, and removes the run's root
/// afterwards. It is a shell's work because the trap also removes it when the user interrupts.
const RUN: &str = r#"
    trap 'rm -rf "$ROOT"' EXIT
    unshare --mount --pid --ipc --uts --fork --kill-child bash -euc "$1"
"#;

/// Does what the words say. `None` is never returned: any word can be a command.
///
/// # Errors
/// This host cannot do it, or the root cannot be made.
pub(crate) fn run(arguments: &[&str]) -> Result<Option<ExitCode>> {
    tree::enter()?;
    let why_not = obstacle();
    if arguments == ["--can"] {
        why_not.inspect(|reason| println!("{reason}"));
        return Ok(Some(ExitCode::from(u8::from(why_not.is_some()))));
    }
    if let Some(reason) = why_not {
        bail!("cannot: {reason}");
    }
    let fresh = tree::target()?.join("fresh");
    // Dropped last: until then no other run begins.
    let _lock = lock(&fresh)?;
    if !printed(&mut words("git status --porcelain"))?.is_empty() {
        say("uncommitted changes are not part of the run");
    }
    root::make(&fresh)?;
    let run = copy(&fresh)?;
    match arguments {
        [] => all(&fresh, &run).map(Some),
        arguments => Ok(Some(exit_code(inside(&run, &arguments.join(" "))?))),
    }
}

/// Tells people something.
fn say(text: impl std::fmt::Display) {
    eprintln!("fresh: {text}");
}

/// Returns why it cannot be done here.
fn obstacle() -> Option<&'static str> {
    if !is_root() {
        Some("needs root")
    } else if !has("apt-get") {
        Some("needs apt-get, to install debootstrap and to name a mirror")
    } else if !succeeds_silently(&mut words("unshare --mount --pid --fork true")) {
        Some("needs mount and process namespaces")
    } else if !has("debootstrap") && !install_debootstrap() {
        Some("needs debootstrap")
    } else {
        None
    }
}

fn install_debootstrap() -> bool {
    let mut install = words("apt-get -qq install --no-install-recommends debootstrap");
    succeeds_silently(&mut words("apt-get -qq update")) && succeeds_silently(&mut install)
}

/// Locks the directory for one run at a time. The run's processes inherit the lock, which is held
/// until the last of them has ended.
fn lock(fresh: &Path) -> Result<File> {
    fs::create_dir_all(fresh)?;
    let lock = File::create(fresh.join("lock"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let fresh = fresh.display();
            bail!("another run uses {fresh}: wait for it, or set CARGO_TARGET_DIR");
        }
        Err(TryLockError::Error(error)) => return Err(error.into()),
    }
    fcntl_setfd(&lock, FdFlags::empty())?;
    Ok(lock)
}

/// Copies the root for a run, with a clone of the last commit in it.
fn copy(fresh: &Path) -> Result<PathBuf> {
    let run = fresh.join("run");
    tree::remove(&run)?;
    call(program("cp").arg("-a").arg(fresh.join("root")).arg(&run))?;
    let clone = run.join("millrace");
    call(words("git clone --quiet --no-local .").arg(&clone))?;
    let checkout = ["checkout", "--quiet", &commit()?];
    call(program("git").arg("-C").arg(&clone).args(checkout))?;
    Ok(run)
}

fn commit() -> Result<String> {
    printed(&mut words("git rev-parse HEAD"))
}

/// Runs README's commands, and notes the commit for which they pass.
fn all(fresh: &Path, run: &Path) -> Result<ExitCode> {
    let (commit, passed) = (commit()?, fresh.join("passed"));
    // It may not exist; if it cannot be removed, it cannot be written below either.
    fs::remove_file(&passed).ok();
    let start = Instant::now();
    let status = inside(run, "make demo && make test")?;
    if status.success() {
        fs::write(&passed, format!("{commit}\n"))
            .with_context(|| format!("{} cannot be written", passed.display()))?;
        let minutes = start.elapsed().as_secs() / 60;
        say(format_args!(
            "make demo and make test passed at {commit} in a bare root, {minutes} min"
        ));
    }
    Ok(exit_code(status))
}

/// Runs a command line in the run's root, which ends it.
fn inside(run: &Path, command: &str) -> Result<ExitStatus> {
    let registry = cargo_home()?.join("registry");
    fs::create_dir_all(&registry)?;
    let rust = printed(&mut words("rustc --print sysroot"))?;
    let mut enter = program("bash");
    enter.args(["-euc", RUN, "bash", ENTER]).env("ROOT", run).env("RUST", rust);
    enter.env("REGISTRY", registry).env("COMMAND", command);
    enter.status().context("bash cannot be started")
}

fn cargo_home() -> Result<PathBuf> {
    if let Some(home) = env::var_os("CARGO_HOME") {
        return Ok(home.into());
    }
    let home = env::home_dir().context("needs the crates' cache: set HOME or CARGO_HOME")?;
    Ok(home.join(".cargo"))
}

/// Returns a command's exit code, for one that a signal ended as a shell does.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_at_a_time_has_the_lock_until_its_last_process_ends() {
        let fresh = tempfile::tempdir().unwrap();
        let first = lock(fresh.path()).unwrap();
        let told = lock(fresh.path()).unwrap_err().to_string();
        assert!(told.starts_with("another run uses "), "{told}");
        let mut process = program("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        drop(first);
        assert!(lock(fresh.path()).is_err(), "a process of the run has it");
        drop(process.stdin.take());
        process.wait().unwrap();
        // A process of another test that has inherited it may have to end first.
        while lock(fresh.path()).is_err() {}
    }

    #[test]
    fn a_command_that_a_signal_ended_has_a_shells_exit_code() {
        let of = |raw| format!("{:?}", exit_code(ExitStatus::from_raw(raw)));
        assert_eq!(of(3 << 8), format!("{:?}", ExitCode::from(3)));
        assert_eq!(of(9), format!("{:?}", ExitCode::from(137)));
    }
}
