//! Every interval as a line of comma-separated values, for a spreadsheet or a script.

use super::Report;
use crate::experiment::Sample;
use crate::report::Case;
use std::collections::BTreeSet;

/// What an interval belongs to; the raw numbers follow, each under its key, empty where it was not counted.
const OWN: [&str; 7] = ["case", "connections", "buffer_bytes", "way", "arm", "round", "started_s"];

/// All intervals of all cases, in the order of time. `case` counts from 1; of round trips it is `round_trips`.
pub(super) fn csv(report: &Report) -> Result<String, csv::Error> {
    let numbered = report.all_cases().iter().enumerate();
    let cases = numbered.map(|(place, case)| ((place + 1).to_string(), case));
    let trips = report.latency.iter().map(|case| ("round_trips".to_owned(), case));
    let cases: Vec<(String, &Case)> = cases.chain(trips).collect();
    let samples = cases.iter().flat_map(|(_, case)| &case.samples);
    let keys: BTreeSet<&str> =
        samples.flat_map(|sample| sample.values.keys().map(String::as_str)).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(OWN.iter().chain(&keys))?;
    for (name, case) in &cases {
        for sample in &case.samples {
            writer.write_record(record(name, case, sample, &keys))?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn record(name: &str, case: &Case, sample: &Sample, keys: &BTreeSet<&str>) -> Vec<String> {
    let setting = case.setting;
    let own = [
        name.to_owned(),
        setting.connections.to_string(),
        setting.buffer_bytes.map_or_else(String::new, |bytes| bytes.to_string()),
        setting.way.map_or_else(String::new, |way| way.key().to_owned()),
        sample.arm.clone(),
        sample.round.to_string(),
        sample.started_s.to_string(),
    ];
    let value = |key: &&str| sample.values.get(*key).map_or_else(String::new, f64::to_string);
    own.into_iter().chain(keys.iter().map(value)).collect()
}
