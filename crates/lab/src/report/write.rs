//! A report in a directory: `report.html`, `report.md`, `report.json`, `report.csv` and `junit.xml`.

use super::{Report, csv::csv, html, junit::junit, markdown};
use crate::LabError;
use std::io;
use std::path::{Path, PathBuf};

/// Where a report went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page to open.
    pub html: PathBuf,
    /// The text to paste.
    pub markdown: PathBuf,
    /// The numbers.
    pub json: PathBuf,
    /// Every interval.
    pub csv: PathBuf,
    /// What a CI system shows.
    pub junit: PathBuf,
}

/// Writes all of them, each whole or not at all, into a directory that is made where it is missing.
pub fn write(report: &Report, directory: &Path) -> Result<Written, LabError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LabError::Report { path, source }
    };
    std::fs::create_dir_all(directory).map_err(failed(directory))?;
    let made = |error| failed(directory)(error);
    let json = serde_json::to_string_pretty(report).map_err(io::Error::other).map_err(made)?;
    let intervals = csv(report).map_err(io::Error::other).map_err(made)?;
    let page = html::page(report, &intervals).map_err(io::Error::other).map_err(made)?;
    let tests = junit(report).map_err(io::Error::other).map_err(made)?;
    Ok(Written {
        html: put(directory, "report.html", &page)?,
        markdown: put(directory, "report.md", &markdown(report))?,
        json: put(directory, "report.json", &json)?,
        csv: put(directory, "report.csv", &intervals)?,
        junit: put(directory, "junit.xml", &tests)?,
    })
}

/// Writes a file whole or not at all.
pub(crate) fn put(directory: &Path, name: &str, text: &str) -> Result<PathBuf, LabError> {
    let (path, partial) = (directory.join(name), directory.join(format!(".{name}.part")));
    std::fs::write(&partial, text)
        .and_then(|()| std::fs::rename(&partial, &path))
        .inspect_err(|_| drop(std::fs::remove_file(&partial)))
        .map_err(|source| LabError::Report { path: path.clone(), source })?;
    Ok(path)
}
