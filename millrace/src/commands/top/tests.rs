//! The screen as it is drawn: sizes of terminals, numbers of ports, keys.

use super::draw::draw;
use super::feed::{News, Picture};
use super::keys::{Wish, press};
use super::view::{Part, View};
use api::body::{CountersBody, HealthBody, PortBody, TraceBody};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use serde_json::json;
use std::time::Duration;

fn port(name: &str, state: &str, from_bits: u64) -> PortBody {
    let body = json!({
        "name": name, "device": format!("tap {name}"), "role": "vnic", "state": state,
        "reason": if state == "up" { "" } else { "the device is gone" },
        "mtu": 1500, "mac": "02:00:00:00:00:0a", "vlan": "access 10", "rsc": "ndis", "queues": [],
        "offloads": [], "degraded": [], "config": {"name": name, "tap": name},
        "rates": {
            "ingress_frames_per_s": from_bits / 8000, "ingress_bits_per_s": from_bits,
            "egress_frames_per_s": 0, "egress_bits_per_s": 0,
            "drops_per_s": if state == "broken" { 7 } else { 0 },
        },
    });
    serde_json::from_value(body).unwrap()
}

fn picture(ports: Vec<PortBody>, uptime_s: u64) -> Box<Picture> {
    let restriction = json!({"in_force": true, "detail": ""});
    let up = ports.iter().filter(|port| port.state.name() == "up").count();
    let switch = json!({
        "version": "1.0.0", "uptime_s": uptime_s, "ports": ports.len(), "ports_up": up, "macs": 0,
        "workers": [], "restart_needed": [], "events": [],
        "sandbox": {"files": restriction, "system_calls": restriction, "namespaces": restriction},
    });
    Box::new(Picture {
        switch: serde_json::from_value(switch).unwrap(),
        ports,
        health: HealthBody::default(),
        counters: Some(("web".to_owned(), CountersBody::default())),
        busy: vec![31, 2],
    })
}

fn six() -> Vec<PortBody> {
    vec![
        port("uplink0", "up", 1_200_000_000),
        port("web", "up", 40_000_000),
        port("db", "up", 90_000_000),
        port("mail", "broken", 0),
        port("vm2", "down", 0),
        port("vm10", "up", 0),
    ]
}

fn shows(ports: Vec<PortBody>) -> View {
    let mut view = View::new(true, Duration::from_secs(1));
    view.hear(News::Picture(picture(ports, 60)));
    view
}

fn screen(view: &mut View, width: u16, height: u16) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(view, frame)).unwrap();
    terminal
}

fn lines(view: &mut View, width: u16, height: u16) -> Vec<String> {
    let terminal = screen(view, width, height);
    let cells = terminal.backend().buffer().content();
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    cells.chunks(width.into()).map(line).collect()
}

fn key(view: &mut View, code: KeyCode) -> Wish {
    press(view, KeyEvent::new(code, KeyModifiers::NONE))
}

fn keys(view: &mut View, text: &str) {
    text.chars().for_each(|letter| drop(key(view, KeyCode::Char(letter))));
}

/// Returns the first word of each row of the list.
fn names(view: &mut View, width: u16, height: u16) -> Vec<String> {
    let all = lines(view, width, height);
    let rows = all.get(3..all.len() - 2).unwrap();
    let name = |row: &String| row.split_whitespace().next().map(str::to_owned);
    rows.iter().filter_map(name).collect()
}

#[test]
fn six_ports_on_a_usual_terminal() {
    insta::assert_snapshot!(lines(&mut shows(six()), 80, 24).join("\n"));
}

/// The daemon is asked once for the past of each port that is seen, and it is drawn.
#[test]
fn the_past_of_ports_on_the_screen_is_asked_for() {
    let mut view = shows((1..=1000).map(|number| port(&format!("vm{number}"), "up", 8)).collect());
    lines(&mut view, 80, 24);
    let asked = view.without_past();
    assert_eq!((asked.len(), asked[0].as_str()), (19, "vm1"));
    assert!(view.without_past().is_empty());
    assert!(!lines(&mut view, 80, 24)[3].contains('▁'));
    view.hear(News::Past { port: "vm1".to_owned(), rates: (0..60).collect() });
    assert!(lines(&mut view, 80, 24)[3].contains('▁'), "{:?}", lines(&mut view, 80, 24));
    key(&mut view, KeyCode::End);
    lines(&mut view, 80, 24);
    assert_eq!(view.without_past().len(), 19);
}

#[test]
fn six_ports_on_a_small_terminal() {
    insta::assert_snapshot!(lines(&mut shows(six()), 40, 10).join("\n"));
}

#[test]
fn any_size_of_terminal_is_drawn() {
    for (width, height) in [(1, 1), (3, 2), (10, 4), (20, 5), (250, 60)] {
        let mut view = shows(six());
        for part in [Part::List, Part::Filter, Part::Port, Part::Frame, Part::Trace] {
            view.part = part;
            screen(&mut view, width, height);
        }
        screen(&mut View::new(true, Duration::from_secs(1)), width, height);
    }
}

#[test]
fn the_chosen_one_of_a_thousand_ports_is_always_seen() {
    let ports = (1..=1000).map(|number| port(&format!("vm{number}"), "up", 0)).collect();
    let mut view = shows(ports);
    for (width, height) in [(80, 24), (40, 10)] {
        key(&mut view, KeyCode::Home);
        let rows = usize::from(height - 5);
        let first: Vec<_> = (1..=rows).map(|number| format!("vm{number}")).collect();
        assert_eq!(names(&mut view, width, height), first);
        (0..rows).for_each(|_| drop(key(&mut view, KeyCode::Down)));
        let shown = names(&mut view, width, height);
        assert_eq!((shown.len(), shown.last()), (rows, Some(&format!("vm{}", rows + 1))));
        key(&mut view, KeyCode::End);
        assert_eq!(names(&mut view, width, height).last().unwrap(), "vm1000");
        key(&mut view, KeyCode::PageUp);
        assert_eq!(view.port().unwrap().name, format!("vm{}", 1000 - rows));
        assert!(names(&mut view, width, height).contains(&format!("vm{}", 1000 - rows)));
    }
}

#[test]
fn ports_are_sorted_and_numbers_in_names_count() {
    let mut view = shows(six());
    assert_eq!(names(&mut view, 80, 24), ["uplink0", "db", "web", "mail", "vm2", "vm10"]);
    keys(&mut view, "s");
    assert_eq!(names(&mut view, 80, 24), ["db", "mail", "uplink0", "vm2", "vm10", "web"]);
    keys(&mut view, "s");
    assert_eq!(names(&mut view, 80, 24)[..2], ["mail", "vm2"]);
    keys(&mut view, "Sr");
    assert_eq!(names(&mut view, 80, 24)[0], "web");
}

#[test]
fn the_filter_looks_at_names_states_and_addresses() {
    let mut view = shows(six());
    keys(&mut view, "/VM");
    assert_eq!(names(&mut view, 80, 24), ["vm2", "vm10"]);
    assert!(lines(&mut view, 80, 24)[22].starts_with("filter: VM"));
    key(&mut view, KeyCode::Enter);
    // A key is a command again.
    keys(&mut view, "r");
    assert_eq!(names(&mut view, 80, 24), ["vm10", "vm2"]);
    key(&mut view, KeyCode::Esc);
    assert_eq!(names(&mut view, 80, 24).len(), 6);
    keys(&mut view, "/broken");
    assert_eq!(names(&mut view, 80, 24), ["mail"]);
    keys(&mut view, "x");
    assert!(lines(&mut view, 80, 24)[3].contains("no port matches"));
}

/// Ports change their places with their rates; the choice stays with the port.
#[test]
fn a_choice_stays_with_its_port() {
    let mut view = shows(six());
    key(&mut view, KeyCode::Down);
    assert_eq!(view.port().unwrap().name, "db");
    let mut later = six();
    later[2].rates.ingress_bits_per_s = 0;
    view.hear(News::Picture(picture(later, 61)));
    assert_eq!(view.port().unwrap().name, "db");
    assert_eq!(key(&mut view, KeyCode::Enter), Wish::Watch(Some("db".to_owned())));
    view.hear(News::Picture(picture(six().into_iter().filter(|it| it.name != "db").collect(), 62)));
    assert!(lines(&mut view, 80, 24)[2].starts_with("the port is gone"));
    assert_eq!(key(&mut view, KeyCode::Esc), Wish::Watch(None));
}

#[test]
fn details_of_a_port_scroll() {
    let mut view = shows(six());
    keys(&mut view, "/web");
    key(&mut view, KeyCode::Enter);
    key(&mut view, KeyCode::Enter);
    let shown = lines(&mut view, 80, 24);
    assert!(shown[2].starts_with("port web  up  from 40.0 Mb/s"), "{shown:?}");
    assert!(shown.iter().any(|line| line.starts_with("ingress frames")), "{shown:?}");
    key(&mut view, KeyCode::End);
    let end = lines(&mut view, 80, 24);
    assert!(end.iter().any(|line| line.starts_with("dropped")), "{end:?}");
}

#[test]
fn a_frame_is_asked_for_and_its_trace_is_shown() {
    let mut view = shows(six());
    keys(&mut view, "jt");
    assert_eq!(view.part, Part::Frame);
    assert!(lines(&mut view, 80, 24).iter().any(|line| line.contains("for example")));
    assert_eq!(key(&mut view, KeyCode::Enter), Wish::Nothing);
    keys(&mut view, "arp 10.0.0.1 > 10.0.0.2");
    let wish = key(&mut view, KeyCode::Enter);
    let frame = "arp 10.0.0.1 > 10.0.0.2".to_owned();
    assert_eq!(wish, Wish::Trace { port: "db".to_owned(), frame });
    view.hear(News::Traced(Err("the frame, column 1: no".to_owned())));
    assert!(lines(&mut view, 80, 24).contains(&"the frame, column 1: no".to_owned()));
    keys(&mut view, "t");
    key(&mut view, KeyCode::Enter);
    let body = TraceBody { port: "db".to_owned(), notes: Vec::new(), turns: Vec::new() };
    view.hear(News::Traced(Ok(body)));
    assert_eq!(view.part, Part::Trace);
}

/// The rest of a filter that was typed when the answer came was taken for commands.
#[test]
fn an_answer_that_is_late_opens_nothing() {
    let mut view = shows(six());
    keys(&mut view, "tarp 10.0.0.1 > 10.0.0.2");
    key(&mut view, KeyCode::Enter);
    key(&mut view, KeyCode::Esc);
    keys(&mut view, "/d");
    view.hear(News::Traced(Err("the frame, column 1: no".to_owned())));
    keys(&mut view, "cq");
    assert_eq!((&view.part, &*view.filter), (&Part::Filter, "dcq"));
    // Neither does it while the next frame is typed; that one's answer is shown.
    key(&mut view, KeyCode::Esc);
    keys(&mut view, "tarp 10.0.0.1 > 10.0.0.3");
    key(&mut view, KeyCode::Enter);
    keys(&mut view, "0");
    view.hear(News::Traced(Err("of .3".to_owned())));
    assert_eq!((&view.part, &*view.said), (&Part::Frame, ""));
    key(&mut view, KeyCode::Enter);
    keys(&mut view, "1");
    key(&mut view, KeyCode::Enter);
    view.hear(News::Traced(Err("of .30".to_owned())));
    assert_eq!(view.part, Part::Frame);
    view.hear(News::Traced(Err("of .301".to_owned())));
    assert_eq!((&view.part, &*view.traced), (&Part::Trace, "of .301"));
}

/// The text of a capture hid the frame that was typed.
#[test]
fn a_frame_is_seen_while_it_is_typed() {
    let mut view = shows(six());
    let told = |text: &str| News::Capture {
        port: "uplink0".to_owned(),
        runs: true,
        text: text.to_owned(),
    };
    view.hear(told("capturing uplink0 to uplink0.pcapng"));
    keys(&mut view, "tarp");
    assert_eq!(lines(&mut view, 80, 24)[22], "frame: arp");
    assert!(view.said.is_empty());
    view.hear(told("3 frames"));
    assert_eq!(lines(&mut view, 80, 24)[22], "frame: arp");
    key(&mut view, KeyCode::Enter);
    assert_eq!(lines(&mut view, 80, 24)[22], "tracing arp from uplink0");
}

#[test]
fn a_capture_is_asked_for_and_marked_while_it_runs() {
    let mut view = shows(six());
    assert_eq!(key(&mut view, KeyCode::Char('c')), Wish::Capture("uplink0".to_owned()));
    let told = |runs, text: &str| News::Capture {
        port: "uplink0".to_owned(),
        runs,
        text: text.to_owned(),
    };
    view.hear(told(true, "capturing uplink0 to uplink0.pcapng"));
    let shown = lines(&mut view, 80, 24);
    assert!(shown[3].starts_with("● uplink0"), "{shown:?}");
    assert!(shown[22].starts_with("capturing uplink0 to uplink0.pcapng"), "{shown:?}");
    view.hear(told(false, "3 frames"));
    assert!(lines(&mut view, 80, 24)[3].starts_with("uplink0"));
}

#[test]
fn a_daemon_that_does_not_answer_is_told_and_so_is_its_return() {
    let mut view = shows(six());
    view.hear(News::Lost("no daemon answers on /run/api.sock".to_owned()));
    let shown = lines(&mut view, 80, 24);
    assert!(shown[22].starts_with("no daemon answers on /run/api.sock; trying again"), "{shown:?}");
    assert_eq!(names(&mut view, 80, 24).len(), 6);
    view.hear(News::Picture(picture(six(), 1)));
    assert!(lines(&mut view, 80, 24)[22].starts_with("the daemon answers again"));
}

#[test]
fn colours_are_used_unless_they_are_off() {
    let colours = |on| {
        let mut view = shows(six());
        view.colours = on;
        let terminal = screen(&mut view, 80, 24);
        let cells = terminal.backend().buffer().content().to_vec();
        cells.iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert_eq!((colours(true), colours(false)), (true, false));
}

#[test]
fn control_c_quits_while_something_is_typed() {
    let mut view = shows(six());
    keys(&mut view, "/q");
    assert_eq!(view.filter, "q");
    let quit = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(press(&mut view, quit), Wish::Quit);
    key(&mut view, KeyCode::Esc);
    assert_eq!(key(&mut view, KeyCode::Char('q')), Wish::Quit);
}
