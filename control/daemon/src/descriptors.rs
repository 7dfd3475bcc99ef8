//! Compares how many descriptors a configuration may need with how many the process may have.
//!
//! A front end passes descriptors, and so decides within limits how many its port needs. If they
//! run out, other ports' guests cannot connect.

use config::{Config, Device, PortConfig, Scale};
use problem::Problem;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors of the daemon itself: the API, signals, workers.
const OWN: u64 = 64;
/// Descriptors of a guest, without its rings: 11 of the session, 509 memory regions, 32 regions of
/// the next memory table, an inflight region and a dirty log, and 32 files of the message being
/// read.
const GUEST: u64 = 11 + 509 + 32 + 2 + 32;
/// Descriptors of one ring of a guest that are its own: kick, call and error, and copies of the last
/// two while the session is handed over.
const RING: u64 = 5;
/// Descriptors of a queue of another port: its device and its watcher.
const QUEUE: u64 = 4;
/// Descriptors of a packet ring that are kept for the next process: a copy of its socket, and its
/// position.
const RING_KEPT: u64 = 2;
/// Descriptors of an uplink that has several queues or uses AF_XDP: its program, with maps and
/// link.
const STEERING: u64 = 5;

fn of(port: &PortConfig, scale: Scale) -> u64 {
    let queues = u64::from(port.queue_pairs(scale));
    match port.device() {
        Device::VhostUser(_) => GUEST + queues + 1 + (2 * queues + 1) * RING,
        Device::Packet(_) | Device::Veth(_) if queues > 1 => queues * QUEUE + STEERING,
        Device::Packet(_) | Device::Veth(_) => QUEUE + RING_KEPT,
        // Without the key, the port has as many queues as its device.
        Device::Xdp(_) => port.queues.map_or(64, |_| queues) * QUEUE + STEERING,
        Device::None | Device::Tap(_) | Device::Team(_) => queues * QUEUE,
    }
}

/// Returns what a port takes to be opened. For a guest that is one a pair of queues and one for
/// commands, four to wake its worker and the session's thread, and the socket with its copy for the
/// next process; for others one a queue at least.
fn at_start(port: &PortConfig, scale: Scale) -> u64 {
    let queues = u64::from(port.queue_pairs(scale));
    match port.device() {
        Device::VhostUser(_) => {
            let socket = if port.vhost_client == Some(true) { 0 } else { 2 };
            queues + 1 + 4 + socket
        }
        _ => queues,
    }
}

/// Returns what the daemon needs beside its ports, and each port by `of`.
fn with_own(config: &Config, of: impl Fn(&PortConfig, Scale) -> u64) -> u64 {
    let scale = Scale::of(&config.switch.workers);
    OWN + config.ports.iter().map(|port| of(port, scale)).sum::<u64>()
}

/// Returns the problem if the configuration may need more than `limit` descriptors.
pub(crate) fn shortage(config: &Config, limit: u64) -> Option<Problem> {
    let wanted = with_own(config, of);
    (wanted > limit).then(|| {
        Problem::new("the daemon may run out of file descriptors; then no guest can connect")
            .seen(format!("a limit of {limit} (RLIMIT_NOFILE)"))
            .wanted(format!("{wanted} for this configuration, if front ends use all that they may"))
            .remedy(format!(
                "set LimitNOFILE={wanted} or more in the systemd unit, or `ulimit -n {wanted}`"
            ))
    })
}

/// Returns the problem if a daemon with this configuration cannot open all of its ports, although no
/// front end has connected yet.
pub(crate) fn too_few(config: &Config) -> Option<Problem> {
    // A daemon raises its limit to the hard one.
    too_few_by(config, getrlimit(Resource::Nofile).maximum?)
}

fn too_few_by(config: &Config, limit: u64) -> Option<Problem> {
    let wanted = with_own(config, at_start);
    (wanted > limit).then(|| {
        Problem::new("a daemon may not have as many file descriptors as its ports need to be opened")
            .seen(format!("a hard limit of {limit} for this process (RLIMIT_NOFILE)"))
            .wanted(format!("{wanted}, and more for each front end that connects"))
            .remedy(format!(
                "set LimitNOFILE={wanted} or more in the systemd unit; if that has it, this is the limit of your shell"
            ))
    })
}

/// Checks that this process may have what another daemon hands over, beside its own.
///
/// # Errors
/// The limit is too low.
pub(crate) fn room_for(handed_over: u64) -> Result<(), Problem> {
    let (limit, wanted) = (limit(), OWN + handed_over);
    if wanted <= limit {
        return Ok(());
    }
    Err(Problem::new("this process may not have the descriptors of the daemon that runs")
        .seen(format!("a limit of {limit} (RLIMIT_NOFILE)"))
        .wanted(wanted)
        .remedy(format!("`ulimit -n {wanted}` or more, and again; the old daemon goes on")))
}

/// Raises the limit of descriptors to the hard limit: the soft limit exists for programs that use
/// select(2).
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::debug!(target: "control::descriptors", "the limit of file descriptors cannot be raised: {error}");
    }
}

/// Returns the process's limit.
pub(crate) fn limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    limit.current.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guests(count: usize, pairs: u16) -> Config {
        let port = |number| {
            format!("[[port]]\nname='vm{number}'\nvhost-user='/run/vm{number}'\nqueues={pairs}\n")
        };
        Config::from_toml("t", &(0..count).map(port).collect::<String>()).unwrap()
    }

    #[test]
    fn a_limit_that_is_too_low_is_told_with_what_is_wanted() {
        assert_eq!(shortage(&guests(1, 1), 1024), None);
        let problem = shortage(&guests(2, 1), 1024).unwrap();
        assert!(problem.seen.contains("1024"), "{problem}");
        assert!(problem.wanted.starts_with("1270 "), "{problem}");
        let uplink = Config::from_toml("t", "[[port]]\nname='u'\npacket='e'\nqueues=2").unwrap();
        assert!(shortage(&uplink, OWN + 12).is_some() && shortage(&uplink, OWN + 13).is_none());
        let uplink = Config::from_toml("t", "[[port]]\nname='u'\nxdp='e'").unwrap();
        assert!(shortage(&uplink, OWN + 260).is_some() && shortage(&uplink, OWN + 261).is_none());
        assert!(problem.remedy.contains("LimitNOFILE=1270"), "{problem}");
    }

    #[test]
    fn ports_that_cannot_all_be_opened_are_found_before_the_start() {
        assert_eq!(too_few_by(&guests(2_490, 1), 20_000), None);
        let problem = too_few_by(&guests(2_500, 1), 20_000).unwrap();
        assert!(problem.seen.contains("20000") && problem.wanted.starts_with("20064"), "{problem}");
        assert!(problem.remedy.contains("LimitNOFILE=20064"), "{problem}");
        assert!(too_few_by(&guests(1_329, 8), 20_000).is_none());
        assert!(too_few_by(&guests(1_330, 8), 20_000).is_some());
    }

    /// The unit had no limit, so systemd's 1024 applied. A later limit allowed only 22 queue pairs.
    #[test]
    fn the_unit_s_limit_is_enough_for_what_it_says() {
        let unit = include_str!("../../../packaging/millrace.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE="));
        let limit = limit.and_then(|limit| limit.parse().ok()).unwrap();
        let is_enough = |count, pairs| shortage(&guests(count, pairs), limit).is_none();
        assert!(is_enough(1024, 39) && !is_enough(1024, 40));
        assert!(is_enough(809, 64) && !is_enough(810, 64));
    }
}
