//! Computes the changes by a new model on one host, as the steps of that host's plan.

use crate::Name;
use crate::configuration::{Claimed, Host, configuration};
use crate::model::Model;
use config::plan::Step;
use problem::Problem;
use serde::Serialize;
use std::collections::BTreeMap;

/// The plan of one host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HostPlan {
    /// The host.
    pub host: Name,
    /// Its steps, in order; none if nothing changes there.
    pub steps: Vec<Step>,
}

/// Returns the plan of a host. Fails if the new model gives the host no valid configuration.
pub(crate) fn plan(
    before: &Model,
    after: &Model,
    host: &Host,
    claimed: &Claimed,
) -> Result<HostPlan, Problem> {
    // If this version refuses the old model for the host, it is not in force there.
    let old = configuration(before, host, claimed).unwrap_or_default();
    let new = configuration(after, host, claimed)?;
    Ok(HostPlan { host: host.name.clone(), steps: config::plan::plan(&old, &new) })
}

/// A host that has no valid configuration, neither by the current model nor by a new one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unfit {
    /// The host.
    pub host: Name,
    /// Why the new model is refused there.
    pub problem: Problem,
}

/// Returns the plan of a host; the inner `Err` if the host is unfit. Labels and claims come from
/// the host itself, so a host that already has no valid configuration must not block the new model
/// for all others. Fails if the new model makes a host unfit.
pub(crate) fn plan_unless_unfit(
    before: &Model,
    after: &Model,
    host: &Host,
    claimed: &Claimed,
) -> Result<Result<HostPlan, Unfit>, Problem> {
    match plan(before, after, host, claimed) {
        Err(problem) if configuration(before, host, claimed).is_err() => {
            Ok(Err(Unfit { host: host.name.clone(), problem }))
        }
        planned => planned.map(Ok),
    }
}

/// Returns the hosts that ports name and no agent has registered. They may register later.
pub(crate) fn hosts_without_agent(model: &Model, hosts: &[Host]) -> Vec<Name> {
    let mut names: Vec<Name> = model.ports.iter().filter_map(|port| port.host.clone()).collect();
    names.retain(|name| hosts.iter().all(|host| host.name != *name));
    names.sort();
    names.dedup();
    names
}

/// Refuses ports that break a rule between them on a host without an agent.
pub(crate) fn check_without_agent(model: &Model, hosts: &[Name]) -> Result<(), Problem> {
    let bare = Model { classes: Vec::new(), ..model.clone() };
    for name in hosts {
        let host = Host { name: name.clone(), labels: BTreeMap::new() };
        configuration(&bare, &host, &Claimed::new())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::generate;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_host_has_steps_if_its_configuration_differs(
            before in generate::model(), after in generate::model(),
        ) {
            for host in generate::hosts() {
                let of = |after| plan(&before, after, &host, &Claimed::new()).unwrap();
                prop_assert_eq!(of(&before).steps, vec![]);
                let same = configuration(&before, &host, &Claimed::new()).unwrap()
                    == configuration(&after, &host, &Claimed::new()).unwrap();
                prop_assert_eq!(of(&after).steps.is_empty(), same);
            }
        }
    }

    #[test]
    fn a_host_that_is_refused_already_does_not_have_a_new_model_refused() {
        let class = |name: &str, label: &str| {
            format!("[[class]]\nname = '{name}'\nlabels = {{ {label} = 'x' }}\n")
        };
        let model = |classes: &str| Model::from_toml("t", &format!("version = 1\n{classes}"));
        let (one, other) = (class("a", "red"), class("b", "blue"));
        let [alone, both] = [one.clone(), one + &other].map(|text| model(&text).unwrap());
        let labels = ["red", "blue"].map(|label| (label.to_owned(), "x".to_owned()));
        let host = Host { name: "h".parse().unwrap(), labels: labels.into() };
        let planned = |before, after| plan_unless_unfit(before, after, &host, &Claimed::new());
        let unfit = planned(&both, &both).unwrap().unwrap_err();
        assert!(unfit.problem.error.contains("host h belongs to two classes"), "{unfit:?}");
        assert!(planned(&both, &alone).unwrap().is_ok(), "the new model heals it");
        let problem = planned(&alone, &both).unwrap_err();
        assert!(problem.error.contains("two classes"), "the new model is at fault: {problem}");
    }

    #[test]
    fn ports_of_a_host_without_an_agent_are_checked_and_the_host_is_listed() {
        let text = "version = 1\n[[network]]\nname = 'n'\n[[port]]\nname = 'a'\nnetwork = 'n'\nmac = '02:00:00:00:00:01'\nhost = 'x'\n";
        let port = |tap: &str, rest: &str| {
            Model::from_toml(
                "t",
                &format!(
                    "{text}{tap}[[port]]\nname = 'b'\nnetwork = 'n'\nmac = '02:00:00:00:00:02'\nhost = 'x'\n{rest}"
                ),
            )
        };
        let good = port("tap = 't1'\n", "tap = 't2'\n").unwrap();
        let hosts = hosts_without_agent(&good, &[]);
        assert_eq!(hosts, vec!["x".parse().unwrap()]);
        assert_eq!(check_without_agent(&good, &hosts), Ok(()));
        let bad = port("tap = 't1'\n", "tap = 't1'\n").unwrap();
        let problem = check_without_agent(&bad, &hosts).unwrap_err();
        assert!(problem.error.starts_with("host x: port b"), "{problem}");
    }
}
