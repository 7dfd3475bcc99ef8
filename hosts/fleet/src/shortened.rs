//! Shortens lists in messages, which are stored in etcd and read by each agent.

use problem::Problem;

/// Most items that a message names.
const ITEMS: usize = 5;
/// Most characters of each item.
const CHARACTERS: usize = 400;

/// Returns the first items: `a; b; c; d; e; and 97 more`.
pub(crate) fn shortened(all: &[impl AsRef<str>], separator: &str) -> String {
    let cut = |item: &str| item.chars().take(CHARACTERS).collect::<String>();
    let mut told: Vec<String> = all.iter().take(ITEMS).map(|item| cut(item.as_ref())).collect();
    if all.len() > ITEMS {
        told.push(format!("and {} more", all.len() - ITEMS));
    }
    told.join(separator)
}

/// Returns the problem that a host reports about itself, behind `what`. Its text is not trusted, so
/// it is shortened.
pub(crate) fn told_by(what: &str, problem: &Problem) -> Problem {
    let cut = |text: &str| shortened(&[text], "");
    Problem {
        error: format!("{what}: {}", cut(&problem.error)),
        seen: cut(&problem.seen),
        wanted: cut(&problem.wanted),
        remedy: cut(&problem.remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_short_however_much_hosts_report() {
        let long = vec!["x".repeat(1 << 20); 1000];
        let told = shortened(&long, "; ");
        assert!(told.len() < 2100 && told.ends_with("; and 995 more"), "{}", told.len());
    }
}
