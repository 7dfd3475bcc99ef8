//! Checks that the daemon exports the metrics that `docs/metrics.md` describes, and that the
//! dashboard and alert rules ask for no others.

use crate::exported::{Exported, asked, read, rows};
use crate::test_daemon::Daemon;
use serde_json::Value;
use std::collections::BTreeMap;

const PORTS: &str = "\
[[port]]
name = 'vm1'
tap = 'tap1'
weight = 3

[[port]]
name = 'up'
packet = 'eth1'
";

/// The part of the document about another process, which a test of crate `fleet` compares.
const AGENT: &str = "## The agent of a fleet";

#[test]
fn each_metric_is_documented_and_nothing_else_is() {
    let daemon = Daemon::start(PORTS);
    let exported = Exported::of(&daemon.client.text("/metrics").unwrap());
    let document = read("docs/metrics.md");
    let told = rows(document.split(AGENT).next().unwrap());
    let names = |of: &BTreeMap<String, [String; 3]>| of.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&told), names(&exported.families));
    for (name, [kind, labels, help]) in &exported.families {
        let [told_kind, told_labels, told_help] = &told[name];
        assert_eq!((told_kind, told_help), (kind, help), "{name}");
        // Guests and teams have no sample here.
        assert!(labels.is_empty() || labels == told_labels, "{name}: {labels}");
    }
}

#[test]
fn the_dashboard_and_the_alert_rules_ask_for_what_is_exported() {
    let daemon = Daemon::start(PORTS);
    let exported = Exported::of(&daemon.client.text("/metrics").unwrap());
    let dashboard: Value =
        serde_json::from_str(&read("packaging/millrace-dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expressions = targets.map(|target| target["expr"].as_str().unwrap());
    let queries = variables.iter().filter_map(|variable| variable["definition"].as_str());
    let alerts = read("packaging/millrace-alerts.yml");
    let own = alerts.split("- name: millrace-fleet").next().unwrap();
    let rules = own.lines().filter_map(|line| line.trim().strip_prefix("expr: "));
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
        // A page may be half a second old.
        waiting::until(line, || {
            let page = daemon.client.text("/metrics").unwrap();
            page.lines().any(|other| other == line).then_some(()).ok_or(page)
        });
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
