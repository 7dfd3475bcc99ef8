//! Puts the view on the screen: a head of two lines, the open part, what was last done, and the keys.

use super::feed::Picture;
use super::keys;
use super::list;
use super::view::{Part, View};
use crate::commands::check::summary;
use crate::commands::status::duration;
use crate::output::{bits, count, wrapped};
use api::body::Severity;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Draws everything.
pub(super) fn draw(view: &mut View, frame: &mut Frame<'_>) {
    let rows =
        [Constraint::Length(2), Constraint::Fill(1), Constraint::Length(1), Constraint::Length(1)];
    let [head, body, said, foot] = Layout::vertical(rows).areas(frame.area());
    view.page = usize::from(body.height.saturating_sub(1)).max(1);
    frame.render_widget(Paragraph::new(self::head(view, head.width)), head);
    match view.part {
        Part::List | Part::Filter => list::draw(view, frame, body),
        Part::Port | Part::Frame | Part::Trace => text(view, frame, body),
    }
    frame.render_widget(Paragraph::new(last_said(view)), said);
    frame.render_widget(Paragraph::new(foot_of(view, foot.width)), foot);
    place_cursor(view, frame, said);
}

/// Returns a colour, or no change if colours are off.
pub(super) fn coloured(view: &View, colour: Color) -> Style {
    if view.colours { Style::new().fg(colour) } else { Style::new() }
}

/// Returns as many of the spans as fit, two columns apart.
fn fitting(parts: Vec<Span<'static>>, width: u16) -> Line<'static> {
    let (mut line, mut used) = (Line::default(), 0);
    for part in parts {
        let needed = used + part.width() + if used == 0 { 0 } else { 2 };
        if needed > usize::from(width) {
            break;
        }
        if used > 0 {
            line.push_span("  ");
        }
        line.push_span(part);
        used = needed;
    }
    line
}

fn head(view: &View, width: u16) -> Vec<Line<'static>> {
    let Some(picture) = &view.picture else { return vec![Line::from("asking the daemon …")] };
    let switch = &picture.switch;
    let sum = |rate: fn(&api::body::RatesBody) -> u64| -> u64 {
        picture.ports.iter().map(|port| rate(&port.rates)).sum()
    };
    let drops = sum(|rates| rates.drops_per_s);
    let up = format!("{}/{} ports up", switch.ports_up, switch.ports);
    let all_up = switch.ports_up == switch.ports;
    let first = vec![
        Span::styled("millrace", Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(up, if all_up { Style::new() } else { coloured(view, Color::Yellow) }),
        Span::raw(format!("from ports {}", bits(sum(|rates| rates.ingress_bits_per_s)))),
        if drops == 0 {
            Span::raw("no drops")
        } else {
            Span::styled(format!("drops {}/s", count(drops)), coloured(view, Color::Red))
        },
        Span::raw(format!("up for {}", duration(switch.uptime_s))),
    ];
    vec![fitting(first, width), fitting(second(view, picture), width)]
}

/// Returns findings and workers.
fn second(view: &View, picture: &Picture) -> Vec<Span<'static>> {
    let worst = picture.health.findings.first().map(|finding| finding.severity);
    let findings = match worst {
        None => Span::raw("no findings"),
        Some(worst) => {
            let colour = match worst {
                Severity::Error => Color::Red,
                Severity::Warning => Color::Yellow,
                Severity::Info => Color::Reset,
            };
            Span::styled(summary(&picture.health), coloured(view, colour))
        }
    };
    let busy: Vec<_> = picture.busy.iter().map(|percent| format!("{percent} %")).collect();
    let workers = match busy.len() {
        0 => None,
        1 => Some(format!("worker busy {}", busy.concat())),
        _ => Some(format!("workers busy {}", busy.join(" "))),
    };
    std::iter::once(findings).chain(workers.map(Span::raw)).collect()
}

fn last_said(view: &View) -> Line<'static> {
    if let Some(stale) = view.stale() {
        return Line::styled(stale, coloured(view, Color::Red).add_modifier(Modifier::BOLD));
    }
    match view.part {
        Part::Filter => Line::raw(format!("filter: {}", view.filter)),
        Part::Frame if view.waits => Line::raw(view.said.clone()),
        Part::Frame => Line::raw(format!("frame: {}", view.frame)),
        _ if !view.said.is_empty() => Line::raw(view.said.clone()),
        _ if !view.filter.is_empty() => Line::raw(format!("filter: {}", view.filter)),
        Part::List => {
            let reversed = if view.reversed { ", reversed" } else { "" };
            Line::raw(format!("sorted by {}{reversed}", view.order.name()))
        }
        _ => Line::default(),
    }
}

fn place_cursor(view: &View, frame: &mut Frame<'_>, said: Rect) {
    let text = match view.part {
        Part::Filter => format!("filter: {}", view.filter),
        Part::Frame => format!("frame: {}", view.frame),
        _ => return,
    };
    let column = u16::try_from(Span::raw(text).width()).unwrap_or(u16::MAX);
    frame.set_cursor_position((column.min(said.width.saturating_sub(1)), said.y));
}

fn foot_of(view: &View, width: u16) -> Line<'static> {
    let keys = match view.part {
        Part::List => &keys::LIST[..],
        Part::Port | Part::Trace => &keys::TEXT,
        Part::Filter | Part::Frame => &keys::LINE,
    };
    let key = |(key, meaning): &(&str, &str)| Span::raw(format!("{key} {meaning}"));
    fitting(keys.iter().map(key).collect(), width)
        .style(Style::new().add_modifier(Modifier::REVERSED))
}

/// Draws the open text, from the line to which it was scrolled.
fn text(view: &mut View, frame: &mut Frame<'_>, area: Rect) {
    let [title, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    frame.render_widget(Paragraph::new(title_of(view, title.width)), title);
    let text = match view.part {
        Part::Frame => EXAMPLES.to_owned(),
        _ => view.text(),
    };
    let lines = wrapped(&text, usize::from(body.width));
    view.scroll = view.scroll.min(lines.len().saturating_sub(usize::from(body.height)));
    let shown = lines.into_iter().skip(view.scroll).map(Line::raw);
    frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), body);
}

const EXAMPLES: &str = "\
The frame that would enter through the port, for example:
  tcp 10.0.0.1:1 > 10.0.0.2:80
  udp 10.0.0.1:68 > 255.255.255.255:67 len 300
  icmp 10.0.0.1 > 10.0.0.2 to db
  arp 10.0.0.1 > 10.0.0.2
`millrace trace --help` has all words. Nothing is sent.";

fn title_of(view: &View, width: u16) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let Some(port) = view.port() else { return Line::styled("the port is gone", bold) };
    let rates = &port.rates;
    let parts = vec![
        Span::styled(format!("port {}", port.name), bold),
        Span::styled(port.state.name(), list::state_style(view, port.state)),
        Span::raw(format!("from {}", bits(rates.ingress_bits_per_s))),
        Span::raw(format!("to {}", bits(rates.egress_bits_per_s))),
        Span::raw(port.device.clone()),
        Span::styled(view.history.bars(&port.name, 20), coloured(view, Color::Cyan)),
    ];
    fitting(parts, width)
}
