//! Coalescing, a case a line: what arrives in one turn, what leaves.

use crate::common::trace::Segment;
use crate::common::{ALL, Bench, plain, rsc};
use datapath::{PortCounters, PortSettings, Rsc, RscException, RscPolicy};
use ports::Offloads;

/// Runs a trace through one turn of a switch.
fn coalesce(rsc: Rsc, lines: &[&str]) -> (Vec<String>, PortCounters) {
    let mut bench = Bench::coalescing(rsc);
    let frames: Vec<_> = lines.iter().map(|line| Segment::parse(line).frame()).collect();
    bench.send(0, &frames);
    let out = bench.received(1).iter().map(|frame| Segment::read(frame).to_string()).collect();
    (out, bench.switch.counters(bench.ids[1]).unwrap())
}

/// Asserts what leaves under a policy.
fn check(policy: RscPolicy, arrives: &[&str], leaves: &[&str]) -> PortCounters {
    let (out, counters) = coalesce(rsc(policy), arrives);
    assert_eq!(out, leaves, "{policy:?}: {arrives:?}");
    counters
}

fn ndis(arrives: &[&str], leaves: &[&str]) -> PortCounters {
    check(RscPolicy::Ndis, arrives, leaves)
}

fn gro(arrives: &[&str], leaves: &[&str]) -> PortCounters {
    check(RscPolicy::Gro, arrives, leaves)
}

fn exceptions(counters: &PortCounters, reason: RscException) -> u64 {
    counters.rsc_exceptions[reason as usize]
}

#[test]
fn off_passes_everything() {
    check(RscPolicy::Off, &["1+1000 .", "1001+1000 ."], &["1+1000 .", "1001+1000 ."]);
}

#[test]
fn in_order_segments_become_one_train() {
    let counters = ndis(&["1+1000 .", "1001+1000 .", "2001+1000 .P"], &["1+3000 .P gso=1000"]);
    assert_eq!(
        (counters.coalesced_packets, counters.coalesced_bytes, counters.coalescing_events),
        (2, 2000, 1)
    );
    assert_eq!(counters.coalescing_exceptions(), 0);
    gro(&["1+1000 .", "1001+1000 . id=1", "2001+1000 .P id=2"], &["1+3000 .P gso=1000"]);
    ndis(&["1+1000 . v6", "1001+1000 . v6"], &["1+2000 . gso=1000 v6"]);
    gro(&["1+1000 . v6", "1001+1000 . v6"], &["1+2000 . gso=1000 v6"]);
}

#[test]
fn one_segment_stays_as_it_is() {
    ndis(&["1+1000 .P ttl=3"], &["1+1000 .P ttl=3"]);
}

#[test]
fn flows_interleave_and_coalesce_side_by_side() {
    ndis(
        &[
            "1+1000 .",
            "1+500 . flow=2",
            "1001+1000 .",
            "501+500 . flow=2",
            "1+9 . flow=3 v6",
            "2001+1000 .",
        ],
        &["1+3000 . gso=1000", "1+1000 . flow=2 gso=500", "1+9 . flow=3 v6"],
    );
}

#[test]
fn a_gap_a_repeat_and_an_overlap_end_the_train() {
    for next in ["1501+1000 .", "1+1000 .", "900+1000 ."] {
        let counters = ndis(&["1+1000 .", next], &["1+1000 .", next]);
        assert_eq!(exceptions(&counters, RscException::OutOfOrder), 1);
        assert_eq!(counters.coalescing_exceptions(), 0, "the end of a train is no abort");
    }
}

#[test]
fn sequence_numbers_wrap() {
    ndis(&["4294966796+1000 .", "500+1000 ."], &["4294966796+2000 . gso=1000"]);
}

#[test]
fn push_is_kept_and_ends_only_a_gro_train() {
    let arrives = ["1+1000 .P", "1001+1000 . id=1"];
    ndis(&arrives, &["1+2000 .P gso=1000"]);
    gro(&arrives, &arrives);
    gro(
        &["1+1000 .", "1001+1000 .P id=1", "2001+1000 . id=2"],
        &["1+2000 .P gso=1000", "2001+1000 . id=2"],
    );
}

#[test]
fn other_flags_go_alone_and_keep_their_place() {
    for flags in [".F", "S", ".R", ".U", ".S", "P"] {
        let odd = format!("1001+10 {flags}");
        let counters = ndis(
            &["1+1000 .", &odd, "1011+1000 .", "2011+1000 ."],
            &["1+1000 .", &odd, "1011+2000 . gso=1000"],
        );
        assert_eq!(exceptions(&counters, RscException::TcpFlags), 1, "{flags}");
        assert_eq!(counters.coalescing_exceptions(), 1);
    }
}

#[test]
fn other_options_go_alone() {
    for (word, reason) in
        [("opt=sack", RscException::TcpOptions), ("ipopt", RscException::IpOptions)]
    {
        for family in ["", " v6"] {
            let odd = format!("1001+10 . {word}{family}");
            let plain = format!("1+1000 .{family}");
            let counters = ndis(&[&plain, &odd], &[&plain, &odd]);
            assert_eq!(exceptions(&counters, reason), 1, "{word}{family}");
        }
    }
}

#[test]
fn bad_checksums_go_alone_and_are_not_mended() {
    let counters = ndis(
        &["1+1000 .", "1001+1000 . bad=tcp", "2001+1000 ."],
        &["1+1000 .", "1001+1000 . bad=tcp", "2001+1000 ."],
    );
    assert_eq!(exceptions(&counters, RscException::BadChecksum), 1);
    let mut bench = Bench::coalescing(rsc(RscPolicy::Ndis));
    bench.send(0, &["1+100 .", "101+100 . bad=ip"].map(|line| Segment::parse(line).frame()));
    let out = bench.received(1);
    assert_eq!(out.len(), 2);
    assert_eq!(out[1].bytes, Segment::parse("101+100 . bad=ip").frame().bytes);
}

#[test]
fn fragments_go_alone() {
    let mut bench = Bench::coalescing(rsc(RscPolicy::Ndis));
    bench.send(0, &["1+1000 .", "1001+1000 . frag df=0"].map(|line| Segment::parse(line).frame()));
    assert_eq!(bench.received(1).len(), 2);
    assert_eq!(
        exceptions(&bench.switch.counters(bench.ids[1]).unwrap(), RscException::Fragment),
        1
    );
}

#[test]
fn ecn_must_not_change_within_a_train() {
    let counters = ndis(
        &["1+100 . tos=2", "101+100 . tos=3", "201+100 . tos=3"],
        &["1+100 . tos=2", "101+200 . tos=3 gso=100"],
    );
    assert_eq!(exceptions(&counters, RscException::Ecn), 1);
    ndis(&["1+100 .E", "101+100 .E", "201+100 ."], &["1+200 .E gso=100", "201+100 ."]);
    ndis(
        &["1+100 .E", "101+100 .E v6 tos=1", "201+100 .E v6 tos=1"],
        &["1+100 .E", "101+200 .E tos=1 gso=100 v6"],
    );
    gro(&["1+100 .C", "101+100 .C id=1"], &["1+100 .C", "101+100 .C id=1"]);
}

#[test]
fn dscp_df_and_header_length_must_not_change() {
    for change in ["tos=32", "df=0", "ts=1/1"] {
        let next = format!("101+100 . {change} id=1");
        let (out, counters) = coalesce(rsc(RscPolicy::Ndis), &["1+100 .", &next]);
        assert_eq!(out.len(), 2, "{change}");
        assert_eq!(exceptions(&counters, RscException::HeaderChange), 1, "{change}");
    }
}

#[test]
fn the_train_has_the_fewest_hops() {
    ndis(&["1+100 . ttl=64", "101+100 . ttl=60", "201+100 . ttl=63"], &["1+300 . ttl=60 gso=100"]);
    ndis(&["1+100 . ttl=9 v6", "101+100 . ttl=7 v6"], &["1+200 . ttl=7 gso=100 v6"]);
    gro(&["1+100 . ttl=64", "101+100 . ttl=60 id=1"], &["1+100 .", "101+100 . ttl=60 id=1"]);
}

#[test]
fn timestamps_may_grow_and_the_last_counts() {
    ndis(
        &["1+100 . ts=10/5", "101+100 . ts=10/6", "201+100 . ts=12/6"],
        &["1+300 . gso=100 ts=12/6"],
    );
    ndis(&["1+100 . ts=10/5", "101+100 . ts=9/5"], &["1+100 . ts=10/5", "101+100 . ts=9/5"]);
    ndis(&["1+100 . ts=4294967295/5", "101+100 . ts=3/5"], &["1+200 . gso=100 ts=3/5"]);
    gro(
        &["1+100 . ts=10/5", "101+100 . ts=11/5 id=1"],
        &["1+100 . ts=10/5", "101+100 . id=1 ts=11/5"],
    );
}

#[test]
fn sizes_may_differ_for_a_receiver_only() {
    let arrives = ["1+100 .", "101+300 . id=1", "401+200 . id=2"];
    ndis(&arrives, &["1+600 . gso=300"]);
    gro(&arrives, &["1+100 .", "101+500 . id=1 gso=300"]);
    gro(&["1+300 .", "301+100 . id=1", "401+300 . id=2"], &["1+400 . gso=300", "401+300 . id=2"]);
}

#[test]
fn acknowledgements_may_rise_for_a_receiver_only() {
    // Example 4 of NDIS: piggy-backed acknowledgements.
    let arrives = ["1+100 . ack=10", "101+100 . ack=20 id=1", "201+100 . ack=30 id=2"];
    ndis(&arrives, &["1+300 . ack=30 gso=100"]);
    gro(&arrives, &arrives);
}

#[test]
fn window_updates_join_a_train() {
    // Example 3 of NDIS: five data segments and two window updates are one unit with the last
    // window.
    let arrives =
        ["1+10 .", "11+10 .", "21+10 .", "31+10 .", "41+10 .", "51+0 . win=600", "51+0 . win=700"];
    let counters = ndis(&arrives, &["1+50 . win=700 gso=10"]);
    assert_eq!((counters.coalesced_packets, counters.coalesced_bytes), (6, 40));
    ndis(&["51+0 . win=600", "51+0 . win=700"], &["51+0 . win=700"]);
    // The payload of these stays in the source's buffers, and the update has none there.
    ndis(&["1+500 .", "501+500 .", "1001+0 . win=600"], &["1+1000 . win=600 gso=500"]);
}

#[test]
fn plain_and_duplicate_acks_are_each_delivered() {
    let acks = ["1+0 . ack=10", "1+0 . ack=20", "1+0 . ack=20", "1+0 . ack=20"];
    let counters = ndis(&acks, &acks);
    assert_eq!(counters.coalesced_packets, 0);
    gro(&acks, &acks);
    ndis(&["1+0 .", "1+100 ."], &["1+0 .", "1+100 ."]);
}

#[test]
fn the_ack_limit_ends_a_train() {
    let limited = Rsc { ack_limit: 2, ..rsc(RscPolicy::Ndis) };
    let (out, _) = coalesce(
        limited,
        &["1+10 .", "11+10 .", "21+0 . win=600", "21+0 . win=700", "21+0 . win=800"],
    );
    assert_eq!(out, ["1+20 . win=600 gso=10", "21+0 . win=800"]);
}

#[test]
fn the_length_limit_is_in_mtus() {
    let limited = Rsc { length_limit_mtus: 2, ..rsc(RscPolicy::Ndis) };
    let lines: Vec<String> = (0..5).map(|n| format!("{}+1000 .", 1 + n * 1000)).collect();
    let (out, counters) = coalesce(limited, &lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(out, ["1+3000 . gso=1000", "3001+2000 . gso=1000"]);
    assert_eq!(exceptions(&counters, RscException::Length), 1);
    assert_eq!(counters.coalescing_exceptions(), 0);
}

#[test]
fn no_train_exceeds_an_ip_packet() {
    let lines: Vec<String> = (0..46).map(|n| format!("{}+1448 . ts=1/1", 1 + n * 1448)).collect();
    let (out, _) =
        coalesce(rsc(RscPolicy::Ndis), &lines.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(out, ["1+65160 . gso=1448 ts=1/1", "65161+1448 . ts=1/1"]);
}

#[test]
fn more_flows_than_the_limit_pass_one_by_one() {
    let two = Rsc { flows: 2, ..rsc(RscPolicy::Ndis) };
    let arrives =
        ["1+10 .", "1+10 . flow=2", "1+10 . flow=3", "11+10 . flow=3", "11+10 .", "11+10 . flow=2"];
    let (out, counters) = coalesce(two, &arrives);
    assert_eq!(out, ["1+20 . gso=10", "1+20 . flow=2 gso=10", "1+10 . flow=3", "11+10 . flow=3"]);
    assert_eq!(exceptions(&counters, RscException::Resources), 2);
}

#[test]
fn a_train_from_the_source_ends_the_open_one_and_passes() {
    ndis(
        &["1+100 .", "101+100 .", "201+3000 . gso=1000", "3201+100 .", "3301+100 ."],
        &["1+200 . gso=100", "201+3000 . gso=1000", "3201+200 . gso=100"],
    );
}

#[test]
fn a_family_that_is_off_passes() {
    let only_v6 = Rsc { ipv4: false, ..rsc(RscPolicy::Ndis) };
    let (out, _) =
        coalesce(only_v6, &["1+10 .", "11+10 .", "1+10 . v6 flow=2", "11+10 . v6 flow=2"]);
    assert_eq!(out, ["1+10 .", "11+10 .", "1+20 . flow=2 gso=10 v6"]);
}

#[test]
fn segments_too_small_to_be_cut_again_are_not_merged_by_gro() {
    gro(&["1+47 .", "48+47 . id=1"], &["1+47 .", "48+47 . id=1"]);
    gro(&["1+48 .", "49+48 . id=1"], &["1+96 . gso=48"]);
}

#[test]
fn identifications_count_for_gro() {
    gro(&["1+100 . id=7", "101+100 . id=9"], &["1+100 . id=7", "101+100 . id=9"]);
    gro(&["1+100 . id=65535", "101+100 . id=32768"], &["1+200 . id=65535 gso=100"]);
    ndis(&["1+10 . id=7", "11+10 . id=900"], &["1+20 . id=7 gso=10"]);
}

#[test]
fn a_guest_that_did_not_take_ecn_gets_no_train_with_echo() {
    let settings = PortSettings { rsc: rsc(RscPolicy::Ndis), ..plain() };
    for (offloads, count) in [(ALL, 1), (ALL - Offloads::ECN, 2)] {
        let mut bench = Bench::new(&[(plain(), ALL), (settings.clone(), offloads)]);
        let frames = ["1+1000 .E", "1001+1000 .E"].map(|line| Segment::parse(line).frame());
        bench.send(0, &frames);
        let out = bench.received(1);
        assert_eq!(out.len(), count, "toward a port that takes {offloads:?}");
        assert!(out.iter().all(|frame| offloads.contains(Offloads::ECN) || !frame.vnet.gso_ecn()));
    }
}

#[test]
fn segments_with_another_tag_or_tpid_or_ae_do_not_mix() {
    use datapath::Vlan;
    let trunk = || PortSettings {
        vlan: Vlan::Trunk { allowed: (0..4095).collect(), native: 1 },
        ..plain()
    };
    for (first, second) in [
        ("vlan=7 inner=1", "vlan=7 inner=2"),
        ("vlan=7", "vlan=7 provider"),
        ("ae", ""),
        ("", "ae"),
    ] {
        for policy in [RscPolicy::Ndis, RscPolicy::Gro] {
            let to = PortSettings { rsc: rsc(policy), ..trunk() };
            let mut bench = Bench::new(&[(trunk(), ALL), (to, ALL)]);
            let frames = [format!("1+1000 . {first}"), format!("1001+1000 . id=1 {second}")]
                .map(|line| Segment::parse(&line).frame());
            bench.send(0, &frames);
            assert_eq!(bench.received(1).len(), 2, "{first:?} and {second:?} under {policy:?}");
        }
    }
}
