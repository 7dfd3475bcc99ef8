//! What the answer of a report says, and that it hides nothing.

use super::*;

/// `validate vmmq` said "no difference seen" above a row with 47.6 % more CPU of the switch.
#[test]
fn what_is_worse_stands_in_the_answer_of_every_form() {
    let mut report = report();
    let plan = vmmq::campaign(&Options::vmmq(2, "".into())).points.remove(0).plan;
    let figures = |round, place: usize| {
        // Equal throughput; the last step takes more than the one before it, not than the first.
        let wobble = [1.0, 1.01, 0.99][(round + place) % 3];
        let switch = [0.1476, 0.1, 0.1476][place] * wobble;
        let mut values = Values::from([("low_switch_run_s_per_s".to_owned(), switch)]);
        values.insert("throughput_bps".into(), 1e9 * wobble);
        values
    };
    report.measures = plan.measures;
    report.cases = vec![case_of(&plan, 9, figures)];
    report.latency.clear();
    let worse = headline::worse(&report);
    assert!(worse.len() == 1 && worse[0].starts_with("2 queues, dynamic: 4"), "{worse:?}");
    assert!(worse[0].contains(" % more CPU of the switch at 100 Mb/s"), "{worse:?}");
    let page = html::page(&report, "").unwrap().replace("&#x2f;", "/");
    let screen = page.split("<details>").next().unwrap();
    for text in [&terminal(&report), &markdown(&report), screen, &verdict(&report)] {
        assert!(text.contains(&worse[0]), "{text}");
    }
    let xml = junit::junit(&report).unwrap();
    assert!(xml.contains(&worse[0]), "{xml}");
}

/// A peer's rows show throughput alone, but what else is worse is no less true.
#[test]
fn measures_that_rows_leave_out_are_told_where_they_are_worse() {
    let mut report = report();
    let found = report.cases[0].peers["linux_bridge"]["throughput"];
    let peer = report.cases[0].peers.get_mut("linux_bridge").unwrap();
    let worse =
        statistics::Comparison { ratio: 1.31, verdict: statistics::Verdict::Worse, ..found };
    peer.insert("cycles_per_byte".into(), worse);
    let text = verdict(&report);
    let said = "against Linux bridge, GRO on: 31.0 % more cycles per byte (1 connection)";
    assert!(text.contains(said), "{text}");
    let second =
        Case { setting: Setting { connections: 16, ..SETTING }, ..report.cases[0].clone() };
    report.cases.push(second);
    assert!(verdict(&report).contains("cycles per byte (1 and 16 connections)"));
}

#[test]
fn the_last_lines_are_the_answer_the_peer_and_the_trust() {
    let mut report = report();
    let lines =
        |report: &Report| -> Vec<String> { verdict(report).lines().map(str::to_owned).collect() };
    // Four pairs with a peer are too few to say that nothing is worse.
    report.latency.clear();
    let [answer, beside, trust] = lines(&report).try_into().unwrap();
    assert!(answer.contains("7.3 → 9.5 Gb/s (29.6 % higher)"), "{answer}");
    assert_eq!(beside, "Linux bridge, GRO on: 1 connection 8.4 Gb/s.");
    assert!(
        trust.starts_with("Trust: doubtful: ratios of throughput are known to ±0.1 % at 96.87 %")
    );
    let peer = report.cases[0].peers.get_mut("linux_bridge").unwrap();
    peer.values_mut().for_each(|found| found.verdict = statistics::Verdict::NoDifferenceSeen);
    assert!(lines(&report)[1].ends_with("8.4 Gb/s. Nothing is significantly worse."));
    report.checks[0].passed = false;
    let trust = lines(&report).pop().unwrap();
    assert!(trust.starts_with("Trust: not to be trusted: 0 of 1 check passed: frames"), "{trust}");
    report.checks[0].passed = true;
    report.cases[0].comparisons.values_mut().for_each(|found| found.level = 0.999);
    let trust = lines(&report).pop().unwrap();
    assert!(trust.starts_with("Trust: ok: 1 of 1 check passed; ratios of"), "{trust}");
    report.cases[0].ended = Ended::Interrupted;
    let trust = lines(&report).pop().unwrap();
    assert!(trust.starts_with("Trust: doubtful: interrupted before"), "{trust}");
    report.cases[0].comparisons.get_mut("throughput").unwrap().pairs = 4;
    let trust = lines(&report).pop().unwrap();
    assert!(
        trust.contains("not to be trusted: 4 pairs of intervals, a verdict takes 5"),
        "{trust}"
    );
}

/// The first and the last load of a sweep say nothing about it.
#[test]
fn a_sweep_shows_its_fastest_loads_and_a_bar_for_each_number_of_connections() {
    let mut report = report();
    let mut case = report.cases[0].clone();
    case.order.truncate(1);
    case.peers.clear();
    case.comparisons.clear();
    let at = |way, connections, block: u32, rate: f64| {
        let mut case = case.clone();
        let (way, buffer_bytes) = (Some(way), Some(block));
        case.setting = Setting { connections, buffer_bytes, way, ..SETTING };
        let figure = case.arms.get_mut("on").unwrap().figures.get_mut("throughput_bps").unwrap();
        (figure.median, figure.min, figure.max) = (rate, rate, rate);
        case
    };
    let loads = [1, 2, 4, 8].iter().flat_map(|connections| {
        [512, 4096].map(|block| (*connections, block, f64::from(*connections * block) * 1e6))
    });
    let of_way = |way| loads.clone().map(move |(count, block, rate)| (way, count, block, rate));
    let all = of_way(Way::FromVnic).chain(of_way(Way::ToVnic));
    report.cases = all.map(|(way, count, block, rate)| at(way, count, block, rate)).collect();
    report.latency.clear();
    let titles: Vec<String> = tiles::tiles(&report).into_iter().map(|tile| tile.title).collect();
    assert_eq!(titles[0], "Throughput, guest sends, 8 connections, 4 KiB", "{titles:?}");
    assert_eq!(titles[1], "Throughput, guest receives, 8 connections, 4 KiB", "{titles:?}");
    let page = html::page(&report, "").unwrap();
    let chart = page.split(r#"<figure class="beside">"#).nth(1).unwrap();
    let chart = chart.split("</figure>").next().unwrap();
    let bars: Vec<&str> = chart.split("<dt>").skip(1).collect();
    assert!(bars.len() == 8 && bars.iter().all(|bar| bar.contains("4 KiB")), "{chart}");
}
