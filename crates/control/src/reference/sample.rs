//! The sample: every key, commented, with its default or an example.

use super::keys::{Key, sections};

/// Letters of a line.
const WIDTH: usize = 100;

const HEAD: &str = "\
# Millrace's configuration: every key, commented. Where a key has a default it stands there, else an example.
# millrace.toml(5) says what each means; `millrace check FILE` reads the file and says what is wrong, line by line.
";

/// `packaging/millrace.toml`: as it stands it is the empty configuration.
pub fn sample() -> String {
    let mut text = HEAD.to_owned();
    for section in sections() {
        text.push_str(&format!("\n{}", comment(section.text)));
        // A table may be there without a key, a port may not.
        let off = if section.header.starts_with("[[") { "#" } else { "" };
        text.push_str(&format!("{off}{}\n", section.header));
        section.keys.iter().for_each(|key| text.push_str(&entry(key)));
    }
    text
}

fn entry(key: &Key) -> String {
    format!("\n{}#{} = {}\n", comment(&key.text), key.name, key.example)
}

/// Lines of a comment, cut at blanks.
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
