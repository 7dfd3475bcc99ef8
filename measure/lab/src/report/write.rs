//! A report in a directory: `report.html`, `report.md`, `report.json`, `report.csv` and
//! `junit.xml`.

use super::{Report, SCHEMA, csv::csv, html, junit::junit, markdown};
use crate::LabError;
use daemon::Replacement;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error;
use std::io;
use std::path::Path;

/// Writes all files, each atomically, into a directory that is created if it is missing.
///
/// # Errors
/// The directory or a file cannot be written.
pub fn write(report: &Report, directory: &Path) -> Result<(), LabError> {
    let failed = |source| LabError::Report { path: directory.to_owned(), source };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let texts = texts(report).map_err(io::Error::other).map_err(failed)?;
    texts.iter().try_for_each(|(name, text)| write_file(directory, name, text))
}

fn texts(report: &Report) -> Result<[(&'static str, String); 5], Box<dyn Error + Send + Sync>> {
    let intervals = csv(report)?;
    Ok([
        ("report.html", html::page(report, &intervals)?),
        ("report.md", markdown(report)),
        ("report.json", serde_json::to_string_pretty(report)?),
        ("report.csv", intervals),
        ("junit.xml", junit(report)?),
    ])
}

/// Writes a file of the directory atomically.
///
/// # Errors
/// [`LabError::Report`] if it cannot be written.
pub(crate) fn write_file(directory: &Path, name: &str, text: &str) -> Result<(), LabError> {
    let path = directory.join(name);
    Replacement::write(&path, text).map_err(|source| LabError::Report { path, source })
}

/// Reads a JSON file that this version of the format describes.
///
/// # Errors
/// The file cannot be read, or is no such JSON; the text says why.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let json: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    match json["schema"].as_u64() {
        Some(version) if version != u64::from(SCHEMA) => {
            Err(format!("it has version {version}, this program reads {SCHEMA}"))
        }
        _ => serde_json::from_value(json).map_err(|error| error.to_string()),
    }
}
