//! The daemon's log on standard error: [`start`] sets it up for the process, and the API changes
//! its levels while it runs.
//!
//! - error: a port or the daemon does not work
//! - warn: it works with limits
//! - info: changes, and port states
//! - debug: everything else
//!
//! Repeated events are logged once a minute (`event_log`), and events that front ends can cause are
//! limited. Nothing waits for the log's reader once [`write_aside`] was called.

mod line;
mod queue;

pub(crate) use line::write_as;

use api::body::{LogBody, LogChange, LogLevel};
use line::Lines;
use problem::Problem;
use std::io::{IsTerminal, stderr};
use std::sync::OnceLock;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, registry, reload};

/// Parts that log: the first word of a target. The daemon's own events name their targets, so that
/// these words stay when a crate or module gets another name.
const PARTS: [&str; 2] = ["control", "vhost_user"];

static LEVELS: OnceLock<reload::Handle<Targets, Registry>> = OnceLock::new();

/// Sets the log up with these levels (`LEVEL` and `TARGET=LEVEL`, separated by commas); the default
/// is info.
///
/// # Errors
/// The levels cannot be parsed, or the process has a log already.
pub fn start(levels: Option<&str>) -> Result<(), Problem> {
    let targets = parse(levels.unwrap_or_default())?;
    let (filter, handle) = reload::Layer::new(targets);
    let lines = fmt::layer()
        .event_format(Lines::new())
        .with_ansi(stderr().is_terminal())
        .with_writer(queue::Queued);
    let set = registry().with(filter).with(lines).try_init();
    set.map_err(|error| Problem::new("the log cannot be set up").seen(error))?;
    let _ = LEVELS.set(handle);
    Ok(())
}

/// Has the lines of this process's log written by a thread of their own from now on, so that nothing
/// waits for their reader. The thread inherits the restrictions of the caller.
///
/// # Errors
/// The thread cannot be started.
pub fn write_aside() -> Result<(), Problem> {
    LEVELS.get().map_or(Ok(()), |_| queue::start())
}

/// Waits until all lines are written, or for a second: at the end of the process.
pub fn flush() {
    queue::flush();
}

/// Returns the number of lines that were dropped because their reader did not keep up.
pub(crate) fn dropped() -> u64 {
    queue::dropped()
}

fn parse(levels: &str) -> Result<Targets, Problem> {
    let refused = |error| {
        Problem::new("the levels of the log cannot be read")
            .seen(format!("{levels}: {error}"))
            .wanted("LEVEL or TARGET=LEVEL, separated by commas")
            .remedy("correct MILLRACE_LOG, for example to MILLRACE_LOG=info,vhost_user=debug")
    };
    let targets = match levels.trim() {
        // As levels, an empty text would mean `error`.
        "" => Targets::new(),
        levels => levels.parse().map_err(refused)?,
    };
    let is_given = targets.default_level().is_some();
    Ok(if is_given { targets } else { targets.with_default(LevelFilter::INFO) })
}

/// Returns the current levels.
///
/// # Errors
/// This process has not set up the log.
pub(crate) fn levels() -> Result<LogBody, Problem> {
    let handle = LEVELS.get().ok_or_else(not_ours)?;
    handle.with_current(body).map_err(|_| not_ours())
}

/// Changes the levels until the daemon stops, and returns the new ones.
///
/// # Errors
/// Nothing logs with this target, or this process has not set up the log.
pub(crate) fn change(change: &LogChange) -> Result<LogBody, Problem> {
    let handle = LEVELS.get().ok_or_else(not_ours)?;
    check(change)?;
    handle.modify(|targets| *targets = changed(targets, change)).map_err(|_| not_ours())?;
    levels()
}

fn changed(targets: &Targets, change: &LogChange) -> Targets {
    match &change.target {
        Some(target) => targets.clone().with_target(target, filter(change.level)),
        None => Targets::new().with_default(filter(change.level)),
    }
}

/// Refuses a target that nothing uses, because setting it has no effect.
fn check(change: &LogChange) -> Result<(), Problem> {
    let Some(target) = &change.target else { return Ok(()) };
    let part = target.split("::").next().unwrap_or_default();
    if PARTS.contains(&part) {
        return Ok(());
    }
    Err(Problem::new("no part of the daemon logs with this target")
        .seen(target)
        .wanted(PARTS.join(" or ") + ", or a module of one, such as `control::sandbox`")
        .remedy("copy the target from a line of the log"))
}

fn body(targets: &Targets) -> LogBody {
    let own = targets.iter().map(|(target, level)| (target.to_owned(), level_of(level)));
    LogBody {
        level: level_of(targets.default_level().unwrap_or(LevelFilter::INFO)),
        targets: own.collect(),
    }
}

/// Returns the filter of a level.
fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// Returns the level of a filter.
fn level_of(filter: LevelFilter) -> LogLevel {
    match filter {
        LevelFilter::OFF => LogLevel::Off,
        LevelFilter::ERROR => LogLevel::Error,
        LevelFilter::WARN => LogLevel::Warn,
        LevelFilter::INFO => LogLevel::Info,
        LevelFilter::DEBUG => LogLevel::Debug,
        _ => LogLevel::Trace,
    }
}

fn not_ours() -> Problem {
    Problem::new("this process does not own its log").wanted("a daemon started by `millrace run`")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(targets: &Targets) -> (LogLevel, Vec<(String, LogLevel)>) {
        let body = body(targets);
        (body.level, body.targets.into_iter().collect())
    }

    #[test]
    fn levels_are_read_and_all_is_told_from_info_on_where_none_is_given() {
        for (text, level, targets) in [
            ("", LogLevel::Info, vec![]),
            ("debug", LogLevel::Debug, vec![]),
            ("control=debug", LogLevel::Info, vec![("control".to_owned(), LogLevel::Debug)]),
            ("warn,vhost_user=off", LogLevel::Warn, vec![("vhost_user".to_owned(), LogLevel::Off)]),
        ] {
            assert_eq!(told(&parse(text).unwrap()), (level, targets), "{text}");
        }
        let refused = parse("control=loud").unwrap_err();
        assert!(refused.to_string().contains("MILLRACE_LOG"), "{refused}");
    }

    #[test]
    fn a_level_for_all_replaces_those_of_targets_and_one_of_a_target_stays_beside_it() {
        let of =
            |level, target: Option<&str>| LogChange { level, target: target.map(str::to_owned) };
        let targets = changed(&parse("info").unwrap(), &of(LogLevel::Debug, Some("control")));
        assert_eq!(told(&targets), (LogLevel::Info, vec![("control".to_owned(), LogLevel::Debug)]));
        let again = changed(&targets, &of(LogLevel::Warn, Some("control")));
        assert_eq!(told(&again), (LogLevel::Info, vec![("control".to_owned(), LogLevel::Warn)]));
        assert_eq!(told(&changed(&again, &of(LogLevel::Error, None))), (LogLevel::Error, vec![]));
    }

    #[test]
    fn a_target_that_nothing_logs_as_is_refused() {
        let of = |target: &str| LogChange { level: LogLevel::Debug, target: Some(target.into()) };
        assert!(check(&of("control::sandbox")).is_ok() && check(&of("vhost_user")).is_ok());
        assert!(check(&of("elsewhere")).is_err() && check(&of("controlled")).is_err());
    }
}
