//! *Jumbo Frame Settings & Slow or Failing Live Migrations* and *Live Migration Can Benefit From
//! Jumbo Frames*: consistent from end to end, then measured at 1500 and 9000.

use super::document::{Document, Measurement, Row, Table};
use super::place::Place;
use super::prerequisites::{DAEMON, VNIC, WORKERS};
use super::script::{Activity, End, Guide, Sight, Task};
use super::traffic::{ONE, apart, measure};
use crate::commands::anew;
use crate::output::tell;
use api::body::{FindingBody, PortBody};
use config::{Device, PortRole};
use path_mtu::check::{self, check_networks};
use path_mtu::local::check_host;
use path_mtu::report::Report;
use serde_json::json;

/// Names of the two measurements.
const JUMBO: &str = "mtu 9000";
const USUAL: &str = "mtu 1500";
/// The MTU of jumbo frames.
const JUMBO_MTU: u16 = 9000;
const USUAL_MTU: u16 = 1500;
/// Bytes of a segment above which it was no frame of MTU 1500.
const LARGER: f64 = 2000.0;
/// Gb/s between two VMs on one host in the document: jumbo frames disabled, then enabled.
const DOCUMENT: [f64; 2] = [17.0, 30.0];

/// The guide.
pub(super) const GUIDE: Guide<Place> = Guide {
    name: "jumbo",
    title: "Jumbo Frame Settings & Slow or Failing Live Migrations",
    is_of_one_vnic: true,
    activities: &[
        Activity { title: "Prerequisites", tasks: &[DAEMON, VNIC, WORKERS] },
        Activity {
            title: "Be consistent end to end: all hosts, all NICs, all switch ports",
            tasks: &[
                Task {
                    title: "MTUs of ports and of the devices below them",
                    windows: "Get-NetAdapterAdvancedProperty -DisplayName 'Jumbo Packet'",
                    here: "millrace mtu check",
                    repeats: true,
                    look: mtus,
                },
                Task {
                    title: "Members of teams: MTU, speed, VLAN",
                    windows: "Get-VMSwitchTeam | Get-NetAdapterAdvancedProperty",
                    here: "millrace team show",
                    repeats: true,
                    look: members,
                },
                Task {
                    title: "Paths between the guests of this host carry their MTU",
                    windows: "ping -f -l 8972 ADDRESS",
                    here: "millrace mtu check",
                    repeats: true,
                    look: paths,
                },
            ],
        },
        Activity {
            title: "The migration network",
            tasks: &[Task {
                title: "Check management and migration network between all hosts",
                windows: "Set-VMHost -VirtualMachineMigrationPerformanceOption SMB",
                here: "millrace mtu check --network NAME=TOKEN@ADDRESS:5910,…",
                repeats: true,
                look: migration,
            }],
        },
        Activity {
            title: "Jumbo frames inside virtual machines",
            tasks: &[
                Task {
                    title: "Measure with jumbo frames",
                    windows: "Set-NetAdapterAdvancedProperty -DisplayName 'Jumbo Packet' -DisplayValue '9014 Bytes'",
                    here: "millrace port set PORT mtu=9000",
                    repeats: false,
                    look: measure_jumbo,
                },
                Task {
                    title: "Measure without jumbo frames",
                    windows: "Set-NetAdapterAdvancedProperty -DisplayName 'Jumbo Packet' -DisplayValue Disabled",
                    here: "millrace port set PORT mtu=1500",
                    repeats: false,
                    look: measure_usual,
                },
                Task {
                    title: "Compare the measurements",
                    windows: "",
                    here: "",
                    repeats: true,
                    look: compare,
                },
            ],
        },
    ],
};

fn mtus(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let body = place.client.mtu()?;
    let port = |port: &api::body::MtuPortBody| {
        let mtu = port.mtu.map_or_else(|| "not open".to_owned(), |mtu| mtu.to_string());
        let links = port.links.iter().map(|link| format!(", {} {}", link.name, link.mtu));
        format!("{} {mtu}{}", port.port, links.collect::<String>())
    };
    let seen = body.ports.iter().map(port).collect::<Vec<_>>().join("; ");
    Ok(match body.findings.first() {
        None => Sight::passed(seen),
        Some(first) => {
            let ports = place.client.ports()?;
            let largest = ports.iter().filter_map(|port| port.mtu).max().unwrap_or_default();
            let raise = below(&ports, largest).flat_map(|port| raise(port, largest));
            let raise: Vec<_> = [first.remedy.clone()].into_iter().chain(raise).collect();
            Sight::problem(
                format!("{seen}; {}", first.error),
                "one MTU for all ports of a network and the devices below them",
                raise.join(", "),
            )
        }
    })
}

fn members(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let teams = place.client.teams(None)?;
    if teams.is_empty() {
        return Ok(Sight::passed("the switch has no team"));
    }
    let members = teams.iter().flat_map(|team| &team.members);
    let members: Vec<_> = members.map(|it| format!("{} {}", it.name, it.mtu)).collect();
    let health = place.client.health()?;
    let is_ours = |it: &&FindingBody| it.kind.starts_with("team_") || it.kind == "member_down";
    Ok(match health.findings.iter().find(is_ours) {
        None => Sight::passed(members.join(", ")),
        Some(FindingBody { problem, .. }) => Sight::of_problem(problem, 0),
    })
}

fn paths(place: &mut Place, _: &Document) -> Result<Sight, End> {
    // A guest that has jumbo frames wants them of the others.
    let wanted = place.vnic()?.mtu;
    let report = check_host(place.client.mtu()?, wanted, &|done, of| {
        if done == of {
            tell(&format!("    {of} directions probed"));
        }
    })?;
    let probed: usize = report.networks.iter().map(|network| network.directions.len()).sum();
    let found = report.networks.iter().flat_map(Report::problems).collect::<Vec<_>>();
    let elsewhere = "`millrace mtu responder --listen ADDRESS:5910` in each guest and host, then `millrace mtu check` with \
                     what they print";
    Ok(match found.as_slice() {
        [first, more @ ..] => Sight::of_problem(first, more.len()),
        [] if probed > 0 => Sight::passed(format!("{probed} directions carry their MTU")),
        [] => Sight::noted(format!("no path was probed: {}", report.not_probed.join("; ")))
            .remedy(elsewhere),
    })
}

fn migration(place: &mut Place, _: &Document) -> Result<Sight, End> {
    if !place.networks.is_empty() {
        return networks(place);
    }
    let hosts = place.uplinks()?.iter().map(|port| port.device.clone()).collect::<Vec<_>>();
    Ok(Sight::noted(format!(
        "this switch's uplinks: {}; management, migration and storage networks may be other devices",
        if hosts.is_empty() { "none".to_owned() } else { hosts.join(", ") }
    ))
    .remedy(
        "on each host, at its address in each of these networks, `millrace mtu responder --listen ADDRESS:5910`, which prints \
         TOKEN@ADDRESS:5910; then this guide with `--network management=TOKEN@…,TOKEN@… --network migration=…`. Slow or \
         failing migrations come from a management network in which some members have jumbo frames and some have not; `millrace \
         migrate check` compares two hosts",
    ))
}

/// Checks the hosts of each network against each other.
fn networks(place: &Place) -> Result<Sight, End> {
    let found = check_networks(&place.networks, &check::Options::default(), &|_, _| ())?;
    let names = found.networks.iter().filter_map(|it| it.network.as_deref());
    let names = names.collect::<Vec<_>>().join(", ");
    Ok(match found.problems().as_slice() {
        [] => Sight::passed(format!("every path of {names} carries its network's MTU")),
        [first, more @ ..] => Sight::of_problem(first, more.len()),
    })
}

/// Returns why jumbo frames cannot be measured, and what to do about it; `None` if they can.
///
/// The vNIC and the uplinks have to carry jumbo frames; the other ports of their VLAN are raised too,
/// so that the network has one MTU.
fn without_jumbo(vnic: &str, ports: &[PortBody]) -> Option<Sight> {
    let is_on_path = |port: &&PortBody| port.name == vnic || port.role == PortRole::Uplink;
    let seen = |port: &PortBody| format!("{} has MTU {}", port.name, port.mtu.unwrap_or_default());
    let why: Vec<_> = below(ports, JUMBO_MTU).filter(is_on_path).map(seen).collect();
    let vlan = ports.iter().find(|port| port.name == vnic).map(|port| &port.vlan);
    let all = below(ports, JUMBO_MTU).filter(|port| is_on_path(port) || Some(&port.vlan) == vlan);
    let raise: Vec<_> = all.flat_map(|port| raise(port, JUMBO_MTU)).collect();
    (!why.is_empty()).then(|| {
        Sight::noted(format!("not measured: {}", why.join(", "))).remedy(format!(
            "{}; the sender's device too. Then run the guide again",
            raise.join(", ")
        ))
    })
}

/// Returns the open ports with a smaller MTU.
fn below(ports: &[PortBody], mtu: u16) -> impl Iterator<Item = &PortBody> {
    ports.iter().filter(move |port| port.mtu.is_some_and(|own| own < mtu))
}

/// Returns the commands that raise a port's MTU. A TAP or veth follows its port; a device of an uplink has
/// to carry the frames first.
fn raise(port: &PortBody, mtu: u16) -> Vec<String> {
    let prefix = anew::prefix(port.config.netns_path().as_deref());
    let device = port.config.device();
    let of_device = match device {
        Device::Tap(_) | Device::Veth(_) | Device::VhostUser(_) | Device::None => Vec::new(),
        _ => device.names(),
    };
    let links = of_device.iter().map(|it| format!("`{prefix}ip link set {it} mtu {mtu}`"));
    let own = format!("`millrace port set {} mtu={mtu}`", port.name);
    let guest = matches!(device, Device::VhostUser(_)).then(|| "start its guest anew".to_owned());
    links.chain([own]).chain(guest).collect()
}

fn measure_jumbo(place: &mut Place, _: &Document) -> Result<Sight, End> {
    if let Some(missing) = without_jumbo(&place.port, &place.client.ports()?) {
        return Ok(missing);
    }
    let measured = match measure(place, (JUMBO, "Jumbo frames enabled"), &ONE)? {
        Ok(measured) => measured,
        Err(sight) => return Ok(sight),
    };
    Ok(proven(&measured, true).with([measured]))
}

fn measure_usual(place: &mut Place, document: &Document) -> Result<Sight, End> {
    let vnic = place.vnic()?;
    if !vnic.config.device().is_made() && vnic.mtu.is_some_and(|mtu| mtu > USUAL_MTU) {
        return Ok(Sight::noted("not measured: the guest's driver reads the MTU when it starts").remedy(
            format!(
                "`millrace port set {} mtu={USUAL_MTU}`, start the guest anew, run the guide again, and put it back",
                vnic.name
            ),
        ));
    }
    if document.measurement(JUMBO).is_none() {
        return Ok(Sight::noted("not measured: jumbo frames come first, so that both are measured under the same conditions")
            .remedy("as above; the next run measures both"));
    }
    place.set("mtu", json!(USUAL_MTU))?;
    let measured = match measure(place, (USUAL, "Jumbo frames disabled"), &ONE)? {
        Ok(measured) => measured,
        Err(sight) => return Ok(sight),
    };
    Ok(proven(&measured, false).with([measured]))
}

/// Judges whether segments were of the wanted size: a connection keeps the size that it began with.
fn proven(measured: &Measurement, is_jumbo: bool) -> Sight {
    let bytes = measured.bytes_per_segment.unwrap_or_default();
    let seen = format!("{bytes:.0} bytes per segment; {}", measured.words());
    let (wanted, remedy) = if is_jumbo {
        (
            "segments larger than 2000 bytes",
            "set the MTU of sender and receiver to 9000 too, then connect anew",
        )
    } else {
        (
            "segments of at most 1518 bytes",
            "connect anew: a connection keeps the segment size that it began with",
        )
    };
    Sight::check((bytes > LARGER) == is_jumbo, seen, wanted, remedy)
}

fn compare(_: &mut Place, document: &Document) -> Result<Sight, End> {
    let (jumbo, usual) = (document.measurement(JUMBO), document.measurement(USUAL));
    let shown = table(jumbo, usual);
    let sight = match (jumbo, usual) {
        (Some(jumbo), Some(usual)) => Sight::passed(format!(
            "{:.2} times the throughput with jumbo frames; the document's is {:.2} times between two VMs on one host, and up \
             to 20 % more for a live migration",
            jumbo.megabytes_per_s / usual.megabytes_per_s,
            DOCUMENT[1] / DOCUMENT[0]
        ))
        .remedy(apart(jumbo, usual)),
        _ => Sight::noted("both measurements are needed").remedy("as above; the next run measures"),
    };
    Ok(Sight { table: Some(shown), ..sight })
}

/// Returns the rows that were measured, their ratio, and the document's.
fn table(jumbo: Option<&Measurement>, usual: Option<&Measurement>) -> Table {
    let row = |of: &Measurement| Row {
        label: of.label.clone(),
        values: vec![
            Some(of.gigabits_per_s),
            Some(of.megabytes_per_s),
            of.bytes_per_segment,
            Some(of.workers_busy_percent.iter().sum()),
            of.worker_ns_per_byte,
        ],
    };
    let own = [jumbo.map(row), usual.map(row)];
    let ratio = match &own {
        [Some(jumbo), Some(usual)] => Some(jumbo.ratio("ratio", usual)),
        _ => None,
    };
    let theirs = |label: &str, speed| Row {
        label: format!("document: {label}"),
        values: vec![Some(speed), None, None, None, None],
    };
    let theirs = [theirs("enabled", DOCUMENT[1]), theirs("disabled", DOCUMENT[0])];
    let theirs_ratio = theirs[0].ratio("document: ratio", &theirs[1]);
    let columns = ["Gb/s", "MB/s", "Bytes/Segment", "Workers busy %", "Worker ns/Byte"];
    Table {
        columns: columns.map(str::to_owned).into(),
        rows: own.into_iter().flatten().chain(ratio).chain(theirs).chain([theirs_ratio]).collect(),
        note: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::guide::document::Status;

    #[test]
    fn a_connection_that_kept_its_segment_size_proves_nothing() {
        let measured =
            |bytes: f64| Measurement { bytes_per_segment: Some(bytes), ..Measurement::default() };
        let status = |bytes, is_jumbo| proven(&measured(bytes), is_jumbo).status;
        assert_eq!(status(8900.0, true), Some(Status::Passed));
        assert_eq!(status(1514.0, true), Some(Status::Problem));
        assert_eq!(status(1514.0, false), Some(Status::Passed));
        assert_eq!(status(8900.0, false), Some(Status::Problem));
    }

    #[test]
    fn what_to_raise_is_named_by_commands() {
        let port = |config: serde_json::Value, role: &str| -> PortBody {
            let rates: api::body::RatesBody = Default::default();
            serde_json::from_value(json!({
                "name": config["name"], "device": "", "role": role, "state": "up", "reason": "", "mtu": 1500,
                "vlan": "untagged", "rsc": "off", "queues": [], "offloads": [], "degraded": [], "rates": rates,
                "config": config,
            }))
            .unwrap()
        };
        let uplink = port(json!({"name": "uplink", "packet": "eth1"}), "uplink");
        let vnic = port(json!({"name": "c1", "tap": "eth0", "netns": "c1"}), "vnic");
        let other = port(json!({"name": "c2", "tap": "eth0", "netns": "c2"}), "vnic");
        let ports = [uplink, vnic, other];
        let missing = without_jumbo("c1", &ports).unwrap();
        assert_eq!(missing.seen, "not measured: uplink has MTU 1500, c1 has MTU 1500");
        let typed = "`ip link set eth1 mtu 9000`, `millrace port set uplink mtu=9000`, `millrace port set c1 mtu=9000`, `millrace \
                     port set c2 mtu=9000`";
        assert!(missing.remedy.starts_with(typed), "{}", missing.remedy);
        let [uplink, vnic, other] = ports;
        let [uplink, vnic] = [uplink, vnic].map(|it| PortBody { mtu: Some(9000), ..it });
        assert!(without_jumbo("c1", &[uplink, vnic, other]).is_none());
    }

    #[test]
    fn the_table_has_the_ratio_only_with_both_rows() {
        let one = Measurement { gigabits_per_s: 3.0, label: "a".into(), ..Measurement::default() };
        let labels = |shown: Table| shown.rows.into_iter().map(|row| row.label).collect::<Vec<_>>();
        assert_eq!(labels(table(Some(&one), None)).len(), 4);
        assert_eq!(labels(table(Some(&one), Some(&one)))[2], "ratio");
    }
}
