//! The sample: every key, commented, with its default or an example.

use super::keys::{Key, sections};

/// Width of a line.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Millrace's configuration: every key, commented out, with its default or an example.
# millrace.toml(5) explains each key; `millrace check FILE` reports errors with their lines.
";

/// Returns the text of `packaging/millrace.toml`, which unchanged is the empty configuration.
pub fn sample() -> String {
    let mut text = HEAD.to_owned();
    for section in sections() {
        text.push_str(&format!("\n{}", comment(section.text)));
        // A table may be empty; a port must have keys.
        let off = if section.header.starts_with("[[") { "#" } else { "" };
        text.push_str(&format!("{off}{}\n", section.header));
        section.keys.iter().for_each(|key| text.push_str(&entry(key)));
    }
    text
}

fn entry(key: &Key) -> String {
    format!("\n{}#{} = {}\n", comment(&key.text), key.name, key.example)
}

/// Wraps a comment at spaces.
fn comment(text: &str) -> String {
    let mut lines = vec!["#".to_owned()];
    for word in text.split(' ') {
        if lines.last().is_some_and(|line| line.len() + word.len() >= WIDTH) {
            lines.push("#".to_owned());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(&format!(" {word}"));
        }
    }
    lines.into_iter().map(|line| line + "\n").collect()
}
