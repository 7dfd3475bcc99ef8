use super::*;
use crate::measure::{CpuUsage, Cycles, Figure, KernelDelta, ProcessUsage};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr};

fn side(role: Role) -> Side {
    let cpu = CpuUsage {
        processors: 2,
        busy_percent: 50.0,
        user_percent: 5.0,
        system_percent: 25.0,
        irq_percent: 0.0,
        softirq_percent: 20.0,
        idle_percent: 49.0,
        iowait_percent: 0.0,
        steal_percent: 1.0,
        busy_percent_of_each: vec![60.0, 40.0],
    };
    let bytes = 2_097_152;
    Side {
        role,
        end_id: if role == Role::Sender { 1 } else { 2 },
        computer: "host<1>\u{1b}[2J".into(),
        connections: 1,
        seconds: 2.0,
        bytes,
        throughput: Throughput::of(bytes, 2.0),
        calls: 32,
        buffers: 32.0,
        errors: 0,
        whole_run_bytes: 4_194_304,
        whole_run_calls: 64,
        verified_bytes: (role == Role::Receiver).then_some(4_194_304),
        segments: Segments {
            sent: Figure::measured(1500, "test"),
            received: Figure::measured(700, "test"),
            retransmits: Figure::measured(1, "test"),
            average_frame_bytes: Figure::measured(1448.0, "test"),
            rtt_us: Figure::absent("not measured in this test"),
        },
        cpu: Figure::measured(cpu, "test"),
        process: Figure::measured(
            ProcessUsage { user_s: 0.1, system_s: 0.9, percent_of_one_processor: 50.0 },
            "test",
        ),
        cycles: Cycles {
            hardware: Figure::absent("no counter"),
            time_stamp_hz: Figure::measured(2e9, "test"),
        },
        cycles_per_byte: Figure::measured(1907.349, "test"),
        hardware_cycles_per_byte: Figure::absent("no counter"),
        kernel: KernelDelta {
            tcp_retransmits: Figure::absent("no file"),
            udp: Figure::absent("no file"),
            net_rx_softirqs: Figure::measured(350, "test"),
            interrupts: Figure::measured(100, "test"),
            interface: Figure::absent("no file"),
        },
    }
}

fn report() -> Report {
    let plan = Plan::new(Role::Sender, IpAddr::V4(Ipv4Addr::LOCALHOST), 5001, 2);
    let thread = Count { bytes: 2_097_152, calls: 32, errors: 0 };
    let trips =
        Times { count: 10, min_ns: 1, mean_ns: 2.5, p50_ns: 2, p90_ns: 4, p99_ns: 5, max_ns: 6 };
    Report {
        tool: "Millrace".into(),
        ending: Ending::StoppedByUser,
        peer_kind: PeerKind::Millrace,
        settings: Settings::of(&plan),
        own: side(Role::Sender),
        peer: Some(side(Role::Receiver)),
        peer_ids: Vec::new(),
        decimal_megabytes: false,
        threads: vec![ThreadFigures::of(thread, 2.0)],
        round_trips: Some(trips),
        request_times: Some(Times { count: 20, ..trips }),
        datagrams_lost: None,
        bytes_missing: None,
        notes: vec!["a note with <brackets> & \"quotes\"".into()],
        bytes_undelivered: None,
        conditions: vec!["something moved".into()],
    }
}

#[test]
fn json_is_typed_and_read_back_as_it_was() {
    let json = serde_json::to_string_pretty(&report()).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report());
    insta::assert_snapshot!(json);
}

#[test]
fn json_is_as_the_schema_says_and_the_schema_notices_what_is_not() {
    let schema = json_schema();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let mut json = serde_json::to_value(report()).unwrap();
    assert_eq!(
        schema.iter_errors(&json).map(|error| error.to_string()).collect::<Vec<_>>(),
        [""; 0]
    );
    json["own"]["bytes"] = "2097152".into();
    assert!(!schema.is_valid(&json), "a number is a number");
}

#[test]
fn text_has_ntttcps_tables_and_no_escape_codes_of_a_peer() {
    let text = report().to_text().unwrap();
    assert!(!text.contains('\u{1b}'));
    insta::assert_snapshot!(text);
}

#[test]
fn xml_is_well_formed_with_ntttcps_names() {
    let xml = report().to_xml().unwrap();
    let document = roxmltree::Document::parse(&xml).unwrap();
    let root = document.root_element();
    assert_eq!(root.tag_name().name(), "ntttcps");
    let value = |name: &str| root.children().find(|child| child.has_tag_name(name)).unwrap().text();
    assert_eq!((value("realtime"), value("cycles")), (Some("2.000000"), Some("1907.349")));
    let receiver = Report { own: side(Role::Receiver), ..report() }.to_xml().unwrap();
    assert!(roxmltree::Document::parse(&receiver).unwrap().root_element().has_tag_name("ntttcpr"));
    insta::assert_snapshot!(xml);
}

#[test]
fn dash_j_has_ntttcp_for_linuxs_keys_and_strings() {
    let json = report().to_linux_json().unwrap();
    let own = &json["ntttcps"];
    let value = |at: &str| own.pointer(at).and_then(serde_json::Value::as_str).unwrap_or("none");
    for (at, wanted) in [
        ("/parameters/runTime", "2"),
        ("/totalBytes/value", "2.097152"),
        ("/throughputs/1/metric", "mbps"),
        ("/throughputs/1/value", "8.389"),
        ("/threads/0/throughputs/1/value", "1.049 bps"),
        ("/cycles/value", "1907.349"),
        ("/cpu/value", "50.000"),
        ("/packetsSent", "1500"),
    ] {
        assert_eq!(value(at), wanted, "{at}");
    }
    fn all_strings(value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Object(parts) => parts.values().all(all_strings),
            serde_json::Value::Array(parts) => parts.iter().all(all_strings),
            value => value.is_string(),
        }
    }
    assert!(all_strings(&json));
}

#[test]
fn megabytes_of_the_xml_are_those_of_the_dialects_own_program() {
    for (linux, own, ours) in
        [(true, "1.049", "throughput_binary"), (false, "1.000", "throughput_decimal")]
    {
        let xml = Report { decimal_megabytes: linux, ..report() }.to_xml().unwrap();
        let document = roxmltree::Document::parse(&xml).unwrap();
        let root = document.root_element();
        let total = root.children().find(|child| child.attribute("metric") == Some("MB/s"));
        assert_eq!(total.unwrap().text(), Some(own));
        assert!(root.children().any(|child| child.has_tag_name(ours)));
        let total = root.children().find(|child| child.has_tag_name("total_bytes"));
        assert_eq!(total.unwrap().text(), Some(if linux { "2.097152" } else { "2.000000" }));
    }
}

#[test]
fn figures_are_read_from_the_keys_that_they_have() {
    let json = serde_json::to_value(side(Role::Receiver)).unwrap();
    let reads = |json: &Value| strict::from_json::<Side>(json.to_string().as_bytes()).is_ok();
    assert!(reads(&json));
    let in_order: Vec<_> = json.as_object().unwrap().values().cloned().collect();
    assert!(!reads(&in_order.into()));
    for (place, value) in
        [("/more", json!(1)), ("/segments/more", json!(1)), ("/cycles/hardware", json!([1]))]
    {
        let mut changed = json.clone();
        let (parent, key) = place.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[key] = value;
        assert!(!reads(&changed), "{place}");
    }
}

proptest! {
    #[test]
    fn whatever_a_peer_calls_its_figures_is_shown_or_refused(
        changes in prop::collection::vec((any::<prop::sample::Index>(), "[0-9a-z\"{}:,.eE+-]{0,6}"), 0..6),
    ) {
        let mut json = serde_json::to_string(&side(Role::Receiver)).unwrap();
        for (place, text) in changes {
            let at = place.index(json.len());
            json.replace_range(at..=at, &text);
            if json.is_empty() {
                break;
            }
        }
        if let Ok(peer) = strict::from_json::<Side>(json.as_bytes()) {
            let mut report = report();
            report.add_peer(peer);
            let escapes = report.to_text().unwrap().contains('\u{1b}');
            prop_assert!(!escapes);
            prop_assert!(roxmltree::Document::parse(&report.to_xml().unwrap()).is_ok());
        }
    }
}
