//! Measures between agents, with the lab's own experiment: `validate rsc` between hosts.

use super::document::Measurement;
use super::place::{Agents, Place};
use super::script::End;
use super::traffic::{MEGABYTE, now_s};
use crate::output::{INTERRUPTED, tell};
use lab::existing_hosts::{ExistingHosts, Receiver};
use lab::options::Options;
use lab::plan::Ended;
use lab::report::ArmFigures;
use lab::{runner, validate};
use problem::Problem;
use std::time::Duration;

/// Measures RSC on and off in turn. `names` are name and row of the two measurements.
///
/// # Errors
/// The place has no agents, one of them is not reached, or it was interrupted.
pub(super) fn rsc(place: &Place, names: [(&str, &str); 2]) -> Result<Vec<Measurement>, End> {
    let Some(Agents { sender, receiver }) = &place.agents else { return Ok(Vec::new()) };
    let receiver = receiver.clone().map_or(Receiver::Here(None), Receiver::Agent);
    let existing = ExistingHosts {
        sender: sender.clone(),
        receiver,
        to: place.to,
        link: None,
        port: Some(place.port.clone()),
        socket: place.socket.clone(),
    };
    let program = std::env::current_exe()
        .map_err(|error| Problem::new("finding this program").seen(error))?;
    let seconds = usize::try_from(place.length.as_secs()).unwrap_or(usize::MAX);
    let options = Options {
        repetitions: seconds.max(2),
        interval: Duration::from_secs(1),
        existing_hosts: Some(existing),
        ..Options::new(program)
    };
    let done = runner::run(&validate::campaign, &options, &place.interrupt)?;
    if done.exit_code() == INTERRUPTED {
        return Err(End::Interrupted);
    }
    tell(&format!("    report: {}", done.directory.join("report.html").display()));
    let case = done.report.cases.first();
    if let Some(Ended::Failed(why)) = case.map(|case| &case.ended) {
        return Err(Problem::new("measuring between the agents").seen(why).into());
    }
    let measured = names.iter().filter_map(|(name, label)| {
        let figures = case?.arms.get(*name)?;
        Some(Measurement {
            name: (*name).to_owned(),
            label: (*label).to_owned(),
            ..of(figures, seconds)
        })
    });
    Ok(measured.collect())
}

fn of(figures: &ArmFigures, seconds: usize) -> Measurement {
    let median = |key: &str| figures.median(key);
    let bits = median("throughput_bps").unwrap_or_default();
    Measurement {
        at_s: now_s(),
        seconds: seconds as f64,
        gigabits_per_s: bits / 1e9,
        megabytes_per_s: bits / 8.0 / MEGABYTE,
        segments_per_frame: median("segments_per_train"),
        arrived_coalesced_percent: 100.0
            * median("arrived_coalesced_of_frames").unwrap_or_default(),
        dropped: figures.lost.map_or(0.0, |lost| lost.per_s * seconds as f64),
        cpu_percent: median("cpu_percent"),
        cycles_per_byte: median("cycles_per_byte"),
        ..Measurement::default()
    }
}
