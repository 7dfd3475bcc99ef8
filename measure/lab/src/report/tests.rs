//! Snapshots of every form of a report, and what must hold for any.

mod answer;

use super::table::SIDES;
use super::*;
use crate::experiment::Experiment;
use crate::experiments::rsc::Rsc;
use crate::experiments::{vmmq, vrss};
use crate::load::Way;
use crate::measure::GUIDE;
use crate::meter::BUSIEST;
use crate::options::Options;
use crate::plan::{Ended, Plan, Run, Sample, StopRule, Usage, Values};
use crate::report::case_of;
use crate::{peers, round_trips};
use serde_json::Value;
use std::time::Duration;

const SETTING: Setting = Setting {
    connections: 1,
    buffer_bytes: Some(65_536),
    beside: None,
    way: Some(Way::ToVnic),
    receiver_gro: false,
};
const TRIPS: Setting = Setting { buffer_bytes: None, ..SETTING };
const STOP: StopRule = StopRule { repetitions: 6, narrow: None, least: 3 };

/// Six rounds with figures near those of Microsoft's guide.
fn samples() -> Vec<Sample> {
    let figures = |round: usize, arm: &str| {
        let wobble = [0.0, 1.0, -1.0, 2.0, -2.0, 0.5][round % 6];
        let (rate, cpu, cycles, depth) = match arm {
            "on" => (1128.271, 13.453, 7.278, 14.2),
            _ => (870.463, 15.897, 11.147, 1.0),
        };
        Values::from([
            ("throughput_bps".into(), (rate + wobble) * 8.0 * 1_048_576.0),
            ("cpu_percent".into(), cpu + wobble / 10.0),
            ("cycles_per_byte".into(), cycles + wobble / 100.0),
            ("receiver_cpu_s_per_s".into(), 0.6 + wobble / 100.0),
            ("switch_cpu_s_per_s".into(), 0.9 + wobble / 100.0),
            ("segments_per_train".into(), depth),
            ("latency_median_ns".into(), 20_000.0 + wobble),
            ("latency_p99_ns".into(), 50_000.0 * if arm == "on" { 2.0 } else { 1.0 } + wobble),
        ])
    };
    let order = statistics::sequence(2, 6).enumerate();
    order
        .map(|(time, (round, place))| {
            let arm = ["on", "off"][place].to_owned();
            let usage = Usage {
                at_s: time as f64 + 0.5,
                sides: Values::from([("switch_cpu_s_per_s".into(), 0.8)]),
            };
            let (started_s, values) = (time as f64, figures(round, &arm));
            Sample { round, started_s, values, arm, usage: vec![usage.clone(), usage] }
        })
        .collect()
}

/// With a bridge in turn with both arms, which lies between them, and ended after four rounds.
fn samples_and_peer() -> Vec<Sample> {
    let bridge = |sample: &Sample| {
        let mut values = sample.values.clone();
        values.extend([("throughput_bps".into(), 1000.0 * 8.0 * 1_048_576.0)]);
        Sample { arm: "linux_bridge".into(), values, ..sample.clone() }
    };
    let all = samples();
    let peer = all.iter().filter(|sample| sample.arm == "off" && sample.round < 4).map(bridge);
    all.iter().cloned().chain(peer).collect()
}

/// As `validate rsc` makes it.
fn with_peers(mut experiment: Plan) -> Plan {
    experiment.arms.extend(peers::arms(false));
    experiment
}

#[test]
fn a_peer_has_its_own_pairs_and_one_that_never_ran_has_no_row() {
    let report = report();
    let case = &report.cases[0];
    assert_eq!(case.order, ["on", "off", "linux_bridge"]);
    let against = &case.peers["linux_bridge"]["throughput"];
    assert_eq!((against.pairs, case.comparisons["throughput"].pairs), (4, 6));
    assert!((against.ratio - 1.128).abs() < 0.01, "{against:?}");
    assert_eq!(case.rounds(), 6, "a peer that ended early shortens nothing");
    let text = terminal(&report);
    assert!(text.contains("Linux bridge, GRO on") && !text.contains("Open vSwitch"), "{text}");
}

fn report() -> Report {
    let run = |samples| Run { samples, ended: Ended::Complete };
    let measured = Rsc::Plain.plan(1500, Duration::from_secs(1), STOP);
    let trips = round_trips::plan(&measured);
    let measured = with_peers(measured);
    Report {
        schema: SCHEMA,
        experiment: "rsc".into(),
        title: "RSC in the vSwitch".into(),
        millrace: "0.1.0".into(),
        date: "2026-11-21T21:40:00Z".into(),
        bench: BenchFacts { description: "Three hosts.".into(), ..BenchFacts::default() },
        machine: Machine {
            kernel: "Linux 6.18".into(),
            processor: "A <B>".into(),
            ..Machine::default()
        },
        cases: vec![Case::new(&measured, SETTING, run(samples_and_peer()), None)],
        latency: vec![Case::new(&trips, TRIPS, run(samples()), None)],
        checks: vec![Check {
            name: "frames on the wire".into(),
            passed: true,
            seen: "1514 B".into(),
        }],
        commands: vec![Command { host: "sender".into(), command: "ip link </script> up".into() }],
        notes: vec!["A note.".into()],
        measures: GUIDE,
        latency_measures: round_trips::MEASURES,
        thresholds: Vec::new(),
    }
}

#[test]
fn terminal_text() {
    insta::assert_snapshot!(terminal(&report()));
}

#[test]
fn markdown_text() {
    insta::assert_snapshot!(markdown(&report()));
}

/// With the longest words there are: all sides, much loss, and a peer with a long name.
fn wide() -> Report {
    let mut report = report();
    let mut samples = samples_and_peer();
    for sample in &mut samples {
        let counted = SIDES.iter().map(|(key, ..)| (*key, 1.0));
        let frames = [("lost_frames", 9e4), ("egress_frames", 1e6), ("coalesced_packets", 0.0)];
        let segments = [("retransmits", 4e4), ("sent_segments", 1e6)];
        let others = [("seconds", 1.0), ("ingress_frame_bytes", 1514.0)];
        let busiest = BUSIEST.into_iter().zip([10.0, 99.5, 62.5]);
        let figures = counted.chain(busiest).chain(frames).chain(segments).chain(others);
        sample.values.extend(figures.map(|(key, value)| (key.to_owned(), value)));
        sample.values.insert("receiving_cpu_s_per_gib".into(), 1.5);
    }
    let mut measured = with_peers(Rsc::Plain.plan(1500, Duration::from_secs(1), STOP));
    for arm in measured.arms.iter_mut().filter(|arm| arm.name == "linux_bridge") {
        arm.label = "RSC Enabled, kernel's GRO at the uplink".into();
    }
    report.cases[0] = Case::new(&measured, SETTING, Run { samples, ended: Ended::Complete }, None);
    report
}

#[test]
fn no_table_of_the_terminal_is_wider_than_120_columns() {
    let text = terminal(&wide());
    let tables = text.lines().filter(|line| line.starts_with([' ', '─', '═']));
    let widest = tables.map(|line| line.chars().count()).max().unwrap();
    assert!((100..=120).contains(&widest), "{widest}\n{text}");
    assert!(text.contains("(RED)") && text.contains("(WARNING)"), "{text}");
    // Whether one processor was the limit, in the table and in words.
    assert!(text.contains("10: 100 %") && text.contains("(62 % softirq)"), "{text}");
    assert!(text.contains("of a core. Busiest processor 10: 100 % (62 % softirq)."), "{text}");
}

#[test]
fn the_answer_spans_loads_and_says_what_it_stands_for() {
    let mut report = report();
    let answer = |report: &Report| terminal(report).lines().nth(2).unwrap().to_owned();
    let one = answer(&report);
    let said = "1 connection: 7.3 → 9.5 Gb/s (29.6 % higher); 15.3 % less CPU; 34.7";
    assert!(one.contains(said), "{one}");
    assert_eq!(one.matches("96.87 %").count(), 1, "the level stands there once: {one}");
    let mut more = report.cases[0].clone();
    more.setting.connections = 16;
    let of = |case: &mut Case, ratio| {
        if let Some(found) = case.comparisons.get_mut("throughput") {
            found.ratio = ratio;
        }
    };
    of(&mut more, 2.5);
    report.cases.push(more);
    let both = answer(&report);
    assert!(
        both.contains("(29.6 % higher), 16 connections: 7.3 → 9.5 Gb/s (2.50x); 15.3"),
        "{both}"
    );
    report.cases.extend(std::iter::repeat_n(report.cases[0].clone(), 3));
    let five = answer(&report);
    assert!(five.contains("1, 16, 1, 1 and 1 connection: 1.30x to 2.50x the throughput"), "{five}");
    report.cases.truncate(2);
    if let Some(case) = report.cases.last_mut() {
        case.setting.way = Some(Way::FromVnic);
    }
    let ways = answer(&report);
    assert!(
        ways.contains("guest receives, 1 connection: 7.3 → 9.5 Gb/s (29.6 % higher)"),
        "{ways}"
    );
    assert!(ways.contains(". Guest sends, 16 connections: 7.3 → 9.5 Gb/s (2.50x)"), "{ways}");
    report.cases.iter_mut().for_each(|case| case.setting.way = Some(Way::FromVnic));
    let sends = answer(&report);
    assert!(sends.contains("guest sends, 1 connection: 7.3"), "{sends}");
    report.cases.iter_mut().for_each(|case| case.setting.way = SETTING.way);
    assert!(
        !terminal(&report).contains("TAP without its own GRO"),
        "a bench that does not say so has none"
    );
    report.bench.vnic = Some("tap".into());
    for text in [terminal(&report), markdown(&report), html::page(&report, "{}").unwrap()] {
        let (caveat, table) = (text.find("TAP without its own GRO"), text.find("Avg. CPU %"));
        assert!(caveat.unwrap() < table.unwrap(), "before any table: {text}");
    }
}

#[test]
fn the_answer_names_both_receivers() {
    let mut report = report();
    report.bench.vnic = Some("tap".into());
    let toward_gro = |case: &Case, connections: u32, ratio: f64| {
        let mut case = case.clone();
        case.setting = Setting { connections, receiver_gro: true, ..case.setting };
        if let Some(found) = case.comparisons.get_mut("throughput") {
            found.ratio = ratio;
        }
        case
    };
    let first = report.cases[0].clone();
    let many = Case { setting: Setting { connections: 1000, ..SETTING }, ..first.clone() };
    let gro = [toward_gro(&first, 1, 1.1), toward_gro(&first, 16, 1.4)];
    report.cases = [first, many].into_iter().chain(gro).collect();
    // A page escapes the slash of `Gb/s`.
    let page = html::page(&report, "").unwrap().replace("&#x2f;", "/");
    for text in [terminal(&report), markdown(&report), page] {
        for words in [
            "toward a receiver without GRO, 1 connection: 7.3 → 9.5 Gb/s (29.6 % higher), 1000 connections: 7.3",
            "Toward one with GRO, 1 connection: 7.3 → 9.5 Gb/s (10.0 % higher), 16 connections: 7.3",
            "1 connection, receiver with GRO",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("TAP without its own GRO"), "the answer says it itself: {text}");
    }
    let page = html::page(&report, "").unwrap();
    for title in ["by connections, higher", "by connections, receiver with GRO, higher"] {
        // Above the figure and in its words.
        assert_eq!(page.matches(&format!("s) {title}")).count(), 2, "{title}");
    }
    report.cases.drain(..2);
    let alone = terminal(&report);
    assert!(alone.contains("toward a receiver with GRO, 1 connection: 7.3"), "{alone}");
}

#[test]
fn all_steps_together_are_told_from_each_of_them() {
    let mut report = report();
    assert!(terminal(&report).contains("1 connection: throughput: 29.6 % higher"));
    report.cases[0].steps = vec![report.cases[0].comparisons.clone()];
    let text = terminal(&report);
    assert!(text.contains("1 connection: all steps: throughput: 29.6 % higher"), "{text}");
    assert!(text.contains("1 connection: RSC in the vSwitch Disabled: throughput"), "{text}");
}

#[test]
fn json_has_the_fields_that_scripts_read() {
    let json = serde_json::to_value(report()).unwrap();
    let (case, latency) = (&json["cases"][0], &json["latency"][0]);
    for arm in ["on", "off"] {
        for key in ["throughput_bps", "cpu_percent", "cycles_per_byte"] {
            let figure = &case["arms"][arm][key];
            assert!(figure["median"].is_f64() && figure["min"].is_f64() && figure["max"].is_f64());
            assert_eq!(figure["n"], 6);
        }
    }
    let found = case["comparisons"].as_object().unwrap();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["cpu_percent", "cycles_per_byte", "throughput"]);
    assert!((found["throughput"]["ratio"].as_f64().unwrap() - 1.296).abs() < 0.002);
    assert_eq!(found["throughput"]["verdict"], "improved");
    assert_eq!(latency["comparisons"]["latency_median"]["verdict"], "equivalent");
    assert_eq!(latency["comparisons"]["latency_p99"]["verdict"], "worse");
    assert_eq!((&case["connections"], &case["ended"]), (&1.into(), &"complete".into()));
}

#[test]
fn the_json_has_each_case_and_its_intervals_once() {
    let json = serde_json::to_string(&report()).unwrap();
    for key in ["arms", "comparisons", "samples"] {
        let count = json.matches(&format!("\"{key}\":")).count();
        assert_eq!(count, 2, "{key}: once in the case, once in the round trips");
    }
    // As what a run had finished is read back.
    let case = serde_json::from_str::<Value>(&json).unwrap()["cases"][0].take();
    let case: Case = serde_json::from_value(case).unwrap();
    assert_eq!(case, report().cases[0]);
    assert_eq!(case.column("on", "cpu_percent").len(), 6);
}

#[test]
fn json_is_as_the_schema_says_and_the_schema_notices_what_is_not() {
    let schema = json_schema();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let mut json = serde_json::to_value(report()).unwrap();
    schema.validate(&json).unwrap();
    let hosts = vec![HostFacts { role: "sender".into(), ..HostFacts::default() }];
    json["bench"]["hosts"] = serde_json::to_value(hosts).unwrap();
    schema.validate(&json).unwrap();
    json["cases"][0]["arms"]["on"]["throughput_bps"]["median"] = "fast".into();
    assert!(!schema.is_valid(&json), "a number is a number");
}

#[test]
fn a_stall_is_counted_and_shown_in_every_form() {
    let mut report = report();
    let mut samples = samples();
    for (place, sample) in samples.iter_mut().enumerate() {
        let stalled = sample.arm == "off" && place < 4;
        sample.values.insert("received_bytes".into(), if stalled { 0.0 } else { 1.0 });
        if stalled {
            sample.values.insert("throughput_bps".into(), 0.0);
            sample.values.remove("cycles_per_byte");
        }
    }
    let run = Run { samples, ended: Ended::Complete };
    let measured = Rsc::Plain.plan(1500, Duration::from_secs(1), STOP);
    report.cases[0] = Case::new(&measured, SETTING, run, None);
    let json = serde_json::to_value(&report.cases[0]).unwrap();
    let arm = |name: &str, key: &str| json["arms"][name][key].as_u64();
    assert_eq!((arm("off", "intervals"), arm("off", "stalled")), (Some(6), Some(2)));
    assert_eq!(arm("on", "stalled"), Some(0));
    assert_eq!(json["comparisons"]["throughput"]["pairs"], 6, "none is left out");
    assert_eq!(json["comparisons"]["cycles_per_byte"]["pairs"], 4);
    for text in [terminal(&report), markdown(&report), html::page(&report, "{}").unwrap()] {
        assert!(text.contains("6, 2 without bytes"), "{text}");
        assert!(text.contains("2 of 6 intervals without a byte"), "{text}");
        assert!(text.contains("4 pairs"), "{text}");
    }
}

#[test]
fn loss_stands_beside_each_row_with_a_warning_from_one_and_red_from_five_per_cent() {
    let lossy = |lost: f64, resent: f64| {
        let mut samples = samples();
        for sample in samples.iter_mut().filter(|sample| sample.arm == "on") {
            // All of it in one interval: a median would be 0.
            let (lost, resent) =
                if sample.round == 0 { (6.0 * lost, 6.0 * resent) } else { (0.0, 0.0) };
            let figures = [
                ("seconds", 1.0),
                ("lost_frames", lost),
                ("egress_frames", 1000.0 - lost),
                ("coalesced_packets", 0.0),
                ("retransmits", resent),
                ("sent_segments", 1000.0 - resent),
            ];
            sample.values.extend(figures.map(|(key, value)| (key.to_owned(), value)));
        }
        let run = Run { samples, ended: Ended::Complete };
        let measured = Rsc::Plain.plan(1500, Duration::from_secs(1), STOP);
        Report { cases: vec![Case::new(&measured, SETTING, run, None)], ..report() }
    };
    for (lost, resent, words) in [
        (9.0, 0.0, ["9/s, 0.90 %", "0/s, 0.00 %"]),
        (10.0, 49.0, ["10/s, 1.00 % (WARNING)", "49/s, 4.90 % (WARNING)"]),
        (0.0, 50.0, ["0/s, 0.00 %", "50/s, 5.00 % (RED)"]),
    ] {
        let report = lossy(lost, resent);
        let (text, page) = (markdown(&report), html::page(&report, "{}").unwrap());
        assert!(words.iter().all(|cell| text.contains(&format!(" {cell} |"))), "{text}");
        assert_eq!(text.contains("WARNING: RSC in the vSwitch Enabled"), lost >= 10.0);
        assert_eq!(text.contains("RED: RSC in the vSwitch Enabled"), resent >= 50.0);
        // A doubt is no red light.
        assert_eq!(text.contains("- WARN Loss:"), lost >= 10.0, "{text}");
        assert_eq!(text.contains("- RED  Loss:"), resent >= 50.0, "{text}");
        let light = page.split(r#"class="light "#).nth(1).unwrap();
        assert_eq!(light.starts_with("bad"), resent >= 50.0, "{light}");
        assert_eq!(light.contains("(RED)"), resent >= 50.0, "{light}");
        assert_eq!(page.contains(r#"class="warning""#), lost >= 10.0);
        assert_eq!(page.contains(r#"class="red""#), resent >= 50.0);
        let json = serde_json::to_value(&report).unwrap();
        let arms = &json["cases"][0]["arms"];
        let percent = arms["on"]["resent"]["percent"].as_f64().unwrap();
        assert!((percent - resent / 10.0).abs() < 1e-9);
        assert!(arms["off"].get("resent").is_none(), "not counted is not 0");
        let schema = json_schema();
        jsonschema::validator_for(&schema).unwrap().validate(&json).unwrap();
    }
}

#[test]
fn html_escapes_what_it_shows_and_embeds_the_intervals_once() {
    let report = report();
    let intervals = csv::csv(&report).unwrap();
    let page = html::page(&report, &intervals).unwrap();
    assert!(page.contains("A &lt;B&gt;") && page.contains("ip link &lt;"));
    assert_eq!(page.matches("</script>").count(), 2);
    // Of figures the bars, the topology, the measures, the sides over time, the round trips; a line
    // for each question, and their axis.
    assert_eq!(page.matches(r#"<figure"#).count(), 1 + 1 + 1 + 3 + 1 + 1);
    assert_eq!(page.matches(r#"<div class="row">"#).count(), 6);
    assert_eq!(page.matches(r#"role="img""#).count(), 1 + 3 + 1 + 1 + 6, "each with its words");
    assert!(page.contains("RSC in the vSwitch Enabled: 50 % 20 µs, 99 % 100 µs"), "{page}");
    assert!(
        page.contains("RSC in the vSwitch Disabled: median 870.7 of 6 intervals"),
        "in words too"
    );
    assert!(!page.contains("http://") && !page.contains("https://"));
    let embedded = page.split(r#"id="intervals">"#).nth(1).unwrap();
    assert_eq!(embedded.split("</script>").next().unwrap(), intervals);
    assert_eq!(page.matches(&intervals).count(), 1);
    assert!(!page.contains(r#"{"schema""#), "numbers stand there once");
}

/// It was asked by the experiments' names.
#[test]
fn a_page_has_a_topology_where_one_side_sends_to_the_other() {
    let mut report = report();
    let drawn = |report: &Report| html::page(report, "").unwrap().contains(r#"class="topology""#);
    assert!(drawn(&report));
    report.cases[0].setting.way = None;
    assert!(!drawn(&report));
}

#[test]
fn a_page_of_four_loads_six_arms_and_two_receivers_stays_below_300_kb() {
    let mut report = wide();
    let more =
        (0..14).map(|key| (format!("some_figure_of_the_switch_{key}"), 0.123_456_789_012_345));
    let more: Values = more.collect();
    let mut case = report.cases[0].clone();
    let samples: Vec<Sample> = case.samples.drain(..).collect();
    // The demo's loads, of six arms: fourteen rounds of three and five of the last.
    for sample in samples.iter().cycle().take(6 * 14) {
        let mut sample = sample.clone();
        sample.values.extend(more.clone());
        case.samples.push(sample);
    }
    let mut last = case.clone();
    last.samples.truncate(6 * 5);
    // Toward the second receiver the two arms of the question.
    let mut second = case.clone();
    second.setting.receiver_gro = true;
    second.order.truncate(2);
    second.arms.retain(|name, _| second.order.contains(name));
    second.samples.retain(|sample| second.order.contains(&sample.arm));
    report.cases = vec![case.clone(), case.clone(), case, last, second.clone(), second];
    let intervals = csv::csv(&report).unwrap();
    let size = html::page(&report, &intervals).unwrap().len();
    assert!(size < 300_000, "{size} bytes, {} of them raw data", intervals.len());
    // The colours are told once for each load, and the lines of the grid once for all figures.
    let page = html::page(&report, &intervals).unwrap();
    let told = page.split("<summary>Every interval</summary>").nth(1).unwrap();
    assert_eq!(told.matches(r#"class="legend""#).count(), report.cases.len());
    assert_eq!(page.matches("M52 202H428").count(), 1);
    assert!(intervals.lines().count() > 6 * (3 * 14 + 5) && size > 100_000, "{size}");
}

/// A browser matches what `use` shows without what is around it: with `svg .grid` no figure had
/// lines.
#[test]
fn the_lines_of_all_figures_have_styles_that_reach_them() {
    let page = html::page(&report(), "").unwrap();
    for (class, id) in [("grid", "lines"), ("one", "ratios")] {
        assert!(page.contains(&format!("\n.{class} {{ stroke: ")), "{class}");
        assert!(page.contains(&format!(r##"<use href="#{id}"/>"##)), "{id}");
    }
}

/// `validate self` has thousands of intervals: its page was 614 kB.
#[test]
fn a_page_of_thousands_of_intervals_names_the_file_that_has_them() {
    let report = report();
    let few = csv::csv(&report).unwrap();
    let many = few.repeat(200_000 / few.len() + 1);
    let page = |intervals| html::page(&report, intervals).unwrap();
    let (short, long) = (page(&few), page(&many));
    assert!(short.contains(&few) && !short.contains(r#"href="report.csv""#));
    assert!(long.len() < short.len() && long.contains(r#"href="report.csv""#));
}

/// A sweep of many points has a heading for intervals only where it has figures of them.
#[test]
fn many_loads_of_one_arm_have_no_empty_section() {
    let mut report = report();
    let mut case = report.cases[0].clone();
    case.order.truncate(1);
    case.peers.clear();
    for (count, shown) in [(2, true), (7, false)] {
        report.cases = vec![case.clone(); count];
        let page = html::page(&report, "").unwrap();
        assert_eq!(page.contains("<summary>Every interval</summary>"), shown, "{count}");
    }
}

#[test]
fn a_sweep_with_arms_has_them_in_each_cell_and_a_verdict_for_each_load() {
    let mut report = report();
    let mut case = report.cases[0].clone();
    case.order.truncate(2);
    case.peers.clear();
    let mut larger = case.clone();
    larger.setting.buffer_bytes = Some(1 << 17);
    report.cases = vec![case, larger];
    let text = terminal(&report);
    let title = "medians of RSC in the vSwitch Disabled → RSC in the vSwitch Enabled";
    assert!(text.contains(title) && text.contains("870.7 → 1128.5"), "{text}");
    assert!(
        text.contains("with RSC in the vSwitch Disabled at most 15.92 (guest receives"),
        "{text}"
    );
    assert_eq!(text.matches("throughput: 29.6 % higher").count(), 2, "{text}");
    assert!(!text.contains(": CPU: "), "{text}");
    for figure in [
        "guest receives, RSC in the vSwitch Disabled",
        "guest receives, RSC in the vSwitch Enabled",
    ] {
        assert!(html::page(&report, "").unwrap().contains(figure), "{figure}");
    }
    for case in &mut report.cases {
        let found = case.comparisons.get_mut("throughput").unwrap();
        found.verdict = statistics::Verdict::TooFewSamples;
    }
    for text in [terminal(&report), markdown(&report), html::page(&report, "").unwrap()] {
        // A row each, and in a page a tile.
        let count = if text.contains("<html") { 3 } else { 2 };
        assert_eq!(text.matches("too few rounds to tell").count(), count, "{text}");
    }
}

#[test]
fn phases_say_how_long_they_were_and_what_was_lost_in_each() {
    let mut report = report();
    let plan = vmmq::campaign(&Options::vmmq(2, "".into())).points.remove(0).plan;
    let figures = |_, place: usize| {
        // What is lost when all is over: of all phases together next to nothing.
        let counts = |phase: &'static str, delivered, lost| {
            let figures = [
                ("seconds", 1.0),
                ("egress_frames", delivered),
                ("coalesced_packets", 0.0),
                ("lost_frames", lost),
                ("retransmits", 0.0),
                ("sent_segments", delivered),
                ("moves", place as f64),
            ];
            figures.map(|(key, value)| (format!("{phase}_{key}"), value))
        };
        counts("full", 1e6, 0.0).into_iter().chain(counts("after", 90.0, 10.0)).collect()
    };
    report.cases[0] = case_of(&plan, 5, figures);
    let text = markdown(&report);
    let row = |words: &str| text.lines().find(|line| line.contains(words)).unwrap().to_owned();
    let [full, after] =
        ["Full load, 1 s: 2 queues, dynamic", "Idle again, 2.8 s: 2 queues, dynamic"];
    assert!(row(after).contains(" 2 (2–2) ") && row(after).contains("10.00 % (RED)"), "{text}");
    assert!(row(full).contains("not measured") && !row(full).contains("RED"), "{text}");
    assert!(
        text.contains(&format!("RED: {after} (round trips, idle): 10.00 % lost frames, 10/s.")),
        "{text}"
    );
    let loss = trust::influences(&report).into_iter().find(|one| one.name == "Loss").unwrap();
    assert!(
        loss.grade == Grade::Bad && loss.seen.contains("lost frames at most 10/s, 10.00 % (RED)"),
        "{loss:?}"
    );
    let schema = json_schema();
    let json = serde_json::to_value(&report).unwrap();
    jsonschema::validator_for(&schema).unwrap().validate(&json).unwrap();
    assert_eq!(json["cases"][0]["phases"][3]["seconds"], 2.8);
    report.cases[0].phases.pop();
    let loss = trust::influences(&report).into_iter().find(|one| one.name == "Loss").unwrap();
    assert!(loss.grade == Grade::Fine, "{loss:?}");
}

/// Names as long as those of `validate vrss` were cut off below bars as wide as their number left.
#[test]
fn steps_with_long_names_are_rows_with_all_their_words() {
    let mut report = report();
    let plan = vrss::campaign(&Options::vrss(4, "".into())).points.remove(0).plan;
    let figures =
        |_, place: usize| Values::from([("throughput_bps".into(), (place + 1) as f64 * 1e9)]);
    report.cases[0] = case_of(&plan, 5, figures);
    let page = html::page(&report, "").unwrap();
    for (words, part, value) in
        [("1 queue pair", "33.3", "119.2"), ("4 queue pairs, steer=follow", "100.0", "357.6")]
    {
        let bars = page.split(r#"<dl class="bars">"#).nth(1).unwrap();
        let row = bars.split(&format!("<dt>{words}</dt>")).nth(1).unwrap();
        let row = row.split("</dd>").next().unwrap();
        assert!(row.contains(&format!(r#"width="{part}""#)) && row.ends_with(value), "{row}");
    }
}

#[test]
fn a_verdict_of_few_pairs_says_its_level_wherever_it_stands() {
    let of = |rounds| {
        let plan = Rsc::Plain.plan(1500, Duration::from_secs(1), STOP);
        let figures = |_, place| Values::from([("throughput_bps".into(), [2e9, 1e9][place])]);
        let case = case_of(&plan, rounds, figures);
        terminal(&Report { cases: vec![case], latency: Vec::new(), ..report() })
    };
    let text = of(5);
    assert!(text.contains("1.00 → 2.00 Gb/s (2.00x). Verdicts hold at 93.75 % each."), "{text}");
    assert!(text.contains("2.00x (at 93.75 %)"), "{text}");
    assert!(!of(8).contains("(at ") && !of(8).contains("hold at"), "{}", of(8));
}

#[test]
fn every_interval_is_a_line_of_the_csv() {
    let report = report();
    let text = csv::csv(&report).unwrap();
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let heads = reader.headers().unwrap().clone();
    let place = |key: &str| heads.iter().position(|head| head == key).unwrap();
    let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 12 + 4 + 12);
    let trips = rows.iter().filter(|row| &row[place("case")] == "2");
    assert_eq!(trips.count(), 12);
    let first = &rows[0];
    assert_eq!([&first[place("arm")], &first[place("way")]], ["on", "receive"]);
    let rate: f64 = first[place("throughput_bps")].parse().unwrap();
    let exact = report.cases[0].samples[0].values["throughput_bps"];
    assert!((rate / exact - 1.0).abs() < 1e-5, "{rate} of {exact}");
}

/// Returns the report with the results of thresholds.
fn held(mut report: Report, conditions: &[&str]) -> Report {
    let thresholds: Vec<Threshold> =
        conditions.iter().map(|condition| condition.parse().unwrap()).collect();
    report.thresholds = evaluate_thresholds(&thresholds, &report);
    report
}

#[test]
fn a_threshold_is_met_beyond_its_ratio_and_where_it_cannot_be_told() {
    for (condition, met) in [
        ("throughput < 1.2x", false),
        ("throughput < 1.3x", true),
        ("cycles_per_byte > 0.7x", false),
        ("cycles_per_byte > 0.6x", true),
        ("latency_p99 > 1.5x", true),
        ("receiving_cpu > 9x", true),
    ] {
        let report = held(report(), &[condition]);
        let found = report.thresholds.as_slice();
        assert!(found.len() == 1 && found[0].met == met, "{condition}: {found:?}");
        let schema = json_schema();
        let json = serde_json::to_value(&report).unwrap();
        jsonschema::validator_for(&schema).unwrap().validate(&json).unwrap();
        for text in [terminal(&report), markdown(&report), html::page(&report, "").unwrap()] {
            assert!(text.contains("Fails if "), "{text}");
        }
    }
    let mut few = report();
    if let Some(found) = few.cases[0].comparisons.get_mut("throughput") {
        found.verdict = statistics::Verdict::TooFewSamples;
    }
    assert!(
        held(few, &["throughput < 1.0x"]).thresholds[0].met,
        "what is not known has not passed"
    );
}

#[test]
fn a_threshold_of_a_figure_that_is_not_compared_is_refused_with_those_that_are() {
    let refused = |known: &[&Measure]| {
        let one = ["speed < 1x".parse().unwrap()];
        check_thresholds(&one, known).unwrap_err().to_string()
    };
    let known: Vec<&Measure> = GUIDE.iter().collect();
    assert!(refused(&known).contains("cpu_percent, cycles_per_byte, receiving_cpu, throughput"));
    assert!(refused(&[]).contains("this experiment compares nothing"));
}

#[test]
fn junit_has_a_test_for_each_check_and_threshold() {
    let mut report = held(report(), &["throughput < 1.2x", "throughput < 1.3x"]);
    report.checks.push(Check { name: "a <b>".into(), passed: false, seen: "& less".into() });
    let xml = junit::junit(&report).unwrap();
    let document = roxmltree::Document::parse(&xml).unwrap();
    let suites = || document.descendants().filter(|node| node.has_tag_name("testsuite"));
    let counts: Vec<_> = suites()
        .map(|suite| ["name", "tests", "failures"].map(|key| suite.attribute(key).unwrap()))
        .collect();
    assert_eq!(counts, [["checks", "3", "1"], ["thresholds", "2", "1"]]);
    let failures: Vec<_> =
        document.descendants().filter(|node| node.has_tag_name("failure")).collect();
    assert_eq!(failures[0].attribute("message"), Some("& less"));
    assert_eq!(failures[0].parent().unwrap().attribute("name"), Some("a <b>"));
    assert!(failures[1].attribute("message").unwrap().starts_with("1.296x"));
}

#[test]
fn a_report_of_nothing_is_still_a_report() {
    let mut report = report();
    let empty = Run { samples: Vec::new(), ended: Ended::Interrupted };
    report.cases[0] =
        Case::new(&Rsc::Plain.plan(1500, Duration::from_secs(1), STOP), SETTING, empty, None);
    assert!(terminal(&report).contains("not measured"));
    html::page(&report, "{}").unwrap();
}

#[test]
fn writing_makes_five_files_and_says_where_it_cannot() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("new/deep");
    write(&report(), &directory).unwrap();
    for name in ["report.html", "report.md", "report.json", "report.csv", "junit.xml"] {
        assert!(std::fs::metadata(directory.join(name)).unwrap().len() > 500, "{name}");
    }
    assert_eq!(std::fs::read_dir(place.path().join("new/deep")).unwrap().count(), 5);
    let file = place.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = write(&report(), &file).unwrap_err().to_string();
    assert!(error.contains("file") && error.contains("--output"), "{error}");
}
