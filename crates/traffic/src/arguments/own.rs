//! The long options, which both dialects share: ours, and ntttcp-for-linux's.

use super::draft::Draft;
use super::words::Words;
use super::{ArgumentError, Destination, Dialect, value};

/// What `--help` prints.
pub const HELP: &str = include_str!("help.txt");

/// Takes the long options out of a line; what is left is in a dialect.
pub(super) fn take(words: &mut Words, draft: &mut Draft) -> Result<Vec<String>, ArgumentError> {
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        if !word.starts_with("--") {
            rest.push(word);
            continue;
        }
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) => (name.to_string(), Some(value.to_string())),
            None => (word, None),
        };
        let named = attached.is_some();
        if !flag(&name, &attached, draft) {
            with_value(&name, attached, words, draft)?;
        } else if named && !matches!(name.as_str(), "--json" | "--xml") {
            return Err(value::bad(&name, &attached.unwrap_or_default(), "no value"));
        }
    }
    Ok(rest)
}

fn flag(name: &str, attached: &Option<String>, draft: &mut Draft) -> bool {
    let destination = || match attached {
        Some(file) => Destination::File(file.into()),
        None => Destination::Standard,
    };
    match name {
        "--help" => draft.help = true,
        "--json" => draft.output.json = Some(destination()),
        "--xml" => draft.output.xml = Some(destination()),
        "--latency" => draft.plan.latency = true,
        "--verify" => draft.plan.verify = true,
        "--no-delay" => draft.plan.no_delay = true,
        // Retransmissions are always in the report, per connection and host-wide.
        "--show-tcp-retrans" => {}
        _ => return false,
    }
    true
}

fn with_value(
    name: &str,
    attached: Option<String>,
    words: &mut Words,
    draft: &mut Draft,
) -> Result<(), ArgumentError> {
    let word = attached.map_or_else(|| words.value(name, "see --help"), Ok);
    match name {
        "--dialect" => {
            let word = word?;
            draft.dialect = Some(match word.to_ascii_lowercase().as_str() {
                "windows" => Dialect::Windows,
                "linux" => Dialect::Linux,
                _ => return Err(value::bad(name, &word, "windows or linux")),
            });
        }
        "--cc" => draft.plan.congestion = Some(word?),
        "--bind" => draft.plan.source = Some(value::address(name, &word?)?),
        "--wait" => draft.plan.wait_s = value::seconds(name, &word?)?.into(),
        "--connect-attempts" => {
            draft.plan.connect_attempts = value::number(name, &word?, "a number of attempts")?
        }
        "--fq-rate-limit" => draft.plan.pacing_bytes_per_s = Some(value::rate(name, &word?)? / 8),
        "--show-nic-packets" => draft.plan.interface = Some(word?),
        "--show-dev-interrupts" => draft.plan.interrupts = Some(word?),
        _ => {
            return Err(ArgumentError::Unknown { word: name.into(), dialect: "either", hint: "" });
        }
    }
    Ok(())
}
