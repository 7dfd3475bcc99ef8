//! The receiver's part of a run: listen, wait for senders, measure, drain, exchange figures.

use crate::conduct::Conductor;
use crate::event_fd::wait_readable;
use crate::plan::{Plan, Transport};
use crate::progress::Progress;
use crate::receive::{self, Port};
use crate::report::{Ending, Side};
use crate::shared::{self, Shared};
use crate::snapshot::{Interval, Probes};
use crate::sync::{Action, PeerKind, SyncServer};
use crate::{Report, TrafficError, host, socket};
use rustix::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time to wait for bytes that are in flight after the test.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) fn run(plan: &Plan, progress: &mut dyn FnMut(Progress)) -> Result<Report, TrafficError> {
    host::allow_all_files();
    let ports = listen(plan)?;
    let notes = ports.first().map(|(port, _)| socket::buffer_notes(plan, port)).unwrap_or_default();
    let mut server = plan.sync.then(|| SyncServer::open(plan)).transpose()?;
    if let Some((first, _)) = plan.data_ports().first() {
        progress(Progress::Listening(*first));
    }
    let shared = Arc::new(Shared::new(plan, ports.len())?);
    let threads = shared::start(&Arc::new(plan.clone()), &shared, ports, receive::run);
    let measured = conduct(plan, &shared, server.as_mut(), progress);
    shared.stop.signal();
    let (interval, ending) = shared::join(threads).and(measured)?;
    let mut report = Report::new(plan, &shared, &interval, ending, shared.opened() as u64);
    report.notes.extend(notes);
    if let Some(mut server) = server {
        report.notes.append(&mut server.notes);
        exchange(&mut server, &mut report);
    }
    Ok(report)
}

/// Opens the listeners of the plan's mappings.
///
/// # Errors
/// Fails if an address is taken or the kernel refuses an option of the plan.
pub(crate) fn listen(plan: &Plan) -> Result<Vec<Port>, TrafficError> {
    let listen = |(address, processor)| Ok((socket::data_listener(plan, address)?, processor));
    plan.data_ports().into_iter().map(listen).collect()
}

fn conduct(
    plan: &Plan,
    shared: &Shared,
    mut server: Option<&mut SyncServer>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Interval, Ending), TrafficError> {
    let probes = Probes::new(plan);
    let total_s = match &mut server {
        Some(server) => await_start(plan, shared, server, progress)?,
        None => {
            await_traffic(plan, shared)?;
            plan.total_s()
        }
    };
    progress(Progress::Connected(shared.opened()));
    let mut conductor = Conductor { plan, shared, server, progress };
    let (interval, ending) = conductor.measure(&probes, total_s);
    drain(plan, &mut conductor);
    Ok((interval, ending))
}

/// Serves synchronisation until a sender may begin.
fn await_start(
    plan: &Plan,
    shared: &Shared,
    server: &mut SyncServer,
    progress: &mut dyn FnMut(Progress),
) -> Result<u32, TrafficError> {
    let start = Instant::now();
    let mut told = false;
    loop {
        match server.poll() {
            Some(Action::Start { total_s }) => return Ok(total_s),
            Some(_) => {}
            None => {
                check_wait(plan, shared, start)?;
                // A sender that synchronises does so before it opens its data connections.
                if !told && shared.opened() > 0 && !server.has_had_clients() {
                    told = true;
                    progress(Progress::Unsynchronised);
                }
                wait_readable(&[server.as_fd()], POLL_INTERVAL);
            }
        }
    }
}

/// Waits for the first connection (or datagram), which begins a run without synchronisation.
fn await_traffic(plan: &Plan, shared: &Shared) -> Result<(), TrafficError> {
    let start = Instant::now();
    while shared.opened() == 0 {
        shared.wake.clear();
        check_wait(plan, shared, start)?;
        if shared.opened() == 0 {
            shared.wake.wait(POLL_INTERVAL);
        }
    }
    Ok(())
}

/// Checks that the wait for a sender may go on.
///
/// # Errors
/// Fails if the run was stopped, a thread failed, or no sender came within the plan's limit.
fn check_wait(plan: &Plan, shared: &Shared, start: Instant) -> Result<(), TrafficError> {
    if plan.stop.load(Ordering::Relaxed) || shared.any_failed() {
        return Err(TrafficError::StoppedEarly);
    }
    if plan.wait_s > 0 && start.elapsed() >= Duration::from_secs(plan.wait_s) {
        return Err(TrafficError::NoSender { seconds: plan.wait_s });
    }
    Ok(())
}

/// Reads on until every sender has ended, so that the whole run's bytes can be compared.
fn drain(plan: &Plan, conductor: &mut Conductor<'_>) {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    // Each port's sender sends its token after connecting, so ours may still have to accept the
    // connection.
    let is_told = conductor.server.as_ref().is_some_and(|server| server.announces_end());
    let by_tokens = plan.tokens && !is_told;
    let least = if by_tokens { plan.data_ports().len() } else { 1 };
    let mut seen = None;
    while Instant::now() < deadline && !plan.stop.load(Ordering::Relaxed) {
        conductor.shared.wake.clear();
        let bytes = conductor.shared.bytes();
        let ended = match plan.transport {
            // A receiver that got no processor time during the test may still have connections to
            // accept.
            Transport::Tcp => {
                let opened = conductor.shared.opened();
                opened >= least && conductor.shared.closed() >= opened
            }
            // Datagrams have no end: the peer's message is one, or silence for an interval after
            // it.
            Transport::Udp => {
                !is_told || (conductor.peer_has_ended() && seen.replace(bytes) == Some(bytes))
            }
        };
        if ended {
            return;
        }
        conductor.shared.wake.wait(POLL_INTERVAL);
    }
    let (opened, closed) = (conductor.shared.opened(), conductor.shared.closed());
    let waited = !plan.stop.load(Ordering::Relaxed);
    if waited && plan.transport == Transport::Tcp && closed < opened {
        conductor.shared.remark(format!(
            "{} of {opened} connections had not ended {} s after the test: their last bytes are missing in what the whole run counted",
            opened - closed,
            DRAIN_TIMEOUT.as_secs()
        ));
    }
}

/// Answers figures until the senders of the test have gone. A plain NTttcp only closes its
/// connection.
fn exchange(server: &mut SyncServer, report: &mut Report) {
    server.finish();
    report.peer_kind = PeerKind::Ntttcp;
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    let senders = server.senders();
    let mut answered = 0;
    while report.ending != Ending::StoppedByUser && Instant::now() < deadline {
        match server.poll() {
            Some(Action::Figures(client, body)) => {
                server.answer(client, &report.own);
                answered += usize::from(take_figures(report, &body));
            }
            Some(_) => {}
            None if !server.has_senders() => break,
            None => {
                wait_readable(&[server.as_fd()], POLL_INTERVAL);
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
    match strict::from_json::<Side>(body) {
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
