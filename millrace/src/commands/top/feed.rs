//! The thread that asks the daemon, so that a slow daemon does not hold up keys.

use super::history;
use super::plain::{busy_since, earlier};
use api::body::{CountersBody, HealthBody, PortBody, SwitchBody, TraceBody, TraceRequest};
use api::client::{Client, ClientError};
use ratatui::crossterm::event::Event;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Everything that the screen shows of the switch at one moment.
pub(super) struct Picture {
    pub(super) switch: SwitchBody,
    pub(super) ports: Vec<PortBody>,
    pub(super) health: HealthBody,
    /// Counters of the port whose details are shown.
    pub(super) counters: Option<(String, CountersBody)>,
    /// How busy each worker was since the picture before, in percent.
    pub(super) busy: Vec<u64>,
}

/// What threads report to the screen.
pub(super) enum News {
    Picture(Box<Picture>),
    /// The daemon does not answer, and why.
    Lost(String),
    Traced(Result<TraceBody, String>),
    /// The rates of a port until now, one for each interval, oldest first.
    Past {
        port: String,
        rates: Vec<u64>,
    },
    /// A capture of this port has begun or ended, in words.
    Capture {
        port: String,
        runs: bool,
        text: String,
    },
    Input(Event),
    /// The terminal is gone.
    InputEnded,
}

/// What the screen asks for.
pub(super) enum Request {
    /// Counters of this port with each picture.
    Watch(Option<String>),
    Trace(TraceRequest),
    /// What the daemon knows of the past of these ports.
    Past(Vec<String>),
}

/// Asks the daemon.
pub(super) struct Feed {
    pub(super) client: Client,
    pub(super) every: Duration,
    watched: Option<String>,
    /// The switch in the picture before, and when that was.
    before: Option<(SwitchBody, Instant)>,
}

impl Feed {
    pub(super) fn new(client: Client, every: Duration) -> Feed {
        Feed { client, every, watched: None, before: None }
    }

    /// Answers requests and takes a picture each interval, until the screen is gone.
    pub(super) fn run(mut self, requests: &Receiver<Request>, news: &Sender<News>) {
        let mut due = Instant::now();
        loop {
            let told = match requests.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Request::Watch(port)) => {
                    self.watched = port;
                    due = Instant::now();
                    continue;
                }
                Ok(Request::Trace(request)) => News::Traced(
                    self.client.trace(&request).map_err(|error| error.problem().to_string()),
                ),
                Ok(Request::Past(ports)) => {
                    let past = ports.into_iter().filter_map(|port| self.past(port));
                    if past.map(|told| news.send(told)).any(|sent| sent.is_err()) {
                        return;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let picture = self.picture();
                    due = Instant::now() + self.every;
                    picture.map_or_else(
                        |error| News::Lost(error.problem().error.clone()),
                        |picture| News::Picture(Box::new(picture)),
                    )
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if news.send(told).is_err() {
                return;
            }
        }
    }

    /// Returns the past of a port, unless the port is gone.
    fn past(&self, port: String) -> Option<News> {
        let range = format!("range_s={}", history::range_s(self.every));
        let body = self.client.history(Some(&port), &range).ok()?;
        Some(News::Past { rates: history::rates(&body, self.every), port })
    }

    fn picture(&mut self) -> Result<Picture, ClientError> {
        let switch = self.client.switch()?;
        let at = Instant::now();
        let (ports, health) = (self.client.ports()?, self.client.health()?);
        let watched = self.watched.clone().filter(|name| ports.iter().any(|it| it.name == *name));
        let counters = match watched {
            Some(name) => Some((name.clone(), self.client.counters(&name)?)),
            None => None,
        };
        let busy = match self.before.replace((switch.clone(), at)) {
            Some((before, then)) => busy(&before, &switch, at - then),
            None => Vec::new(),
        };
        Ok(Picture { switch, ports, health, counters, busy })
    }
}

fn busy(before: &SwitchBody, now: &SwitchBody, elapsed: Duration) -> Vec<u64> {
    let percent = |worker| busy_since(earlier(&before.workers, worker), worker, elapsed);
    now.workers.iter().map(percent).collect()
}
