//! The links of a Markdown text: which there are, and the same text with others in their places.
//! Fenced code and code spans have none. Paths here are text with `/`, relative to the tree or to
//! the book.

/// Returns a text in which each target of `[text](target)` is replaced by what `new` makes of it.
pub(super) fn rewrite(text: &str, mut new: impl FnMut(&str) -> String) -> String {
    let (mut written, mut is_fenced, mut is_code) = (String::new(), false, false);
    for line in text.split_inclusive('\n') {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        if is_fenced || is_fence {
            written.push_str(line);
            continue;
        }
        // A code span may go on in the next line, but not in the next paragraph.
        is_code &= !line.trim().is_empty();
        for (at, part) in line.split('`').enumerate() {
            if at > 0 {
                written.push('`');
                is_code = !is_code;
            }
            if is_code { written.push_str(part) } else { replace(part, &mut written, &mut new) }
        }
    }
    written
}

/// Returns the targets of all links.
pub(super) fn targets(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    rewrite(text, |target| {
        found.push(target.to_owned());
        target.to_owned()
    });
    found
}

/// Appends a piece of text without code, with its targets replaced.
fn replace(text: &str, written: &mut String, new: &mut impl FnMut(&str) -> String) {
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, left)) = after.split_once(')') else { break };
        written.push_str(before);
        written.push_str("](");
        written.push_str(&new(target));
        written.push(')');
        rest = left;
    }
    written.push_str(rest);
}

/// Returns a path without empty parts, `.` and `..`.
pub(super) fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => _ = parts.pop(),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Returns the way from a directory to a path.
pub(super) fn relative(directory: &str, path: &str) -> String {
    let up = directory.split('/').filter(|part| !part.is_empty()).count();
    let mut from = directory;
    let (mut left, mut path) = (up, path);
    while let (Some((first, rest)), true) = (path.split_once('/'), left > 0) {
        let (own, further) = from.split_once('/').unwrap_or((from, ""));
        if own != first {
            break;
        }
        (path, from, left) = (rest, further, left - 1);
    }
    "../".repeat(left) + path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_code_are_replaced() {
        let text = "[a `c`](x.md) `[no](y)`\n```\n[no](z)\n```\nopen `code\nspan` [b](w)\n";
        let new = rewrite(text, |target| format!("<{target}>"));
        let wanted = "[a `c`](<x.md>) `[no](y)`\n```\n[no](z)\n```\nopen `code\nspan` [b](<w>)\n";
        assert_eq!(new, wanted);
        assert_eq!(targets(text), ["x.md", "w"]);
    }

    #[test]
    fn a_relative_path_leads_from_a_directory_to_a_file() {
        assert_eq!(plain("docs/../a/./b.md"), "a/b.md");
        assert_eq!(relative("", "a/b.md"), "a/b.md");
        assert_eq!(relative("a", "a/b.md"), "b.md");
        assert_eq!(relative("a/c", "a/b.md"), "../b.md");
        assert_eq!(relative("ab", "a/b.md"), "../a/b.md");
        assert_eq!(relative("a", "b.md"), "../b.md");
    }
}
