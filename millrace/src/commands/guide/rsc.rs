//! *Validation Guide – RSC in the vSwitch*: RSC on against off, with the guide's table.

use super::agents;
use super::document::{Document, Measurement, Row, Table};
use super::place::Place;
use super::prerequisites::{DAEMON, FIREWALL_ONE, SENDERS, UPLINK, VNIC, WORKERS};
use super::script::{Activity, End, Guide, Sight, Task};
use super::traffic::{ONE, apart, measure};
use api::body::RscBody;
use config::RscMode;
use lab::experiments::rsc::{FEWEST, MANY_ARRIVE};
use serde_json::json;

/// Names of the two measurements.
const ON: &str = "on";
const OFF: &str = "off";
/// Their rows in the document's table.
const ENABLED: &str = "RSC in the vSwitch Enabled";
const DISABLED: &str = "RSC in the vSwitch Disabled";
/// The document's own figures: CPU percentage, cycles per byte, MB/s.
const DOCUMENT_ENABLED: [f64; 3] = [13.453, 7.278, 1128.271];
const DOCUMENT_DISABLED: [f64; 3] = [15.897, 11.147, 870.463];

/// The guide.
pub(super) const GUIDE: Guide<Place> = Guide {
    name: "rsc",
    title: "Validation Guide - RSC in the vSwitch",
    is_of_one_vnic: true,
    activities: &[
        Activity {
            title: "Prerequisites",
            tasks: &[DAEMON, VNIC, UPLINK, SENDERS, FIREWALL_ONE, WORKERS],
        },
        Activity {
            title: "Validate default configuration",
            tasks: &[
                Task {
                    title: "Review the global offloads configuration",
                    windows: "Get-NetOffloadGlobalSetting | FL *coalescing",
                    here: "millrace rsc show --switch",
                    repeats: true,
                    look: global,
                },
                Task {
                    title: "Review the default configuration for the vSwitch",
                    windows: "Get-VMSwitch -Name VMSTest | FL *RSC*",
                    here: "millrace rsc show --switch",
                    repeats: true,
                    look: switch,
                },
                Task {
                    title: "Review the RSC adapter status",
                    windows: "Get-NetAdapterRsc",
                    here: "millrace rsc show PORT",
                    repeats: true,
                    look: adapter,
                },
            ],
        },
        Activity {
            title: "Generate traffic with RSC in the vSwitch enabled",
            tasks: &[Task {
                title: "Generate traffic and capture measurements",
                windows: r".\NTttcp.exe -R -M 1,*,ADDRESS -l 64k -a 6 -t 30",
                here: "millrace rsc on PORT",
                repeats: false,
                look: measure_on,
            }],
        },
        Activity {
            title: "Generate traffic with RSC in the vSwitch disabled",
            tasks: &[
                Task {
                    title: "Disable RSC, generate traffic and capture measurements",
                    windows: "Set-VMSwitch -Name VMSTest -EnableSoftwareRsc $false",
                    here: "millrace rsc off PORT",
                    repeats: false,
                    look: measure_off,
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

fn global(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let body = place.client.switch_rsc()?;
    let setting = &body.receive_segment_coalescing;
    Ok(Sight::check(
        setting == "Enabled",
        format!("ReceiveSegmentCoalescing {setting}"),
        "Enabled, the default",
        "remove `rsc` from [switch] in the file, then `millrace config reload`",
    ))
}

fn switch(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let body = place.client.switch_rsc()?;
    let seen = format!(
        "SoftwareRscEnabled {}, operational toward {} of {} ports",
        body.software_rsc_enabled, body.operational_ports, body.ports
    );
    let sight = Sight::check(
        body.software_rsc_enabled,
        seen,
        "true, the default",
        "`millrace rsc on --switch`, and `software-rsc = true` in [switch]",
    );
    Ok(if body.software_rsc_enabled { sight } else { sight.stop() })
}

fn adapter(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let bodies = place.client.rsc(Some(&place.port))?;
    Ok(bodies.first().map_or_else(|| Sight::noted("the port is gone"), status))
}

/// Judges the rows of `Get-NetAdapterRsc`, and answers the document's questions about failures.
fn status(body: &RscBody) -> Sight {
    let seen = format!(
        "IPv4OperationalState {}, IPv4FailureReason {}; IPv6OperationalState {}, IPv6FailureReason {}",
        body.ipv4_operational,
        body.ipv4_failure_reason,
        body.ipv6_operational,
        body.ipv6_failure_reason
    );
    let reason =
        if body.ipv4_operational { &body.ipv6_failure_reason } else { &body.ipv4_failure_reason };
    let name = &body.name;
    let remedy = match reason.as_str() {
        "NicPropertyDisabled" => {
            format!("`millrace rsc on {name}`; one family: `millrace port set {name} rsc-ipv4=`")
        }
        "NetOffloadGlobalDisabled" => "`millrace rsc on --switch`".to_owned(),
        "Capability" => {
            "the guest has to take trains: `millrace port show` says what its driver accepted"
                .to_owned()
        }
        _ => format!("`millrace port show {name}` and `millrace check` name the cause"),
    };
    Sight::check(
        body.ipv4_operational && body.ipv6_operational,
        seen,
        "both true, NoFailure",
        remedy,
    )
}

fn measure_on(place: &mut Place, _: &Document) -> Result<Sight, End> {
    let measured = if place.agents.is_some() {
        agents::rsc(place, [(ON, ENABLED), (OFF, DISABLED)])?
    } else {
        // A port that coalesces by other rules keeps them.
        let now = place.vnic()?.config.rsc;
        if now == Some(RscMode::Off) {
            place.set("rsc", json!(RscMode::Ndis))?;
        }
        match measure(place, (ON, ENABLED), &ONE)? {
            Ok(measured) => vec![measured],
            Err(sight) => return Ok(sight),
        }
    };
    let Some(on) = measured.iter().find(|it| it.name == ON) else {
        return Ok(Sight::noted("nothing was measured"));
    };
    let uplinks = place.uplinks()?;
    let uplink = uplinks.iter().flat_map(|port| port.config.device().names()).next();
    let sight = null_test(on, uplink.as_deref());
    let sight = sight.map_or_else(|| Sight::passed(on.words()), Sight::stop);
    Ok(sight.with(measured))
}

/// Returns the problem of a measurement with RSC on in which RSC had nothing to do, so that
/// comparing it with RSC off would show nothing.
fn null_test(on: &Measurement, uplink: Option<&str>) -> Option<Sight> {
    let uplink = uplink.unwrap_or("DEVICE");
    let remedy = format!(
        "if `ethtool -k {uplink}` shows generic- or large-receive-offload on, `ethtool -K {uplink} gro off lro off`; otherwise \
         a sender on this host leaves its trains unsegmented: there `ethtool -K ITS-DEVICE tso off gso off`; then run the guide \
         again"
    );
    let (segments, arrived) =
        (on.segments_per_frame.unwrap_or_default(), on.arrived_coalesced_percent);
    if arrived > MANY_ARRIVE {
        let wanted = format!("at most {MANY_ARRIVE:.0} % that arrive already coalesced");
        return Some(Sight::problem(on.words(), wanted, remedy));
    }
    (segments < FEWEST).then(|| {
        let wanted =
            format!("at least {FEWEST} segments per frame: RSC has had nothing to coalesce");
        let more = "; or the traffic is no TCP, or slower than one segment per burst";
        Sight::problem(on.words(), wanted, format!("{remedy}{more}"))
    })
}

fn measure_off(place: &mut Place, document: &Document) -> Result<Sight, End> {
    if let (Some(_), Some(off)) = (&place.agents, document.measurement(OFF)) {
        return Ok(Sight::passed(format!("{}; measured in turn with RSC on", off.words())));
    }
    place.set("rsc", json!(RscMode::Off))?;
    let measured = match measure(place, (OFF, DISABLED), &ONE)? {
        Ok(measured) => measured,
        Err(sight) => return Ok(sight),
    };
    let segments = measured.segments_per_frame.unwrap_or_default();
    let sight = Sight::check(
        segments <= 1.0,
        measured.words(),
        "1 segment per frame",
        "somebody turned RSC on meanwhile: measure again while nothing else changes the port",
    );
    Ok(sight.with([measured]))
}

fn compare(_: &mut Place, document: &Document) -> Result<Sight, End> {
    let (Some(on), Some(off)) = (document.measurement(ON), document.measurement(OFF)) else {
        return Ok(Sight::noted("both measurements are needed"));
    };
    let ratio = on.megabytes_per_s / off.megabytes_per_s;
    let better = format!(
        "{ratio:.2} times the throughput with RSC; the document's is {:.2} times, which it calls about 23 %",
        DOCUMENT_ENABLED[2] / DOCUMENT_DISABLED[2]
    );
    Ok(Sight { table: Some(table(on, off)), ..Sight::passed(better) }.remedy(apart(on, off)))
}

/// Returns the document's table: measured here above, the document's own below. The document's CPU
/// figures are of the receiver's whole machine: they stand beside those of agents only.
fn table(on: &Measurement, off: &Measurement) -> Table {
    let by_agents = on.cpu_percent.is_some();
    let row = |label: &str, of: &Measurement| {
        let cpu = match by_agents {
            true => [of.cpu_percent, of.cycles_per_byte],
            false => [Some(of.workers_busy_percent.iter().sum()), of.worker_ns_per_byte],
        };
        let values = [Some(of.megabytes_per_s), of.segments_per_frame].into_iter().chain(cpu);
        Row { label: label.to_owned(), values: values.collect() }
    };
    let document = |label: &str, [cpu, cycles, speed]: [f64; 3]| {
        let cpu = [cpu, cycles].map(|figure| by_agents.then_some(figure));
        let values = [Some(speed), None].into_iter().chain(cpu).collect();
        Row { label: format!("document: {label}"), values }
    };
    let own = [row(ENABLED, on), row(DISABLED, off)];
    let theirs = [document("Enabled", DOCUMENT_ENABLED), document("Disabled", DOCUMENT_DISABLED)];
    let own_ratio = own[0].ratio("ratio", &own[1]);
    let theirs_ratio = theirs[0].ratio("document: ratio", &theirs[1]);
    let cpu = match by_agents {
        true => ["Avg. CPU %", "Cycles/Byte"],
        false => ["Switch busy %", "Switch ns/Byte"],
    };
    Table {
        columns: ["Throughput (MB/s)", "Segments/Frame"]
            .into_iter()
            .chain(cpu)
            .map(str::to_owned)
            .collect(),
        rows: own.into_iter().chain([own_ratio]).chain(theirs).chain([theirs_ratio]).collect(),
        note: if by_agents { String::new() } else { other_quantity() },
    }
}

/// Says why the document's CPU figures do not stand in the table of the switch's own.
fn other_quantity() -> String {
    let [[on_cpu, on_cycles, _], [off_cpu, off_cycles, _]] = [DOCUMENT_ENABLED, DOCUMENT_DISABLED];
    format!(
        "Switch: its workers only, added up; 100 % is one processor. The document's CPU figures are another quantity, that of \
         the receiver's whole machine: {on_cpu:.2} % and {on_cycles:.2} cycles per byte with RSC, {off_cpu:.2} % and \
         {off_cycles:.2} without. An agent at the receiver measures it: `millrace lab agent` at both ends, then this guide with \
         --restart, --sender and --receiver."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::guide::document::Status;

    fn measured(name: &str, segments: f64, arrived: f64, megabytes_per_s: f64) -> Measurement {
        Measurement {
            name: name.into(),
            megabytes_per_s,
            segments_per_frame: Some(segments),
            arrived_coalesced_percent: arrived,
            workers_busy_percent: vec![40.0, 20.0],
            worker_ns_per_byte: Some(0.5),
            ..Measurement::default()
        }
    }

    /// With the sender's TSO or the uplink's GRO on, a comparison by hand showed nothing, with every
    /// check ok.
    #[test]
    fn a_null_test_is_refused_with_the_remedy() {
        assert!(null_test(&measured(ON, 28.0, 0.5, 500.0), None).is_none());
        let nothing = null_test(&measured(ON, 1.0006, 0.0, 500.0), None).unwrap();
        assert!(nothing.wanted.contains("at least 1.5") && nothing.remedy.contains("gro off"));
        let before = null_test(&measured(ON, 3.0, 98.0, 500.0), Some("eth1")).unwrap();
        assert!(before.wanted.contains("at most 10 %") && before.remedy.contains("tso off"));
        assert!(before.remedy.contains("`ethtool -K eth1 gro off lro off`"), "{}", before.remedy);
        assert_eq!(before.status, Some(Status::Problem));
    }

    #[test]
    fn the_table_has_both_rows_their_ratio_and_the_documents() {
        let shown = table(&measured(ON, 28.0, 0.0, 600.0), &measured(OFF, 1.0, 0.0, 200.0));
        let rows: Vec<_> = shown.rows.iter().map(|row| row.label.as_str()).collect();
        let wanted = [
            ENABLED,
            DISABLED,
            "ratio",
            "document: Enabled",
            "document: Disabled",
            "document: ratio",
        ];
        assert_eq!(rows, wanted);
        assert_eq!(shown.rows[2].values[..2], [Some(3.0), Some(28.0)]);
        let document = shown.rows[5].values[0].unwrap();
        assert!((1.29..1.31).contains(&document), "{document}");
    }

    /// The busy time of the switch's workers stood in the columns of the receiver's whole machine.
    #[test]
    fn only_agents_figures_stand_beside_the_documents_cpu_figures() {
        let [on, off] = [measured(ON, 28.0, 0.0, 600.0), measured(OFF, 1.0, 0.0, 200.0)];
        let shown = table(&on, &off);
        assert_eq!(shown.columns[2..], ["Switch busy %", "Switch ns/Byte"]);
        assert_eq!(shown.rows[0].values[2..], [Some(60.0), Some(0.5)]);
        assert!(shown.rows[3..].iter().all(|row| row.values[2..] == [None, None]), "{shown:#?}");
        assert!(shown.note.contains("13.45 % and 7.28 cycles per byte"), "{}", shown.note);
        assert!(shown.note.contains("--receiver"), "{}", shown.note);
        let by_agents = |it| Measurement {
            cpu_percent: Some(20.0),
            cycles_per_byte: Some(4.0),
            workers_busy_percent: Vec::new(),
            ..it
        };
        let shown = table(&by_agents(on), &by_agents(off));
        assert_eq!(shown.columns[2..], ["Avg. CPU %", "Cycles/Byte"]);
        assert_eq!(shown.rows[0].values[2..], [Some(20.0), Some(4.0)]);
        assert_eq!(shown.rows[3].values[2..], [Some(13.453), Some(7.278)]);
        assert_eq!(shown.note, "");
    }
}
