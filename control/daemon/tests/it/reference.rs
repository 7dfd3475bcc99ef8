//! Checks the reference of the configuration: generated files match this code, and a configuration
//! can say what the reference describes.

use config::{Config, PortConfig};
use daemon::reference::{manual, markdown, sample, schema};
use std::path::Path;

/// Compares a file with its generated text. With `MILLRACE_UPDATE=1` writes it instead.
pub(crate) fn hold(name: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    if std::env::var_os("MILLRACE_UPDATE").is_some() {
        std::fs::write(&path, wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "{name} is not what the code says: MILLRACE_UPDATE=1 cargo test -p millrace-daemon --test it"
    );
}

#[test]
fn the_files_are_those_of_the_code() {
    hold("docs/configuration.md", &markdown());
    hold("packaging/millrace.toml", &sample());
}

#[test]
fn the_sample_is_the_empty_configuration_and_each_of_its_keys_can_be_written() {
    let text = sample();
    assert_eq!(Config::from_toml("sample", &text).unwrap(), Config::default());
    let (switch, port) = text.split_once("#[[port]]").unwrap();
    let is_key = |line: &&str| line.starts_with('#') && !line.starts_with("# ");
    let keys = |text: &str| -> Vec<String> {
        text.lines().filter(is_key).map(|line| line[1..].to_owned()).collect()
    };
    let uncommented: String = switch
        .lines()
        .map(|line| if is_key(&line) { &line[1..] } else { line })
        .flat_map(|line| [line, "\n"])
        .collect();
    let config = Config::from_toml("sample", &uncommented).unwrap();
    assert!(config.web.listen.is_some() && config.metrics.listen.is_some());
    let ports = keys(port);
    assert!(ports.len() > 40 && ports[0].starts_with("name = "), "{ports:?}");
    for line in &ports[1..] {
        let port = toml::from_str::<PortConfig>(&format!("name = \"p\"\n{line}"));
        assert!(port.is_ok(), "{line}: {}", port.unwrap_err());
    }
}

#[test]
fn all_say_every_key() {
    let (document, page, schema) = (markdown(), manual(), schema().to_string());
    for line in sample().lines().filter(|line| line.starts_with('#') && line.contains(" = ")) {
        let Some((key, _)) = line[1..].split_once(" = ").filter(|(key, _)| !key.contains(' '))
        else {
            continue;
        };
        assert!(document.contains(&format!("| `{key}` |")), "{key}");
        assert!(page.contains(&format!(".B {}\n", key.replace('-', "\\-"))), "{key}");
        assert!(schema.contains(&format!("\"{key}\":")), "{key}");
    }
    assert!(!schema.contains("#/components"), "a reference that leads nowhere");
}
