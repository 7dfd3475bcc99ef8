//! Checks that etcd enforces permissions in every request.
//!
//! etcd had two faults by which a request could bypass the permissions: operations in a nested
//! transaction were not checked at all (GHSA-rfx7-8w68-q57q), nor were leases and previous values
//! in a transaction's writes (CVE-2026-44283). The version shows both. A nested read without a user
//! also proves the first, even if a distribution has fixed etcd without changing its version.

use super::Bootstrap;
use crate::etcd::access::file;
use crate::store::DESIRED;
use problem::Problem;

/// The first version of each series that has neither fault.
const MENDED: [(u32, u32, u32); 3] = [(3, 4, 44), (3, 5, 30), (3, 6, 11)];

impl Bootstrap {
    /// Returns the faults of etcd's members, one text each. Without `enabled` etcd requires no
    /// user, so only the version is checked.
    pub(super) fn faults(&self, enabled: bool) -> Result<Vec<String>, Problem> {
        let mut faults = Vec::new();
        for endpoint in &self.endpoints {
            let member = std::slice::from_ref(endpoint);
            let root = enabled.then(|| self.of_root(file::PASSWORD));
            let version = self.client(member, root)?.version()?;
            if !is_mended(&version) {
                faults.push(format!("{endpoint} is etcd {version}"));
            }
            if enabled && self.client(member, None)?.permits_nested(DESIRED)? {
                faults.push(format!("{endpoint} carries out a nested request without a user"));
            }
        }
        Ok(faults)
    }
}

fn is_mended(version: &str) -> bool {
    let parts: Vec<u32> = version.splitn(3, '.').map(number).collect();
    let &[major, minor, patch] = parts.as_slice() else { return false };
    let series = MENDED.iter().find(|it| (it.0, it.1) == (major, minor));
    series.map_or((major, minor) > (3, 6), |(_, _, least)| patch >= *least)
}

/// Returns the number at the start of a version's part, as in `0-rc.1`.
fn number(part: &str) -> u32 {
    let digits = part.find(|it: char| !it.is_ascii_digit()).unwrap_or(part.len());
    part[..digits].parse().unwrap_or_default()
}

/// Returns the problem with an etcd that does not check all requests. `enabled` says whether it
/// requires users nevertheless.
pub(super) fn unmended(faults: &[String], enabled: bool) -> Problem {
    let so = if enabled { "etcd asks for users, but" } else { "users were not enabled:" };
    Problem::new(format!(
        "{so} etcd does not check all requests, so the certificate of one stolen host controls every host"
    ))
    .seen(faults.join("; "))
    .wanted("etcd 3.4.44, 3.5.30, 3.6.11 or newer")
    .remedy("update etcd; if you accept that every host's certificate controls the fleet, give --permit-unmended-etcd")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_is_mended_from_the_first_version_of_its_series_that_is() {
        for mended in ["3.4.44", "3.5.30", "3.5.31", "3.6.11", "3.6.12+git", "3.7.0-rc.1", "4.0.0"]
        {
            assert!(is_mended(mended), "{mended}");
        }
        for not in ["3.4.23", "3.4.43", "3.5.29", "3.6.10", "3.3.99", "2.3.8", "3.6", "", "x.y.z"] {
            assert!(!is_mended(not), "{not}");
        }
    }

    #[test]
    fn the_message_names_what_was_seen_the_versions_and_the_option() {
        let problem = unmended(&["https://e:2379 is etcd 3.4.23".to_owned()], false).to_string();
        for part in
            ["not enabled", "3.4.23", "3.4.44", "3.5.30", "3.6.11", "--permit-unmended-etcd"]
        {
            assert!(problem.contains(part), "{part}: {problem}");
        }
    }
}
