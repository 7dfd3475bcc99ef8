//! Checks that at most one host carries an address at any time, even while some hosts have a new
//! revision and others do not.
//!
//! The hosts of a roll-out change in no order, and a host that is away keeps its ports. So a port
//! cannot go from one host that a model names to another in one revision: it is removed in one
//! revision and added in the next.

use crate::Name;
use crate::configuration::{Claimed, carrier};
use crate::model::{Model, Port};
use problem::Problem;

/// Refuses a model that would put an address on two hosts while not all hosts have the model.
pub(crate) fn check_owners(
    before: &Model,
    after: &Model,
    claimed: &Claimed,
) -> Result<(), Problem> {
    let moves = |new: &Port| {
        let old = before.ports.iter().find(|old| old.mac == new.mac)?;
        let from = carrier(old, claimed)?;
        // A port without `host` moves only by its claim.
        let both_claimed = old.host.is_none() && new.host.is_none() && old.name == new.name;
        (!both_claimed && new.host.as_ref() != Some(from)).then(|| refused(new, from))
    };
    after.ports.iter().find_map(moves).map_or(Ok(()), Err)
}

fn refused(port: &Port, from: &Name) -> Problem {
    let name = &port.name;
    let to = port.host.as_ref().map_or("the host that claims it".to_owned(), Name::to_string);
    Problem::new(format!("port {name} would be on two hosts while the revision is rolled out"))
        .seen(format!("{} is on host {from}, and the model puts it on {to}", port.mac.0))
        .wanted("a port that stays on its host, or is removed and added in two revisions")
        .remedy(format!(
            "apply without port {name}, check that host {from} has that revision, then add it again"
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::configuration;
    use crate::model::generate;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Any subset of the hosts may have the new revision while the others have the old one.
        #[test]
        fn no_address_is_on_two_hosts_while_a_revision_is_rolled_out(
            before in generate::model(), mut after in generate::model(), new in 0u8..32,
            claims in proptest::collection::btree_map(0u8..8, 0usize..5, 0..8),
        ) {
            let hosts = generate::hosts();
            let named = |(port, host): (u8, usize)| (generate::port_name(port), hosts[host].name.clone());
            let claimed: Claimed = claims.into_iter().map(named).collect();
            let all = after.ports.clone();
            for port in &all {
                let alone = Model { ports: vec![port.clone()], ..after.clone() };
                if check_owners(&before, &alone, &claimed).is_err() {
                    after.ports.retain(|other| other.name != port.name);
                }
            }
            prop_assert_eq!(check_owners(&before, &after, &claimed), Ok(()));
            let mut owners = BTreeMap::new();
            for (place, host) in hosts.iter().enumerate() {
                let model = if new >> place & 1 == 1 { &after } else { &before };
                let config = configuration(model, host, &claimed).unwrap();
                for mac in config.ports.iter().filter_map(|port| port.mac) {
                    let other = owners.insert(mac.0.to_string(), &host.name);
                    prop_assert_eq!(other, None, "{} is also on {}", mac.0, host.name);
                }
            }
        }
    }

    fn model(host: &str) -> Model {
        let text = format!(
            "version = 1\n[[network]]\nname = 'n'\n[[port]]\nname = 'p'\nnetwork = 'n'\n\
             mac = '02:00:00:00:00:01'\ntap = 't'\n{host}"
        );
        Model::from_toml("t", &text).unwrap()
    }

    #[test]
    fn a_change_of_host_takes_two_revisions() {
        let (a, b, any) = (model("host = 'a'"), model("host = 'b'"), model(""));
        let claimed = Claimed::from([("p".parse().unwrap(), "a".parse().unwrap())]);
        let check = |old: &Model, new: &Model| check_owners(old, new, &claimed);
        let problem = check(&a, &b).unwrap_err();
        assert!(problem.seen.contains("is on host a, and the model puts it on b"), "{problem}");
        assert!(check(&a, &any).is_err() && check(&any, &b).is_err());
        assert_eq!((check(&a, &a), check(&any, &a), check(&any, &any)), (Ok(()), Ok(()), Ok(())));
        let without = Model { ports: Vec::new(), ..b.clone() };
        assert_eq!((check(&a, &without), check(&without, &b)), (Ok(()), Ok(())));
    }
}
