//! What keys mean, in each part of the screen.

use super::view::{Part, View};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key asks for beyond the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Quit,
    /// The counters of this port, or of none.
    Watch(Option<String>),
    /// What the switch would do with this frame from this port.
    Trace {
        port: String,
        frame: String,
    },
    /// Begin to capture this port, or end its capture.
    Capture(String),
}

/// Keys of the list with their meaning, the most needed first: a narrow screen shows fewer.
pub(super) const LIST: [(&str, &str); 9] = [
    ("q", "quit"),
    ("Enter", "details"),
    ("/", "filter"),
    ("s", "sort"),
    ("r", "reverse"),
    ("t", "trace"),
    ("c", "capture"),
    ("↑↓", "move"),
    ("Esc", "all"),
];
/// Keys of a text.
pub(super) const TEXT: [(&str, &str); 5] =
    [("q", "quit"), ("Esc", "back"), ("↑↓", "scroll"), ("t", "trace"), ("c", "capture")];
/// Keys while something is typed.
pub(super) const LINE: [(&str, &str); 3] =
    [("Enter", "done"), ("Esc", "back"), ("Ctrl-U", "clear")];

/// Carries out a key.
pub(super) fn press(view: &mut View, key: KeyEvent) -> Wish {
    if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
        return Wish::Quit;
    }
    match view.part {
        Part::Filter | Part::Frame => typed(view, key),
        Part::List | Part::Port | Part::Trace => command(view, key),
    }
}

fn command(view: &mut View, key: KeyEvent) -> Wish {
    let page = isize::try_from(view.page.max(1)).unwrap_or(1);
    match key.code {
        KeyCode::Char('q') => return Wish::Quit,
        KeyCode::Up | KeyCode::Char('k') => view.step(-1),
        KeyCode::Down | KeyCode::Char('j') => view.step(1),
        KeyCode::PageUp => view.step(-page),
        KeyCode::PageDown | KeyCode::Char(' ') => view.step(page),
        KeyCode::Home | KeyCode::Char('g') => view.step(isize::MIN),
        KeyCode::End | KeyCode::Char('G') => view.step(isize::MAX),
        KeyCode::Char('t') if view.port().is_some() => {
            view.fix();
            view.part = Part::Frame;
            view.said.clear();
        }
        KeyCode::Char('c') => {
            view.fix();
            if let Some(port) = view.port() {
                return Wish::Capture(port.name.clone());
            }
        }
        _ if view.part == Part::List => return list(view, key),
        KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => return back(view),
        _ => {}
    }
    Wish::Nothing
}

/// Carries out a key that only the list has.
fn list(view: &mut View, key: KeyEvent) -> Wish {
    match key.code {
        KeyCode::Enter | KeyCode::Right => {
            view.fix();
            let port = view.port().map(|port| port.name.clone());
            if port.is_some() {
                (view.part, view.scroll) = (Part::Port, 0);
                return Wish::Watch(port);
            }
        }
        KeyCode::Char('s') => view.order = view.order.next(),
        KeyCode::Char('S') => view.order = view.order.previous(),
        KeyCode::Char('r') => view.reversed = !view.reversed,
        KeyCode::Char('/') => view.part = Part::Filter,
        KeyCode::Esc => {
            view.filter.clear();
            view.said.clear();
        }
        _ => {}
    }
    Wish::Nothing
}

fn back(view: &mut View) -> Wish {
    view.part = Part::List;
    Wish::Watch(None)
}

/// Carries out a key while something is typed.
fn typed(view: &mut View, key: KeyEvent) -> Wish {
    let filters = view.part == Part::Filter;
    let line = if filters { &mut view.filter } else { &mut view.frame };
    if view.waits {
        // The answer would come into the middle of what is typed.
        view.waits = false;
        view.said.clear();
    }
    match key.code {
        KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => line.clear(),
        KeyCode::Char(letter) => line.push(letter),
        KeyCode::Backspace => drop(line.pop()),
        KeyCode::Up if filters => view.step(-1),
        KeyCode::Down if filters => view.step(1),
        KeyCode::Enter if filters => view.part = Part::List,
        KeyCode::Enter if !line.trim().is_empty() => {
            let frame = line.trim().to_owned();
            let Some(port) = view.port().map(|port| port.name.clone()) else { return back(view) };
            view.said = format!("tracing {frame} from {port}");
            (view.asked, view.waits) = (view.asked + 1, true);
            return Wish::Trace { port, frame };
        }
        KeyCode::Esc => {
            line.clear();
            return back(view);
        }
        _ => {}
    }
    Wish::Nothing
}
