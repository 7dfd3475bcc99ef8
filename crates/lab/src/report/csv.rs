//! Every interval as a line of comma-separated values, for a spreadsheet or a script. Counts are exact, other numbers have six
//! digits; `report.json` has all of them.

use super::Report;
use crate::experiment::Sample;
use crate::report::Case;
use std::collections::BTreeSet;

/// What an interval belongs to; the raw numbers follow, each under its key, empty where it was not counted.
const OWN: &str = "case,connections,buffer_bytes,beside,way,receiver_gro,arm,round,started_s";

/// All intervals of all cases, in the order of time. `case` counts from 1, round trips come last.
pub(super) fn csv(report: &Report) -> Result<String, csv::Error> {
    let cases = || report.cases.iter().chain(&report.latency);
    let samples = cases().flat_map(|case| &case.samples);
    let keys: BTreeSet<&str> =
        samples.flat_map(|sample| sample.values.keys().map(String::as_str)).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(OWN.split(',').chain(keys.iter().copied()))?;
    for (place, case) in cases().enumerate() {
        for sample in &case.samples {
            writer.write_record(record(place + 1, case, sample, &keys))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn record(number: usize, case: &Case, sample: &Sample, keys: &BTreeSet<&str>) -> Vec<String> {
    let setting = case.setting;
    let known = |count: Option<u32>| count.map_or_else(String::new, |count| count.to_string());
    let own = [
        number.to_string(),
        setting.connections.to_string(),
        known(setting.buffer_bytes),
        known(setting.beside),
        setting.way.map_or_else(String::new, |way| way.key().to_owned()),
        u8::from(setting.receiver_gro).to_string(),
        sample.arm.clone(),
        sample.round.to_string(),
        digits(sample.started_s),
    ];
    let value = |key: &&str| sample.values.get(*key).copied().map_or_else(String::new, digits);
    own.into_iter().chain(keys.iter().map(value)).collect()
}

fn digits(value: f64) -> String {
    let rounded = format!("{value:.5e}").parse().ok().filter(|_| value.fract() != 0.0);
    rounded.unwrap_or(value).to_string()
}
