//! ntttcp-for-linux's options, as getopt reads them: letters may stand together (`-6V`), and a
//! value may follow its letter at once (`-P64`).

use super::draft::Draft;
use super::words::Words;
use super::{ArgumentError, Destination, value};
use crate::plan::Transport;

/// All option letters of ntttcp-for-linux.
pub(super) const LETTERS: &str = "rsDMLeHmPanl6upfbBWtCNOxjQ";

const SOURCE_PORT: u16 = 25_001;

pub(super) fn read(words: &mut Words, draft: &mut Draft) -> Result<(), ArgumentError> {
    while let Some(word) = words.next() {
        let Some(mut rest) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Err(unknown(&word));
        };
        while let Some(letter) = rest.chars().next() {
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            if !flag(letter, draft) {
                words.begin(&format!("-{letter}"), (!rest.is_empty()).then(|| rest.to_owned()));
                read_value(letter, &word, words, draft)?;
                break;
            }
        }
    }
    Ok(())
}

fn flag(letter: char, draft: &mut Draft) -> bool {
    match letter {
        'M' => draft.plan.multi_client = true,
        'L' => draft.plan.last_client = true,
        '6' => draft.v6 = true,
        'u' => draft.plan.transport = Transport::Udp,
        'N' => draft.plan.sync = false,
        'Q' => draft.output.quiet = true,
        'V' | 'v' => draft.verbose = true,
        'H' => draft.output.repeat = true,
        'e' => draft.plan.notes.push("-e has no effect: epoll is always used".into()),
        'D' => draft.plan.notes.push(
            "-D has no effect: this program stays in the foreground; use systemd-run or &".into(),
        ),
        _ => return false,
    }
    true
}

/// Reads a letter that takes a value: the rest of its word, or the next word.
fn read_value(
    letter: char,
    typed: &str,
    words: &mut Words,
    draft: &mut Draft,
) -> Result<(), ArgumentError> {
    let plan = &mut draft.plan;
    let mut file = |usual: &str| words.optional(|_| true).unwrap_or_else(|| usual.into()).into();
    match letter {
        'O' => draft.output.log = Some(file("ntttcp-for-linux-log.log")),
        'x' => draft.output.xml = Some(Destination::File(file("ntttcp-for-linux-log.xml"))),
        'j' => draft.output.linux_json = Some(file("ntttcp-for-linux-log.json")),
        'r' | 's' => {
            draft.receiver |= letter == 'r';
            draft.sender |= letter == 's';
            if let Some(word) = words.optional(|_| true) {
                draft.host = Some(value::address(&format!("-{letter}"), &word)?);
            }
        }
        'f' => {
            let port = words.optional(|_| true);
            let port = port.map(|word| value::number("-f", &word, "a source port"));
            plan.source_port = Some(port.transpose()?.unwrap_or(SOURCE_PORT));
        }
        'm' => plan.mappings.push(words.take(value::mapping)?),
        'P' => draft.ports = Some(words.take(ports)?),
        'a' => plan.source = Some(words.take(value::address)?),
        'n' => draft.threads_per_port = Some(words.number("threads for each port")?),
        'l' => plan.connections_per_thread = words.number("connections of each thread")?,
        'p' => plan.base_port = words.take(value::port)?,
        'b' => draft.buffer_bytes = Some(words.take(value::bytes)?),
        'B' => plan.bandwidth_bits_per_s = Some(words.take(value::rate)?),
        'W' => plan.warm_up_s = words.take(value::seconds)?,
        't' => draft.seconds = Some(words.take(value::seconds)?),
        'C' => plan.cool_down_s = words.take(value::seconds)?,
        _ => return Err(unknown(typed)),
    }
    Ok(())
}

fn ports(option: &str, word: &str) -> Result<u16, ArgumentError> {
    const WANTED: &str = "1 to 512 ports";
    let ports: u16 = value::number(option, word, WANTED)?;
    if (1..=512).contains(&ports) { Ok(ports) } else { Err(value::bad(option, word, WANTED)) }
}

fn unknown(word: &str) -> ArgumentError {
    let hint = "; if the line is Windows NTttcp's, add --dialect windows";
    ArgumentError::Unknown { word: word.into(), dialect: "Linux", hint }
}
