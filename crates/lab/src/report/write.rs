//! A report in a directory: `report.html`, `report.md`, `report.json`.

use super::{Report, html, markdown};
use crate::LabError;
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
}

/// Writes all three, each whole or not at all, into a directory that is made where it is missing.
pub fn write(report: &Report, directory: &Path) -> Result<Written, LabError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| LabError::Report { path, source }
    };
    std::fs::create_dir_all(directory).map_err(failed(directory))?;
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| failed(directory)(std::io::Error::other(error)))?;
    // Once, and without what only a reader of the file wants.
    let raw = serde_json::to_string(report)
        .map_err(|error| failed(directory)(std::io::Error::other(error)))?;
    let page = html::page(report, &raw)
        .map_err(|error| failed(directory)(std::io::Error::other(error)))?;
    Ok(Written {
        html: put(directory, "report.html", &page)?,
        markdown: put(directory, "report.md", &markdown(report))?,
        json: put(directory, "report.json", &json)?,
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
