//! Reads the workspace's crates and their dependencies from the manifests, line by line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A member of the workspace.
pub(crate) struct Crate {
    /// The crate's directory, from the root: `switch/wire`.
    pub(crate) directory: String,
    /// The names under `[dependencies]` and under each `[target.….dependencies]`.
    pub(crate) dependencies: Vec<String>,
}

/// The crates that the root manifest names.
pub(crate) struct Workspace {
    pub(crate) crates: Vec<Crate>,
    /// Directories of the workspace's crates, by the names that dependents use.
    pub(crate) ours: BTreeMap<String, String>,
    /// Names of external crates.
    pub(crate) others: BTreeSet<String>,
}

impl Workspace {
    /// Reads the manifests below `root`.
    pub(crate) fn read(root: &Path) -> Self {
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let members = manifest.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
        let members = members.split('"').skip(1).step_by(2);
        let mut crates: Vec<Crate> = members
            .flat_map(|member| directories(root, member))
            .map(|directory| {
                let manifest = root.join(&directory).join("Cargo.toml");
                let dependencies = dependencies(&fs::read_to_string(manifest).unwrap());
                Crate { directory, dependencies }
            })
            .collect();
        crates.sort_by(|one, other| one.directory.cmp(&other.directory));
        let (ours, others) = shared(&manifest);
        Self { crates, ours, others }
    }
}

/// Returns the directories with a manifest that a member of the workspace stands for: `switch/*` or
/// `millrace`.
fn directories(root: &Path, member: &str) -> Vec<String> {
    let Some(wing) = member.strip_suffix("/*") else { return vec![member.to_owned()] };
    let entries = fs::read_dir(root.join(wing)).unwrap().map(|entry| entry.unwrap());
    let crates = entries.filter(|entry| entry.path().join("Cargo.toml").exists());
    crates.map(|entry| format!("{wing}/{}", entry.file_name().into_string().unwrap())).collect()
}

/// Returns the lines `key = value` below the headings for which `wanted` is true.
fn entries(manifest: &str, wanted: fn(&str) -> bool) -> impl Iterator<Item = (&str, &str)> {
    let mut inside = false;
    manifest.lines().filter_map(move |line| {
        if line.starts_with('[') {
            inside = wanted(line);
        }
        let (key, value) = line.split_once('=').filter(|_| inside)?;
        let name = key.trim().split('.').next()?;
        let bare = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        (bare && !name.is_empty()).then_some((name, value.trim()))
    })
}

/// Returns the names under `[dependencies]` and under `[target.'…'.dependencies]`.
fn dependencies(manifest: &str) -> Vec<String> {
    let of_builds = |heading: &str| {
        heading == "[dependencies]"
            || heading.starts_with("[target.") && heading.ends_with(".dependencies]")
    };
    entries(manifest, of_builds).map(|(name, _)| name.to_owned()).collect()
}

/// Reads `[workspace.dependencies]`. Returns our own crates with their directories, and the names
/// of the others.
fn shared(manifest: &str) -> (BTreeMap<String, String>, BTreeSet<String>) {
    let (mut ours, mut others) = (BTreeMap::new(), BTreeSet::new());
    for (name, value) in entries(manifest, |heading| heading == "[workspace.dependencies]") {
        match value.split_once("path = \"").and_then(|(_, rest)| rest.split_once('"')) {
            Some((directory, _)) => _ = ours.insert(name.to_owned(), directory.to_owned()),
            None => _ = others.insert(name.to_owned()),
        }
    }
    (ours, others)
}

#[test]
fn dependencies_are_those_of_builds_not_of_tests() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\n# A reason.\nwire.workspace = true\n\
                    vhost = { workspace = true }\n[target.'cfg(loom)'.dependencies]\n\
                    loom.workspace = true\n[dev-dependencies]\ntokio.workspace = true\n";
    assert_eq!(dependencies(manifest), ["wire", "vhost", "loom"]);
}

#[test]
fn shared_dependencies_are_ours_by_their_paths() {
    let manifest = "[workspace]\nresolver = \"3\"\n[workspace.dependencies]\n\
                    wire = { path = \"switch/wire\", package = \"millrace-wire\" }\n\
                    libc = \"0.2\"\n[workspace.lints.rust]\nunsafe_code = \"deny\"\n";
    let (ours, others) = shared(manifest);
    assert_eq!(ours, [("wire".to_owned(), "switch/wire".to_owned())].into());
    assert_eq!(others, ["libc".to_owned()].into());
}
