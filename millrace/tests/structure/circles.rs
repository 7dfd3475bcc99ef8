//! Finds circles of files inside a crate: files of which each uses each other, directly or through
//! others.
//!
//! A file uses another one if it names a path into its module that starts with `crate`, `super` or
//! `self`. Comments and unit tests at the end of a file do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The text of each module of a crate, by name: `acl::mark`, and the empty name for the root.
pub(crate) type Sources = BTreeMap<String, String>;

/// For each module, the other modules that it uses.
pub(crate) type Uses = BTreeMap<String, BTreeSet<String>>;

/// Reads the files below `src`, except those named `tests.rs`.
pub(crate) fn sources(src: &Path) -> Sources {
    let (mut found, mut open) = (Sources::new(), vec![src.to_owned()]);
    while let Some(directory) = open.pop() {
        for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
                let module = module(path.strip_prefix(src).unwrap());
                found.insert(module, fs::read_to_string(&path).unwrap());
            }
        }
    }
    found
}

/// Returns the module of a file: `acl/mark.rs` and `acl/mark/mod.rs` are both `acl::mark`.
fn module(file: &Path) -> String {
    let file = file.with_extension("");
    let mut parts: Vec<&str> = file.iter().map(|part| part.to_str().unwrap()).collect();
    parts.pop_if(|last| matches!(*last, "mod" | "lib" | "main"));
    parts.join("::")
}

/// Finds the modules that each module uses.
pub(crate) fn uses(sources: &Sources) -> Uses {
    let of = |(module, text): (&String, &String)| {
        let paths = paths(&code(text));
        let targets = paths.iter().filter_map(|path| target(module, path, sources));
        (module.clone(), targets.filter(|target| target != module).collect())
    };
    sources.iter().map(of).collect()
}

/// Returns the text without comments and without the unit tests at its end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect()
}

/// Returns paths that start with `crate`, `super` or `self`: those of `use` items, spelled out, and
/// those in the code between them.
fn paths(code: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), code);
    while let Some((before, item)) = next_use(rest) {
        found.extend(inline(before));
        let (tree, after) = item.split_once(';').unwrap_or((item, ""));
        let tree: String = tree.split_whitespace().collect::<Vec<_>>().join(" ");
        spell_out("", &tree, &mut found);
        rest = after;
    }
    found.extend(inline(rest));
    found.retain(|path| ["crate", "super", "self"].contains(&path.split("::").next().unwrap()));
    found
}

/// Splits at the next `use` that begins an item. Returns the text before it, and the text after the
/// word.
fn next_use(code: &str) -> Option<(&str, &str)> {
    let begins_item = |&(at, _): &(usize, &str)| {
        let line = code[..at].rsplit('\n').next().unwrap().trim();
        line.is_empty() || line.starts_with("pub") || line.ends_with(['{', '}', ';', ']'])
    };
    let (at, word) = code.match_indices("use ").find(begins_item)?;
    Some((&code[..at], &code[at + word.len()..]))
}

/// Adds the single paths of a tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn spell_out(prefix: &str, tree: &str, found: &mut Vec<String>) {
    for branch in branches(tree) {
        let branch = branch.trim();
        match branch.split_once('{') {
            Some((head, rest)) => {
                let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
                spell_out(&format!("{prefix}{head}"), inner, found);
            }
            None if branch.is_empty() => {}
            None => found.push(format!("{prefix}{}", branch.split(" as ").next().unwrap())),
        }
    }
}

/// Splits at the commas outside of braces.
fn branches(tree: &str) -> Vec<&str> {
    let mut depth = 0;
    let split = |c: char| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    };
    tree.split(split).collect()
}

/// Returns the paths in code that is no `use` item.
fn inline(code: &str) -> Vec<String> {
    let part_of_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(move |c| !part_of_path(c));
    words.filter(|word| word.contains("::")).map(|word| word.trim_matches(':').to_owned()).collect()
}

/// Returns the module to which a path in `module` leads: the longest prefix that is a file.
fn target(module: &str, path: &str, sources: &Sources) -> Option<String> {
    let mut base: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest = path.split("::").peekable();
    if rest.next_if_eq(&"crate").is_some() {
        base.clear();
    }
    rest.next_if_eq(&"self");
    while rest.next_if_eq(&"super").is_some() {
        base.pop();
    }
    base.extend(rest);
    let prefixes = (1..=base.len()).rev().map(|length| base[..length].join("::"));
    prefixes.into_iter().find(|prefix| sources.contains_key(prefix))
}

/// Returns circles of two modules and more, the largest first.
pub(crate) fn circles(uses: &Uses) -> Vec<Vec<String>> {
    let reached: Uses = uses.keys().map(|from| (from.clone(), reached(from, uses))).collect();
    let of = |from: &String| -> Vec<String> {
        let back = |to: &&String| reached[*to].contains(from);
        reached[from].iter().filter(back).cloned().collect()
    };
    let distinct: BTreeSet<Vec<String>> = uses.keys().map(of).collect();
    let mut circles: Vec<_> = distinct.into_iter().filter(|circle| circle.len() > 1).collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Returns the modules that `from` uses, directly or through others. It contains `from` only if a
/// way leads back.
fn reached(from: &str, uses: &Uses) -> BTreeSet<String> {
    let (mut seen, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = open.pop() {
        for used in &uses[&module] {
            if seen.insert(used.clone()) {
                open.push(used.clone());
            }
        }
    }
    seen
}

fn made_up(files: &[(&str, &str)]) -> Sources {
    let source = |(file, text): &(&str, &str)| (module(Path::new(file)), (*text).to_owned());
    files.iter().map(source).collect()
}

#[test]
fn a_circle_of_three_is_found_beside_files_that_use_it() {
    let sources = made_up(&[
        ("lib.rs", "mod egress;\nmod frame;\npub use crate::egress::Egress;\n"),
        ("frame.rs", "use crate::{\n    egress::{Egress, slow::Slow},\n    other,\n};\n"),
        ("egress/mod.rs", "fn f() { let it = self::slow::Slow::new(); }\n"),
        ("egress/slow.rs", "pub(super) use super::super::frame::Frame as Whole;\n"),
        ("other.rs", "fn f() -> crate::last::Last { todo() }\n"),
        (
            "last.rs",
            "// crate::other is not used.\n#[cfg(test)]\nmod tests { use crate::other; }\n",
        ),
    ]);
    assert_eq!(circles(&uses(&sources)), [["egress", "egress::slow", "frame"]]);
}

#[test]
fn paths_of_other_crates_and_of_the_own_module_are_no_use() {
    let sources = made_up(&[
        ("wire.rs", "use wire::frame::Frame;\nuse std::{io, frame};\n"),
        ("frame.rs", "use crate::frame::part::Part;\nuse self::Kind::Train;\n"),
        ("frame/part.rs", "use crate::wire::Header;\n"),
    ]);
    let uses = uses(&sources);
    assert!(uses["wire"].is_empty());
    assert_eq!(uses["frame"], ["frame::part".to_owned()].into());
    assert_eq!(uses["frame::part"], ["wire".to_owned()].into());
    assert!(circles(&uses).is_empty());
}
