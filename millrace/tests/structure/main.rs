//! Checks the rules of ARCHITECTURE.md: crates use only those that their wing permits, files of a
//! crate form no large circle, and the document's table of crates is the workspace's.
//!
//! The checks read the files of this tree; they do not run cargo.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "an unwrap in a test is an assertion")]

mod circles;
mod manifests;

use manifests::{Crate, Workspace};

/// The dependencies that crates of a wing, or one crate, may have.
struct Rule {
    /// Prefix of the crates' directories. The first matching rule applies.
    crates: &'static str,
    /// Prefixes of the directories of our own crates that these crates may use.
    ours: &'static [&'static str],
    /// Crates of others that these crates must not use.
    never: &'static [&'static str],
}

/// Crates that the data path must not use: runtimes, serialisation and HTTP.
const CONTROL_ONLY: &[&str] = &[
    "tokio",
    "tokio-rustls",
    "serde",
    "serde_json",
    "toml",
    "axum",
    "utoipa",
    "utoipa-axum",
    "hyper",
    "hyper-util",
    "http-body-util",
];

/// The rules. Only `[dependencies]` count: tests and benches may use anything.
const RULES: &[Rule] = &[
    Rule { crates: "switch/", ours: &["switch/"], never: CONTROL_ONLY },
    Rule { crates: "control/", ours: &["switch/", "control/"], never: &[] },
    Rule { crates: "hosts/", ours: &["switch/", "control/", "hosts/"], never: &[] },
    Rule { crates: "testing/", ours: &["switch/", "control/", "testing/"], never: &[] },
    // This program only measures, so it may use the guests of the tests.
    Rule {
        crates: "measure/noise",
        ours: &["switch/", "control/", "hosts/", "measure/", "testing/"],
        never: &[],
    },
    Rule {
        crates: "measure/peers",
        ours: &["switch/", "control/", "hosts/", "measure/", "testing/"],
        never: &[],
    },
    Rule { crates: "measure/", ours: &["switch/", "control/", "hosts/", "measure/"], never: &[] },
    Rule { crates: "millrace", ours: &["switch/", "control/", "hosts/", "measure/"], never: &[] },
    Rule { crates: "xtask", ours: &[], never: &[] },
];

/// The most files that a circle inside a crate may have. The first matching prefix applies.
const LARGEST_CIRCLE: &[(&str, usize)] =
    &[("switch/datapath", 0), ("switch/", 3), ("control/", 3), ("measure/lab", 0), ("", 6)];

#[test]
fn each_crate_uses_only_what_its_wing_may_use() {
    let workspace = Workspace::read(&root());
    let violations: Vec<String> =
        workspace.crates.iter().flat_map(|user| violations(user, &workspace)).collect();
    assert!(violations.is_empty(), "dependencies against the rules:\n{}", violations.join("\n"));
}

#[test]
fn files_of_a_crate_form_no_large_circle() {
    let mut too_large = Vec::new();
    for Crate { directory, .. } in Workspace::read(&root()).crates {
        let (_, most) = LARGEST_CIRCLE.iter().find(|(of, _)| directory.starts_with(of)).unwrap();
        let sources = circles::sources(&root().join(&directory).join("src"));
        let found = circles::circles(&circles::uses(&sources));
        let large = found.iter().filter(|circle| circle.len() > *most);
        too_large.extend(large.map(|circle| {
            let (files, count) = (circle.join(", "), circle.len());
            format!("{directory}: {count} files use each other, at most {most} may: {files}")
        }));
    }
    assert!(too_large.is_empty(), "circles of files:\n{}", too_large.join("\n"));
}

#[test]
fn the_table_of_crates_is_the_workspace_in_the_order_of_its_arrows() {
    let workspace = Workspace::read(&root());
    let rows = rows(&std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap());
    let mut wrong = Vec::new();
    for Crate { directory, dependencies } in &workspace.crates {
        let Some(place) = rows.iter().position(|row| row == directory) else {
            wrong.push(format!("{directory} has no row"));
            continue;
        };
        let used = dependencies.iter().filter_map(|name| workspace.ours.get(name));
        let below = used.filter(|used| !rows[..place].contains(used));
        wrong.extend(below.map(|used| format!("{directory} uses {used}, which is not above it")));
    }
    let known = |row: &String| workspace.crates.iter().any(|known| known.directory == *row);
    let gone = rows.iter().filter(|row| !known(row));
    wrong.extend(gone.map(|row| format!("{row} has a row and is no crate")));
    assert!(wrong.is_empty(), "ARCHITECTURE.md, \"The crates\":\n{}", wrong.join("\n"));
}

#[test]
fn a_violation_names_crate_dependency_and_rule() {
    let ours = [("wire", "switch/wire"), ("cni", "hosts/cni")];
    let workspace = Workspace {
        crates: Vec::new(),
        ours: ours.map(|(name, directory)| (name.to_owned(), directory.to_owned())).into(),
        others: ["tokio", "libc"].map(str::to_owned).into(),
    };
    let uses = |directory: &str, dependencies: &[&str]| {
        let dependencies = dependencies.iter().map(|&name| name.to_owned()).collect();
        violations(&Crate { directory: directory.to_owned(), dependencies }, &workspace)
    };
    assert!(uses("switch/ports", &["wire", "libc"]).is_empty());
    assert!(uses("hosts/fleet", &["wire", "cni", "tokio"]).is_empty());
    assert_eq!(
        uses("switch/ports", &["cni", "tokio", "own"]),
        [
            "switch/ports uses hosts/cni: crates of switch/ may use switch/ of ours",
            "switch/ports uses tokio: crates of switch/ never use it",
            "switch/ports uses own: [workspace.dependencies] does not name it",
        ]
    );
}

#[test]
fn rows_are_read_from_the_section_of_crates_only() {
    let text = "## Words\n| [no](switch/no/src/lib.rs) | a |\n## The crates\n| crate | what |\n\
                | --- | --- |\n| [wire](switch/wire/src/lib.rs) | [b](docs/b.md) |\n\
                | [millrace](millrace/src/main.rs) | c |\n## Next\n| [no](no/src/lib.rs) | d |\n";
    assert_eq!(rows(text), ["switch/wire", "millrace"]);
}

fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the dependencies of `user` that its rule does not permit, each as a line for people.
fn violations(user: &Crate, workspace: &Workspace) -> Vec<String> {
    let directory = &user.directory;
    let Some(rule) = RULES.iter().find(|rule| directory.starts_with(rule.crates)) else {
        return vec![format!("{directory} has no rule: add one to RULES")];
    };
    let mut found = Vec::new();
    for name in &user.dependencies {
        if let Some(used) = workspace.ours.get(name) {
            if !rule.ours.iter().any(|wing| used.starts_with(wing)) {
                let (of, may) = (rule.crates, rule.ours.join(", "));
                found
                    .push(format!("{directory} uses {used}: crates of {of} may use {may} of ours"));
            }
        } else if !workspace.others.contains(name) {
            found.push(format!(
                "{directory} uses {name}: [workspace.dependencies] does not name it"
            ));
        } else if rule.never.contains(&name.as_str()) {
            let of = rule.crates;
            found.push(format!("{directory} uses {name}: crates of {of} never use it"));
        }
    }
    found
}

/// Returns the directories of the crates in ARCHITECTURE.md's table, in its order. A row's first
/// cell links to the crate's `lib.rs` or `main.rs`.
fn rows(architecture: &str) -> Vec<String> {
    let lines = architecture.lines().skip_while(|line| *line != "## The crates").skip(1);
    let section = lines.take_while(|line| !line.starts_with("## "));
    let cells = section.filter_map(|line| line.strip_prefix("| [")?.split(" |").next());
    let targets = cells.filter_map(|cell| cell.split_once("](").map(|(_, target)| target));
    targets.filter_map(|target| Some(target.split_once("/src/")?.0.to_owned())).collect()
}
