//! The sender's part of a run: agree, connect, begin, measure, end, exchange figures.

use crate::conduct::{Conductor, Deaf};
use crate::lane::{Stage, lock};
use crate::plan::{Plan, Transport};
use crate::report::{Ending, Side};
use crate::run::Progress;
use crate::send::{self, Target};
use crate::snapshot::{Interval, Probes};
use crate::sync::{Opened, PeerKind, Session, clear_of_commands, token};
use crate::{Report, TrafficError, host};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;
use std::thread::{Scope, ScopedJoinHandle, scope};
use std::time::Duration;

/// What a run with a Windows peer has in its report.
pub(crate) const TOKENS: &str = "the other end synchronised by tokens, as Windows NTttcp does: it agrees on no time, so give both ends the same -wu, -t and -cd";

pub(crate) fn run(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Report, TrafficError> {
    host::allow_files(plan.connections())?;
    let targets = targets(plan);
    let stage = Stage::new(plan, targets.len())?;
    let (mut sessions, mut windows) = (Vec::new(), Vec::new());
    for host in plan.hosts().into_iter().filter(|_| plan.sync) {
        match Session::open(plan, host)? {
            Opened::Session(session) => sessions.push(session),
            Opened::Windows(address, socket) => {
                one_connection_a_port(plan)?;
                lock(&stage.kept).push((address, socket));
                windows.push(host);
                progress(Progress::Tokens(host));
            }
        }
    }
    let (interval, ending) = scope(|scope| {
        let lanes = start(scope, plan, &stage, &targets);
        let measured = conduct(plan, &stage, &mut sessions, &windows, progress);
        stage.stop.raise();
        let ended = join(lanes);
        // A lane's own failure says more than "not all connected".
        ended.and(measured)
    })?;
    let mut report = Report::new(plan, &stage, &interval, ending, plan.connections());
    note_time(plan, &sessions, &mut report);
    if !windows.is_empty() {
        report.notes.push(TOKENS.into());
    }
    report.peer_kind = sessions
        .iter()
        .map(|session| session.kind)
        .chain(windows.iter().map(|_| PeerKind::Ntttcp))
        .min_by_key(|kind| *kind as u8)
        .unwrap_or(PeerKind::Unsynchronised);
    finish(sessions, &mut report);
    if plan.transport == Transport::Tcp {
        report.add_undelivered(stage.undelivered());
    }
    Ok(report)
}

/// Of each port, Windows NTttcp accepts the first connection and no other.
fn one_connection_a_port(plan: &Plan) -> Result<(), TrafficError> {
    let each = u64::from(plan.threads_per_port) * u64::from(plan.connections_per_thread);
    if each == 1 {
        return Ok(());
    }
    Err(TrafficError::Plan(format!(
        "the receiver synchronises as Windows NTttcp does, which takes one connection at each port, and {each} are asked for: use more ports with -n 1 -l 1"
    )))
}

/// Where each lane connects, port by port and thread by thread.
pub(crate) fn targets(plan: &Plan) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut number: u64 = 0;
    let mut used = std::collections::BTreeMap::new();
    for mapping in &plan.mappings {
        for _ in 0..mapping.ports {
            let ahead: &mut u16 = used.entry(mapping.host).or_default();
            let port = plan.base_port.saturating_add(*ahead);
            *ahead += 1;
            for _ in 0..plan.threads_per_port {
                let source = plan.source_port.map_or(0, |first| {
                    first.saturating_add(u16::try_from(number).unwrap_or(u16::MAX))
                });
                let peer = SocketAddr::new(mapping.host, port);
                targets.push(Target {
                    peer,
                    processor: mapping.processor,
                    source_port: source,
                    number,
                });
                number += u64::from(plan.connections_per_thread);
            }
        }
    }
    targets
}

type Handle<'s> = ScopedJoinHandle<'s, Result<(), TrafficError>>;

fn start<'s, 'e: 's>(
    scope: &'s Scope<'s, 'e>,
    plan: &'e Plan,
    stage: &'e Stage,
    targets: &[Target],
) -> Vec<Handle<'s>> {
    let lanes = stage.lanes.iter().zip(targets.iter().copied());
    lanes.map(|(lane, target)| scope.spawn(move || send::run(plan, stage, lane, target))).collect()
}

fn conduct(
    plan: &Plan,
    stage: &Stage,
    sessions: &mut [Session<'_>],
    windows: &[IpAddr],
    progress: &mut dyn FnMut(Progress),
) -> Result<(Interval, Ending), TrafficError> {
    let probes = Probes::new(plan);
    await_connections(plan, stage)?;
    progress(Progress::Connected(stage.opened()));
    for session in sessions.iter_mut() {
        session.request_begin()?;
    }
    for host in windows {
        token::exchange(plan, *host, |address| stage.take_kept(address))?;
    }
    for session in sessions.iter_mut() {
        session.await_begin(&mut || progress(Progress::AwaitingOthers))?;
    }
    let total_s = sessions.iter().map(|session| session.total_s).max().unwrap_or(plan.total_s());
    let mut conductor = Conductor { plan, stage, ear: &mut Deaf, progress };
    Ok(conductor.measure(&probes, total_s, |_| stage.begin.raise()))
}

/// Waits until all connections of the plan are open.
pub(crate) fn await_connections(plan: &Plan, stage: &Stage) -> Result<(), TrafficError> {
    loop {
        stage.bell.clear();
        if plan.stop.load(Ordering::Relaxed) || stage.any_failed() {
            return Err(TrafficError::StoppedEarly);
        }
        if stage.opened() as u64 >= plan.connections() {
            return Ok(());
        }
        let bell = rustix::fd::AsFd::as_fd(&stage.bell);
        crate::latch::wait_readable(&[bell], Some(Duration::from_millis(100)));
    }
}

/// The first error of any lane.
pub(crate) fn join(lanes: Vec<Handle<'_>>) -> Result<(), TrafficError> {
    let mut result = Ok(());
    for lane in lanes {
        let ended = lane
            .join()
            .unwrap_or_else(|_| Err(TrafficError::Plan("a thread panicked: this is a bug".into())));
        result = result.and(ended);
    }
    result
}

fn note_time(plan: &Plan, sessions: &[Session<'_>], report: &mut Report) {
    let own = plan.total_s();
    if plan.sync && clear_of_commands(own) != own {
        report.notes.push(format!(
            "a test of {own} s would be read as a command by the peer, so one more second of cool-down was agreed on"
        ));
    }
    for session in
        sessions.iter().filter(|session| session.total_s > clear_of_commands(own) && own > 0)
    {
        report.notes.push(format!(
            "the receiver wanted {} s altogether: traffic went on after the {own} s of this end's test",
            session.total_s
        ));
    }
}

fn finish(sessions: Vec<Session<'_>>, report: &mut Report) {
    for mut session in sessions {
        if session.kind == PeerKind::Millrace {
            let own: Side = report.own.clone();
            match session.exchange(&own) {
                Ok(side) => report.add_peer(side),
                Err(error) => {
                    report.notes.push(format!("the receiver's figures are missing: {error}"))
                }
            }
        } else if report.ending != Ending::Complete || session.total_s == 0 {
            session.exit();
        }
    }
}
