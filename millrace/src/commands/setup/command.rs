//! Runs a command of the host, as a person would type it.

use problem::Problem;
use std::process::Command;

/// Runs a command. Returns what it printed.
///
/// # Errors
/// It cannot be started, or it fails: what it said on standard error is what was seen.
pub(super) fn run<W: AsRef<str>>(words: &[W]) -> Result<String, Problem> {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    let failed = |seen: String| Problem::new(format!("`{}` failed", words.join(" "))).seen(seen);
    let Some((program, arguments)) = words.split_first() else { return Ok(String::new()) };
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| failed(format!("{program}: {error}")))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_told_with_what_it_said() {
        assert_eq!(run(&["echo", "a"]).unwrap(), "a\n");
        let problem = run(&["sh", "-c", "echo no >&2; false"]).unwrap_err();
        assert_eq!((&*problem.error, &*problem.seen), ("`sh -c echo no >&2; false` failed", "no"));
        assert!(run(&["/there/is/no/such"]).unwrap_err().seen.starts_with("/there/is/no/such: "));
    }
}
