//! The reference as a document.

use super::INTRODUCTION;
use super::keys::{Key, Section, sections};

/// Returns the text of `docs/configuration.md`.
pub fn markdown() -> String {
    let mut text = "# Configuration\n\nEvery key of the configuration, with its values, its default and when a change of it takes effect. \
         [using.md](using.md) says how to apply a file.\n\nThis file is generated: change the types in [config](../control/config/src/lib.rs) instead. \
                    [packaging/millrace.toml](../packaging/millrace.toml) is a sample with every key; `millrace man --toml` prints this \
                    reference as a manual page.\n"
        .to_owned();
    for paragraph in INTRODUCTION {
        text.push_str(&format!("\n{paragraph}\n"));
    }
    text.push_str(EDITORS);
    sections().iter().for_each(|section| text.push_str(&table(section)));
    text
}

const EDITORS: &str = "
```
millrace config schema > millrace.schema.json        # and in the file's first line: #:schema ./millrace.schema.json
```
";

fn table(section: &Section) -> String {
    let head = format!(
        "\n## `{}`\n\n{}\n\n| key | values | default | a change takes effect | meaning |\n\
         | --- | --- | --- | --- | --- |\n",
        section.header, section.text
    );
    head + &section.keys.iter().map(row).collect::<String>()
}

fn row(key: &Key) -> String {
    let absent = match &key.default {
        _ if key.required => "required".to_owned(),
        Some(default) => format!("`{default}`"),
        None => String::new(),
    };
    let cells =
        [&format!("`{}`", key.name), &key.values, &absent, &key.effect.to_owned(), &key.text];
    format!("| {} |\n", cells.map(|cell| cell.replace('|', "\\|")).join(" | "))
}
