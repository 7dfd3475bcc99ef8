//! *Linux Network Features and Performance*: vRSS, offloads, hot add and remove, throughput.

use super::document::Document;
use super::place::Place;
use super::prerequisites::{DAEMON, FIREWALL_SIXTEEN, VNIC, WORKERS};
use super::script::{Activity, End, Guide, Sight, Task};
use super::traffic::{SIXTEEN, measure};
use super::vmmq::{self, QUEUES};
use api::body::PortBody;
use config::PortConfig;
use problem::Problem;
use serde_json::json;
use std::time::{Duration, Instant};

/// Name of the measurement.
const SIXTEEN_STREAMS: &str = "sixteen";
/// The port that is added and removed, and its TAP.
const ADDED: &str = "guide-added";
const ADDED_TAP: &str = "guide0";
/// Longest time until the added port's device is there.
const OPENS_WITHIN: Duration = Duration::from_secs(30);

/// The guide.
pub(super) const GUIDE: Guide<Place> = Guide {
    name: "linux",
    title: "Microsoft Loves Linux Deep Dive #4: Linux Network Features and Performance",
    is_of_one_vnic: true,
    activities: &[
        Activity { title: "Prerequisites", tasks: &[DAEMON, VNIC, FIREWALL_SIXTEEN, WORKERS] },
        Activity {
            title: "Performance features",
            tasks: &[
                QUEUES,
                Task {
                    title: "Large send offload and checksum offload",
                    windows: "Get-NetAdapterLso; Get-NetAdapterChecksumOffload",
                    here: "millrace port show PORT",
                    repeats: true,
                    look: offloads,
                },
            ],
        },
        Activity {
            title: "Availability: hot add and remove of a vNIC",
            tasks: &[Task {
                title: "Add a TAP port while the switch runs, and remove it",
                windows: "Add-VMNetworkAdapter -VMName VM1; Remove-VMNetworkAdapter",
                here: "millrace port add guide-added --tap guide0; millrace port remove guide-added",
                repeats: false,
                look: hot_add,
            }],
        },
        Activity {
            title: "Performance: sixteen connections",
            tasks: &[Task {
                title: "Generate traffic, and see that all queues are used",
                windows: "iperf3 -c ADDRESS -P 16",
                here: "millrace ntttcp -R -M 16,*,ADDRESS -l 64k -p 20001 -t 32",
                repeats: false,
                look: throughput,
            }],
        },
    ],
};

fn offloads(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let vnic = place.vnic()?;
    let sight = judge(&vnic);
    let software: Vec<_> = place
        .uplinks()?
        .iter()
        .filter(|port| !port.degraded.is_empty())
        .map(|port| format!("{}: {}", port.name, port.degraded.join(", ")))
        .collect();
    Ok(if software.is_empty() {
        sight
    } else {
        Sight { seen: format!("{}; in software at {}", sight.seen, software.join("; ")), ..sight }
    })
}

/// Judges whether the vNIC may send trains and partial checksums, which the switch or the uplink's
/// device then finishes.
fn judge(vnic: &PortBody) -> Sight {
    let Some(guest) = &vnic.guest else {
        let seen = format!("{} takes {}", vnic.name, vnic.offloads.join(", "));
        return Sight::check(
            ["csum", "tso4", "tso6"].iter().all(|it| vnic.offloads.iter().any(|own| own == it)),
            seen,
            "csum, tso4 and tso6",
            "the kernel lacks them for this device: `millrace port show` says which run in software",
        );
    };
    let wanted = ["VIRTIO_NET_F_CSUM", "VIRTIO_NET_F_HOST_TSO4", "VIRTIO_NET_F_HOST_TSO6"];
    let is_taken = |it: &&&str| {
        let short = it.trim_start_matches("VIRTIO_NET_F_");
        guest.taken.iter().any(|own| own.trim_start_matches("VIRTIO_NET_F_") == short)
    };
    let taken: Vec<_> = wanted.iter().filter(is_taken).copied().collect();
    Sight::check(
        taken.len() == wanted.len(),
        format!("the guest's driver took {}", taken.join(", ")),
        wanted.join(", "),
        "in the guest `ethtool -K eth0 tx on tso on`; in the VMM host_tso4, host_tso6 and csum on",
    )
}

fn hot_add(place: &mut Place, _: &Document) -> Result<Sight, End> {
    // A VLAN of its own, so that it disturbs nothing.
    let body = json!({ "name": ADDED, "tap": ADDED_TAP, "vlan": 4094, "isolated": true });
    let port: PortConfig = serde_json::from_value(body)
        .map_err(|error| Problem::new("naming the port to add").seen(error))?;
    let begin = Instant::now();
    let mut added = place.add(&port)?;
    while added.mtu.is_none() && begin.elapsed() < OPENS_WITHIN {
        place.interrupt.pass(Duration::from_millis(20))?;
        added = place.client.port(ADDED)?;
    }
    let took = begin.elapsed().as_millis();
    let is_open = added.mtu.is_some();
    place.remove(ADDED)?;
    let is_gone = !place.client.ports()?.iter().any(|port| port.name == ADDED);
    Ok(Sight::check(
        is_open && is_gone,
        format!(
            "{ADDED_TAP} {} after {took} ms, {} after the removal; a guest's own vNIC: docs/from-windows.md",
            if is_open { "there" } else { "missing" },
            if is_gone { "gone" } else { "still there" }
        ),
        "there at once, and gone at once",
        format!("{}; `millrace check` names the cause", added.reason),
    ))
}

fn throughput(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let measured = match measure(place, (SIXTEEN_STREAMS, "Sixteen connections"), &SIXTEEN)? {
        Ok(measured) => measured,
        Err(sight) => return Ok(sight),
    };
    let seen = format!(
        "{}; {} of {} queues used; the document has 9.4 Gb/s on a link of 10 and 30 Gb/s on one of 40",
        measured.words(),
        measured.queues_used,
        measured.queues
    );
    if measured.queues_used == measured.queues {
        return Ok(vmmq::judge(&measured, seen).with([measured]));
    }
    let sight = Sight::problem(
        seen,
        "all queues used",
        "more connections than queues, and as many queues in the guest: `ethtool -L eth0 combined N`",
    );
    Ok(sight.with([measured]))
}
