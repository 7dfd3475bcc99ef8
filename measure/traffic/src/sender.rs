//! The sender's part of a run: agree, connect, begin, measure, end, exchange figures.

use crate::conduct::Conductor;
use crate::plan::{Plan, Transport};
use crate::progress::Progress;
use crate::report::{Ending, Side};
use crate::send::{self, Target};
use crate::shared::{self, Shared};
use crate::snapshot::{Interval, Probes};
use crate::sync::{Opened, PeerKind, Session, clear_of_commands, token};
use crate::thread::lock;
use crate::{Report, TrafficError, host};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Note in the report of a run with a peer that synchronises by tokens.
pub(crate) const TOKENS_NOTE: &str = "the other end synchronised by tokens, as Windows NTttcp does: it agrees on no time, so give both ends the same -wu, -t and -cd";

pub(crate) fn run(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Report, TrafficError> {
    host::allow_files(plan.connections())?;
    let targets = targets(plan);
    let shared = Arc::new(Shared::new(plan, targets.len())?);
    let (mut sessions, mut windows) = (Vec::new(), Vec::new());
    for host in plan.hosts().into_iter().filter(|_| plan.sync) {
        match Session::open(plan, host, &mut |wait| progress(Progress::Waiting(wait)))? {
            Opened::Session(session) => sessions.push(session),
            Opened::Windows(address, socket) => {
                one_connection_a_port(plan)?;
                lock(&shared.early_connections).push((address, socket));
                windows.push(host);
                progress(Progress::Tokens(host));
            }
        }
    }
    let threads = shared::start(&Arc::new(plan.clone()), &shared, targets, send::run);
    let measured = conduct(plan, &shared, &mut sessions, &windows, progress);
    shared.stop.signal();
    // A thread's own failure says more than "not all connected".
    let (interval, ending) = shared::join(threads).and(measured)?;
    let mut report = Report::new(plan, &shared, &interval, ending, plan.connections());
    note_time(plan, &sessions, &mut report);
    if !windows.is_empty() {
        report.notes.push(TOKENS_NOTE.into());
    }
    report.peer_kind = sessions
        .iter()
        .map(|session| session.kind)
        .chain(windows.iter().map(|_| PeerKind::Ntttcp))
        .min_by_key(|kind| *kind as u8)
        .unwrap_or(PeerKind::Unsynchronised);
    finish(sessions, &mut report);
    if plan.transport == Transport::Tcp {
        report.add_undelivered(shared.undelivered());
    }
    Ok(report)
}

/// Fails if more than one connection a port is asked for: Windows NTttcp accepts only the first.
fn one_connection_a_port(plan: &Plan) -> Result<(), TrafficError> {
    let each = u64::from(plan.threads_per_port) * u64::from(plan.connections_per_thread);
    if each == 1 {
        return Ok(());
    }
    Err(TrafficError::Plan(format!(
        "the receiver synchronises as Windows NTttcp does, which takes one connection at each port, and {each} are asked for: use more ports with -n 1 -l 1"
    )))
}

/// Returns where each thread connects, port by port and thread by thread.
pub(crate) fn targets(plan: &Plan) -> Vec<Target> {
    let mut targets = Vec::new();
    let mut number: u64 = 0;
    for (peer, processor) in plan.data_ports() {
        for _ in 0..plan.threads_per_port {
            let ahead = u16::try_from(number).unwrap_or(u16::MAX);
            let source_port = plan.source_port.map_or(0, |first| first.saturating_add(ahead));
            targets.push(Target { peer, processor, source_port, number });
            number += u64::from(plan.connections_per_thread);
        }
    }
    targets
}

fn conduct(
    plan: &Plan,
    shared: &Shared,
    sessions: &mut [Session<'_>],
    windows: &[IpAddr],
    progress: &mut dyn FnMut(Progress),
) -> Result<(Interval, Ending), TrafficError> {
    let probes = Probes::new(plan);
    await_connections(plan, shared, progress)?;
    progress(Progress::Connected(shared.opened()));
    for session in sessions.iter_mut() {
        session.request_begin()?;
    }
    for host in windows {
        token::exchange(plan, *host, |address| shared.take_early_connection(address))?;
    }
    for session in sessions.iter_mut() {
        session.await_begin(&mut || progress(Progress::AwaitingOthers))?;
    }
    let total_s = sessions.iter().map(|session| session.total_s).max().unwrap_or(plan.total_s());
    let mut conductor = Conductor { plan, shared, server: None, progress };
    Ok(conductor.measure(&probes, total_s))
}

/// Waits until all connections of the plan are open. Reports about once a second what the threads
/// wait for.
///
/// # Errors
/// [`TrafficError::StoppedEarly`] if the plan's stop flag is set or a thread failed.
pub(crate) fn await_connections(
    plan: &Plan,
    shared: &Shared,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), TrafficError> {
    let mut reported = None::<Instant>;
    loop {
        shared.wake.clear();
        if plan.stop.load(Ordering::Relaxed) || shared.any_failed() {
            return Err(TrafficError::StoppedEarly);
        }
        if shared.opened() as u64 >= plan.connections() {
            return Ok(());
        }
        if reported.is_none_or(|at| at.elapsed() >= Duration::from_millis(900))
            && let Some(wait) = shared.take_wait()
        {
            reported = Some(Instant::now());
            progress(Progress::Waiting(wait));
        }
        shared.wake.wait(Duration::from_millis(100));
    }
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
