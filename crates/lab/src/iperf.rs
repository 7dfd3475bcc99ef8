//! iperf3 between the same hosts, as a second opinion on the counting: what it says it has received, against the counters
//! of the receiver's link, which this lab's own figures are held against too.

use crate::LabError;
use crate::host::Request;
use crate::interrupt::Interrupt;
use crate::report::{Check, difference};
use crate::topology::{Route, Topology};
use serde_json::Value;
use std::time::Duration;

/// Seconds it runs.
const SECONDS: u32 = 2;
/// A server that does not listen by then never will.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most that it and the link may differ.
const TOLERANCE: f64 = 0.01;

/// Runs it through the switch. `None` where it is not installed.
pub(crate) fn check(
    topology: &mut Topology,
    interrupt: &Interrupt,
) -> Result<Option<Check>, LabError> {
    let (_, to_link) = topology.links(Route::Switch);
    let to = topology.address(Route::Switch);
    let arguments = ["-s", "-1"].map(str::to_owned).to_vec();
    let server = Request::Start { program: "iperf3".into(), arguments };
    match topology.receiver.order(&server, "iperf3 -s -1") {
        Err(LabError::ProgramMissing { .. }) => return Ok(None),
        other => other?,
    }
    let before = topology.receiver.read(to_link)?;
    let line = format!("iperf3 -c {to} -t {SECONDS} -J");
    let said = interrupt.wait_for(PATIENCE, || match topology.sender.run(&line) {
        Ok(said) => Ok(Some(Some(said))),
        Err(LabError::ProgramMissing { .. }) => Ok(Some(None)),
        // The server is not there yet.
        Err(LabError::Command { .. }) => Ok(None),
        Err(error) => Err(error),
    })?;
    let Some(Some(said)) = said else { return Ok(None) };
    let after = topology.receiver.read(to_link)?;
    let frames = after.arrived_frames - before.arrived_frames;
    let bytes = after.arrived_bytes - before.arrived_bytes;
    let carried = topology.payload(to_link, frames, bytes);
    Ok(counted(&said).map(|(sent, received)| {
        let apart = difference(carried, received);
        Check {
            name: "iperf3 and the kernel's interface counters agree".into(),
            // It does not count what was on its way at the end.
            passed: apart.abs() <= TOLERANCE || (received..=sent).contains(&carried),
            seen: format!(
                "iperf3 received {received} bytes in {SECONDS} s; the frames of the receiver's link had {:+.3} % of that, so \
                 iperf3's figures and those here can be compared",
                100.0 * apart
            ),
        }
    }))
}

/// The bytes its sender gave to the connection, and those its receiver got.
fn counted(json: &str) -> Option<(u64, u64)> {
    let said: Value = serde_json::from_str(json).ok()?;
    let bytes = |whose: &str| said.pointer(&format!("/end/{whose}/bytes"))?.as_u64();
    Some((bytes("sum_sent")?, bytes("sum_received")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_counts_are_read() {
        let json = r#"{"end":{"sum_sent":{"bytes":9},"sum_received":{"bytes":7}}}"#;
        assert_eq!((counted(json), counted("iperf3: error")), (Some((9, 7)), None));
    }
}
