//! Other programs: whether they are installed, and what they print. All tasks use it.

use anyhow::{Context, Result, bail};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Returns the search path of programs. `ip`, `ethtool` and `sysctl` are in /sbin, which is not on
/// the path of an ordinary user of every distribution.
pub(crate) fn path() -> String {
    format!("{}:/usr/sbin:/sbin", env::var("PATH").unwrap_or_default())
}

/// Returns [`path`] with the programs of `cargo xtask setup` first, which are below the target
/// directory.
pub(crate) fn tools_path(target: &Path) -> String {
    let tools = target.join("tools");
    format!("{0}/bin:{0}/python/bin:{1}", tools.display(), path())
}

/// Returns a command for a program on [`path`], which the program inherits.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.env("PATH", path());
    command
}

/// Returns a command of words separated by spaces.
pub(crate) fn words(line: &str) -> Command {
    let mut words = line.split(' ');
    let mut command = program(words.next().unwrap_or_default());
    command.args(words);
    command
}

/// Whether a program is on [`path`]. A name with a slash is a path.
pub(crate) fn has(name: &str) -> bool {
    has_on(&path(), name)
}

/// Whether a program is on this search path.
pub(crate) fn has_on(path: &str, name: impl AsRef<Path>) -> bool {
    let is_program = |file: &Path| {
        fs::metadata(file).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
    };
    // A path that starts with a slash replaces the directory.
    env::split_paths(path).any(|directory| is_program(&directory.join(&name)))
}

/// Whether a command can be started and succeeds. What it prints on standard output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok_and(|it| it.success())
}

/// Whether a command succeeds, like [`succeeds`]; its error messages are discarded too.
pub(crate) fn succeeds_silently(command: &mut Command) -> bool {
    succeeds(command.stderr(Stdio::null()))
}

/// Runs a command that shows its output itself.
///
/// # Errors
/// The command cannot be started, or does not succeed.
pub(crate) fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| cannot_start(command))?;
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(())
}

/// Returns what a command prints, without white space at its ends. Error messages are shown, unless
/// the command sends them elsewhere.
///
/// # Errors
/// The command cannot be started, or does not succeed.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    // Unlike `output`, `spawn` leaves standard error as it is.
    let child = command.stdout(Stdio::piped()).spawn().with_context(|| cannot_start(command))?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("{}: {}", shown(command), output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns what a command prints, or `None` if it does not succeed. Error messages are discarded.
pub(crate) fn printed_silently(command: &mut Command) -> Option<String> {
    printed(command.stderr(Stdio::null())).ok()
}

/// Whether this process is root.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn cannot_start(command: &Command) -> String {
    format!("{} cannot be started", shown(command))
}

/// Returns a command as a person would type it.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_an_executable_file_on_the_path_or_at_a_path() {
        let directory = tempfile::tempdir().unwrap();
        let (path, file) = (directory.path().to_str().unwrap(), directory.path().join("tool"));
        assert!(!has_on(path, "tool"));
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(!has_on(path, "tool"), "not executable");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(has_on(path, "tool"));
        assert!(has_on("/elsewhere", &file));
        assert!(!has_on("/elsewhere", "tool"));
    }

    #[test]
    fn a_command_that_fails_is_named_with_its_exit_code() {
        let error = printed(words("sh -c false").arg("a")).unwrap_err();
        assert_eq!(error.to_string(), "sh -c false a: exit status: 1");
        let error = call(&mut words("no-such-program -v")).unwrap_err();
        assert_eq!(error.to_string(), "no-such-program -v cannot be started");
        assert_eq!(printed(&mut words("echo a b")).unwrap(), "a b");
    }
}
