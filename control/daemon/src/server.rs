//! The daemon: one tokio thread that serves the API, polls the switch once a second, and handles
//! signals. It sends commands to the thread that owns the switch, and never waits for that without
//! doing what else there is: a long plan delays neither the API nor the watchdog's notice.

mod filtered;
mod metrics_listener;
mod serving;
mod socket;
mod tcp_listener;

pub use crate::api_socket::default_path;
pub use crate::sandbox::dock::run as run_dock;
pub use crate::sandbox::helper::run as run_helper;
pub use crate::source::{check_file, read_file};

use crate::commands::{Ended, Owner};
use crate::descriptors;
use crate::handover::{self, Offer, Predecessor, Rights};
use crate::history;
use crate::log;
use crate::metrics::Renderings;
use crate::peer::Groups;
use crate::preflight;
use crate::private_tmp;
use crate::running::Running;
use crate::sandbox;
use crate::shared::Shared;
use crate::source::Source;
use crate::state::{self, Identity, Keeper, Kept};
use crate::web;
use api::body::{StepBody, StepOutcome};
use config::{Config, Poll, Scale, Section, SwitchConfig, WebConfig};
use devices::Opener;
use devices::store::Store;
use problem::Problem;
use sd_notify::NotifyState;
use socket::Socket;
use std::cell::Cell;
use std::future::Future;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Level;

/// Time between two writes of the history.
const HISTORY_KEPT: Duration = Duration::from_secs(300);

/// How the daemon runs, apart from its configuration.
pub struct Options {
    /// The configuration file; SIGHUP rereads it. `None`: no ports but those added through the API.
    pub file: Option<PathBuf>,
    /// The API's socket; `None` for the file's `socket`, or the default.
    pub socket: Option<PathBuf>,
    /// Directory for ports added through the API; `None` for the file's `state-directory`, or the
    /// default.
    pub state_directory: Option<PathBuf>,
    /// How idle workers wait; `None` for the file's `poll`.
    pub poll: Option<Poll>,
    /// Ask the daemon that listens on this socket to stop, and resume with its ports' descriptors.
    pub take_over: bool,
    /// If `sandbox` of the file applies: the arguments with which this program calls [`run_helper`]
    /// with the arguments behind them. Restrictions last until the process ends, so only a process
    /// that does nothing else may set this.
    pub sandbox: Option<&'static [&'static str]>,
    /// If `post-copy` of the file applies: the arguments with which this program calls [`run_dock`].
    pub post_copy: Option<&'static [&'static str]>,
}

/// Runs the daemon until SIGTERM or SIGINT.
///
/// # Errors
/// The runtime or the handling of signals cannot be started, or [`serve`] fails.
pub fn run(options: &Options, opener: Box<dyn Opener>) -> Result<(), Problem> {
    opener.store().join_systemd();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Problem::new("the runtime cannot be started").seen(error))?;
    let inside = runtime.enter();
    let stop = stop_signal()?;
    drop(inside);
    let opener = Box::new(sandbox::Restricted(opener));
    let outcome = runtime.block_on(serve(options, opener, stop));
    // A reload that still waits for its file does not delay the end.
    runtime.shutdown_background();
    outcome
}

/// Runs the daemon until `stop` is done.
///
/// # Errors
/// The configuration file is refused, the previous daemon does not hand over its descriptors, or
/// the state directory, the socket or the switch cannot be set up.
pub async fn serve(
    options: &Options,
    opener: Box<dyn Opener>,
    stop: impl Future<Output = ()>,
) -> Result<(), Problem> {
    // Signals first: a signal while ports are being opened must not end the process and leave the
    // socket behind.
    let hangup = on(SignalKind::hangup())?;
    let rights = Rights::now();
    let source = Source::new(options.file.clone(), options.poll);
    let config = source.read()?;
    log::write_as(config.switch.log);
    let store = opener.store();
    // A successor receives the descriptors of all ports.
    descriptors::raise();
    let ((keeps, kept), socket) = if options.take_over {
        take_over(options, &config.switch, &store, &rights)?
    } else {
        places(options, &config.switch)?
    };
    let groups = Groups::of(&config.switch)?;
    let tcp = (config.metrics.listen, config.web.clone());
    private_tmp::look();
    let filtered = filtered::problems(&[(Section::Metrics, tcp.0), (Section::Web, tcp.1.listen)]);
    opener.identify(keeps.path());
    let history = keeps.history(history::from_bytes);
    let scale = Scale::of(&config.switch.workers);
    let wanted = || config.ports.iter().chain(&kept.ports).chain(&kept.fleet);
    store.want(wanted(), scale);
    opener.remove_strays(&wanted().collect::<Vec<_>>());
    restrict(options, &config, &kept, (keeps.path(), socket.path()));
    log::write_aside()?;
    let keeper = Keeper::start(keeps)?;
    let mut running = start(config, kept, opener, filtered)?;
    resume(&mut running, history);
    let (owner, commands) = Owner::start(running)?;
    let shared = Shared::new(commands, keeper.clone(), source);
    store.end_sessions();
    // Ports that the file overrode are removed from the state.
    save(&shared);
    let successors = successors(socket.path());
    let (stopping, stopped) = watch::channel(false);
    let answering = answer(socket.listener()?, groups, tcp, &shared, &stopped);
    tell_places(&socket, &keeper);
    notify(&[NotifyState::Ready]);
    let next = next(successors.as_ref(), &store, &keeper, rights);
    let successor = tokio::select! {
        successor = ends(stop, next, &shared) => successor,
        () = attend(&shared, hangup) => None,
    };
    // From here on ports close because the process ends, not because they are removed.
    store.seal();
    notify(&[NotifyState::Stopping]);
    tracing::info!(target: "control::daemon", "stopping{}", if successor.is_some() { ": a successor takes over" } else { "" });
    let _ = stopping.send(true);
    ended(answering).await;
    end_state(&shared, &keeper).await;
    if successor.is_some() {
        drop((socket, successors));
    }
    leave(&shared, &store, successor).await;
    ports::namespace::helper::end();
    ports::vhost::dock::end();
    drop(owner);
    Ok(())
}

/// Starts the processes that do what a restricted daemon may not, and restricts this one.
fn restrict(options: &Options, config: &Config, kept: &Kept, (state, socket): (&Path, &Path)) {
    options
        .post_copy
        .filter(|_| config.switch.post_copy)
        .into_iter()
        .for_each(sandbox::dock::start);
    if let Some(helper) = options.sandbox.filter(|_| config.switch.sandbox) {
        let places = sandbox::Places { file: options.file.as_deref(), socket, state };
        sandbox::restrict(&places, config, &[&kept.ports[..], &kept.fleet].concat(), helper);
    }
}

/// The state directory, locked, with what it holds, and the API's socket.
type Places = ((state::Writer, Kept), Socket);

/// Locks the state directory, before binding the socket: of two daemons that start at once, one
/// could otherwise find the other's socket before that listens.
fn places(options: &Options, config: &SwitchConfig) -> Result<Places, Problem> {
    let socket = socket_path(options, config);
    let state = state::open(&state_path(options, config)).or_else(|problem| {
        socket::refuse_taken(&socket)?;
        Err(problem)
    });
    Ok((state?, Socket::bind(&socket, config)?))
}

/// Ends the daemon that runs and takes its places and its descriptors, once it is certain that this
/// process will have them: of the two, one always runs.
fn take_over(
    options: &Options,
    config: &SwitchConfig,
    store: &Store,
    rights: &Rights,
) -> Result<Places, Problem> {
    let (path, socket) = (state_path(options, config), socket_path(options, config));
    preflight::check(config, &path)?;
    let state = state::open(&path);
    let Some(predecessor) = Predecessor::meet(&socket, rights)? else {
        drop(state);
        return places(options, config);
    };
    let state = match state {
        Err(problem) if !predecessor.has_locked(&path) => return Err(problem),
        state => state.ok(),
    };
    let socket = Socket::bind_beside(&socket, config)?;
    predecessor.end(store)?;
    Ok((state.map_or_else(|| state::open(&path), Ok)?, socket.put_in_place()?))
}

/// Starts answering clients of the API, of the metrics and of the page.
fn answer(
    listener: UnixListener,
    groups: Groups,
    (metrics, web): (Option<SocketAddr>, WebConfig),
    shared: &Shared,
    stopped: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let counters = Arc::<Renderings>::default();
    let api =
        serving::api(listener, shared.clone(), Arc::clone(&counters), groups, stopped.clone());
    let mut answering = vec![tokio::spawn(api)];
    let tcp = [
        metrics
            .map(|at| (Section::Metrics, at, metrics_listener::router(shared.clone(), counters))),
        web.listen.map(|at| (Section::Web, at, web::router(shared.clone(), at, web.token_file))),
    ];
    for (section, address, router) in tcp.into_iter().flatten() {
        let serving = serving::tcp(section, address, router, shared.clone(), stopped.clone());
        answering.push(tokio::spawn(serving));
    }
    answering
}

fn tell_places(socket: &Socket, keeper: &Keeper) {
    let (api, kept) = (socket.path().display(), keeper.file().display());
    tracing::info!(target: "control::daemon", "serving the API on {api}; ports added through it are stored in {kept}");
}

/// Waits for the last responses. A client that keeps its connection open does not delay the end.
async fn ended(answering: Vec<JoinHandle<()>>) {
    let all = async {
        for serving in answering {
            let _ = serving.await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_millis(500), all).await;
}

/// Returns the socket for a successor. Without it the next daemon opens all devices anew.
fn successors(api: &Path) -> Option<handover::Listener> {
    let bound = handover::Listener::bind(api);
    bound.inspect_err(|error| tracing::warn!(target: "control::daemon", "a successor cannot take over: {error}")).ok()
}

/// Waits for the end: a signal, or a successor, which is returned. A plan in work is carried out in
/// full first.
async fn ends(
    stop: impl Future<Output = ()>,
    next: impl Future<Output = OwnedFd>,
    shared: &Shared,
) -> Option<OwnedFd> {
    let successor = tokio::select! {
        () = stop => None,
        successor = next => Some(successor),
    };
    shared.finish_changes().await;
    successor
}

/// Writes the state for the last time, also if the task of the last change has not come to that.
async fn end_state(shared: &Shared, keeper: &Keeper) {
    save(shared);
    // Commands are carried out in order: after this one the keeper has the text, too.
    let _ = shared.keep_history(true).await;
    if let Err(problem) = keeper.end().await {
        tracing::error!(target: "control::daemon", "{problem}");
    }
}

async fn next(
    successors: Option<&handover::Listener>,
    store: &Store,
    keeper: &Keeper,
    rights: Rights,
) -> OwnedFd {
    let offer = || Offer {
        descriptors: store.with_all(|all| all.len()),
        state: keeper.file().parent().and_then(Identity::of),
        rights: Some(rights),
    };
    match successors {
        Some(listener) => listener.next(offer).await,
        None => std::future::pending().await,
    }
}

/// Hands the descriptors that outlive the daemon to its successor, or leaves them with systemd,
/// which uses them only after the end of this process and of a worker that hangs. Without either
/// they are closed.
async fn leave(shared: &Shared, store: &Store, successor: Option<OwnedFd>) {
    if let Some(successor) = successor {
        if !give_up(shared).await {
            store.withhold_rings();
        }
        handover::hand_over(store, &successor);
    } else if store.is_with_systemd() {
        give_up(shared).await;
        store.settle();
    } else {
        let _ = shared.run(Running::close_all).await;
    }
}

/// Returns whether all workers have ended.
async fn give_up(shared: &Shared) -> bool {
    shared.run(Running::give_up).await.unwrap_or(false)
}

/// Starts the switch, and logs the problems found at startup.
fn start(
    config: Config,
    kept: Kept,
    opener: Box<dyn Opener>,
    filtered: Vec<Problem>,
) -> Result<Running, Problem> {
    let mut running = Running::start_with(config, kept.added(), opener, Instant::now())?;
    for problem in kept.refused {
        running.journal.note(Level::WARN, Instant::now(), problem.to_string());
    }
    if let Some(problem) = running.ports.denied() {
        return Err(problem);
    }
    for problem in filtered {
        running.journal.note_filtered(problem, Instant::now());
    }
    if let Some(problem) = descriptors::shortage(running.config(), descriptors::limit()) {
        running.journal.note(Level::WARN, Instant::now(), problem.to_string());
    }
    Ok(running)
}

/// Goes on with the history of the process before.
fn resume(running: &mut Running, history: Result<Option<history::Kept>, Problem>) {
    let told = match history {
        Ok(kept) => kept.and_then(|kept| running.history.resume(kept)),
        Err(problem) => Some(problem),
    };
    if let Some(problem) = told {
        running.journal.note(Level::WARN, Instant::now(), problem.to_string());
    }
}

fn state_path(options: &Options, config: &SwitchConfig) -> PathBuf {
    let directory = options.state_directory.clone().or(config.state_directory.clone());
    state::directory(directory, &socket_path(options, config))
}

fn socket_path(options: &Options, config: &SwitchConfig) -> PathBuf {
    options.socket.clone().or_else(|| config.socket.clone()).unwrap_or_else(default_path)
}

/// Polls, balances and rereads the file at SIGHUP, until the switch's thread ends. Each of them
/// waits for its own command only, so that a reload with a long plan does not hold the poll.
async fn attend(shared: &Shared, hangup: Signal) {
    let trouble = Cell::new(None);
    tokio::select! {
        () = poll_every_second(shared, &trouble) => {}
        () = keep_history(shared) => {}
        () = again_and_again(shared, Running::balance) => {}
        () = again_and_again(shared, Running::follow_uplinks) => {}
        () = reload_at_each(hangup, shared, &trouble) => {}
    }
    tracing::error!(target: "control::daemon", "the thread that owns the switch has ended");
}

async fn poll_every_second(shared: &Shared, trouble: &Cell<Option<&'static str>>) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    loop {
        second.tick().await;
        if poll(shared, trouble.get()).await.is_err() {
            return;
        }
    }
}

/// Writes the history now and then, for a process that is killed. Its minutes suffice.
async fn keep_history(shared: &Shared) {
    loop {
        tokio::time::sleep(HISTORY_KEPT).await;
        if shared.keep_history(false).await.is_err() {
            return;
        }
    }
}

/// Does something of which the switch says when it is to be done again.
async fn again_and_again(shared: &Shared, act: fn(&mut Running, Instant) -> Duration) {
    while let Ok(next) = shared.run(move |running| act(running, Instant::now())).await {
        tokio::time::sleep(next).await;
    }
}

async fn reload_at_each(mut hangup: Signal, shared: &Shared, trouble: &Cell<Option<&'static str>>) {
    loop {
        hangup.recv().await;
        // A daemon that is stopping rereads nothing.
        if let Ok(text) = reload(shared).await {
            trouble.set(text);
        }
    }
}

/// Starts writing the state, without waiting for the disk.
fn save(shared: &Shared) {
    drop(shared.keep());
}

async fn poll(shared: &Shared, trouble: Option<&str>) -> Result<(), Ended> {
    shared.look_at_state().await?;
    if shared.keeper().found().trouble.is_some() {
        save(shared);
    }
    let polled = shared.run(|running| {
        let now = Instant::now();
        running.poll(now);
        (running.switch_body(now), running.all_answer())
    });
    let (switch, answering) = polled.await?;
    let mut status = format!("{} of {} ports up", switch.ports_up, switch.ports);
    if let Some(trouble) = trouble {
        status.push_str(&format!("; {trouble}"));
    }
    // A worker that hangs for as long as the watchdog waits does not recover, and stalls its ports'
    // guests. A new process brings all ports back, at the price of a short outage for the others.
    // So does one for a switch whose thread hangs: then there is no answer to get here.
    match answering {
        Ok(()) => notify(&[NotifyState::Watchdog]),
        Err(problem) => status.push_str(&format!("; {}", problem.error)),
    }
    notify(&[NotifyState::Status(&status)]);
    Ok(())
}

/// Rereads the file, and reports the result to systemd and as an event; a unit of
/// `Type=notify-reload` waits for it. Returns the text to show in the status until the next reload;
/// `None` if it succeeded.
async fn reload(shared: &Shared) -> Result<Option<&'static str>, Ended> {
    let mut states = vec![NotifyState::Reloading];
    states.extend(NotifyState::monotonic_usec_now().ok());
    notify(&states);
    let read = shared.source().read_again().await;
    let trouble = shared.change(move |running| {
        let reloaded = read.and_then(|config| running.reload_file(config, Instant::now()));
        running.end_keys_of_former_admins(Instant::now());
        let (text, trouble) = told(reloaded);
        notify(&[NotifyState::Ready, NotifyState::Status(&text.replace('\n', ";"))]);
        running.journal.note_reload(trouble.is_none());
        let level = if trouble.is_none() { Level::INFO } else { Level::WARN };
        running.journal.note(level, Instant::now(), text);
        trouble
    });
    let trouble = trouble.await?;
    save(shared);
    Ok(trouble)
}

/// Returns the event of a reload, and the text to show in the status if it did not succeed in full.
fn told(reloaded: Result<Vec<StepBody>, Problem>) -> (String, Option<&'static str>) {
    let steps = match reloaded {
        Ok(steps) => steps,
        Err(problem) => {
            let text = "the file was reread and refused; the running configuration stays";
            return (format!("{text}: {problem}"), Some("the last reload was refused"));
        }
    };
    let reasons = steps.iter().filter(|step| step.outcome == StepOutcome::Failed);
    let reasons: Vec<_> = reasons.map(|step| step.reason.as_str()).collect();
    match reasons.len() {
        0 => (format!("the file was reread: {} steps", steps.len()), None),
        failed => {
            let (count, reasons) = (steps.len(), reasons.join("; "));
            let text = format!("the file was reread: {failed} of {count} steps failed: {reasons}");
            (text, Some("some steps of the last reload failed"))
        }
    }
}

fn on(kind: SignalKind) -> Result<Signal, Problem> {
    signal(kind).map_err(|error| Problem::new("signals cannot be handled").seen(error))
}

fn stop_signal() -> Result<impl Future<Output = ()>, Problem> {
    let (mut terminate, mut interrupt) =
        (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Notifies systemd, if it runs the daemon. Its absence is not an error.
fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(target: "control::daemon", "systemd cannot be notified: {error}");
    }
}
