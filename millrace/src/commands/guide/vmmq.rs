//! *Windows d.VMMQ Performance*, and the channels of *Network Performance Improvement for FreeBSD
//! Guest on Hyper-V*: several queues, balanced by load.

use super::document::{Document, Measurement};
use super::place::Place;
use super::prerequisites::{DAEMON, FIREWALL_SIXTEEN, VNIC, WORKERS};
use super::progress::Progress;
use super::script::{Activity, End, Guide, Sight, Task};
use super::traffic::{SIXTEEN, measure};
use crate::commands::anew::Tap;
use api::body::{PortBody, VmmqQueueBody};
use config::{Device, PortRole, VmmqMode};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Name of the measurement.
const LOADED: &str = "loaded";
/// Most queues that help, as in Linux's vRSS.
const MOST_QUEUES: usize = 8;
/// Moves that are shown.
const SHOWN: usize = 5;

/// Several queue pairs.
pub(super) const QUEUES: Task<Place> = Task {
    title: "The vNIC has several queue pairs (VMBus channels)",
    windows: "Set-VMNetworkAdapter -VmmqEnabled $true -VmmqQueuePairs 8",
    here: "millrace port set PORT queues=8",
    repeats: true,
    look: queues,
};

/// The guide.
pub(super) const GUIDE: Guide<Place> = Guide {
    name: "vmmq",
    title: "Windows d.VMMQ Performance",
    is_of_one_vnic: true,
    activities: &[
        Activity { title: "Prerequisites", tasks: &[DAEMON, VNIC, FIREWALL_SIXTEEN, WORKERS] },
        Activity {
            title: "Channels, and dynamic balancing",
            tasks: &[
                QUEUES,
                Task {
                    title: "Several workers serve them",
                    windows: "Set-NetAdapterRss -MaxProcessors",
                    here: "millrace queue show",
                    repeats: true,
                    look: workers,
                },
                Task {
                    title: "d.VMMQ is on at vNIC and uplink",
                    windows: "Get-VMNetworkAdapter | FL Vmmq*",
                    here: "millrace port set PORT vmmq=dynamic",
                    repeats: true,
                    look: dynamic,
                },
            ],
        },
        Activity {
            title: "Sixteen connections",
            tasks: &[
                Task {
                    title: "Generate traffic and measure",
                    windows: "ntttcp.exe -r -m 16,*,ADDRESS -p 20001 -rb 128k -t 20 -l 64k",
                    here: "millrace ntttcp -R -M 16,*,ADDRESS -l 64k -p 20001 -t 32",
                    repeats: false,
                    look: loaded,
                },
                Task {
                    title: "What moved, and why",
                    windows: "Get-NetAdapterVmqQueue",
                    here: "millrace vmmq explain",
                    repeats: true,
                    look: moves,
                },
            ],
        },
        Activity {
            title: "Idle again",
            tasks: &[Task {
                title: "After the load one worker serves all queues of the vNIC",
                windows: "Get-NetAdapterVmqQueue",
                here: "millrace queue show",
                repeats: false,
                look: idle,
            }],
        },
    ],
};

fn is_team(port: &PortBody) -> bool {
    matches!(port.config.device(), Device::Team(_))
}

/// Returns the number of queues to advise: this host's processors, at least 2.
fn advised() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, MOST_QUEUES)
}

/// Returns how many queue pairs of a port are in use.
pub(super) fn in_use(port: &PortBody) -> usize {
    port.guest.as_ref().map_or(port.queues.len(), |guest| usize::from(guest.queues))
}

/// Returns what gives these ports several queue pairs; `None` if they have them. A team has one for
/// each member.
pub(super) fn several_queues(ports: &[&PortBody], workers: usize) -> Option<String> {
    let is_short = |port: &&PortBody| !is_team(port) && in_use(port) < 2;
    let short: Vec<&PortBody> = ports.iter().copied().filter(is_short).collect();
    // Several workers bring several queues, and the restart that they need ends what is set here. A
    // guest has its queues with one worker too.
    let is_default = |port: &&PortBody| {
        let is_vnic = port.role == PortRole::Vnic;
        is_vnic && port.guest.is_none() && port.config.queues.is_none()
    };
    if workers < 2 && short.iter().any(is_default) {
        let remedy = "`workers = 2` in [switch], then restart the daemon: its ports have several queues then";
        return Some(remedy.to_owned());
    }
    let remedies = short.iter().map(|port| {
        let set = format!("`millrace port set {} queues={}`", port.name, advised());
        match (Tap::of(port), port.config.device()) {
            (Some(tap), _) => format!("{set}: {}", tap.loses()),
            (None, Device::VhostUser(_)) if port.queues.len() > 1 => {
                format!("start the guest of {} with several queues (`mq=on`)", port.name)
            }
            (None, Device::VhostUser(_)) => format!("{set}: then a guest with as many (`mq=on`)"),
            (None, _) => set,
        }
    });
    let remedies: Vec<_> = remedies.collect();
    (!remedies.is_empty()).then(|| remedies.join("; "))
}

fn queues(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let vnic = place.vnic()?;
    let uplinks = place.uplinks()?;
    let used = in_use(&vnic);
    let of_uplinks = uplinks.iter().map(|it| format!(", {} {}", it.name, it.queues.len()));
    let seen = format!(
        "{} {} queue pairs, {used} in use{}",
        vnic.name,
        vnic.queues.len(),
        of_uplinks.collect::<String>()
    );
    let wanted =
        format!("one for each vCPU of the guest, at most {MOST_QUEUES}; the same at the uplink");
    let all: Vec<&PortBody> = std::iter::once(&vnic).chain(&uplinks).collect();
    let remedy = several_queues(&all, place.client.switch()?.workers.len());
    Ok(Sight::check(remedy.is_none(), seen, wanted, remedy.unwrap_or_default()))
}

fn workers(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let workers = place.client.switch()?.workers.len();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let seen = format!("{workers} {}", if workers == 1 { "worker" } else { "workers" });
    Ok(Sight::check(
        workers > 1,
        seen,
        "at least 2: with one worker nothing can be balanced",
        format!(
            "`workers = {}` in [switch], then restart the daemon; this host has {cores} processors",
            (cores / 2).max(2)
        ),
    ))
}

fn dynamic(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let (vnic, uplinks) = (place.vnic()?, place.uplinks()?);
    // Also with one queue: a port that gets more later is balanced then.
    let all = uplinks.iter().filter(|it| !is_team(it)).chain([&vnic]);
    let is_static = |port: &&PortBody| port.config.vmmq() != VmmqMode::Dynamic;
    let names: Vec<_> = all.clone().filter(is_static).map(|port| port.name.as_str()).collect();
    Ok(if names.is_empty() {
        let all: Vec<_> = all.map(|port| port.name.as_str()).collect();
        Sight::passed(format!("vmmq dynamic at {}", all.join(", ")))
    } else {
        let remedy: Vec<_> =
            names.iter().map(|name| format!("`millrace port set {name} vmmq=dynamic`")).collect();
        let seen = format!("vmmq static at {}", names.join(", "));
        Sight::problem(seen, "dynamic", remedy.join(", "))
    })
}

fn loaded(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let measured = match measure(place, (LOADED, "Sixteen connections"), &SIXTEEN)? {
        Ok(measured) => measured,
        Err(sight) => return Ok(sight),
    };
    let seen = format!(
        "{}; {} of {} queues used, {} moves; the document's VM reaches 100 Gb/s, the rate of its link",
        measured.words(),
        measured.queues_used,
        measured.queues,
        measured.moves
    );
    Ok(judge(&measured, seen).with([measured]))
}

/// Judges whether there was anything to balance: with one queue the figures are not the document's,
/// and are measured again in the next run.
pub(super) fn judge(measured: &Measurement, seen: String) -> Sight {
    if measured.queues > 1 {
        return Sight::passed(seen);
    }
    Sight::noted(format!("measured with one queue: {seen}"))
        .remedy("more queues, as above; the next run measures again")
}

fn moves(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let moves = place.client.vmmq_moves()?;
    let port = &place.port;
    let own = moves.iter().filter(|it| it.port == *port || it.vnic.as_ref() == Some(port));
    let own: Vec<_> = own.map(|it| it.text.as_str()).collect();
    let lost: u64 = moves.iter().filter_map(|it| it.held.as_ref()).map(|held| held.lost).sum();
    Ok(if own.is_empty() {
        Sight::passed("nothing moved").remedy(
            "queues move when a worker is loaded and another has room; with static VMMQ they never do",
        )
    } else {
        let last = own.iter().rev().take(SHOWN).copied().collect::<Vec<_>>().join("; ");
        Sight::passed(format!("{} moves, which lost {lost} frames; the last: {last}", own.len()))
    })
}

/// Returns the workers that serve a port's queues.
fn serving(queues: &[VmmqQueueBody], port: &str) -> BTreeSet<usize> {
    queues.iter().filter(|queue| queue.port == port).map(|queue| queue.worker).collect()
}

fn idle(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let vnic = place.vnic()?;
    if vnic.config.vmmq() != VmmqMode::Dynamic {
        return Ok(Sight::noted("not looked at: vmmq static, so queues stay where they are")
            .remedy("set vmmq=dynamic, as above; the next run looks"));
    }
    let (begin, mut progress) = (Instant::now(), Progress::default());
    loop {
        let workers = serving(&place.client.vmmq_load()?.queues, &place.port);
        if workers.len() == 1 {
            return Ok(Sight::passed(format!("all queues of {} on one worker", place.port)));
        }
        if begin.elapsed() > place.traffic_timeout {
            return Ok(Sight::problem(
                format!("queues of {} on workers {workers:?}", place.port),
                "one worker once the load is over",
                "end the traffic, and wait; `millrace queue show` shows who is loaded",
            ));
        }
        let left = place.traffic_timeout.saturating_sub(begin.elapsed()).as_secs();
        let what = format!("end the traffic now; {} workers serve the vNIC", workers.len());
        progress.show(&what, &format!("{left} s left"));
        place.interrupt.pass(Duration::from_secs(1))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_other_ports_do_not_count() {
        let queue = |port: &str, worker| VmmqQueueBody {
            port: port.into(),
            queue: 0,
            worker,
            dynamic: true,
            busy_ns: 0,
            frames: 0,
            bytes: 0,
        };
        let queues = [queue("vm1", 1), queue("vm2", 0), queue("vm1", 1)];
        assert_eq!(serving(&queues, "vm1"), BTreeSet::from([1]));
    }
}
