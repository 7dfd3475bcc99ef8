//! ntttcp-for-linux's options, as getopt reads them: letters may stand together (`-6V`), and a value may follow its letter
//! at once (`-P64`).

use super::draft::Draft;
use super::words::Words;
use super::{ArgumentError, Destination, value};
use crate::plan::Transport;

/// All its letters.
pub(super) const LETTERS: [char; 26] = [
    'r', 's', 'D', 'M', 'L', 'e', 'H', 'm', 'P', 'a', 'n', 'l', '6', 'u', 'p', 'f', 'b', 'B', 'W',
    't', 'C', 'N', 'O', 'x', 'j', 'Q',
];

const SOURCE_PORT: u16 = 25_001;

pub(super) fn read(words: &mut Words, draft: &mut Draft) -> Result<(), ArgumentError> {
    while let Some(word) = words.next() {
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return Err(unknown(&word));
        };
        let mut rest = letters;
        while let Some(letter) = rest.chars().next() {
            rest = rest.get(letter.len_utf8()..).unwrap_or_default();
            if flag(letter, draft) {
                continue;
            }
            valued(letter, rest, &word, words, draft)?;
            break;
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
            "-D has no effect: this program stays in the foreground; systemd-run or & puts it away"
                .into(),
        ),
        _ => return false,
    }
    true
}

/// A letter with a value, which is the rest of its word or the next word.
fn valued(
    letter: char,
    rest: &str,
    typed: &str,
    words: &mut Words,
    draft: &mut Draft,
) -> Result<(), ArgumentError> {
    let option = format!("-{letter}");
    let attached = (!rest.is_empty()).then(|| rest.to_string());
    if matches!(letter, 'r' | 's' | 'f' | 'O' | 'x' | 'j') {
        let found = attached.or_else(|| words.optional(|_| true));
        return with_optional(letter, &option, found, draft);
    }
    let word = attached.map_or_else(|| words.value(&option, "see --help"), Ok);
    match letter {
        'm' => draft.plan.mappings.push(value::mapping(&option, &word?)?),
        'P' => draft.ports = Some(ports(&option, &word?)?),
        'a' => draft.plan.source = Some(value::address(&option, &word?)?),
        'n' => {
            draft.threads_per_port = Some(value::number(&option, &word?, "threads for each port")?)
        }
        'l' => {
            draft.plan.connections_per_thread =
                value::number(&option, &word?, "connections of each thread")?
        }
        'p' => draft.plan.base_port = value::port(&option, &word?)?,
        'b' => draft.buffer_bytes = Some(value::bytes(&option, &word?)?),
        'B' => draft.plan.bandwidth_bits_per_s = Some(value::rate(&option, &word?)?),
        'W' => draft.plan.warm_up_s = value::seconds(&option, &word?)?,
        't' => draft.seconds = Some(value::seconds(&option, &word?)?),
        'C' => draft.plan.cool_down_s = value::seconds(&option, &word?)?,
        _ => return Err(unknown(typed)),
    }
    Ok(())
}

fn with_optional(
    letter: char,
    option: &str,
    word: Option<String>,
    draft: &mut Draft,
) -> Result<(), ArgumentError> {
    match letter {
        'r' | 's' => {
            draft.receiver |= letter == 'r';
            draft.sender |= letter == 's';
            if let Some(word) = word {
                draft.host = Some(value::address(option, &word)?);
            }
        }
        'f' => {
            let port = word.map(|word| value::number(option, &word, "a source port"));
            draft.plan.source_port = Some(port.transpose()?.unwrap_or(SOURCE_PORT));
        }
        'O' => {
            draft.output.log =
                Some(word.unwrap_or_else(|| "ntttcp-for-linux-log.log".into()).into())
        }
        'x' => {
            let file = word.unwrap_or_else(|| "ntttcp-for-linux-log.xml".into());
            draft.output.xml = Some(Destination::File(file.into()));
        }
        _ => {
            draft.output.linux_json =
                Some(word.unwrap_or_else(|| "ntttcp-for-linux-log.json".into()).into())
        }
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
