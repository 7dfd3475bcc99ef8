//! The long options, which both dialects share: ours, and ntttcp-for-linux's.

use super::draft::Draft;
use super::words::Words;
use super::{ArgumentError, Destination, Dialect, value};

/// The text that `--help` prints.
pub const HELP: &str = include_str!("help.txt");

/// Takes the long options out of a line, and returns the words that are left for a dialect.
pub(super) fn take(words: &mut Words, draft: &mut Draft) -> Result<Vec<String>, ArgumentError> {
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        if !word.starts_with("--") {
            rest.push(word);
            continue;
        }
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        words.begin(name, attached);
        read_one(name, words, draft)?;
        if let Some(attached) = words.attached.take() {
            return Err(value::bad(name, &attached, "no value"));
        }
    }
    Ok(rest)
}

fn read_one(name: &str, words: &mut Words, draft: &mut Draft) -> Result<(), ArgumentError> {
    let plan = &mut draft.plan;
    let mut destination = || {
        let file = words.attached.take();
        Some(file.map_or(Destination::Standard, |file| Destination::File(file.into())))
    };
    match name {
        "--help" => draft.help = true,
        "--json" => draft.output.json = destination(),
        "--xml" => draft.output.xml = destination(),
        "--latency" => plan.latency = true,
        "--verify" => plan.verify = true,
        "--no-delay" => plan.no_delay = true,
        // Accepted without effect: retransmissions are always in the report, per connection and
        // host-wide.
        "--show-tcp-retrans" => {}
        "--dialect" => draft.dialect = Some(words.take(dialect)?),
        "--receive-buffer" => plan.receive_socket_bytes = words.take(value::socket_bytes)?,
        "--send-buffer" => plan.send_socket_bytes = words.take(value::socket_bytes)?,
        "--mss" => plan.segment_bytes = Some(words.number("a segment's bytes")?),
        "--cc" => plan.congestion = Some(words.value()?),
        "--bind" => plan.source = Some(words.take(value::address)?),
        "--wait" => plan.wait_s = words.take(value::seconds)?.into(),
        "--connect-attempts" => plan.connect_attempts = words.number("a number of attempts")?,
        "--fq-rate-limit" => plan.pacing_bytes_per_s = Some(words.take(value::rate)? / 8),
        "--show-nic-packets" => plan.interface = Some(words.value()?),
        "--show-dev-interrupts" => plan.interrupts = Some(words.value()?),
        _ => return Err(ArgumentError::Unknown { word: name.into(), dialect: "either", hint: "" }),
    }
    Ok(())
}

fn dialect(option: &str, word: &str) -> Result<Dialect, ArgumentError> {
    match word.to_ascii_lowercase().as_str() {
        "windows" => Ok(Dialect::Windows),
        "linux" => Ok(Dialect::Linux),
        _ => Err(value::bad(option, word, "windows or linux")),
    }
}
