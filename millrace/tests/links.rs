//! Checks that every link in the documents leads to a file of this tree, and to a heading where it
//! names one, and that the book has every document.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "an unwrap in a test is an assertion")]

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_relative_link_leads_somewhere() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        let dead = targets(&text).into_iter().filter(|target| !leads_somewhere(&document, target));
        broken.extend(dead.map(|target| format!("{}: {target}", document.display())));
    }
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn the_book_lists_every_document_once() {
    let summary = root().join("docs/SUMMARY.md");
    let pages = targets(&fs::read_to_string(&summary).unwrap());
    let mut listed: Vec<PathBuf> =
        pages.iter().map(|page| fs::canonicalize(summary.with_file_name(page)).unwrap()).collect();
    let mut wanted: Vec<PathBuf> = documents()
        .into_iter()
        .filter(|document| *document != summary)
        .map(|document| fs::canonicalize(document).unwrap())
        .collect();
    listed.sort();
    wanted.sort();
    assert_eq!(listed, wanted, "docs/SUMMARY.md lists other pages than there are");
}

#[test]
fn links_and_headings_are_read_as_renderers_do() {
    let text = "# One `two`, three\n[a](b.md#c) `[no](code.md)`\n```\n[no](fence.md)\n# no\n```\n![i](p.svg)";
    assert_eq!(targets(text), ["b.md#c", "p.svg"]);
    assert_eq!(anchors(text), ["one-two-three"]);
    let here = root().join("CONTRIBUTING.md");
    assert!(leads_somewhere(&here, "Cargo.toml") && leads_somewhere(&here, "https://example.org"));
    assert!(!leads_somewhere(&here, "nowhere.md") && !leads_somewhere(&here, "#nowhere"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the Markdown files at the top and below `docs`.
fn documents() -> Vec<PathBuf> {
    let found = ["", "docs", "docs/tutorials"].map(|at| fs::read_dir(root().join(at)).unwrap());
    let paths = found.into_iter().flatten().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Returns the lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Returns the targets of `[text](target)`, without those in code spans.
fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let plain: String = line.split('`').step_by(2).collect();
        let ends = plain.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(ends.map(|(target, _)| target.to_owned()));
    }
    found
}

/// Returns the headings as renderers name them: lower case, blanks to hyphens, punctuation dropped.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let words = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        words.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    headings.map(anchor).collect()
}

fn leads_somewhere(document: &Path, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => document.to_owned(),
        _ => document.parent().unwrap().join(file),
    };
    let markdown = path.extension().is_some_and(|extension| extension == "md");
    let named = || anchors(&fs::read_to_string(&path).unwrap()).iter().any(|other| other == anchor);
    path.exists() && (anchor.is_empty() || !markdown || named())
}
