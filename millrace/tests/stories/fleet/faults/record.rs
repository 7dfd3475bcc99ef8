//! Records the history of claimed ports, and checks that no two hosts carry one address.
//!
//! A switch carries a port only while its TAP device exists. Each claimed port has a device of its
//! own name on whichever host carries it. The kernel reports to one socket all devices that come
//! and go on all hosts, in order. So the history has every interval, however short. It does not
//! depend on clocks, on polling, or on what switches and agents report. (A switch's own events have
//! whole seconds, and a recurring event replaces the one before.)

use super::sites::FIRST;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A device appeared or disappeared on a host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Event {
    host: usize,
    port: String,
    is_there: bool,
}

/// A host carried a port from one place in the history to another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interval {
    host: usize,
    from: usize,
    /// End of the interval; `None` while the host still carries the port.
    until: Option<usize>,
}

/// All intervals, by port.
#[derive(Debug, Default)]
pub(super) struct History {
    length: usize,
    ports: BTreeMap<String, Vec<Interval>>,
}

impl History {
    fn add(&mut self, event: Event) {
        let place = self.length;
        self.length += 1;
        let intervals = self.ports.entry(event.port).or_default();
        let open = intervals.iter_mut().find(|it| it.host == event.host && it.until.is_none());
        match (open, event.is_there) {
            (Some(open), false) => open.until = Some(place),
            (None, true) => intervals.push(Interval { host: event.host, from: place, until: None }),
            // A message about a known device is only a change.
            (Some(_), true) | (None, false) => {}
        }
    }

    /// Returns each pair of hosts that carried one port at the same time, in words.
    pub(super) fn double_owners(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (port, intervals) in &self.ports {
            // Intervals are sorted by their beginning, so whatever overlaps one begins before that
            // one ends.
            for (place, one) in intervals.iter().enumerate() {
                let ends = one.until.unwrap_or(usize::MAX);
                let others = intervals.iter().skip(place + 1).take_while(|it| it.from < ends);
                found.extend(others.map(|other| format!("{port}: {one:?} and {other:?}")));
            }
        }
        found
    }

    /// Returns how often a port came to another host than before.
    pub(super) fn moves(&self) -> usize {
        let of = |intervals: &Vec<Interval>| {
            intervals.windows(2).filter(|pair| pair[0].host != pair[1].host).count()
        };
        self.ports.values().map(of).sum()
    }

    /// Returns which ports are on which hosts now.
    pub(super) fn present(&self) -> BTreeSet<(usize, String)> {
        let open = |(port, intervals): (&String, &Vec<Interval>)| {
            let open: Vec<_> = intervals.iter().filter(|it| it.until.is_none()).collect();
            open.into_iter().map(|it| (it.host, port.clone())).collect::<Vec<_>>()
        };
        self.ports.iter().flat_map(open).collect()
    }
}

/// Parses a line of `ip -o monitor link all-nsid` about a claimed port.
fn read(line: &str) -> Option<Event> {
    let (number, rest) = line.split_once("[nsid ")?.1.split_once(']')?;
    let (is_there, rest) = match rest.trim().strip_prefix("Deleted ") {
        Some(rest) => (false, rest),
        None => (true, rest.trim()),
    };
    let name = rest.split(": ").nth(1)?;
    let port = name.strip_prefix(super::CLAIMED)?;
    port.parse::<usize>().ok()?;
    let host = number.parse::<usize>().ok()?.checked_sub(FIRST)?;
    Some(Event { host, port: name.to_owned(), is_there })
}

/// Records the history in the background.
pub(super) struct Recorder {
    monitor: Child,
    history: Arc<Mutex<History>>,
}

impl Recorder {
    /// Starts to record all hosts' devices.
    pub(super) fn start() -> Recorder {
        let mut monitor = Command::new("ip");
        monitor.args(["-o", "-rcvbuf", "67108864", "monitor", "link", "all-nsid"]);
        let mut monitor = monitor.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let history = Arc::new(Mutex::new(History::default()));
        let (lines, writes) = (monitor.stdout.take().unwrap(), Arc::clone(&history));
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                if let Some(event) = read(&line) {
                    writes.lock().unwrap().add(event);
                }
            }
        });
        Recorder { monitor, history }
    }

    pub(super) fn look<T>(&self, look: impl FnOnce(&History) -> T) -> T {
        look(&self.history.lock().unwrap())
    }

    /// Ends the recording. The kernel reports if it had to leave something out.
    pub(super) fn end(mut self) {
        self.monitor.kill().unwrap();
        let mut complaints = String::new();
        self.monitor.stderr.take().unwrap().read_to_string(&mut complaints).unwrap();
        assert_eq!(complaints, "", "the history is not complete");
        self.monitor.wait().unwrap();
    }
}

#[test]
fn lines_of_the_kernel_are_read() {
    let event = |host, port: &str, is_there| Some(Event { host, port: port.to_owned(), is_there });
    let rest = "<BROADCAST,MULTICAST> mtu 1500 qdisc noop state DOWN group default";
    assert_eq!(read(&format!("[nsid 101]7: claimed3: {rest}")), event(1, "claimed3", true));
    assert_eq!(
        read(&format!("[nsid 105]Deleted 7: claimed3: {rest}")),
        event(5, "claimed3", false)
    );
    for other in ["[nsid 101]7: tap0: <UP>", "7: claimed3: <UP>", "[nsid 101]7: claimed: <UP>", ""]
    {
        assert_eq!(read(other), None, "{other}");
    }
}

/// Returns the history of events `HOST+PORT` and `HOST-PORT`.
#[cfg(test)]
fn history(events: &str) -> History {
    let mut history = History::default();
    for event in events.split(' ') {
        let (host, port) = event.split_once(['+', '-']).unwrap();
        let is_there = event.contains('+');
        history.add(Event { host: host.parse().unwrap(), port: port.to_owned(), is_there });
    }
    history
}

#[test]
fn the_checker_finds_each_planted_overlap_and_no_other() {
    for (events, count) in [
        ("0+a 0-a 1+a 1-a 0+a", 0),
        ("0+a 1+b 0-a 1+a 1-b 0+b", 0),
        // A device that changes is no second owner. Neither is one that disappeared twice.
        ("0+a 0+a 0-a 0-a 1+a", 0),
        ("0+a 1+a 0-a", 1),
        ("0+a 1+a 1-a 0-a", 1),
        ("0+a 0-a 1+a 2+a", 1),
        // The first host's interval outlasts the second's.
        ("0+a 1+a 1-a 2+a 2-a 0-a", 2),
        ("0+a 1+a 2+a", 3),
        ("0+a 1+b 1+a 0-a 1-b 0+b 1+b", 2),
    ] {
        let found = history(events).double_owners();
        assert_eq!(found.len(), count, "{events}: {found:?}");
    }
}

#[test]
fn moves_are_counted_and_what_is_present_is_known() {
    let history = history("0+a 0-a 1+a 1-a 1+a 1-a 0+a 2+b");
    assert_eq!(history.moves(), 2);
    assert_eq!(history.present(), BTreeSet::from([(0, "a".to_owned()), (2, "b".to_owned())]));
}
