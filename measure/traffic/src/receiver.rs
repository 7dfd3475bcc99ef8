//! The receiver's part of a run: listen, wait for senders, measure, drain, exchange figures.

use crate::bell::wait_readable;
use crate::conduct::Conductor;
use crate::lane::{self, Stage};
use crate::plan::{Plan, Transport};
use crate::report::{Ending, Side};
use crate::run::Progress;
use crate::snapshot::{Interval, Probes};
use crate::sync::{Action, Desk, PeerKind};
use crate::{Report, TrafficError, host, receive, socket};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A lane's listener and processor.
pub(crate) type Port = (OwnedFd, Option<usize>);

/// How long bytes that are still under way after the test are waited for.
const DRAIN: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(100);

pub(crate) fn run(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Report, TrafficError> {
    host::allow_all_files();
    let ports = listen(plan)?;
    let notes = ports.first().map(|(port, _)| socket::buffer_notes(plan, port)).unwrap_or_default();
    let mut desk = plan.sync.then(|| Desk::open(plan)).transpose()?;
    if let Some((first, _)) = plan.data_ports().first() {
        progress(Progress::Listening(*first));
    }
    let stage = Arc::new(Stage::new(plan, ports.len())?);
    let lanes = lane::start(&Arc::new(plan.clone()), &stage, ports, receive::run);
    let measured = conduct(plan, &stage, desk.as_mut(), progress);
    stage.stop.ring();
    let (interval, ending) = lane::join(lanes).and(measured)?;
    let mut report = Report::new(plan, &stage, &interval, ending, stage.opened() as u64);
    report.notes.extend(notes);
    if let Some(mut desk) = desk {
        report.notes.append(&mut desk.notes);
        exchange(&mut desk, &mut report);
    }
    Ok(report)
}

/// The listeners of the plan's mappings.
pub(crate) fn listen(plan: &Plan) -> Result<Vec<Port>, TrafficError> {
    let listen = |(address, processor)| Ok((socket::data_listener(plan, address)?, processor));
    plan.data_ports().into_iter().map(listen).collect()
}

fn conduct(
    plan: &Plan,
    stage: &Stage,
    mut desk: Option<&mut Desk>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Interval, Ending), TrafficError> {
    let probes = Probes::new(plan);
    let total_s = match &mut desk {
        Some(desk) => await_start(plan, stage, desk, progress)?,
        None => {
            await_traffic(plan, stage)?;
            plan.total_s()
        }
    };
    progress(Progress::Connected(stage.opened()));
    let mut conductor = Conductor { plan, stage, desk, progress };
    let (interval, ending) = conductor.measure(&probes, total_s);
    drain(plan, &mut conductor);
    Ok((interval, ending))
}

/// Serves the desk until a sender may begin.
fn await_start(
    plan: &Plan,
    stage: &Stage,
    desk: &mut Desk,
    progress: &mut dyn FnMut(Progress),
) -> Result<u32, TrafficError> {
    let start = Instant::now();
    let mut told = false;
    loop {
        match desk.turn() {
            Some(Action::Start { total_s }) => return Ok(total_s),
            Some(_) => {}
            None => {
                wait_a_moment(plan, stage, start)?;
                // A sender that synchronises does so before it opens its data connections.
                if !told && stage.opened() > 0 && !desk.was_visited() {
                    told = true;
                    progress(Progress::Unsynchronised);
                }
                wait_readable(&[desk.as_fd()], GLANCE);
            }
        }
    }
}

/// Without synchronisation the first connection (or datagram) is the begin.
fn await_traffic(plan: &Plan, stage: &Stage) -> Result<(), TrafficError> {
    let start = Instant::now();
    while stage.opened() == 0 {
        stage.bell.clear();
        wait_a_moment(plan, stage, start)?;
        if stage.opened() == 0 {
            stage.bell.wait(GLANCE);
        }
    }
    Ok(())
}

/// Whether to go on waiting for a sender.
fn wait_a_moment(plan: &Plan, stage: &Stage, start: Instant) -> Result<(), TrafficError> {
    if plan.stop.load(Ordering::Relaxed) || stage.any_failed() {
        return Err(TrafficError::StoppedEarly);
    }
    if plan.wait_s > 0 && start.elapsed() >= Duration::from_secs(plan.wait_s) {
        return Err(TrafficError::NobodyCame { seconds: plan.wait_s });
    }
    Ok(())
}

/// Reads on until every sender has ended, so that the whole run's bytes can be compared.
fn drain(plan: &Plan, conductor: &mut Conductor<'_>) {
    let deadline = Instant::now() + DRAIN;
    // A token is sent by each port's sender, after its connection was made: ours may still have to
    // accept that one.
    let is_told = conductor.desk.as_ref().is_some_and(|desk| desk.tells_end());
    let by_tokens = plan.tokens && !is_told;
    let least = if by_tokens { plan.data_ports().len() } else { 1 };
    let mut seen = None;
    while Instant::now() < deadline && !plan.stop.load(Ordering::Relaxed) {
        conductor.stage.bell.clear();
        let bytes = conductor.stage.bytes();
        let ended = match plan.transport {
            // A receiver that had no processor during the test has its connections still to accept.
            Transport::Tcp => {
                let opened = conductor.stage.opened();
                opened >= least && conductor.stage.closed() >= opened
            }
            // Datagrams have no end: the peer's word is one, and then silence for a glance.
            Transport::Udp => {
                !is_told || (conductor.peer_has_ended() && seen.replace(bytes) == Some(bytes))
            }
        };
        if ended {
            return;
        }
        conductor.stage.bell.wait(GLANCE);
    }
    let (opened, closed) = (conductor.stage.opened(), conductor.stage.closed());
    let waited = !plan.stop.load(Ordering::Relaxed);
    if waited && plan.transport == Transport::Tcp && closed < opened {
        conductor.stage.remark(format!(
            "{} of {opened} connections had not ended {} s after the test: their last bytes are missing in what the whole run counted",
            opened - closed,
            DRAIN.as_secs()
        ));
    }
}

/// Answers figures until the senders of the test have gone. A plain NTttcp only closes its
/// connection.
fn exchange(desk: &mut Desk, report: &mut Report) {
    desk.finish();
    report.peer_kind = PeerKind::Ntttcp;
    let deadline = Instant::now() + DRAIN;
    let senders = desk.senders();
    let mut answered = 0;
    while report.ending != Ending::StoppedByUser && Instant::now() < deadline {
        match desk.turn() {
            Some(Action::Figures(client, body)) => {
                desk.answer(client, &report.own);
                answered += usize::from(take_figures(report, &body));
            }
            Some(_) => {}
            None if !desk.has_senders() => break,
            None => {
                wait_readable(&[desk.as_fd()], GLANCE);
            }
        }
    }
    if answered > 0 && answered < senders {
        report.notes.push(format!(
            "the other end's figures are those of {answered} of {senders} senders: the others are not Millrace's"
        ));
    }
}

fn take_figures(report: &mut Report, body: &[u8]) -> bool {
    match serde_json::from_slice::<Side>(body) {
        Ok(side) => {
            report.peer_kind = PeerKind::Millrace;
            report.add_peer(side);
            true
        }
        Err(error) => {
            report.notes.push(format!("the sender's figures are not readable: {error}"));
            false
        }
    }
}
