//! Rates as text, one table after the other: `millrace top` without a terminal, with `--count` or
//! with `--json`.

use super::Arguments;
use crate::commands::status;
use crate::global::Global;
use crate::output::{self, Failure, Outcome, bits, table};
use api::body::{SwitchBody, WorkerBody};
use api::client::Client;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

/// Moves the cursor to the top left, and clears from there.
pub(in crate::commands) const HOME: &str = "\x1b[H\x1b[J";

pub(super) fn run(arguments: &Arguments, client: &Client, global: &Global) -> Outcome {
    let mut before = client.switch()?;
    let mut shown = 0;
    loop {
        std::thread::sleep(Duration::from_secs(u64::from(arguments.interval)));
        let now = client.switch()?;
        picture(client, global, (&before, &now), arguments.interval)?;
        before = now;
        shown += 1;
        if shown == arguments.count {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

fn picture(
    client: &Client,
    global: &Global,
    (before, now): (&SwitchBody, &SwitchBody),
    interval: u16,
) -> Result<(), Failure> {
    let ports = client.ports()?;
    if global.json {
        return output::show(global, &ports, |_| String::new()).map(drop);
    }
    let clear = if std::io::stdout().is_terminal() { HOME } else { "" };
    let (ingress, egress) = ports.iter().fold((0, 0), |(ingress, egress), port| {
        (ingress + port.rates.ingress_bits_per_s, egress + port.rates.egress_bits_per_s)
    });
    output::print(&format!(
        "{clear}in {}, out {}, {} of {} ports up\n\n{}\n\n{}\n",
        bits(ingress),
        bits(egress),
        now.ports_up,
        now.ports,
        status::ports(&ports),
        workers(&before.workers, &now.workers, interval),
    ))
}

/// Returns a share of the elapsed time in percent, at most 100: a worker that was held up in a turn, or two
/// readings that were further apart, make more of it.
fn busy_percent(busy_ns: u64, elapsed: Duration) -> u64 {
    let percent = 100 * u128::from(busy_ns) / elapsed.as_nanos().max(1);
    u64::try_from(percent).unwrap_or(100).min(100)
}

/// Returns how busy a worker was since the reading before, in percent.
pub(super) fn busy_since(before: &WorkerBody, now: &WorkerBody, elapsed: Duration) -> u64 {
    busy_percent(now.busy_ns.saturating_sub(before.busy_ns), elapsed)
}

/// Returns the worker in the reading before; one that was not there is new, and as it is now.
pub(super) fn earlier<'w>(before: &'w [WorkerBody], now: &'w WorkerBody) -> &'w WorkerBody {
    before.iter().find(|old| old.worker == now.worker).unwrap_or(now)
}

/// Returns how busy each worker was between the two readings, `seconds` apart.
fn workers(before: &[WorkerBody], now: &[WorkerBody], seconds: u16) -> String {
    let elapsed = Duration::from_secs(seconds.into());
    let rows = now.iter().map(|worker| {
        let old = earlier(before, worker);
        let busy = worker.busy_turns.saturating_sub(old.busy_turns);
        let turns = busy + worker.idle_turns.saturating_sub(old.idle_turns);
        vec![
            worker.worker.to_string(),
            worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            format!("{} %", busy_since(old, worker, elapsed)),
            format!("{} %", (100 * busy).checked_div(turns).unwrap_or(0)),
            worker.sleeps.saturating_sub(old.sleeps).to_string(),
            worker.frames.saturating_sub(old.frames).to_string(),
        ]
    });
    table(&["WORKER", "CORE", "BUSY", "BUSY TURNS", "SLEEPS", "FRAMES"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A held-up worker was shown as busy for more than all of its time.
    #[test]
    fn a_worker_is_busy_for_all_of_its_time_at_most() {
        assert_eq!(busy_percent(1_500_000_000, Duration::from_secs(2)), 75);
        assert_eq!(busy_percent(7_000_000_000, Duration::from_secs(1)), 100);
    }
}
