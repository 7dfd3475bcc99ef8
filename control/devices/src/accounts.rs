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

/// Returns whether a user is a member of a group, as `/etc/passwd` and `/etc/group` have it. False
/// if they do not say so: they cannot be read, or the account is known elsewhere (LDAP).
pub fn is_member(user: u32, group: u32) -> bool {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    is_member_by(&read("/etc/passwd"), &read("/etc/group"), (user, group))
}

/// Looks for the membership in lines of `name:password:user:group:…` and of
/// `name:password:group:member,…`.
fn is_member_by(users: &str, groups: &str, (user, group): (u32, u32)) -> bool {
    let has =
        |field: Option<&&str>, number: u32| field.and_then(|it| it.parse().ok()) == Some(number);
    users.lines().map(fields).filter(|account| has(account.get(2), user)).any(|account| {
        let lists = |line: &str| {
            let fields = fields(line);
            let members = fields.get(3).unwrap_or(&"");
            has(fields.get(2), group)
                && members.split(',').any(|name| Some(&name) == account.first())
        };
        has(account.get(3), group) || groups.lines().any(lists)
    })
}

fn fields(line: &str) -> Vec<&str> {
    line.split(':').collect()
}

/// Looks a name up in `file`: lines of `name:password:number:…`.
fn number(name: &str, file: &str, kind: &str) -> Result<u32, Problem> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    // A restricted daemon that runs as root can open only the file that existed at startup
    // (`sandbox`).
    let accounts = fs::read_to_string(file).map_err(|error| {
        Problem::new(format!("the {kind} {name} cannot be looked up"))
            .seen(format!("{file}: {error}"))
            .wanted("a file not replaced since the daemon started")
            .remedy(format!("write the {kind}'s number, or restart the daemon"))
    })?;
    let line = accounts.lines().find(|line| line.split(':').next() == Some(name));
    let found = line.and_then(|line| line.split(':').nth(2)?.parse().ok());
    found.ok_or_else(|| {
        Problem::new(format!("the {kind} does not exist"))
            .seen(name)
            .wanted(format!("a {kind} in {file}, or a number"))
            .remedy(format!("`{kind}add {name}`, or correct the name of the {kind}"))
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

    #[test]
    fn a_member_is_one_by_the_account_or_by_the_groups_list() {
        let users = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000:\nbob:x:1001:30::\nbroken\n";
        let groups = "ops:x:30:ann,eve\nops2:x:31:annabel,an\nhalf:x:32\n:::\n";
        let member = |user, group| is_member_by(users, groups, (user, group));
        assert!(member(1000, 30), "by the list");
        assert!(member(1001, 30) && member(0, 0), "by the account");
        for (user, group) in [(1000, 31), (1000, 32), (1001, 31), (1002, 30), (1000, 0)] {
            assert!(!member(user, group), "{user} in {group}");
        }
        assert!(!is_member_by("", "", (0, 0)));
    }
}
