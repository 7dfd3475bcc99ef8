//! The rights of each user of etcd. A host writes only below prefixes that end in its own name, so
//! its stolen credentials change no other host's keys; it reads the whole desired state, because
//! its own part is made of the whole model.

use super::{WATCHED, claims, hosts, revision};
use crate::Name;
use crate::etcd::message::behind;
use crate::etcd::{Permission, Right};

/// The prefix of all keys.
const ALL: &str = "/millrace/v1/";

/// A user, its role of the same name, and the role's permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name of user and role.
    pub name: String,
    /// The permissions of the role.
    pub permissions: Vec<Permission>,
}

impl User {
    /// Returns the user of a host's agent.
    pub fn of_host(host: &Name) -> User {
        let (begin, end) = WATCHED;
        let watched =
            Permission { right: Right::Read, key: begin.to_owned(), range_end: end.to_owned() };
        User {
            name: format!("host-{host}"),
            permissions: vec![
                watched,
                below(Right::Read, revision::PREFIX.to_owned()),
                below(Right::ReadWrite, claims::prefix(host)),
                below(Right::ReadWrite, hosts::prefix(host)),
            ],
        }
    }

    /// Returns the user that operators have: it may apply models, roll back and move guests.
    pub fn operator() -> User {
        let permissions = vec![below(Right::ReadWrite, ALL.to_owned())];
        User { name: "operator".to_owned(), permissions }
    }

    /// Returns etcd's own superuser. Its role permits everything, and only `bootstrap` needs it.
    pub fn root() -> User {
        User { name: "root".to_owned(), permissions: Vec::new() }
    }
}

fn below(right: Right, prefix: String) -> Permission {
    Permission { right, range_end: behind(&prefix), key: prefix }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn may_write(user: &User, key: &str) -> bool {
        let covers = |it: &&Permission| *it.key <= *key && *key < *it.range_end;
        user.permissions.iter().filter(covers).any(|it| it.right != Right::Read)
    }

    proptest! {
        /// Names may contain each other and every character that a name may have.
        #[test]
        fn a_host_may_write_no_key_of_another_host(
            host in "[a-c0][a-c0._-]{0,3}", other in "[a-c0][a-c0._-]{0,3}", rest in "[ -~]{0,6}",
        ) {
            let [host, other]: [Name; 2] = [host, other].map(|it| it.parse().unwrap());
            let user = User::of_host(&host);
            for prefix in [claims::prefix(&other), hosts::prefix(&other)] {
                prop_assert_eq!(may_write(&user, &format!("{prefix}{rest}")), host == other);
            }
            for key in ["desired", "rollout", "check-mtu", "experiment", "carriers/", "revisions/", "hosts/", "claims/"] {
                let key = format!("{ALL}{key}");
                prop_assert!(!may_write(&user, &key), "{}", key);
            }
        }
    }
}
