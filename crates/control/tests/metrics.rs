//! Metrics: what the daemon exports is what `docs/metrics.md` says, and the dashboard and alert rules ask for nothing else.
#![allow(clippy::unwrap_used, reason = "a failure here is a failed test")]

#[allow(dead_code, reason = "other tests that share this file need more of it")]
mod daemon;

use daemon::Daemon;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const PORTS: &str = "\
[[port]]
name = 'vm1'
tap = 'tap1'
weight = 3

[[port]]
name = 'up'
packet = 'eth1'
";

/// Names as Prometheus stores them: each with what the format adds to those of a type.
struct Exported {
    /// By name as documented: type, labels, help.
    families: BTreeMap<String, [String; 3]>,
    /// All that can be asked for.
    series: BTreeSet<String>,
}

fn exported(page: &str) -> Exported {
    let mut helps: BTreeMap<&str, &str> = BTreeMap::new();
    let (mut families, mut series) = (BTreeMap::new(), BTreeSet::new());
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|it| it.split_once(' ')) {
            helps.insert(name, help.trim_end_matches('.'));
        }
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|it| it.split_once(' '))
        else {
            continue;
        };
        let suffixes: &[&str] = match kind {
            "counter" => &["_total"],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        series.extend(suffixes.iter().map(|suffix| format!("{name}{suffix}")));
        let full =
            if kind == "histogram" { name.to_owned() } else { format!("{name}{}", suffixes[0]) };
        let labels = labels(page, name);
        families.insert(full, [kind.to_owned(), labels, helps[name].to_owned()]);
    }
    Exported { families, series }
}

/// Labels of a family's first sample, save the bound of a histogram's bucket.
fn labels(page: &str, family: &str) -> String {
    let of_family = |line: &&str| {
        let rest = line.strip_prefix(family).unwrap_or_default();
        ["{", "_total{", "_info{", "_bucket{"].iter().any(|start| rest.starts_with(start))
    };
    let Some((_, rest)) = page.lines().find(of_family).and_then(|line| line.split_once('{')) else {
        return String::new();
    };
    let names = rest.split(',').filter_map(|pair| pair.split_once('=')).map(|(name, _)| name);
    names
        .filter(|name| *name != "le")
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

#[test]
fn each_metric_is_documented_and_nothing_else_is() {
    let daemon = Daemon::start(PORTS);
    let exported = exported(&daemon.client.text("/metrics").unwrap());
    let document = read("docs/metrics.md");
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let told: BTreeMap<String, [String; 3]> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let rest = [cells[2], cells[3], cells[4]].map(str::to_owned);
            (cells[1].trim_matches('`').to_owned(), rest)
        })
        .collect();
    let names = |of: &BTreeMap<String, [String; 3]>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&told), names(&exported.families));
    for (name, [kind, labels, help]) in &exported.families {
        let [told_kind, told_labels, told_help] = &told[name];
        assert_eq!((told_kind, told_help), (kind, help), "{name}");
        // Guests and teams have no sample here.
        assert!(labels.is_empty() || labels == told_labels, "{name}: {labels}");
    }
}

/// Names of metrics in an expression.
fn asked(expression: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = expression.split(|letter| !is_name(letter));
    let ours = words.filter(|word| ["millrace_", "process_"].iter().any(|it| word.starts_with(it)));
    ours.map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_alert_rules_ask_for_what_is_exported() {
    let daemon = Daemon::start(PORTS);
    let exported = exported(&daemon.client.text("/metrics").unwrap());
    let dashboard: Value =
        serde_json::from_str(&read("packaging/millrace-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let queries = variables.iter().filter_map(|variable| variable["definition"].as_str());
    let alerts = read("packaging/millrace-alerts.yml");
    let rules = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
    let mut all = 0;
    for expression in expressions.chain(queries).chain(rules) {
        let asked = asked(expression);
        assert!(!asked.is_empty(), "{expression}");
        for name in asked {
            assert!(exported.series.contains(&name), "{name} of `{expression}` is not exported");
        }
        all += 1;
    }
    assert!(all > 25 && alerts.matches("- alert:").count() == alerts.matches("expr: ").count());
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
}

#[test]
fn a_reload_that_is_refused_is_told_until_one_succeeds() {
    let daemon = Daemon::start(PORTS);
    let says = |line: &str| {
        let page = daemon.client.text("/metrics").unwrap();
        assert!(page.lines().any(|other| other == line), "{line}\n{page}");
    };
    says("millrace_config_last_reload_successful 1");
    let file = daemon.path("switch.toml");
    std::fs::write(&file, "[[port]]").unwrap();
    assert!(daemon.client.reload_config(false).is_err());
    says("millrace_config_last_reload_successful 0");
    says("millrace_config_reloads_total{result=\"failed\"} 1");
    std::fs::write(&file, PORTS).unwrap();
    daemon.client.reload_config(true).unwrap();
    says("millrace_config_last_reload_successful 0");
    daemon.client.reload_config(false).unwrap();
    says("millrace_config_last_reload_successful 1");
    says("millrace_config_reloads_total{result=\"done\"} 1");
}
