//! iperf3 between the same hosts, as an independent check. Its received bytes are compared with the
//! counters of the receiver's link, which this lab's own figures are checked against too. Its
//! throughput is compared with that of one connection of the lab.

use crate::LabError;
use crate::host::Request;
use crate::interrupt::Interrupt;
use crate::report::{Case, Check, difference};
use crate::topology::{Route, Topology};
use serde_json::Value;
use statistics::{Better, Comparison, Verdict, compare_independent};
use std::time::Duration;

/// Length of the run in seconds.
const SECONDS: u32 = 3;
/// Length of iperf3's intervals in seconds, and number of first intervals to skip while TCP's rate
/// still grows.
const INTERVAL: &str = "0.25";
const GATHERING: usize = 2;
/// Timeout of the server's start.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest relative difference from the link's counters.
const TOLERANCE: f64 = 0.01;

/// Results of iperf3.
pub(crate) struct Said {
    /// Whether its count agrees with the link's.
    pub(crate) check: Check,
    /// Bits per second of each interval.
    rates: Vec<f64>,
}

impl Said {
    /// Compares its throughput with that of the case's first arm, which was in force: says whether
    /// they differ beyond the spread of both. `None` if the case has more than one connection.
    pub(crate) fn beside(&self, case: &Case) -> Option<String> {
        let arm = case.order.first().filter(|_| case.setting.connections == 1)?;
        let ours = case.column(arm, "throughput_bps");
        compare_independent(&self.rates, &ours, Better::Higher.into()).map(|found| words(&found))
    }
}

fn words(found: &Comparison) -> String {
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let interval = format!(
        "{:+.0} % ({:+.0} to {:+.0} at {:.1} %)",
        percent(found.ratio),
        percent(found.interval.low),
        percent(found.interval.high),
        100.0 * found.level
    );
    match found.verdict {
        Verdict::TooFewSamples => {
            format!("iperf3 against one connection here: too few intervals to tell ({interval}).")
        }
        Verdict::Improved | Verdict::Worse => format!(
            "iperf3's throughput differs from that of one connection here by more than both spread: {interval}."
        ),
        Verdict::NoDifferenceSeen | Verdict::Equivalent => format!(
            "iperf3's throughput and that of one connection here differ by no more than both spread: {interval}."
        ),
    }
}

/// Runs iperf3 through the switch; `None` if it is not installed or reports nothing.
///
/// # Errors
/// A host fails or is not reachable, or the interrupt is set.
pub(crate) fn run(
    topology: &mut Topology,
    interrupt: &Interrupt,
) -> Result<Option<Said>, LabError> {
    let (_, to_link) = topology.links(Route::Switch);
    let to = topology.address(Route::Switch);
    let arguments = ["-s", "-1"].map(str::to_owned).to_vec();
    let server = Request::Start { program: "iperf3".into(), arguments };
    match topology.receiver.order(&server, "iperf3 -s -1") {
        Err(LabError::ProgramMissing { .. }) => return Ok(None),
        other => other?,
    }
    let before = topology.receiver.read(to_link)?;
    let line = format!("iperf3 -c {to} -t {SECONDS} -i {INTERVAL} -J");
    let said = interrupt.wait_for(START_TIMEOUT, || match topology.sender.run(&line) {
        Ok(said) => Ok(Some(Some(said))),
        Err(LabError::ProgramMissing { .. }) => Ok(Some(None)),
        // The server does not listen yet.
        Err(LabError::Command { .. }) => Ok(None),
        Err(error) => Err(error),
    })?;
    let Some(Some(said)) = said else { return Ok(None) };
    let said: Value = serde_json::from_str(&said).unwrap_or_default();
    let after = topology.receiver.read(to_link)?;
    let carried = topology.payload(to_link)(&before, &after);
    Ok(counted(&said).map(|(sent, received)| {
        let apart = difference(carried, received);
        let congestion = said.pointer("/end/sender_tcp_congestion").and_then(Value::as_str);
        let by = congestion.map_or(String::new(), |name| format!(" by TCP with {name}"));
        let check = Check {
            name: "iperf3 and the kernel's interface counters agree".into(),
            // iperf3 does not count bytes in flight at the end.
            passed: received > 0
                && (apart.abs() <= TOLERANCE || (received..=sent).contains(&carried)),
            seen: format!(
                "iperf3 received {received} bytes in {SECONDS} s{by}; the frames on the receiver's link differ by {:+.3} %, so \
                 iperf3's figures and these can be compared",
                100.0 * apart
            ),
        };
        Said { check, rates: rates(&said) }
    }))
}

/// Returns the bits per second of each interval, without the first ones.
fn rates(said: &Value) -> Vec<f64> {
    let intervals = said["intervals"].as_array().into_iter().flatten();
    let rates = intervals.filter_map(|one| one.pointer("/sum/bits_per_second")?.as_f64());
    rates.skip(GATHERING).collect()
}

/// Returns the bytes that its sender sent, and those that its receiver received.
fn counted(said: &Value) -> Option<(u64, u64)> {
    let bytes = |whose: &str| said.pointer(&format!("/end/{whose}/bytes"))?.as_u64();
    Some((bytes("sum_sent")?, bytes("sum_received")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn both_ends_counts_are_read() {
        let said = json!({"end": {"sum_sent": {"bytes": 9}, "sum_received": {"bytes": 7}}});
        assert_eq!((counted(&said), counted(&Value::Null)), (Some((9, 7)), None));
    }

    #[test]
    fn intervals_are_rates_once_it_has_gathered_speed() {
        let interval = |rate: f64| json!({ "sum": { "bits_per_second": rate } });
        let said =
            json!({ "intervals": [interval(1.0), interval(2.0), interval(3.0), interval(4.0)] });
        assert_eq!(rates(&said), [3.0, 4.0]);
        assert!(rates(&Value::Null).is_empty());
    }

    #[test]
    fn a_difference_beyond_the_spread_of_both_is_said() {
        let rates =
            |around: f64| (0..10).map(|place| around + f64::from(place)).collect::<Vec<_>>();
        let said = |iperf: f64, ours: f64| {
            words(&compare_independent(&rates(iperf), &rates(ours), Better::Higher.into()).unwrap())
        };
        assert!(said(1000.0, 1000.0).contains("differ by no more than both spread: +0 %"));
        assert!(said(500.0, 1000.0).contains("differs from that of one connection here by more"));
        let few = compare_independent(&[1.0], &rates(1.0), Better::Higher.into()).unwrap();
        assert!(words(&few).contains("too few intervals to tell"));
    }
}
