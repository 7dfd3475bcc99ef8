//! Owns the terminal: takes it, draws on it, and gives it back as it was, also after a panic and a
//! signal.

use super::captures::Captures;
use super::draw;
use super::feed::{Feed, News, Request};
use super::keys::{Wish, press};
use super::view::{Part, View};
use crate::output::{self, Failure, Outcome};
use api::body::TraceRequest;
use api::client::Client;
use problem::Problem;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often a signal, and the age of the picture, are looked at.
const TICK: Duration = Duration::from_millis(250);

/// The terminal, which is given back on drop. A panic gives it back too: `try_init` installs a hook
/// that does so before the message is printed.
struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    fn take() -> Result<Screen, Failure> {
        match ratatui::try_init() {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                let _ = ratatui::try_restore();
                Err(broken(&error))
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.terminal.show_cursor();
        // A terminal that is gone needs no restoring.
        let _ = ratatui::try_restore();
    }
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::Failed(
        Problem::new("the terminal cannot be used")
            .seen(error)
            .wanted("a terminal that can be switched to single keys")
            .remedy("`millrace top | cat` prints the same figures without one"),
    )
}

/// Shows the switch until a key or a signal ends it.
pub(super) fn run(client: Client, socket: PathBuf, interval: u16) -> Outcome {
    let every = Duration::from_secs(interval.into());
    let stop = Arc::new(AtomicBool::new(false));
    signals::set_at_termination(stop.clone()).map_err(|error| broken(&error))?;
    let (news, told) = channel();
    let (requests, asked) = channel();
    let feed = Feed::new(client, every);
    let captures = Captures::new(socket, news.clone());
    let mut show = Show {
        view: View::new(std::env::var_os("NO_COLOR").is_none_or(|it| it.is_empty()), every),
        captures,
        requests,
        stop,
    };
    let mut screen = Screen::take()?;
    let reports = news.clone();
    std::thread::spawn(move || feed.run(&asked, &reports));
    std::thread::spawn(move || read_input(&news));
    let outcome = show.run(&mut screen.terminal, &told);
    drop(screen);
    for line in show.captures.end() {
        output::tell(&line);
    }
    outcome.map_err(|error| broken(&error))?;
    Ok(ExitCode::SUCCESS)
}

fn read_input(news: &Sender<News>) {
    while let Ok(event) = event::read() {
        if news.send(News::Input(event)).is_err() {
            return;
        }
    }
    let _ = news.send(News::InputEnded);
}

struct Show {
    view: View,
    captures: Captures,
    requests: Sender<Request>,
    /// Set by a signal that ends the program.
    stop: Arc<AtomicBool>,
}

impl Show {
    fn run(
        &mut self,
        terminal: &mut DefaultTerminal,
        told: &Receiver<News>,
    ) -> std::io::Result<()> {
        loop {
            terminal.draw(|frame| draw::draw(&mut self.view, frame))?;
            let names = self.view.without_past();
            if !names.is_empty() {
                // The feed ends only with the screen.
                let _ = self.requests.send(Request::Past(names));
            }
            let first = told.recv_timeout(TICK);
            if self.stop.load(Relaxed) {
                return Ok(());
            }
            let first = match first {
                Ok(news) => news,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // Everything that has arrived is drawn at once.
            for news in std::iter::once(first).chain(told.try_iter()) {
                if !self.hear(news) {
                    return Ok(());
                }
            }
        }
    }

    /// Takes in what a thread reports. Returns whether to go on.
    fn hear(&mut self, news: News) -> bool {
        match news {
            News::InputEnded => return false,
            News::Input(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                let wish = press(&mut self.view, key);
                return self.fulfil(wish);
            }
            news => self.view.hear(news),
        }
        true
    }

    /// Does what a key asks for. Returns whether to go on.
    fn fulfil(&mut self, wish: Wish) -> bool {
        let request = match wish {
            Wish::Quit => return false,
            Wish::Nothing => return true,
            Wish::Capture(port) => {
                self.view.said = self.captures.toggle(&port);
                return true;
            }
            Wish::Watch(port) => {
                self.view.said.clear();
                Request::Watch(port)
            }
            Wish::Trace { port, frame } => {
                debug_assert_eq!(self.view.part, Part::Frame);
                let frames = vec![frame];
                Request::Trace(TraceRequest { port, frames, burst: false })
            }
        };
        self.requests.send(request).is_ok()
    }
}

#[cfg(test)]
#[path = "../../../tests/terminal/pty.rs"]
#[allow(dead_code, reason = "only one of its users needs all of it")]
mod pty;

#[cfg(test)]
mod tests {
    use super::pty::Pty;
    use super::*;
    use std::process::Command;

    /// Set for the program that panics.
    const PANICS: &str = "MILLRACE_TEST_PANICS";

    /// Does nothing unless [`a_panic_gives_the_terminal_back`] runs it.
    #[test]
    fn panics_with_the_terminal_taken() {
        if std::env::var_os(PANICS).is_some() {
            // Forgotten, so that only the hook can give it back.
            std::mem::forget(Screen::take().unwrap_or_else(|_| unreachable!()));
            panic!("as was asked for");
        }
    }

    #[test]
    fn a_panic_gives_the_terminal_back() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = "commands::top::screen::tests::panics_with_the_terminal_taken";
        command.args(["--exact", name, "--nocapture"]);
        command.env(PANICS, "1").env("RUST_BACKTRACE", "0");
        let mut terminal = Pty::start(&command);
        assert!(!terminal.ends().success());
        terminal.is_as_before();
        terminal.shows("as was asked for");
        let written = terminal.written();
        let place = |text: &str| written.find(text).unwrap();
        assert!(place("\x1b[?1049h") < place("\x1b[?1049l"), "{written:?}");
        assert!(place("\x1b[?1049l") < place("as was asked for"), "{written:?}");
    }
}
