//! Captures that the screen began, each in a thread of its own.

use super::feed::News;
use crate::commands::capture;
use api::body::{CaptureStart, CaptureState};
use api::client::{CaptureError, Client};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

/// The captures, by port.
pub(super) struct Captures {
    socket: PathBuf,
    news: Sender<News>,
    running: BTreeMap<String, Running>,
}

struct Running {
    file: PathBuf,
    /// Returns how it ended.
    thread: JoinHandle<String>,
}

impl Captures {
    pub(super) fn new(socket: PathBuf, news: Sender<News>) -> Captures {
        Captures { socket, news, running: BTreeMap::new() }
    }

    /// Begins to capture a port, or ends its capture. Returns what is done.
    pub(super) fn toggle(&mut self, port: &str) -> String {
        self.running.retain(|_, running| !running.thread.is_finished());
        if let Some(running) = self.running.get(port) {
            self.stop(port);
            return format!("ending the capture of {port} in {}", running.file.display());
        }
        let file = free(Path::new(""), port);
        let (socket, news) = (self.socket.clone(), self.news.clone());
        let (name, to) = (port.to_owned(), file.clone());
        let thread = std::thread::spawn(move || {
            let text = carry_out(&socket, &name, &to, &news);
            let _ = news.send(News::Capture { port: name, runs: false, text: text.clone() });
            text
        });
        self.running.insert(port.to_owned(), Running { file, thread });
        format!("capturing {port}")
    }

    /// Asks the daemon in a thread of its own, so that the screen does not wait for it.
    fn stop(&self, port: &str) {
        let (socket, port) = (self.socket.clone(), port.to_owned());
        std::thread::spawn(move || {
            Client::connect(&socket).and_then(|client| client.stop_capture(&port)).map(drop)
        });
    }

    /// Ends all captures. Returns how each ended.
    pub(super) fn end(self) -> Vec<String> {
        let running = self.running.iter().filter(|(_, running)| !running.thread.is_finished());
        running.for_each(|(port, _)| self.stop(port));
        self.running.into_values().filter_map(|running| running.thread.join().ok()).collect()
    }
}

/// Captures until the capture ends. Returns how it ended.
fn carry_out(socket: &Path, port: &str, file: &Path, news: &Sender<News>) -> String {
    let start = CaptureStart { port: port.to_owned(), snaplen: None, count: None, seconds: None };
    let make = || {
        let made = capture::create(file)?;
        let text = format!("capturing {port} to {}; c ends it", file.display());
        let _ = news.send(News::Capture { port: port.to_owned(), runs: true, text });
        Ok(made)
    };
    let ended = Client::connect(socket)
        .map_err(CaptureError::Daemon)
        .and_then(|client| client.run_capture(&start, make));
    match ended {
        Ok(body) if body.state == CaptureState::Failed => {
            format!("the capture of {port} failed: {}", body.reason)
        }
        Ok(body) => capture::text(&body, Some(file)),
        Err(CaptureError::Daemon(error)) => {
            format!("the capture of {port} failed: {}", error.problem().error)
        }
        Err(CaptureError::File(problem)) => format!("{}: {}", problem.error, problem.seen),
        Err(CaptureError::Write(error, _)) => {
            format!("the capture of {port} failed: {}: {error}", file.display())
        }
    }
}

/// Returns a name for the port's capture in a directory that no file has.
fn free(directory: &Path, port: &str) -> PathBuf {
    let name = |number: u32| match number {
        1 => directory.join(format!("{port}.pcapng")),
        _ => directory.join(format!("{port}-{number}.pcapng")),
    };
    let free = (1..).map(name).find(|file| !file.exists());
    free.unwrap_or_else(|| name(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capture_gets_a_file_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(free(directory.path(), "web"), directory.path().join("web.pcapng"));
        std::fs::write(directory.path().join("web.pcapng"), "").unwrap();
        assert_eq!(free(directory.path(), "web"), directory.path().join("web-2.pcapng"));
    }
}
