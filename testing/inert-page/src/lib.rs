//! A check of tests that the files of a page are inert: they neither make markup from text nor load
//! anything from another host.
//!
//! The page's Content-Security-Policy makes a browser block inline scripts and styles, markup from
//! text, and requests to other hosts. The check keeps them out of the files.
#![allow(clippy::unwrap_used, reason = "what goes wrong in a test fails it")]

use std::path::Path;

/// Words that no file of a page may contain.
const FORBIDDEN: [&str; 10] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "Function(",
    "style=",
    "onclick=",
    "onload=",
    "https://",
];

/// Checks all files in a folder, without its subfolders.
///
/// # Panics
/// A file contains a forbidden word or an inline script, or cannot be read.
pub fn check(folder: &Path) {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in paths.filter(|path| path.is_file()) {
        let (text, name) = (std::fs::read_to_string(&path).unwrap(), path.display());
        for word in FORBIDDEN {
            assert!(!text.contains(word), "{name}: {word}");
        }
        let scripts = text.matches("<script").count();
        assert_eq!(scripts, text.matches("<script src=\"").count(), "{name}: a script of its own");
    }
}
