//! The list of ports: as many columns as fit, and only the rows that are seen.

use super::draw::coloured;
use super::view::{Order, View, mean_wait};
use crate::commands::status::wait;
use crate::output::{bits, count};
use api::body::{PortBody, StateBody};
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Row, Table};

/// Narrowest and widest column of names.
const NAME: [u16; 2] = [8, 24];

/// A column beside the name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    State,
    FromPort,
    ToPort,
    Drops,
    Trend,
    Wait,
    Vlan,
    Device,
    Reason,
}

/// All columns, in the order in which they get room.
const COLUMNS: [Column; 9] = [
    Column::State,
    Column::FromPort,
    Column::ToPort,
    Column::Drops,
    Column::Trend,
    Column::Wait,
    Column::Vlan,
    Column::Device,
    Column::Reason,
];

impl Column {
    const fn width(self) -> u16 {
        match self {
            Column::State => 6,
            Column::FromPort | Column::ToPort => 9,
            Column::Drops => 7,
            Column::Trend => 12,
            Column::Wait => 8,
            Column::Vlan => 14,
            Column::Device => 24,
            Column::Reason => 30,
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Column::State => "STATE",
            Column::FromPort => "FROM PORT",
            Column::ToPort => "TO PORT",
            Column::Drops => "DROPS/S",
            Column::Trend => "PAST",
            Column::Wait => "WAIT",
            Column::Vlan => "VLAN",
            Column::Device => "DEVICE",
            Column::Reason => "REASON",
        }
    }

    const fn order(self) -> Option<Order> {
        match self {
            Column::State => Some(Order::State),
            Column::FromPort => Some(Order::FromPort),
            Column::ToPort => Some(Order::ToPort),
            Column::Drops => Some(Order::Drops),
            Column::Wait => Some(Order::Wait),
            Column::Trend => Some(Order::Traffic),
            Column::Vlan | Column::Device | Column::Reason => None,
        }
    }

    const fn is_number(self) -> bool {
        matches!(self, Column::FromPort | Column::ToPort | Column::Drops | Column::Wait)
    }

    fn text(self, port: &PortBody, view: &View) -> String {
        match self {
            Column::State => port.state.name().to_owned(),
            Column::FromPort => bits(port.rates.ingress_bits_per_s),
            Column::ToPort => bits(port.rates.egress_bits_per_s),
            Column::Drops => count(port.rates.drops_per_s),
            Column::Trend => view.history.bars(&port.name, Column::Trend.width().into()),
            Column::Wait => wait(mean_wait(port)),
            Column::Vlan => port.vlan.clone(),
            Column::Device => port.device.clone(),
            Column::Reason => port.reason.clone(),
        }
    }

    fn style(self, port: &PortBody, view: &View) -> Style {
        match self {
            Column::State => state_style(view, port.state),
            Column::Drops if port.rates.drops_per_s > 0 => coloured(view, Color::Red),
            Column::Trend => coloured(view, Color::Cyan),
            _ => Style::new(),
        }
    }
}

pub(super) fn state_style(view: &View, state: StateBody) -> Style {
    let colour = match state {
        StateBody::Up => Color::Green,
        StateBody::Down => Color::Yellow,
        StateBody::Broken => Color::Red,
    };
    coloured(view, colour)
}

/// Draws the list, scrolled so that the chosen port is seen.
pub(super) fn draw(view: &mut View, frame: &mut Frame<'_>, area: Rect) {
    let rows = usize::from(area.height.saturating_sub(1));
    let ports = view.ports();
    let (total, place) = (ports.len(), view.place(&ports));
    let highest = place.saturating_sub(rows.saturating_sub(1));
    let first = view.first.clamp(highest, place.max(highest)).min(total.saturating_sub(rows));
    let (name, columns) = columns(&ports, area.width);
    let shown = ports.iter().enumerate().skip(first).take(rows);
    let row = |(at, port): (usize, &&PortBody)| {
        let cells = columns.iter().map(|column| cell(*column, port, view));
        let own = Cell::from(name_of(port, view));
        let style =
            if at == place { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Row::new(std::iter::once(own).chain(cells)).style(style)
    };
    let widths = columns.iter().map(|column| Constraint::Length(column.width()));
    let widths = std::iter::once(Constraint::Length(name)).chain(widths);
    let table = Table::new(shown.map(row).collect::<Vec<_>>(), widths);
    let table = table.header(header(view, &columns, total)).column_spacing(1);
    frame.render_widget(table, area);
    if total == 0 {
        let empty = if view.filter.is_empty() { "no ports" } else { "no port matches the filter" };
        let below = Rect { y: area.y + 1, height: area.height.min(1), ..area };
        frame.render_widget(Span::raw(if view.picture.is_some() { empty } else { "" }), below);
    }
    view.first = first;
}

/// Returns the name, with a mark while the port is captured.
fn name_of(port: &PortBody, view: &View) -> String {
    let mark = if view.captured.contains(&port.name) { "● " } else { "" };
    format!("{mark}{}", port.name)
}

fn cell(column: Column, port: &PortBody, view: &View) -> Cell<'static> {
    let line = Line::styled(column.text(port, view), column.style(port, view));
    Cell::from(if column.is_number() { line.right_aligned() } else { line })
}

/// Returns the header, with an arrow at the column by which ports are sorted.
fn header(view: &View, columns: &[Column], total: usize) -> Row<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let sorted = bold.add_modifier(Modifier::UNDERLINED);
    let style = |order: Option<Order>| if order == Some(view.order) { sorted } else { bold };
    let name = Line::styled(format!("PORT {total}"), style(Some(Order::Name)));
    let cells = columns.iter().map(|column| {
        let title = if *column == Column::Trend { view.span() } else { column.title().to_owned() };
        let line = Line::styled(title, style(column.order()));
        if column.is_number() { line.right_aligned() } else { line }
    });
    Row::new(std::iter::once(name).chain(cells).map(Cell::from))
}

/// Returns the width of names, and the columns that fit beside them.
fn columns(ports: &[&PortBody], width: u16) -> (u16, Vec<Column>) {
    let longest = ports.iter().map(|port| port.name.chars().count()).max().unwrap_or_default();
    let [narrowest, widest] = NAME;
    let name = u16::try_from(longest + 2).unwrap_or(widest).clamp(narrowest, widest);
    let mut left = width.saturating_sub(name.min(width.saturating_sub(26)).max(narrowest));
    let fits = |column: &Column| {
        let rest = left.checked_sub(column.width() + 1);
        left = rest.unwrap_or(left);
        rest.is_some()
    };
    let columns: Vec<_> = COLUMNS.into_iter().take_while(fits).collect();
    let used: u16 = columns.iter().map(|column| column.width() + 1).sum();
    (name.min(width.saturating_sub(used)), columns)
}
