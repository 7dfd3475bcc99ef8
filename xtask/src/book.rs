//! Makes the book of `docs` with mdBook, and fails if one of its links is dead.
//!
//! `docs/SUMMARY.md` lists the pages. Some are elsewhere in the tree, and pages link to sources. So
//! the pages are first copied to `target/book/source`: each page below one directory, with links
//! to other pages kept and all others led to the repository. mdBook then writes
//! `target/book/html`. `make docs` and `cargo xtask test lint` call this.

mod links;
mod pages;

use crate::program::{call, has, tools_path, words};
use crate::tree;
use anyhow::{Context, Result, bail};
use links::{plain, relative, rewrite, targets};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

pub(crate) const HELP: &str = "\
Usage: cargo xtask book [open]

Makes the book of docs/SUMMARY.md in target/book/html, and fails if one of its links is dead.

  cargo xtask book       makes it, and prints where it is
  cargo xtask book open  opens it in a browser too, if there is a desktop

It needs mdBook, which `cargo xtask setup docs` installs below the target directory.";

/// The directory of the pages, in the tree.
const DOCS: &str = "docs";

/// Where files that are no page of the book are read.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

/// Makes the book. Returns `None` if the words are wrong.
///
/// # Errors
/// mdBook is missing or fails, `SUMMARY.md` names a file that does not exist, or a link is dead.
pub(crate) fn run(words: &[&str]) -> Result<Option<ExitCode>> {
    if !matches!(words, [] | ["open"]) {
        return Ok(None);
    }
    tree::enter()?;
    let target = tree::target()?;
    let (source, html) = (target.join("book/source"), target.join("book/html"));
    tree::remove(&target.join("book"))?;
    stage(&source)?;
    let mut mdbook = Command::new("mdbook");
    mdbook.env("PATH", tools_path(&target)).arg("build").arg(&source).env("MDBOOK_LOG", "warn");
    call(&mut mdbook).context("install mdBook: cargo xtask setup docs")?;
    let dead = pages::dead_links(&html)?;
    if !dead.is_empty() {
        bail!("links that lead nowhere:\n{}", dead.join("\n"));
    }
    let first = html.join("index.html");
    println!("book: {}", first.display());
    if words == ["open"] {
        open(&first);
    }
    Ok(Some(ExitCode::SUCCESS))
}

/// Opens a page if there is a desktop. Its path has been printed already, so a failure is none.
fn open(page: &Path) {
    let is_desktop = ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| env::var_os(name).is_some());
    if is_desktop && has("xdg-open") {
        words("xdg-open").arg(page).spawn().ok();
    }
}

/// Copies the settings, the table of contents, the pages and their pictures to the source
/// directory of the book.
fn stage(source: &Path) -> Result<()> {
    let summary = read(&format!("{DOCS}/SUMMARY.md"))?;
    let pages = pages_of(&summary);
    for settings in ["book.toml", "book.css"] {
        copy(&format!("{DOCS}/{settings}"), &source.join(settings))?;
    }
    let listed = rewrite(&summary, |target| link(DOCS, "", target, &pages));
    write(&source.join("SUMMARY.md"), &listed)?;
    for (path, page) in &pages {
        let (from, to) = (directory(path), directory(page));
        let text = rewrite(&read(path)?, |target| link(from, to, target, &pages));
        write(&source.join(page), &text)?;
    }
    for picture in fs::read_dir(DOCS)? {
        let picture = picture?.path();
        if picture.extension().is_some_and(|extension| extension == "svg") {
            let name = picture.file_name().context("a directory's entry has a name")?;
            copy(&picture.to_string_lossy(), &source.join(name))?;
        }
    }
    Ok(())
}

/// Returns the pages that a table of contents lists: each path in the tree with its place in the
/// book. README becomes the first page, and others from outside of `docs` come into a directory of
/// their own, since both have a page on security.
fn pages_of(summary: &str) -> BTreeMap<String, String> {
    let listed = targets(summary).into_iter().map(|target| plain(&format!("{DOCS}/{target}")));
    let page = |path: &str| match path.strip_prefix("docs/") {
        Some(below) => below.to_owned(),
        None if path == "README.md" => "index.md".to_owned(),
        None => format!("project/{}", path.to_lowercase()),
    };
    listed.map(|path| (path.clone(), page(&path))).collect()
}

/// Translates a link of a file in directory `from` of the tree for a page in directory `to` of the
/// book.
fn link(from: &str, to: &str, target: &str, pages: &BTreeMap<String, String>) -> String {
    if target.starts_with('#') || target.contains("://") || target.starts_with("mailto:") {
        return target.to_owned();
    }
    let (file, anchor) = target.find('#').map_or((target, ""), |at| target.split_at(at));
    let path = plain(&format!("{from}/{file}"));
    match pages.get(&path) {
        Some(page) => format!("{}{anchor}", relative(to, page)),
        None if path.ends_with(".svg") => relative(to, path.trim_start_matches("docs/")),
        None => format!("{REPOSITORY}{path}{anchor}"),
    }
}

/// Returns the directory of a path, empty at the top.
fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{path} cannot be read"))
}

fn copy(from: &str, to: &Path) -> Result<()> {
    write(to, &read(from)?)
}

fn write(path: &Path, text: &str) -> Result<()> {
    let parent = path.parent().context("a file has a directory")?;
    fs::create_dir_all(parent)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_between_pages_stay_and_others_lead_to_the_repository() {
        let summary = "[a](../README.md)\n- [b](using.md)\n- [c](tutorials/containers.md)\n\
                       - [d](../ARCHITECTURE.md)\n";
        let pages = pages_of(summary);
        let from = |from, to, target| link(from, to, target, &pages);
        assert_eq!(from("", "", "docs/using.md#commands"), "using.md#commands");
        assert_eq!(from("docs", "", "../ARCHITECTURE.md"), "project/architecture.md");
        assert_eq!(from("docs/tutorials", "tutorials", "../../README.md#a"), "../index.md#a");
        assert_eq!(from("", "", "docs/topology.svg"), "topology.svg");
        assert_eq!(from("", "project", "docs/using.md"), "../using.md");
        assert_eq!(from("docs", "", "#here"), "#here");
        assert_eq!(from("docs", "", "https://example.org/x"), "https://example.org/x");
        let source = from("docs", "", "../switch/wire/src/lib.rs");
        assert!(source.starts_with("https://"), "{source}");
        assert!(source.ends_with("/blob/main/switch/wire/src/lib.rs"), "{source}");
    }
}
