//! The steps from the running configuration to the wanted one.
//!
//! A pure function: the daemon carries the steps out, a dry run prints them. Ports that no step
//! names are not touched. Ports are removed before others are added, so that a name or device can
//! pass from one to another within a plan.

use crate::{Config, PortConfig};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "step")]
pub enum Step {
    /// Closes a port. `reopens`: a later step opens it again, because a changed key requires it.
    Remove {
        /// The port.
        port: String,
        /// Whether a later step opens it again.
        reopens: bool,
        /// The keys that require reopening.
        keys: Vec<String>,
    },
    /// Changes a port while it runs.
    Change {
        /// The port's new configuration.
        port: Box<PortConfig>,
        /// The keys that differ.
        keys: Vec<String>,
    },
    /// Changes keys of the switch as a whole.
    Switch {
        /// The keys that differ.
        keys: Vec<String>,
        /// The keys among them that take effect at the next start.
        restart: Vec<String>,
    },
    /// Opens a port. `reopens`: an earlier step closed it.
    Add {
        /// The port's new configuration.
        port: Box<PortConfig>,
        /// Whether an earlier step closed it.
        reopens: bool,
    },
}

impl Step {
    /// Returns the port that it closes, changes or opens.
    pub fn port(&self) -> Option<&str> {
        match self {
            Step::Remove { port, .. } => Some(port),
            Step::Change { port, .. } | Step::Add { port, .. } => Some(port.name.as_str()),
            Step::Switch { .. } => None,
        }
    }

    /// Returns what tells steps that do the same from others.
    pub fn kind(&self) -> std::mem::Discriminant<Step> {
        std::mem::discriminant(self)
    }
}

/// Keys of `[switch]` that take effect at once; all others take effect at the next start.
pub const LIVE: [&str; 4] = ["flows", "log", "rsc", "software-rsc"];

/// Returns the steps from one configuration to the other, in a safe order.
pub fn plan(current: &Config, wanted: &Config) -> Vec<Step> {
    let (mut removed, mut changed, mut added) = (Vec::new(), Vec::new(), Vec::new());
    let (olds, news) = (current.by_name(), wanted.by_name());
    for old in &current.ports {
        if !news.contains_key(old.name.as_str()) {
            removed.push(Step::Remove {
                port: old.name.to_string(),
                reopens: false,
                keys: Vec::new(),
            });
        }
    }
    for new in &wanted.ports {
        let port = Box::new(new.clone());
        let Some(&old) = olds.get(new.name.as_str()) else {
            added.push(Step::Add { port, reopens: false });
            continue;
        };
        let keys = differing(old, new);
        if keys.iter().any(|key| new.reopens(key)) {
            removed.push(Step::Remove { port: new.name.to_string(), reopens: true, keys });
            added.push(Step::Add { port, reopens: true });
        } else if !keys.is_empty() {
            changed.push(Step::Change { port, keys });
        }
    }
    let (keys, restart) = (switch_keys(current, wanted), restart_keys(current, wanted));
    let switch = (!keys.is_empty()).then_some(Step::Switch { keys, restart });
    removed.into_iter().chain(switch).chain(changed).chain(added).collect()
}

/// Returns the keys outside ports that differ; those of `[metrics]` and `[web]` start with the
/// section's name and a dot.
fn switch_keys(old: &Config, new: &Config) -> Vec<String> {
    let of = |section: &'static str, keys: Vec<String>| {
        keys.into_iter().map(move |key| format!("{section}.{key}"))
    };
    let mut keys = differing(&old.switch, &new.switch);
    keys.extend(of("metrics", differing(&old.metrics, &new.metrics)));
    keys.extend(of("web", differing(&old.web, &new.web)));
    keys
}

/// Returns the keys outside ports that differ and take effect only at the next start.
pub fn restart_keys(old: &Config, new: &Config) -> Vec<String> {
    let mut keys = switch_keys(old, new);
    keys.retain(|key| !LIVE.contains(&key.as_str()));
    keys
}

/// Returns the keys with different values, as written.
fn differing<T: Serialize>(old: &T, new: &T) -> Vec<String> {
    let map = |value: &T| match serde_json::to_value(value) {
        Ok(serde_json::Value::Object(map)) => map,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (map(old), map(new));
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let other = new.iter().filter(|(key, value)| old.get(*key) != Some(value)).map(|(key, _)| key);
    let mut keys: Vec<String> = gone.chain(other).cloned().collect();
    keys.sort();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use proptest::prelude::*;

    /// Returns what the steps make of the current configuration.
    fn apply(current: &Config, wanted: &Config, steps: &[Step]) -> Config {
        let mut config = current.clone();
        for step in steps {
            match step {
                Step::Remove { port, .. } => {
                    assert!(config.port(port).is_some(), "{port} is not there to remove");
                    config.ports.retain(|other| other.name.as_str() != port);
                }
                Step::Change { port, .. } => {
                    let place = config.ports.iter_mut().find(|other| other.name == port.name);
                    *place.expect("a port to change") = (**port).clone();
                }
                Step::Switch { .. } => {
                    config.switch = wanted.switch.clone();
                    config.metrics = wanted.metrics.clone();
                    config.web = wanted.web.clone();
                }
                Step::Add { port, .. } => {
                    let taken = |other: &PortConfig| {
                        other.name == port.name || other.device() == port.device()
                    };
                    assert!(!config.ports.iter().any(taken), "name or device is taken");
                    config.ports.push((**port).clone());
                }
            }
        }
        config.ports.sort_by(|one, other| one.name.cmp(&other.name));
        config
    }

    fn named(step: &Step) -> Option<&str> {
        match step {
            Step::Remove { port, .. } => Some(port),
            Step::Change { port, .. } | Step::Add { port, .. } => Some(port.name.as_str()),
            Step::Switch { .. } => None,
        }
    }

    proptest! {
        #[test]
        fn the_plan_leads_from_current_to_wanted(current in generate::config(), wanted in generate::config()) {
            let steps = plan(&current, &wanted);
            prop_assert_eq!(apply(&current, &wanted, &steps), wanted);
        }

        #[test]
        fn what_does_not_differ_is_not_touched(current in generate::config(), wanted in generate::config()) {
            prop_assert_eq!(plan(&current, &current), Vec::new());
            for step in plan(&current, &wanted) {
                if let Some(name) = named(&step) {
                    prop_assert_ne!(current.port(name), wanted.port(name));
                }
            }
        }
    }

    #[test]
    fn a_change_that_takes_opening_says_so() {
        let read = |text: &str| Config::from_toml("t", text).unwrap();
        let one = read("[[port]]\nname='a'\ntap='t'\nmtu=1500");
        let live = read("[[port]]\nname='a'\ntap='t'\nmtu=9000");
        assert!(matches!(&plan(&one, &live)[..], [Step::Change { keys, .. }] if *keys == ["mtu"]));
        let reopened = read("[[port]]\nname='a'\ntap='t'\nmtu=1500\nqueues=2");
        assert!(matches!(
            &plan(&one, &reopened)[..],
            [Step::Remove { reopens: true, keys, .. }, Step::Add { reopens: true, .. }] if *keys == ["queues"]
        ));
        let guest = |mtu| read(&format!("[[port]]\nname='a'\nvhost-user='/run/v'\nmtu={mtu}"));
        assert!(matches!(
            &plan(&guest(1500), &guest(9000))[..],
            [Step::Remove { reopens: true, keys, .. }, Step::Add { reopens: true, .. }] if *keys == ["mtu"]
        ));
        let other = read("[switch]\nworkers=2\nrsc='off'\n[[port]]\nname='a'\ntap='t'\nmtu=1500");
        assert!(matches!(
            &plan(&one, &other)[..],
            [Step::Switch { keys, restart }] if *keys == ["rsc", "workers"] && *restart == ["workers"]
        ));
        let page = read("[web]\nlisten='127.0.0.1:1'\n[[port]]\nname='a'\ntap='t'\nmtu=1500");
        assert!(matches!(
            &plan(&one, &page)[..],
            [Step::Switch { keys, restart }] if *keys == ["web.listen"] && restart == keys
        ));
    }
}
