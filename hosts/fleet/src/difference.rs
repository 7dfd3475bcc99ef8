//! The differences between two models, in the terms of the files.

use crate::model::Model;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "change")]
pub enum Change {
    /// Something is added.
    Add {
        /// Its kind and name: `network blue`, `port vm1`.
        what: String,
    },
    /// Something is removed.
    Remove {
        /// Its kind and name: `network blue`, `port vm1`.
        what: String,
    },
    /// Keys of something change.
    Change {
        /// Its kind and name: `network blue`, `port vm1`.
        what: String,
        /// Each changed key with both values: `mtu: 1500 -> 9000`; `absent` if a key is added or
        /// removed.
        keys: Vec<String>,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Add { what } => write!(out, "add {what}"),
            Change::Remove { what } => write!(out, "remove {what}"),
            Change::Change { what, keys } => write!(out, "change {what}: {}", keys.join(", ")),
        }
    }
}

/// Returns the differences: what is removed, added and changed, by kind and name.
pub fn difference(before: &Model, after: &Model) -> Vec<Change> {
    let (before, after) = (object(before), object(after));
    let mut changes = Vec::new();
    for kind in ["network", "class", "port"] {
        let (old, new) = (named(&before, kind), named(&after, kind));
        let gone = old.iter().filter(|(name, _)| !new.contains_key(*name));
        changes.extend(gone.map(|(name, _)| Change::Remove { what: format!("{kind} {name}") }));
        for (name, value) in &new {
            let what = format!("{kind} {name}");
            match old.get(name) {
                None => changes.push(Change::Add { what }),
                Some(other) => changes.extend(keys(what, other, value)),
            }
        }
    }
    let rollout = |model: &Map<String, Value>| model.get("rollout").cloned().unwrap_or_default();
    changes.extend(keys("rollout".to_owned(), &rollout(&before), &rollout(&after)));
    changes
}

fn object(value: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(value) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

/// Returns the entries of a kind by their names.
fn named(model: &Map<String, Value>, kind: &str) -> Map<String, Value> {
    let list = model.get(kind).and_then(Value::as_array).cloned().unwrap_or_default();
    list.into_iter().filter_map(|it| Some((it.get("name")?.as_str()?.to_owned(), it))).collect()
}

fn keys(what: String, old: &Value, new: &Value) -> Option<Change> {
    let (old, new) = (object(old), object(new));
    let text = |value: Option<&Value>| match value {
        None => "absent".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    };
    let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
    names.sort();
    names.dedup();
    let differing = names.into_iter().filter(|name| old.get(*name) != new.get(*name));
    let keys: Vec<String> = differing
        .map(|name| format!("{name}: {} -> {}", text(old.get(name)), text(new.get(name))))
        .collect();
    (!keys.is_empty()).then_some(Change::Change { what, keys })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::generate;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn models_have_no_difference_exactly_if_they_are_equal(before in generate::model(), after in generate::model()) {
            prop_assert_eq!(difference(&before, &before), vec![]);
            prop_assert_eq!(difference(&before, &after).is_empty(), before == after);
        }
    }

    #[test]
    fn a_changed_key_is_shown_with_both_values() {
        let read = |mtu: &str, more: &str| {
            let text = format!("version = 1\n[[network]]\nname = 'blue'\n{mtu}\n{more}");
            Model::from_toml("t", &text).unwrap()
        };
        let told = |before: &Model, after: &Model| {
            difference(before, after).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let (old, new) = (
            read("mtu = 1500", "[[class]]\nname = 'c'"),
            read("mtu = 9000", "[rollout]\nwait = '5s'"),
        );
        let changes = told(&old, &new);
        assert_eq!(changes[..2], ["change network blue: mtu: 1500 -> 9000", "remove class c"]);
        assert!(changes[2].starts_with("change rollout: gate: absent -> warning, "), "{changes:?}");
        assert_eq!(
            told(&read("", ""), &read("mtu = 1500", "")),
            ["change network blue: mtu: absent -> 1500"]
        );
    }
}
