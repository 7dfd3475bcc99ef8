//! Checks the links of the book as mdBook wrote it: each leads to a file, and to an element with
//! the name that it asks for. Links to other hosts are not followed, since no check needs a network.

use super::links::plain;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What mdBook writes beside the pages, of links that the pages have too.
const NO_PAGES: [&str; 3] = ["toc.html", "404.html", "print.html"];

/// Returns the dead links of all pages below a directory, each with its page.
///
/// # Errors
/// A page cannot be read.
pub(super) fn dead_links(directory: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    read(directory, "", &mut pages)?;
    let mut dead = Vec::new();
    for (page, text) in &pages {
        let links = values(text, "href");
        let wrong = links.filter(|link| !leads_somewhere(directory, page, link, &pages));
        dead.extend(wrong.map(|link| format!("{page}: {link}")));
    }
    Ok(dead)
}

/// Reads the pages below a directory by their paths there.
fn read(root: &Path, below: &str, pages: &mut BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = plain(&format!("{below}/{}", entry.file_name().to_string_lossy()));
        if entry.file_type()?.is_dir() {
            read(root, &path, pages)?;
        } else if path.ends_with(".html") && !NO_PAGES.contains(&path.as_str()) {
            let text = fs::read_to_string(entry.path());
            let text = text.with_context(|| format!("{path} cannot be read"))?;
            pages.insert(path, text);
        }
    }
    Ok(())
}

/// Returns the values of an attribute.
fn values<'t>(text: &'t str, attribute: &str) -> impl Iterator<Item = &'t str> {
    let starts = text.split(&format!(" {attribute}=\"")).skip(1).collect::<Vec<_>>();
    starts.into_iter().filter_map(|rest| Some(rest.split_once('"')?.0))
}

fn leads_somewhere(root: &Path, page: &str, link: &str, pages: &BTreeMap<String, String>) -> bool {
    if link.contains(':') {
        return true;
    }
    let (file, name) = link.split_once('#').unwrap_or((link, ""));
    let directory = page.rsplit_once('/').map_or("", |(directory, _)| directory);
    let path = match file {
        "" => page.to_owned(),
        _ => plain(&format!("{directory}/{file}")),
    };
    match pages.get(&path) {
        Some(text) => name.is_empty() || values(text, "id").any(|id| id == name),
        None => root.join(path).is_file(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_no_file_or_to_no_heading_is_dead() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("t")).unwrap();
        let first = r##"<h2 id="here"></h2> <a href="#here">a</a> <a href="t/b.html#there">b</a>
            <a href="t/b.html#away">c</a> <a href="https://example.org/x">d</a>"##;
        fs::write(root.path().join("a.html"), first).unwrap();
        let second =
            r##"<h2 id="there"></h2> <a href="../a.html#here">a</a> <a href="a.html">b</a>"##;
        fs::write(root.path().join("t/b.html"), second).unwrap();
        let dead = dead_links(root.path()).unwrap();
        assert_eq!(dead, ["a.html: t/b.html#away", "t/b.html: a.html"]);
    }
}
