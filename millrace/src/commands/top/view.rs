//! What the screen shows, without the terminal: the last picture, the chosen port, order and
//! filter, and which part is open.

use super::feed::{News, Picture};
use super::history::History;
use crate::commands::{port_show, trace};
use api::body::PortBody;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The part of the screen that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All ports.
    List,
    /// All ports, while a filter is typed.
    Filter,
    /// Details of the chosen port.
    Port,
    /// The frame of a trace is typed.
    Frame,
    /// The answer of a trace.
    Trace,
}

/// The column by which ports are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Traffic,
    Name,
    State,
    FromPort,
    ToPort,
    Drops,
    Wait,
}

impl Order {
    const ALL: [Order; 7] = [
        Order::Traffic,
        Order::Name,
        Order::State,
        Order::FromPort,
        Order::ToPort,
        Order::Drops,
        Order::Wait,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Order::Traffic => "traffic",
            Order::Name => "name",
            Order::State => "state",
            Order::FromPort => "from port",
            Order::ToPort => "to port",
            Order::Drops => "drops",
            Order::Wait => "wait",
        }
    }

    fn step(self, by: usize) -> Order {
        let place = Order::ALL.iter().position(|it| *it == self).unwrap_or_default();
        Order::ALL.iter().cycle().nth(place + by).copied().unwrap_or(self)
    }

    pub(super) fn next(self) -> Order {
        self.step(1)
    }

    pub(super) fn previous(self) -> Order {
        self.step(Order::ALL.len() - 1)
    }

    /// Compares two ports, most interesting first. Equal ones are in the order of their names.
    fn compare(self, a: &PortBody, b: &PortBody) -> Ordering {
        let number = |port: &PortBody| match self {
            Order::Traffic => port.rates.ingress_bits_per_s + port.rates.egress_bits_per_s,
            Order::Name => 0,
            Order::State => port.state as u64,
            Order::FromPort => port.rates.ingress_bits_per_s,
            Order::ToPort => port.rates.egress_bits_per_s,
            Order::Drops => port.rates.drops_per_s,
            Order::Wait => mean_wait(port).unwrap_or_default(),
        };
        number(b).cmp(&number(a)).then_with(|| natural(&a.name).cmp(&natural(&b.name)))
    }
}

/// Returns the longest mean wait of the port's queues in microseconds, where it is known.
pub(super) fn mean_wait(port: &PortBody) -> Option<u64> {
    port.queues.iter().filter_map(crate::commands::status::mean_wait).max()
}

/// Returns a name with the number at its end apart, so that vm2 comes before vm10.
fn natural(name: &str) -> (&str, u64, &str) {
    let letters = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let number = name.get(letters.len()..).unwrap_or_default();
    (letters, number.parse().unwrap_or_default(), number)
}

/// Everything that is drawn.
pub(super) struct View {
    pub(super) picture: Option<Box<Picture>>,
    pub(super) history: History,
    /// Why the daemon does not answer now.
    pub(super) lost: Option<String>,
    pub(super) part: Part,
    pub(super) order: Order,
    pub(super) reversed: bool,
    pub(super) filter: String,
    /// The chosen port. `None` means the first of the list, whichever that is.
    chosen: Option<String>,
    /// The first port of the list that is drawn.
    pub(super) first: usize,
    /// Ports that fit on the screen, as last drawn.
    pub(super) page: usize,
    /// The frame that is typed for a trace.
    pub(super) frame: String,
    /// Traces without an answer yet. Answers come in the order of the questions.
    pub(super) asked: usize,
    /// Whether nothing was typed since the last of them was asked for.
    pub(super) waits: bool,
    /// The answer of the last trace.
    pub(super) traced: String,
    /// The first line of a text that is drawn.
    pub(super) scroll: usize,
    /// A line above the keys: what was last done.
    pub(super) said: String,
    /// Ports that this program captures.
    pub(super) captured: BTreeSet<String>,
    /// Whether colours are used.
    pub(super) colours: bool,
    /// When the daemon last answered.
    heard: Instant,
    /// Time between pictures.
    every: Duration,
}

impl View {
    pub(super) fn new(colours: bool, every: Duration) -> View {
        View {
            picture: None,
            history: History::default(),
            lost: None,
            part: Part::List,
            order: Order::Traffic,
            reversed: false,
            filter: String::new(),
            chosen: None,
            first: 0,
            page: 1,
            frame: String::new(),
            asked: 0,
            waits: false,
            traced: String::new(),
            scroll: 0,
            said: String::new(),
            captured: BTreeSet::new(),
            colours,
            heard: Instant::now(),
            every,
        }
    }

    /// Takes in what a thread reports.
    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Picture(picture) => self.see(picture),
            News::Lost(why) => self.lost = Some(why),
            News::Traced(answer) => {
                self.asked = self.asked.saturating_sub(1);
                // Who types something by now would go on with letters that are commands.
                if !self.waits || self.asked > 0 {
                    return;
                }
                self.waits = false;
                self.traced = answer.map_or_else(|problem| problem, |body| trace::text(&body));
                (self.part, self.scroll) = (Part::Trace, 0);
                self.said.clear();
            }
            News::Past { port, rates } => self.history.put_before(&port, &rates),
            News::Capture { port, runs, text } => {
                self.said = text;
                if runs {
                    self.captured.insert(port)
                } else {
                    self.captured.remove(&port)
                };
            }
            News::Input(_) | News::InputEnded => {}
        }
    }

    fn see(&mut self, picture: Box<Picture>) {
        let same = |old: &Picture| old.switch.uptime_s == picture.switch.uptime_s;
        if !self.picture.as_deref().is_some_and(same) {
            self.history.add(&picture.ports);
        }
        if self.lost.take().is_some() {
            self.said = "the daemon answers again".to_owned();
        }
        self.heard = Instant::now();
        self.picture = Some(picture);
    }

    /// Returns why the figures are not of now.
    pub(super) fn stale(&self) -> Option<String> {
        let since = self.heard.elapsed();
        if let Some(why) = &self.lost {
            return Some(format!("{why}; trying again ({} s)", since.as_secs()));
        }
        let late = since > self.every + Duration::from_secs(3);
        late.then(|| format!("the daemon has not answered for {} s", since.as_secs()))
    }

    /// Returns the ports that match the filter, in order.
    pub(super) fn ports(&self) -> Vec<&PortBody> {
        let all = self.picture.iter().flat_map(|picture| &picture.ports);
        let wanted = self.filter.to_lowercase();
        let mut ports: Vec<_> = all.filter(|port| matches(port, &wanted)).collect();
        ports.sort_by(|a, b| {
            let order = self.order.compare(a, b);
            if self.reversed { order.reverse() } else { order }
        });
        ports
    }

    /// Returns the ports on the screen for whose past the daemon was not asked. It is asked once.
    pub(super) fn without_past(&mut self) -> Vec<String> {
        let seen = self.ports().into_iter().skip(self.first).take(self.page);
        let names: Vec<_> = seen.map(|port| port.name.clone()).collect();
        names.into_iter().filter(|name| self.history.asks(name)).collect()
    }

    /// Returns the head of the column with the bars: the time that they cover.
    pub(super) fn span(&self) -> String {
        match self.every.as_secs() {
            1 => "LAST MINUTE".to_owned(),
            seconds if seconds < 60 => format!("LAST {seconds} MIN"),
            seconds => format!("LAST {} H", seconds / 60),
        }
    }

    /// Returns the place of the chosen port among those of the list.
    pub(super) fn place(&self, ports: &[&PortBody]) -> usize {
        let chosen = self.chosen.as_ref();
        chosen.and_then(|name| ports.iter().position(|port| port.name == *name)).unwrap_or_default()
    }

    /// Returns the chosen port. Beyond the list only the one that was chosen there, if it is still
    /// in the switch.
    pub(super) fn port(&self) -> Option<&PortBody> {
        if matches!(self.part, Part::List | Part::Filter) {
            let ports = self.ports();
            return ports.get(self.place(&ports)).copied();
        }
        let all = &self.picture.as_ref()?.ports;
        all.iter().find(|port| Some(&port.name) == self.chosen.as_ref())
    }

    /// Fixes the choice of the port at this place; places beyond an end mean that end.
    pub(super) fn choose(&mut self, place: isize) {
        let ports = self.ports();
        let last = ports.len().saturating_sub(1);
        let place = usize::try_from(place).unwrap_or_default().min(last);
        self.chosen = ports.get(place).map(|port| port.name.clone());
    }

    /// Keeps the present choice while ports change their places.
    pub(super) fn fix(&mut self) {
        self.chosen = self.port().map(|port| port.name.clone());
    }

    /// Moves the choice, or the text that is open.
    pub(super) fn step(&mut self, by: isize) {
        if matches!(self.part, Part::List | Part::Filter) {
            let place = isize::try_from(self.place(&self.ports())).unwrap_or_default();
            self.choose(place.saturating_add(by));
        } else {
            self.scroll = self.scroll.saturating_add_signed(by);
        }
    }

    /// Returns the lines of the text that is open.
    pub(super) fn text(&self) -> String {
        if self.part == Part::Trace {
            return self.traced.clone();
        }
        let Some(port) = self.port() else { return "the port is gone".to_owned() };
        let counters = self.picture.as_ref().and_then(|picture| picture.counters.as_ref());
        match counters.filter(|(name, _)| *name == port.name) {
            Some((_, counters)) => port_show::details(port, counters),
            None => "…".to_owned(),
        }
    }
}

fn matches(port: &PortBody, wanted: &str) -> bool {
    let own = [&port.name, &port.device, &port.vlan, &port.reason].map(String::as_str);
    let macs = [&port.mac, &port.held_mac].into_iter().flatten().map(String::as_str);
    let all = own.into_iter().chain([port.state.name()]).chain(macs);
    wanted.is_empty() || all.into_iter().any(|text| text.to_lowercase().contains(wanted))
}
