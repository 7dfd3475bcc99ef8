//! Texts that `millrace fleet` prints for people.

use super::config::words;
use crate::output::{pluralized, table};
use api::body::Severity;
use fleet::store::{Phase, Revision};
use fleet::{
    Applied, Change, FleetStatus, HostPlan, HostStatus, Move, Place, Preview, Unfit, ago, now,
};

pub(super) fn changes(changes: &[Change]) -> String {
    if changes.is_empty() {
        return "no difference".to_owned();
    }
    changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

pub(super) fn preview(preview: &Preview) -> String {
    let mut lines = vec![format!("compared with revision {}", preview.base)];
    lines.extend(preview.hosts.iter().map(host));
    let names = |names: &[fleet::Name]| {
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    };
    if !preview.away.is_empty() {
        lines.push(format!("away; these hosts follow when they return: {}", names(&preview.away)));
    }
    let unfit = |it: &Unfit| format!("host {} stays as it is: {}", it.host, it.problem.error);
    lines.extend(preview.unfit.iter().map(unfit));
    if !preview.without_agent.is_empty() {
        lines.push(format!(
            "named by ports, but without an agent: {}",
            names(&preview.without_agent)
        ));
    }
    lines.join("\n")
}

/// Returns a host, with its steps below.
fn host(plan: &HostPlan) -> String {
    if plan.steps.is_empty() {
        return format!("host {}: nothing to do", plan.host);
    }
    let steps: Vec<String> = plan.steps.iter().map(|step| format!("  {}", words(step))).collect();
    format!("host {}:\n{}", plan.host, steps.join("\n"))
}

pub(super) fn applied(applied: &Applied) -> String {
    let (revision, before) = (applied.revision, applied.before);
    if revision == before {
        return format!("nothing to do: revision {revision} is in force");
    }
    let hosts = applied.hosts.iter().filter(|plan| !plan.steps.is_empty()).count();
    let hosts = pluralized(hosts, "host changes", "hosts change");
    match applied.phase {
        Phase::Done if !applied.away.is_empty() => format!(
            "revision {revision} is in force: {hosts}; away, and to follow on their return: {}",
            applied.away.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        ),
        Phase::Done => format!("revision {revision} is in force: {hosts}"),
        Phase::Running => format!("revision {revision} is being rolled out: {hosts}"),
        Phase::Stopped => format!(
            "revision {revision} has stopped: {}\n\
             Hosts that have it keep it, and the others stay at revision {before}; `millrace fleet rollback` goes back.",
            applied.reason
        ),
        Phase::RolledBack => {
            format!(
                "revision {revision} has stopped: {}\nThe fleet is back at revision {before}.",
                applied.reason
            )
        }
    }
}

pub(super) fn history(revisions: &[Revision]) -> String {
    let now = now();
    let rows = revisions.iter().map(|it| {
        let back = it.back_to.map_or(String::new(), |to| format!("model of {to}; "));
        let message = format!("{back}{}", it.message);
        vec![it.number.to_string(), ago(it.at, now), it.author.clone(), message]
    });
    table(&["REVISION", "APPLIED", "BY", "MESSAGE"], rows)
}

pub(super) fn place(place: &Place) -> String {
    let Place { port, mac, network, host, named_by_model } = place;
    let by = if *named_by_model { "named by the model" } else { "has claimed its address" };
    let host = match host {
        Some(host) => format!("on host {host} ({by})"),
        None => "on no host: none has claimed its address".to_owned(),
    };
    format!("port {port} ({}, network {network}) is {host}", mac.0)
}

pub(super) fn status(status: &FleetStatus) -> String {
    let head = match &status.desired {
        None => "no revision was applied yet".to_owned(),
        Some(desired) => {
            let mut head = format!(
                "revision {}: {}, by {}, {}",
                desired.revision,
                desired.phase.name(),
                desired.author,
                ago(desired.at, status.at)
            );
            if !desired.reason.is_empty() {
                head += &format!("\nreason: {}", desired.reason);
            }
            if desired.phase == Phase::Running && status.driver.is_none() {
                head += "\nnobody drives the roll-out now: apply again to continue, or roll back";
            }
            head
        }
    };
    let rows = status.hosts.iter().map(row);
    let hosts = table(&["HOST", "REVISION", "STATE", "LAG", "FINDINGS", "VERSION"], rows);
    let moves = (!status.moves.is_empty()).then(|| moves(&status.moves));
    let findings = status.hosts.iter().flat_map(|HostStatus { record, .. }| {
        let all = record.status.iter().flat_map(|it| &it.findings);
        let told = all.filter(|finding| finding.severity > Severity::Info);
        told.map(|finding| {
            let (severity, problem) = (finding.severity.name(), &finding.problem);
            format!("host {}: {severity}: {problem}", record.host.name)
        })
    });
    let parts = std::iter::once(head).chain([hosts]).chain(moves).chain(findings);
    parts.collect::<Vec<_>>().join("\n")
}

fn moves(moves: &[Move]) -> String {
    let rows = moves.iter().map(|it| {
        let from = it.from.as_ref().map_or("-".to_owned(), ToString::to_string);
        vec![it.port.to_string(), from, it.to.to_string(), it.stage.name().to_owned()]
    });
    table(&["MOVING", "FROM", "TO", "STAGE"], rows)
}

fn row(HostStatus { record, wanted, lag_s }: &HostStatus) -> Vec<String> {
    let name = record.host.name.to_string();
    let Some(said) = &record.status else {
        let nothing = || "-".to_owned();
        return vec![name, nothing(), "away".into(), nothing(), nothing(), nothing()];
    };
    let state = match said.revision == *wanted {
        true => "as wanted".to_owned(),
        false => format!("should have {wanted}"),
    };
    let count = |severity| said.findings.iter().filter(|it| it.severity == severity).count();
    let findings = format!(
        "{}, {}",
        pluralized(count(Severity::Error), "error", "errors"),
        pluralized(count(Severity::Warning), "warning", "warnings")
    );
    let lag = lag_s.map_or("-".to_owned(), |lag| format!("{lag} s"));
    vec![name, said.revision.to_string(), state, lag, findings, said.version.clone()]
}

/// Returns whether no roll-out has stopped, no host is away, and all have the revision that they
/// should have and no error.
pub(super) fn is_well(status: &FleetStatus) -> bool {
    let stopped = status.desired.as_ref().is_some_and(|it| it.phase == Phase::Stopped);
    !stopped
        && status.hosts.iter().all(|HostStatus { record, wanted, .. }| {
            record.status.as_ref().is_some_and(|said| {
                let errors =
                    said.findings.iter().any(|finding| finding.severity == Severity::Error);
                said.revision == *wanted && !errors
            })
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::body::FindingBody;
    use fleet::Stage;
    use fleet::configuration::Host;
    use fleet::store::{Desired, HostRecord, Status};
    use problem::Problem;

    fn host(name: &str, said: Option<(u64, u64, Vec<FindingBody>)>, wanted: u64) -> HostStatus {
        let host = Host { name: name.parse().unwrap(), labels: Default::default() };
        let lag_s = said.as_ref().map(|(_, lag, _)| *lag).filter(|lag| *lag > 0);
        let status = said.map(|(revision, _, findings)| Status {
            revision,
            wanted,
            findings,
            version: "1.0.0".to_owned(),
            ..Status::default()
        });
        HostStatus { record: HostRecord { host, status, written: 0 }, wanted, lag_s }
    }

    fn fleet(hosts: Vec<HostStatus>, moves: Vec<Move>) -> FleetStatus {
        let desired = Desired {
            revision: 7,
            before: 6,
            phase: Phase::Stopped,
            hosts: vec!["a".parse().unwrap(), "b".parse().unwrap()],
            reason: "host a: mtu_mismatch".to_owned(),
            author: "anna".to_owned(),
            at: 1000,
        };
        FleetStatus { at: 1042, desired: Some(desired), driver: None, hosts, moves }
    }

    /// Returns the fleet with its roll-out done.
    fn done(mut fleet: FleetStatus) -> FleetStatus {
        fleet.desired.iter_mut().for_each(|desired| desired.phase = Phase::Done);
        fleet
    }

    /// Returns a fleet with a host that has a finding, one that lags, one that is away, and one
    /// port in each stage of a move.
    fn troubled() -> FleetStatus {
        let problem = Problem::new("port up has MTU 1500, vm has 9000")
            .seen("1500")
            .wanted("9000")
            .remedy("raise up or lower vm");
        let severity = Severity::Warning;
        let finding = FindingBody { severity, kind: "mtu_mismatch".to_owned(), problem };
        let hosts = vec![
            host("a", Some((7, 0, vec![finding])), 7),
            host("b", Some((6, 45, Vec::new())), 7),
            host("c", None, 6),
        ];
        let moved = |port: &str, from: Option<&str>, stage| Move {
            port: port.parse().unwrap(),
            from: from.map(|from| from.parse().unwrap()),
            to: "b".parse().unwrap(),
            stage,
        };
        let moves = vec![
            moved("vm1", Some("a"), Stage::Prepare),
            moved("vm2", Some("c"), Stage::Migrating),
            moved("vm3", None, Stage::WaitingForClaim),
        ];
        fleet(hosts, moves)
    }

    #[test]
    fn the_status_as_text_and_as_json() {
        insta::assert_snapshot!("fleet_status", status(&troubled()));
        let json = serde_json::to_string_pretty(&troubled()).unwrap();
        insta::assert_snapshot!("fleet_status_json", json);
        let nothing = FleetStatus { desired: None, ..fleet(Vec::new(), Vec::new()) };
        insta::assert_snapshot!("fleet_status_of_nothing", status(&nothing));
    }

    #[test]
    fn a_fleet_is_well_if_each_host_is_there_as_wanted_and_without_an_error() {
        let of = |hosts| is_well(&done(fleet(hosts, Vec::new())));
        assert!(of(vec![host("a", Some((7, 0, Vec::new())), 7)]));
        assert!(!of(vec![host("a", Some((6, 9, Vec::new())), 7)]));
        assert!(!of(vec![host("a", None, 7)]));
        let warned = || fleet(troubled().hosts.drain(..1).collect(), Vec::new());
        assert!(is_well(&done(warned())), "a warning");
        // A stopped roll-out exited with 0.
        assert!(!is_well(&warned()), "a stopped roll-out");
    }
}
