//! The report of a check, as text and as JSON.

use crate::attachment::Attachment;
use crate::judge::{self, Finding, Hop, Observation, judge};
use crate::plan::{self, Direction};
use problem::Problem;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::IpAddr;

/// Most hosts for which the matrix shows sizes.
const COLUMNS: usize = 16;
/// Most hosts for which the matrix shows one character for each direction. For more there is no
/// matrix.
const NARROW_COLUMNS: usize = 64;
/// Most failing directions that are listed.
const LISTED: usize = 20;

/// A host that was checked.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Checked {
    /// The host's name, for people.
    pub name: String,
    /// The address of its responder.
    pub address: String,
    /// The device that its first probes left by; empty if it is not known.
    pub interface: String,
    /// The MTU of that device; 0 if it is not known.
    pub mtu: u16,
    /// The subnet of its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnet: Option<String>,
    /// Where its address is attached.
    #[serde(skip)]
    pub attachment: Attachment,
}

/// The sample of a check that probed only some pairs.
#[derive(Clone, Debug, Serialize)]
pub struct Sampled {
    /// Number of peers of each host.
    pub peers: usize,
    /// The seed by which pairs were drawn.
    pub seed: u64,
    /// The probability that a fault of a single pair was missed.
    pub missed_one: f64,
    /// The probability that a fault of ten pairs was missed.
    pub missed_ten: f64,
}

/// The report of a check.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The network's name, if several are checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Whether there are no findings.
    pub healthy: bool,
    /// The MTU that every direction has to carry.
    pub wanted: u16,
    /// The sample; absent if every pair was probed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<Sampled>,
    /// The hosts, in the order given.
    pub hosts: Vec<Checked>,
    /// One observation for each direction that was probed.
    pub directions: Vec<Observation>,
    /// The findings, the most important first.
    pub findings: Vec<Finding>,
    /// Hosts that could not be checked.
    pub unchecked: Vec<Problem>,
}

/// The results of a check before they are judged.
#[derive(Clone, Debug)]
pub struct Found {
    /// The network's name, if several are checked.
    pub network: Option<String>,
    /// The MTU that every direction has to carry.
    pub wanted: u16,
    /// Number of peers of each host; `None` for all.
    pub peers: Option<usize>,
    /// The seed by which a sample was drawn.
    pub seed: u64,
    /// Whether a direction that carries nothing is no finding.
    pub may_be_apart: bool,
    /// The hosts.
    pub hosts: Vec<Checked>,
    /// The address at which each was probed.
    pub ips: Vec<IpAddr>,
    /// One for each direction that was probed.
    pub observations: Vec<Observation>,
    /// Problems of hosts that could not be checked.
    pub unchecked: Vec<Problem>,
}

/// The reports of several networks.
#[derive(Clone, Debug, Serialize)]
pub struct Networks {
    /// Whether there are no findings.
    pub healthy: bool,
    /// One report for each network.
    pub networks: Vec<Report>,
    /// The findings of all networks.
    pub findings: Vec<Finding>,
    /// Hosts that could not be checked.
    pub unchecked: Vec<Problem>,
}

impl Networks {
    pub(crate) fn of(networks: Vec<Report>, unchecked: Vec<Problem>) -> Networks {
        let healthy = networks.iter().all(|report| report.healthy) && unchecked.is_empty();
        let findings = networks.iter().flat_map(|report| report.findings.clone()).collect();
        Networks { healthy, networks, findings, unchecked }
    }

    /// Returns the report of the only network, if it is one without a name.
    ///
    /// # Errors
    /// Returns these reports if they are several, or have names.
    pub fn into_only(mut self) -> Result<Report, Box<Networks>> {
        match self.networks.pop() {
            Some(mut report) if self.networks.is_empty() && report.network.is_none() => {
                report.healthy = self.healthy;
                report.unchecked.append(&mut self.unchecked);
                Ok(report)
            }
            last => {
                self.networks.extend(last);
                Err(Box::new(self))
            }
        }
    }

    /// Returns what is wrong in any network, each problem with its network's name.
    pub fn problems(&self) -> Vec<Problem> {
        let of_networks = self.networks.iter().flat_map(Report::problems);
        of_networks.chain(self.unchecked.iter().cloned()).collect()
    }

    /// Returns the reports as text for people.
    pub fn text(&self) -> String {
        let mut text = self.networks.iter().map(Report::text).collect::<Vec<_>>().join("\n");
        for problem in &self.unchecked {
            let _ = writeln!(text, "{problem}");
        }
        text
    }
}

impl Report {
    /// Judges the results.
    pub fn of(mut found: Found) -> Report {
        found.observations.sort_by_key(|it| (it.from, it.to));
        let named = found.hosts.iter().zip(&found.ips);
        let judged = |(it, ip): (&Checked, &IpAddr)| judge::Host {
            name: it.name.clone(),
            ip: *ip,
            prefix: it.attachment.prefix,
            interface: it.attachment.interface.clone(),
            below: it.attachment.below.clone(),
        };
        let judged: Vec<judge::Host> = named.map(judged).collect();
        let is_judged =
            |it: &&Observation| !it.uncertain && (it.carried > 0 || !found.may_be_apart);
        let counted: Vec<Observation> =
            found.observations.iter().filter(is_judged).cloned().collect();
        let mut findings = judge(&judged, &counted, found.wanted);
        findings.iter_mut().for_each(|it| it.network.clone_from(&found.network));
        let unchecked = [found.unchecked, lossy(&judged, &found.observations)].concat();
        let drawn = found.peers.and_then(|peers| plan::sampled_peers(judged.len(), peers));
        let sampled = drawn.map(|peers| Sampled {
            peers,
            seed: found.seed,
            missed_one: plan::missed(judged.len(), peers, 1),
            missed_ten: plan::missed(judged.len(), peers, 10),
        });
        Report {
            network: found.network,
            healthy: findings.is_empty() && unchecked.is_empty(),
            wanted: found.wanted,
            sampled,
            hosts: found.hosts,
            directions: found.observations,
            findings,
            unchecked,
        }
    }

    /// Returns what is wrong, with the network's name if it has one: findings, then what could not
    /// be checked.
    pub fn problems(&self) -> Vec<Problem> {
        let findings = self.findings.iter().map(|finding| &finding.problem);
        let all = findings.chain(&self.unchecked).cloned();
        all.map(|it| match &self.network {
            Some(name) => it.at(name),
            None => it,
        })
        .collect()
    }

    /// Names the network, in its findings too.
    pub(crate) fn of_network(mut self, name: &str) -> Report {
        self.network = Some(name.to_owned());
        self.findings.iter_mut().for_each(|it| it.network.clone_from(&self.network));
        self
    }

    /// Returns the hop that limits each direction that does not carry the MTU.
    pub fn limited(&self) -> BTreeMap<Direction, Hop> {
        let all = self.findings.iter().flat_map(|finding| {
            finding.pairs.iter().map(move |direction| (*direction, finding.hop))
        });
        // Reversed, so that the finding that explains most directions wins.
        all.rev().collect()
    }

    /// Returns the report as text for people.
    pub fn text(&self) -> String {
        let (hosts, directions) = (self.hosts.len(), self.directions.len());
        let network = self.network.as_ref().map_or(String::new(), |name| format!("{name}: "));
        let wanted = self.wanted;
        let mut text = format!("{network}{hosts} hosts, {directions} directions, MTU {wanted}\n");
        if let Some(Sampled { peers, seed, missed_one, missed_ten }) = &self.sampled {
            let _ = writeln!(
                text,
                "sampled: {peers} peers per host (seed {seed}). Faults of a host, a port or a link between groups are never \
                 missed; a fault of a single pair is missed with probability {missed_one:.3}, of ten pairs with {missed_ten:.3}"
            );
        }
        text += &self.matrix();
        text += &self.failing();
        for problem in self.problems() {
            let _ = writeln!(text, "{problem}");
        }
        if self.healthy {
            text += &network;
            text += "nothing found: every direction carries the MTU, and no device sends more\n";
        }
        text
    }

    /// Returns the matrix of what each direction carries: rows send, columns receive.
    fn matrix(&self) -> String {
        let count = self.hosts.len();
        if count > NARROW_COLUMNS {
            return format!("the matrix of {count} hosts is too wide to print: --json has it\n");
        }
        if count > COLUMNS {
            return self.narrow_matrix();
        }
        let mut rows = vec![vec!["from \\ to".to_owned()]];
        rows[0].extend((0..count).map(|to| (to + 1).to_string()));
        for (from, host) in self.hosts.iter().enumerate() {
            let mut row = vec![format!("{} {}", from + 1, host.name)];
            row.extend((0..count).map(|to| self.cell(from, to)));
            rows.push(row);
        }
        aligned(&rows)
    }

    /// Returns the matrix with one character for each direction.
    fn narrow_matrix(&self) -> String {
        let carried: BTreeMap<Direction, u16> =
            self.directions.iter().map(|it| ((it.from, it.to), it.carried)).collect();
        let sizes: BTreeSet<u16> = carried.values().copied().collect();
        let is_less = |size: &u16| (1..self.wanted).contains(size);
        let less: Vec<u16> = sizes.into_iter().filter(is_less).collect();
        let letter = |size: u16| match less.iter().position(|it| *it == size) {
            None if size == 0 => '!',
            None => '.',
            // Sizes beyond the last letter share it.
            Some(place) => char::from(b'a' + u8::try_from(place.min(25)).unwrap_or_default()),
        };
        let cell = |at: Direction| carried.get(&at).map_or('-', |size| letter(*size));
        let count = self.hosts.len();
        let mut text = format!("rows send, columns receive; . carries {}, ! nothing", self.wanted);
        for size in &less {
            let _ = write!(text, ", {} {size}", letter(*size));
        }
        let digits = |digit: &dyn Fn(usize) -> usize| {
            (1..=count).map(|to| digit(to).to_string()).collect::<String>()
        };
        let mut rows = vec![
            vec!["from \\ to".to_owned(), digits(&|to| to / 10)],
            vec![String::new(), digits(&|to| to % 10)],
        ];
        rows.extend(self.hosts.iter().enumerate().map(|(from, host)| {
            let cells = (0..count).map(|to| cell((from, to)));
            vec![format!("{} {}", from + 1, host.name), cells.collect()]
        }));
        format!("{text}\n{}", aligned(&rows))
    }

    /// Returns the directions that do not carry the MTU as text, each with the hop that limits it.
    fn failing(&self) -> String {
        let hops = self.limited();
        let fails: Vec<&Observation> =
            self.directions.iter().filter(|it| it.carried < self.wanted).collect();
        if fails.is_empty() {
            return String::new();
        }
        let name = |host: usize| self.hosts.get(host).map_or("?", |host| &host.name).to_owned();
        let header = ["FROM", "TO", "CARRIES", "WANTED", "HOP"].map(str::to_owned).to_vec();
        let row = |it: &&&Observation| {
            let hop = hops.get(&(it.from, it.to)).map_or("-", |hop| hop.name());
            let sizes = [it.carried, self.wanted].map(|size| size.to_string());
            [vec![name(it.from), name(it.to)], sizes.to_vec(), vec![hop.to_owned()]].concat()
        };
        let rows: Vec<_> =
            std::iter::once(header).chain(fails.iter().take(LISTED).map(|it| row(&it))).collect();
        let mut text = aligned(&rows);
        if let Some(more) = fails.len().checked_sub(LISTED).filter(|more| *more > 0) {
            let _ = writeln!(text, "and {more} more directions: --json has all");
        }
        text
    }

    fn cell(&self, from: usize, to: usize) -> String {
        let own = self.directions.iter().find(|it| (it.from, it.to) == (from, to));
        match own {
            None => "-".to_owned(),
            Some(it) if it.carried == 0 => "none".to_owned(),
            Some(it) => it.carried.to_string(),
        }
    }
}

/// Returns rows with columns of equal width, the first aligned to the left and the others to the
/// right.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let length =
        |row: &Vec<String>, column: usize| row.get(column).map_or(0, |it| it.chars().count());
    let width = |column| rows.iter().map(|row| length(row, column)).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| match column {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// Returns the problem of directions that lose packets of any size, so that none can be blamed on
/// a limit.
fn lossy(hosts: &[judge::Host], observations: &[Observation]) -> Vec<Problem> {
    let lossy = || observations.iter().filter(|it| it.uncertain);
    let name = |host: usize| hosts.get(host).map_or_else(String::new, |host| host.name.clone());
    let first = lossy().next().map(|it| (name(it.from), name(it.to), it.carried));
    let problem = |(from, to, carried): (String, String, u16)| {
        let others = match lossy().count() - 1 {
            0 => String::new(),
            more => format!(" (and {more} more directions)"),
        };
        Problem::new(format!("what the path from {from} to {to} carries is not known{others}"))
            .seen(format!("packets of {carried} bytes, which arrive only now and then"))
            .wanted("packets of a size that arrive each time, or never")
            .remedy("check again when the hosts and links are less busy; `ip -s link` counts drops")
    };
    first.map(problem).into_iter().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a report in which all directions carry the MTU, except those in `less`.
    pub(crate) fn report(hosts: u8, less: &[(usize, usize, u16)]) -> Report {
        let checked = |place: u8| Checked {
            name: format!("host{place}"),
            address: format!("10.0.0.{place}:5910"),
            interface: "eth0".to_owned(),
            mtu: 9000,
            ..Checked::default()
        };
        let observe = |(from, to)| Observation {
            from,
            to,
            interface: "eth0".to_owned(),
            device_mtu: 9000,
            carried: less.iter().find(|it| (it.0, it.1) == (from, to)).map_or(9000, |it| it.2),
            ..Observation::default()
        };
        Report::of(Found {
            network: None,
            wanted: 9000,
            peers: None,
            seed: 1,
            may_be_apart: false,
            hosts: (0..hosts).map(checked).collect(),
            ips: (0..hosts).map(|place| IpAddr::from([10, 0, 0, place])).collect(),
            observations: plan::all(hosts.into()).into_iter().map(observe).collect(),
            unchecked: Vec::new(),
        })
    }

    /// `guide jumbo --network` said neither which network, nor what could not be checked in it.
    #[test]
    fn a_problem_names_its_network() {
        let mut narrow = report(4, &[(0, 2, 1500)]).of_network("storage");
        narrow.unchecked.push(Problem::new("host3 does not answer"));
        let networks = Networks::of(vec![report(3, &[]), narrow], Vec::new());
        let said: Vec<String> = networks.problems().into_iter().map(|it| it.error).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].starts_with("storage: the path from host0 to host2"), "{said:?}");
        assert_eq!(said[1], "storage: host3 does not answer");
        assert_eq!(networks.findings[0].network.as_deref(), Some("storage"));
    }

    #[test]
    fn a_failing_direction_is_listed_with_its_hop() {
        let text = report(4, &[(0, 2, 1500)]).text();
        assert!(text.contains("FROM      TO  CARRIES  WANTED     HOP\n"), "{text}");
        assert!(text.contains("host0  host2     1500    9000  beyond\n"), "{text}");
        assert!(text.contains("1 host0       -  9000  1500  9000\n"), "{text}");
    }

    #[test]
    fn forty_hosts_have_a_matrix_of_letters() {
        let to_seven: Vec<_> =
            (0..40).filter(|from| *from != 7).map(|from| (from, 7, 1500)).collect();
        let text = report(40, &[&to_seven[..], &[(3, 4, 0)]].concat()).text();
        assert!(text.contains("columns receive; . carries 9000, ! nothing, a 1500\n"), "{text}");
        assert!(text.contains("4 host3    ...-!..a....."), "{text}");
        assert!(text.contains("and 20 more directions: --json has all\n"), "{text}");
        assert!(text.contains("host0   host7     1500    9000  switch-port\n"), "{text}");
        assert!(report(65, &[]).text().contains("the matrix of 65 hosts is too wide"));
    }
}
