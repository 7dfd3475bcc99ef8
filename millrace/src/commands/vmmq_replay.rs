//! `millrace lab vmmq --sim --recorded LOAD --real RECORDING`: shows predicted and real busy time
//! side by side.

use super::vmmq_sim::refused;
use crate::global::Global;
use crate::output::{self, Outcome, table};
use simulator::{Compared, Recording, Replay, ReplayedItem};
use std::path::Path;
use std::process::ExitCode;

/// Replays `load`, read from `path`, and compares it with `real`.
pub(super) fn run(load: &Recording, real: &Recording, path: &Path, global: &Global) -> Outcome {
    let replay = simulator::replay(load, real).map_err(|error| refused(path, &error))?;
    output::show(global, &replay, text)?;
    Ok(if replay.is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(replay: &Replay) -> String {
    let rows = replay.as_placed.iter().enumerate();
    let rows = rows.map(|(number, worker)| row(&number.to_string(), worker));
    let as_placed = table(&["WORKER", "REAL", "PREDICTED", "DIFFERENCE"], rows);
    let rows = replay.decided.iter().enumerate();
    let rows = rows.map(|(place, worker)| row(&(place + 1).to_string(), worker));
    let rows = rows.chain([row("all", &replay.total)]);
    let decided = table(&["BY LOAD", "REAL", "PREDICTED", "DIFFERENCE"], rows);
    let header = ["ITEM", "BUSY", "REAL", "FRAMES/S", "REAL", "NS/FRAME", "REAL"];
    let items = table(&header, replay.items.iter().map(item));
    let saturated = match replay.saturated_percent {
        percent if percent < 0.05 => String::new(),
        percent => format!(
            "A worker in the load was saturated {percent:.1} % of the time, so its items may have been starved.\n"
        ),
    };
    format!(
        "Busy time of {:.1} s, predicted from the load\n\n\
         With the real run's placement:\n{as_placed}\n\n\
         With this switch's balancer, busiest worker of each tenth of a second first:\n{decided}\n\n\
         {items}\n\nMoves: {} real, {} predicted.\n{saturated}{}",
        replay.seconds,
        replay.real_moves,
        replay.predicted_moves,
        verdict(replay)
    )
}

fn verdict(replay: &Replay) -> String {
    let limit = replay.limit_percent;
    if replay.is_within {
        format!("✓ All within {limit:.0} %")
    } else {
        format!("✗ Not all within {limit:.0} %")
    }
}

fn row(name: &str, compared: &Compared) -> Vec<String> {
    let difference = compared
        .difference_percent
        .map_or_else(|| "idle".to_owned(), |percent| format!("{percent:+.1} %"));
    vec![name.to_owned(), percent(compared.real), percent(compared.predicted), difference]
}

fn item(item: &ReplayedItem) -> Vec<String> {
    let number =
        |found: Option<f64>| found.map_or_else(|| "–".to_owned(), |found| format!("{found:.0}"));
    let [busy, real] = item.busy.map(percent);
    let [frames, real_frames] = item.frames_per_s.map(number);
    let [ns, real_ns] = item.ns_per_frame.map(number);
    vec![item.name.clone(), busy, real, frames, real_frames, ns, real_ns]
}

/// Returns a share of a worker in percent.
fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
