//! The reference as a manual page, in the macros of man(7).

use super::INTRODUCTION;
use super::keys::{Key, sections};

/// Returns the manual page millrace.toml(5).
pub fn manual() -> String {
    let mut page = format!(
        ".TH MILLRACE.TOML 5 \"\" \"millrace {}\"\n.SH NAME\nmillrace.toml \\- configuration of the Millrace virtual switch\n\
         .SH DESCRIPTION\n",
        env!("CARGO_PKG_VERSION")
    );
    for paragraph in INTRODUCTION {
        page.push_str(&format!("{}\n.PP\n", roff(paragraph)));
    }
    for section in sections() {
        let header = roff(section.header);
        page.push_str(&format!(".SH {header}\n{}\n", roff(section.text)));
        section.keys.iter().for_each(|key| page.push_str(&entry(key)));
    }
    page.push_str(".SH FILES\n/etc/millrace/millrace.toml\n.SH SEE ALSO\n.BR millrace (1)\n");
    page
}

fn entry(key: &Key) -> String {
    let absent = match &key.default {
        Some(default) => format!(" (default `{default}`)"),
        None => String::new(),
    };
    let example =
        if key.default.is_some() { String::new() } else { format!(" Example: `{}`.", key.example) };
    let line = format!("{}{absent}. {}{example}", key.values, key.text);
    format!(".TP\n.B {}\n{}\n", roff(&key.name), roff(&line))
}

/// Escapes text for roff; text in backticks becomes bold.
fn roff(text: &str) -> String {
    let escaped = text.replace('\\', "\\e").replace('-', "\\-");
    let mut bold = false;
    let line: String = escaped
        .chars()
        .map(|letter| match letter {
            '`' => {
                bold = !bold;
                if bold { "\\fB".to_owned() } else { "\\fR".to_owned() }
            }
            other => other.to_string(),
        })
        .collect();
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_no_request_of_roff() {
        assert_eq!(roff(".so /etc/passwd"), "\\&.so /etc/passwd");
        assert_eq!(roff("a `b-c` \\d"), "a \\fBb\\-c\\fR \\ed");
    }
}
