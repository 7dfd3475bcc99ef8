//! Every interval as a line of comma-separated values, for a spreadsheet or a script. Counts are
//! exact, other numbers have six digits; `report.json` has all of them.

use super::{Report, Setting};
use crate::plan::Sample;
use std::collections::BTreeSet;

/// Columns that identify an interval. The raw numbers follow, each under its key, and empty if not
/// counted.
const OWN: &str = "case,connections,buffer_bytes,beside,way,receiver_gro,arm,round,started_s";

/// Returns all intervals of all cases, in the order of time. `case` counts from 1, and round trips
/// come last.
pub(super) fn csv(report: &Report) -> Result<String, csv::Error> {
    let cases = || report.cases.iter().chain(&report.latency);
    let samples = cases().flat_map(|case| &case.samples);
    let keys: BTreeSet<&str> =
        samples.flat_map(|sample| sample.values.keys().map(String::as_str)).collect();
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(OWN.split(',').chain(keys.iter().copied()))?;
    for (place, case) in cases().enumerate() {
        let Setting { connections, buffer_bytes, beside, way, receiver_gro } = case.setting;
        let load = (place + 1, connections, buffer_bytes, beside, way, u8::from(receiver_gro));
        for Sample { arm, round, started_s, values, .. } in &case.samples {
            let values = keys.iter().map(|key| values.get(*key).copied().map(digits));
            let values: Vec<Option<String>> = values.collect();
            writer.serialize((load, arm, round, digits(*started_s), values))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn digits(value: f64) -> String {
    let rounded = format!("{value:.5e}").parse().ok().filter(|_| value.fract() != 0.0);
    rounded.unwrap_or(value).to_string()
}
