//! Reads a directory of files into a model.

use super::{Model, VERSION};
use config::from_toml;
use problem::Problem;
use std::fs;
use std::path::{Path, PathBuf};

/// Reads all `*.toml` files in the order of their names. A broken rule between files is reported
/// with the directory's name.
pub(super) fn folder(folder: &Path) -> Result<Model, Problem> {
    let unreadable = |path: &Path, error: std::io::Error| {
        Problem::new(format!("{} cannot be read", path.display()))
            .seen(error)
            .wanted("a directory with the fleet's TOML files")
            .remedy("name it with -f DIRECTORY")
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        paths.push(entry.map_err(|error| unreadable(folder, error))?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "toml"));
    paths.sort();
    if paths.is_empty() {
        return Err(Problem::new(format!("{} has no file of a fleet", folder.display()))
            .seen("no *.toml file")
            .wanted("at least one *.toml file, with `version = 1`")
            .remedy("write one; docs/fleet.md has an example"));
    }
    let mut model = Model::default();
    for path in paths {
        let text = fs::read_to_string(&path).map_err(|error| unreadable(&path, error))?;
        let part = file(&path.display().to_string(), &text)?;
        model.join(part).map_err(|problem| problem.at(path.display()))?;
    }
    model.sort();
    model.check().map_err(|problem| problem.at(folder.display()))?;
    Ok(model)
}

/// Reads one file's text.
pub(super) fn file(name: &str, text: &str) -> Result<Model, Problem> {
    let model: Model = from_toml(name, text)?;
    if model.version == VERSION {
        return Ok(model);
    }
    Err(Problem::new("the file has a different version")
        .seen(model.version)
        .wanted(VERSION)
        .remedy("use the Millrace version for which it was written")
        .at(name))
}
