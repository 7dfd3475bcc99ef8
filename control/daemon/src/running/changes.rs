//! The log of changes: the actor, the key, the old and the new value.

use crate::actor;
use config::Config;
use config::plan::Step;
use serde::Serialize;
use serde_json::Value;

/// The secret key of a port's RSS hash: an attacker who knows it can aim flows at one queue.
const SECRET: &str = "rss-key";

/// Logs a line for each key that a step changes.
pub(super) fn log(before: &Config, after: &Config, steps: &[Step]) {
    let by = actor::current();
    for line in lines(before, after, steps) {
        tracing::info!(target: "control::running::changes", by, "{line}");
    }
}

fn lines(before: &Config, after: &Config, steps: &[Step]) -> Vec<String> {
    let (olds, news) = (before.by_name(), after.by_name());
    let of_port = |name: &str, keys: &[String]| {
        let (old, new) = (olds.get(name), news.get(name));
        keys.iter().map(|key| changed(&format!("port {name}"), key, &old, &new)).collect()
    };
    let of = |step: &Step| match step {
        Step::Add { port, reopens: false } => {
            vec![format!("port {} is added: {}", port.name, json(Some(&**port)))]
        }
        Step::Remove { port, reopens: false, .. } => {
            vec![format!("port {port} is removed: it was {}", json(olds.get(port.as_str())))]
        }
        Step::Remove { port, keys, .. } => of_port(port, keys),
        Step::Change { port, keys } => of_port(port.name.as_str(), keys),
        Step::Switch { keys, .. } => {
            let keys = keys.iter().map(|key| match key.split_once('.') {
                Some(("metrics", key)) => {
                    changed("[metrics]", key, &before.metrics, &after.metrics)
                }
                Some((_, key)) => changed("[web]", key, &before.web, &after.web),
                None => changed("[switch]", key, &before.switch, &after.switch),
            });
            keys.collect()
        }
        Step::Add { reopens: true, .. } => Vec::new(),
    };
    steps.iter().flat_map(of).collect()
}

fn changed(what: &str, key: &str, old: &impl Serialize, new: &impl Serialize) -> String {
    let value = |of: Value| match of.get(key) {
        None => "absent".to_owned(),
        Some(_) if key == SECRET => "set".to_owned(),
        Some(value) => value.to_string(),
    };
    let old = value(serde_json::to_value(old).unwrap_or_default());
    let new = value(serde_json::to_value(new).unwrap_or_default());
    format!("{what}: {key} was {old} and is {new}")
}

fn json(of: Option<&impl Serialize>) -> String {
    let Some(Ok(mut value)) = of.map(serde_json::to_value) else { return String::new() };
    if let Some(key) = value.get_mut(SECRET) {
        *key = "set".into();
    }
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::plan::plan;

    #[test]
    fn a_change_is_told_from_what_to_what() {
        let read = |text: &str| Config::from_toml("t", text).unwrap();
        let before = read("[[port]]\nname='a'\ntap='t'\nmtu=1500\n[[port]]\nname='b'\ntap='u'");
        let after = read(
            "[switch]\nrsc='off'\n[[port]]\nname='a'\ntap='t'\nvlan=5\n[[port]]\nname='c'\ntap='v'",
        );
        let steps = plan(&before, &after);
        assert_eq!(
            lines(&before, &after, &steps),
            [
                "port b is removed: it was {\"name\":\"b\",\"tap\":\"u\"}",
                "[switch]: rsc was \"ndis\" and is \"off\"",
                "port a: mtu was 1500 and is absent",
                "port a: vlan was absent and is 5",
                "port c is added: {\"name\":\"c\",\"tap\":\"v\"}",
            ]
        );
    }
}
