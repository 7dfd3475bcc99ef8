//! Users and groups of this host, by name or number.

use problem::Problem;
use std::fs;

/// Returns the number of a user, given by name or number.
///
/// # Errors
/// `/etc/passwd` has no such user, or cannot be read.
pub fn user(name: &str) -> Result<u32, Problem> {
    number(name, "/etc/passwd", "user")
}

/// Returns the number of a group, given by name or number.
///
/// # Errors
/// `/etc/group` has no such group, or cannot be read.
pub fn group(name: &str) -> Result<u32, Problem> {
    number(name, "/etc/group", "group")
}

/// Looks a name up in `file`: lines of `name:password:number:…`.
fn number(name: &str, file: &str, kind: &str) -> Result<u32, Problem> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    // A restricted daemon that runs as root can open only the file that existed at startup
    // (`sandbox`).
    let accounts = fs::read_to_string(file).map_err(|error| {
        Problem::new(format!("the socket's {kind} cannot be looked up"))
            .seen(format!("{file}: {error}"))
            .wanted("a file not replaced since the daemon started")
            .remedy(format!("write the {kind}'s number, or restart the daemon"))
    })?;
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name));
    let found = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    found.ok_or_else(|| {
        Problem::new(format!("the socket's {kind} does not exist"))
            .seen(name)
            .wanted(format!("a {kind} in {file}, or a number"))
            .remedy(format!("`{kind}add {name}`, or correct the socket's {kind}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_found_by_name_and_by_number() {
        assert_eq!((user("root").unwrap(), group("root").unwrap()), (0, 0));
        assert_eq!(group("4711").unwrap(), 4711);
        let problem = group("no such group").unwrap_err();
        assert!(problem.remedy.contains("groupadd"), "{problem}");
    }
}
