//! Waits for traffic that a person starts, and measures it by the daemon's counters.

use super::document::Measurement;
use super::place::Place;
use super::progress::Progress;
use super::script::{End, Sight};
use crate::commands::anew::Tap;
use crate::output::tell;
use ::traffic::arguments::{self, Invocation};
use api::body::{CountersBody, VmmqLoadBody};
use api::client::ClientError;
use std::time::{Duration, Instant};

/// Bytes of NTttcp's megabyte.
pub(super) const MEGABYTE: f64 = 1_048_576.0;
/// Time between the start of traffic and that of a measurement: TCP's windows open.
const RUN_IN: Duration = Duration::from_secs(2);
/// Time between two readings while waiting.
const EVERY: Duration = Duration::from_secs(1);
/// Minutes between two measurements from which on a comparison says so.
const LONG_APART_MIN: u64 = 10;
/// How busy a worker is that limits throughput, in percent.
const SATURATED: f64 = 90.0;

/// The counters at one moment.
pub(super) struct Reading {
    /// Those of the vNIC's port.
    pub(super) counters: CountersBody,
    /// Those of workers and queues, with the time.
    pub(super) load: VmmqLoadBody,
}

impl Reading {
    /// Reads the counters.
    pub(super) fn take(place: &Place) -> Result<Reading, ClientError> {
        Ok(Reading { counters: place.counters()?, load: place.client.vmmq_load()? })
    }

    /// Returns what happened at the port between an earlier reading and this one.
    pub(super) fn since(&self, earlier: &Reading, port: &str) -> Measurement {
        let seconds = (self.load.at_ns - earlier.load.at_ns) as f64 / 1e9;
        let (now, then) = (&self.counters, &earlier.counters);
        let count = |of: fn(&CountersBody) -> u64| of(now).saturating_sub(of(then)) as f64;
        let bytes = count(|it| it.egress_bytes);
        let arrived = count(|it| it.rsc.arrived_coalesced_segments)
            - count(|it| it.rsc.arrived_coalesced_trains);
        let joined = count(|it| it.rsc.coalesced_packets);
        let segments = count(|it| it.egress_frames) + joined + arrived;
        let figures = lab::delivered(now, then);
        let figure = |key: &str| figures.get(key).copied();
        let workers = self.load.workers.iter().zip(&earlier.load.workers);
        let busy: Vec<f64> =
            workers.map(|(now, then)| now.busy_ns.saturating_sub(then.busy_ns) as f64).collect();
        let queues = self.load.queues.iter().filter(|queue| queue.port == port);
        let used = queues.clone().filter(|queue| {
            let same = |then: &&api::body::VmmqQueueBody| {
                (&then.port, then.queue) == (&queue.port, queue.queue)
            };
            let then = earlier.load.queues.iter().find(same);
            then.is_none_or(|then| then.frames < queue.frames)
        });
        Measurement {
            at_s: now_s(),
            seconds,
            gigabits_per_s: ratio(bytes * 8.0 / 1e9, seconds).unwrap_or_default(),
            megabytes_per_s: ratio(bytes / MEGABYTE, seconds).unwrap_or_default(),
            segments_per_frame: figure("segments_per_train"),
            bytes_per_segment: ratio(bytes, segments),
            arrived_coalesced_percent: 100.0
                * figure("arrived_coalesced_of_frames").unwrap_or_default(),
            dropped: figure("lost_frames").unwrap_or_default(),
            workers_busy_percent: busy.iter().map(|ns| ns / seconds / 1e7).collect(),
            worker_ns_per_byte: ratio(busy.iter().sum(), bytes),
            queues: queues.count(),
            queues_used: used.count(),
            moves: self.load.moves.saturating_sub(earlier.load.moves),
            ..Measurement::default()
        }
    }
}

/// Returns the seconds since 1970.
pub(super) fn now_s() -> u64 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// Returns a hint about two measurements that are compared, if the host may have been busy with
/// something else at one of them; otherwise nothing.
pub(super) fn apart(one: &Measurement, other: &Measurement) -> String {
    let minutes = one.at_s.abs_diff(other.at_s) / 60;
    if minutes < LONG_APART_MIN {
        return String::new();
    }
    format!("they were measured {minutes} minutes apart: `--restart` measures both anew")
}

fn ratio(of: f64, to: f64) -> Option<f64> {
    (to > 0.0).then(|| of / to)
}

impl Measurement {
    /// Returns the figures in a line.
    pub(super) fn words(&self) -> String {
        let mut words =
            vec![format!("{:.2} Gb/s, {:.0} MB/s", self.gigabits_per_s, self.megabytes_per_s)];
        if let Some(segments) = self.segments_per_frame {
            words.push(format!("{segments:.2} segments per frame"));
        }
        if self.arrived_coalesced_percent > 0.0 {
            words.push(format!(
                "{:.1} % of the frames arrived already coalesced",
                self.arrived_coalesced_percent
            ));
        }
        words.push(format!("{:.0} dropped", self.dropped));
        let busy = self.workers_busy_percent.iter().enumerate();
        let busy: Vec<_> = busy.map(|(worker, busy)| format!("{worker}: {busy:.0} %")).collect();
        if !busy.is_empty() {
            words.push(format!("workers busy {}", busy.join(", ")));
        }
        format!("{}; {}", words.join(", "), self.bottleneck())
    }

    /// Says what limits the throughput, as far as the switch can see.
    fn bottleneck(&self) -> String {
        let busy = self.workers_busy_percent.iter().copied().enumerate();
        match busy.max_by(|one, other| one.1.total_cmp(&other.1)) {
            None => "agents measured: see their report for what limits the throughput".to_owned(),
            Some((worker, busy)) if busy >= SATURATED => {
                format!("worker {worker} of the switch limits the throughput")
            }
            Some(_) => {
                "not the switch but sender, receiver or network limits the throughput".to_owned()
            }
        }
    }
}

/// Connections and options of an NTttcp line.
pub(super) struct Ntttcp {
    /// The options between the mapping and the time: `-l 64k -a 6`.
    pub(super) options: &'static str,
    /// Connections.
    pub(super) connections: u16,
}

impl Ntttcp {
    /// Returns what to type at one end: `-R` or `-S`.
    fn words(&self, side: &str, to: &str, seconds: u64) -> String {
        let Ntttcp { options, connections } = self;
        format!("ntttcp {side} -M {connections},*,{to} {options} -t {seconds}")
    }

    /// Returns the first and the last of the receiver's TCP ports that the line uses.
    pub(super) fn ports(&self) -> [u16; 2] {
        let words = self.words("-R", "127.0.0.1", 1);
        let words = words.split(' ').skip(1).map(str::to_owned);
        match arguments::parse(words) {
            Ok(Invocation::Run(request)) => request.plan.ports(),
            _ => [0, 0],
        }
    }
}

/// The line of the RSC validation guide.
pub(super) const ONE: Ntttcp = Ntttcp { options: "-l 64k -a 6", connections: 1 };
/// As many connections as the d.VMMQ paper and the Linux page use.
pub(super) const SIXTEEN: Ntttcp = Ntttcp { options: "-l 64k -p 20001", connections: 16 };

/// Waits until there is traffic toward the vNIC, lets it run in, and measures it.
///
/// # Errors
/// It was interrupted, or the daemon does not answer. `Err` of the inner result is what to show
/// if no traffic came, or none was left at the end.
pub(super) fn measure(
    place: &Place,
    (name, label): (&str, &str),
    line: &Ntttcp,
) -> Result<Result<Measurement, Sight>, End> {
    if let Err(rate) = wait(place, line)? {
        return Ok(Err(silent(&place.port, rate, place.traffic_timeout, line)));
    }
    place.interrupt.pass(RUN_IN)?;
    tell(&format!("    measuring for {} s", place.length.as_secs()));
    let before = Reading::take(place)?;
    place.interrupt.pass(place.length)?;
    let measured = Reading::take(place)?.since(&before, &place.port);
    let measured = Measurement { name: name.to_owned(), label: label.to_owned(), ..measured };
    if measured.megabytes_per_s < 1.0 {
        return Ok(Err(Sight::problem(
            measured.words(),
            format!("traffic above 1 MB/s for {} s", place.length.as_secs()),
            "let the sender run longer (-t), or measure for a shorter time with --seconds",
        )
        .stop()));
    }
    Ok(Ok(measured))
}

/// Returns what is shown when no traffic came in time. What a firewall drops looks the same.
fn silent(port: &str, rate: f64, waited: Duration, line: &Ntttcp) -> Sight {
    let [first, last] = line.ports();
    Sight::problem(
        format!("{rate:.1} MB/s toward {port} after {} s", waited.as_secs()),
        "traffic above 1 MB/s",
        format!(
            "start receiver and sender as shown; if the sender is not answered, open the receiver's firewall: `nft add rule inet \
             filter input tcp dport {first}-{last} accept`, with your table and chain; if it is, the traffic does not pass this \
             port: --port names another"
        ),
    )
    .stop()
}

/// Waits until there is traffic above 1 MB/s toward the vNIC. Prints what to type unless there is
/// some already. The error is the rate when the time is over.
fn wait(place: &Place, line: &Ntttcp) -> Result<Result<(), f64>, End> {
    let begin = Instant::now();
    let (mut last, mut at) = (place.counters()?.egress_bytes, Instant::now());
    let (mut is_told, mut progress) = (false, Progress::default());
    loop {
        place.interrupt.pass(EVERY)?;
        let (bytes, now) = (place.counters()?.egress_bytes, Instant::now());
        let rate = bytes.saturating_sub(last) as f64 / MEGABYTE / (now - at).as_secs_f64();
        (last, at) = (bytes, now);
        if rate > 1.0 {
            return Ok(Ok(()));
        }
        if !is_told {
            lines(place, line).iter().for_each(|line| tell(line));
            is_told = true;
        }
        if begin.elapsed() > place.traffic_timeout {
            return Ok(Err(rate));
        }
        let left = place.traffic_timeout.saturating_sub(begin.elapsed()).as_secs();
        let what = format!("waiting for traffic toward {}", place.port);
        progress.show(&what, &format!("{rate:.1} MB/s, {left} s left"));
    }
}

/// Returns what to type at both ends.
fn lines(place: &Place, line: &Ntttcp) -> Vec<String> {
    let tap = place.vnic().ok().and_then(|port| Tap::of(&port));
    let own = || place.to.map(|to| to.to_string()).or_else(|| tap.as_ref()?.ipv4());
    typed(&place.port, own(), tap.as_ref(), line, place.length)
}

/// Returns the lines for a receiver at this address, in the namespace of this TAP.
fn typed(
    port: &str,
    to: Option<String>,
    tap: Option<&Tap>,
    line: &Ntttcp,
    length: Duration,
) -> Vec<String> {
    let unknown = to.is_none().then(|| match tap {
        Some(tap) => {
            format!("    ADDRESS: {} has none yet; add one, or name it with --to", tap.name())
        }
        None => "    ADDRESS: the guest's; --to puts it into the lines".to_owned(),
    });
    let to = to.unwrap_or_else(|| "ADDRESS".to_owned());
    let seconds = ((length + RUN_IN).as_secs() + 20).max(30);
    let prefix = tap.map(Tap::prefix).unwrap_or_default();
    let connections = line.connections;
    let [receiver, sender] = ["-R", "-S"].map(|side| line.words(side, &to, seconds));
    let lines = [
        format!("    receiver, behind {port}: {prefix}millrace {receiver}"),
        format!("    sender, elsewhere:  millrace {sender}"),
        format!(
            "    (or NTttcp.exe with the same words, or `{prefix}iperf3 -s` and `iperf3 -c {to} -P {connections} -t {seconds}`)"
        ),
    ];
    lines.into_iter().chain(unknown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::body::{VmmqQueueBody, VmmqWorkerBody};

    fn reading(seconds: u64, counters: CountersBody, frames: [u64; 2]) -> Reading {
        let queue = |(queue, frames)| VmmqQueueBody {
            port: "vm1".into(),
            queue,
            worker: 0,
            dynamic: false,
            busy_ns: 0,
            frames,
            bytes: 0,
        };
        let load = VmmqLoadBody {
            at_ns: seconds * 1_000_000_000,
            moves: 0,
            workers: vec![VmmqWorkerBody { core: None, node: 0, busy_ns: seconds * 950_000_000 }],
            queues: frames.into_iter().enumerate().map(queue).collect(),
            tables: Vec::new(),
        };
        Reading { counters, load }
    }

    /// Names that no package installs were shown: `ntttcp`.
    #[test]
    fn the_lines_can_be_typed_as_they_are() {
        let lines = typed("c1", Some("10.0.0.3".into()), None, &SIXTEEN, Duration::from_secs(10));
        assert_eq!(
            lines[1],
            "    sender, elsewhere:  millrace ntttcp -S -M 16,*,10.0.0.3 -l 64k -p 20001 -t 32"
        );
        assert!(lines[0].contains("c1: millrace ntttcp -R -M 16,*,10.0.0.3"), "{lines:?}");
        assert_eq!(lines.len(), 3);
        let unknown = typed("vm1", None, None, &ONE, Duration::ZERO);
        assert!(unknown[3].contains("--to"), "{unknown:?}");
    }

    /// A wait ended without a word about the firewall, which the document opens first.
    #[test]
    fn a_wait_without_traffic_names_the_ports_to_open() {
        for (line, ports) in [(ONE, "dport 5000-5001 "), (SIXTEEN, "dport 20000-20016 ")] {
            let sight = silent("vm1", 0.0, Duration::from_secs(600), &line);
            assert!(sight.remedy.contains(ports), "{}", sight.remedy);
            assert!(sight.stops && sight.seen == "0.0 MB/s toward vm1 after 600 s", "{sight:?}");
        }
    }

    /// A measurement on a busy machine was compared with one of a later run on an idle one.
    #[test]
    fn measurements_of_different_runs_are_not_compared_silently() {
        let at = |at_s| Measurement { at_s, ..Measurement::default() };
        assert_eq!(apart(&at(1000), &at(1030)), "");
        assert!(apart(&at(1000), &at(4600)).contains("60 minutes apart"));
    }

    #[test]
    fn counters_become_figures_per_second_per_frame_and_per_byte() {
        let mut counters = CountersBody {
            egress_bytes: 20 << 20,
            egress_frames: 1000,
            dropped: 3,
            ..CountersBody::default()
        };
        counters.rsc.coalesced_packets = 13_000;
        let begin = reading(0, CountersBody::default(), [0, 7]);
        let measured = reading(2, counters, [9, 7]).since(&begin, "vm1");
        assert_eq!((measured.megabytes_per_s, measured.segments_per_frame), (10.0, Some(14.0)));
        assert_eq!((measured.queues, measured.queues_used, measured.dropped), (2, 1, 3.0));
        assert_eq!(measured.bytes_per_segment, Some(f64::from(20 << 20) / 14_000.0));
        assert!(measured.words().contains("worker 0 of the switch limits"), "{}", measured.words());
    }

    #[test]
    fn trains_that_arrived_count_with_all_their_segments() {
        let mut counters =
            CountersBody { egress_bytes: 10 << 20, egress_frames: 200, ..CountersBody::default() };
        counters.rsc.arrived_coalesced_trains = 100;
        counters.rsc.arrived_coalesced_segments = 4000;
        let begin = reading(0, CountersBody::default(), [0, 0]);
        let measured = reading(1, counters, [1, 1]).since(&begin, "vm1");
        assert_eq!(measured.arrived_coalesced_percent, 50.0);
        assert_eq!(measured.segments_per_frame, Some(1.0));
        assert_eq!(measured.bytes_per_segment, Some(f64::from(10 << 20) / 4100.0));
    }
}
