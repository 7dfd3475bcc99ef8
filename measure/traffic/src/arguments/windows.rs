//! Windows NTttcp's options, in any case.

use super::draft::Draft;
use super::words::Words;
use super::{ArgumentError, Destination, value};
use crate::plan::Transport;

/// Options without an effect here, with the value they take and the reason; the report lists them.
const WITHOUT_EFFECT: [(&str, Option<&str>, &str); 7] = [
    ("-w -wa -hpt -nsb -cfi -sp -es", None, "it chooses how Windows does its work"),
    ("-na -icp", Some("a number"), "it chooses how Windows does its work"),
    ("-uro", None, "the host and the switch decide about UDP offloads"),
    ("-uso", Some("a message size"), "the host and the switch decide about UDP offloads"),
    (
        "-ps",
        Some("milliseconds"),
        "sends are not spaced in time, -thr or --fq-rate-limit paces them",
    ),
    (
        "-qos",
        Some("a priority from 0 to 5"),
        "Linux has no traffic types, `tc` marks and orders packets",
    ),
    ("-brn", Some("an amount of work"), "the run burns no extra processor time"),
];

pub(super) fn read(words: &mut Words, draft: &mut Draft) -> Result<(), ArgumentError> {
    while let Some(word) = words.next() {
        let option = word.to_ascii_lowercase();
        words.begin(&option, None);
        let named = |(names, ..): &&(&str, _, _)| names.split(' ').any(|name| name == option);
        if let Some((_, takes, why)) = WITHOUT_EFFECT.iter().find(named) {
            if let Some(wanted) = takes {
                words.number::<u32>(wanted)?;
            }
            draft.plan.notes.push(format!("{option} has no effect: {why}"));
        } else {
            read_one(&option, &word, words, draft)?;
        }
    }
    Ok(())
}

fn read_one(
    option: &str,
    typed: &str,
    words: &mut Words,
    draft: &mut Draft,
) -> Result<(), ArgumentError> {
    let plan = &mut draft.plan;
    match option {
        "-s" => draft.sender = true,
        "-r" => draft.receiver = true,
        "-u" => plan.transport = Transport::Udp,
        "-6" => draft.v6 = true,
        "-ns" => plan.sync = false,
        "-ndl" => plan.no_delay = true,
        "-v" => draft.verbose = true,
        "-d" => plan.verify = true,
        "-lm" => plan.request_times = true,
        "-m" => {
            // One `-m` may be followed by several triples.
            plan.mappings.push(words.take(value::mapping)?);
            while let Some(next) = words.optional(|word| word.contains(',')) {
                plan.mappings.push(value::mapping(option, &next)?);
            }
        }
        "-a" => {
            let asked = words.optional(value::is_size).unwrap_or_else(|| "2".into());
            let asked: u32 = value::number(option, &asked, "a number of outstanding requests")?;
            plan.notes.push(format!(
                "-a {asked} is served by epoll: no request waits in the kernel; a ready connection gets up to {asked} calls"
            ));
            draft.outstanding = Some(asked);
        }
        "-xml" => {
            let file = words.optional(|_| true).unwrap_or_else(|| "xml.txt".into());
            draft.output.xml = Some(Destination::File(file.into()));
        }
        "-thr" => draft.kibibytes_per_s = Some(words.number::<u32>("KB/s of each thread")?.max(1)),
        "-l" => draft.buffer_bytes = Some(words.take(value::bytes)?),
        "-n" => draft.buffers = Some(words.take(value::size)?),
        "-p" => plan.base_port = words.take(value::port)?,
        "-rb" => plan.receive_socket_bytes = words.take(value::socket_bytes)?,
        "-sb" => plan.send_socket_bytes = send_buffer(words, &mut plan.notes)?,
        "-t" => draft.seconds = Some(words.take(value::seconds)?),
        "-wu" => plan.warm_up_s = words.take(value::seconds)?,
        "-cd" => plan.cool_down_s = words.take(value::seconds)?,
        "-to" => plan.wait_s = words.number::<u64>("milliseconds")?.div_ceil(1000),
        "-nic" => plan.interface = Some(words.value()?),
        _ => return Err(refused(option, typed)),
    }
    Ok(())
}

fn send_buffer(words: &mut Words, notes: &mut Vec<String>) -> Result<Option<usize>, ArgumentError> {
    words.take(|option, word| {
        if word == "0" {
            notes.push("-sb 0: a socket without a send buffer is Windows's alone; the host's default is used".into());
        }
        value::socket_bytes(option, word)
    })
}

fn refused(option: &str, typed: &str) -> ArgumentError {
    let reason = match option {
        "-rt" | "-jm" => "--latency measures round trips with their distribution",
        "-uc" | "-hv" | "-sam" | "-x" => "it has no counterpart on Linux: omit it",
        _ => {
            let hint = "; if the line is ntttcp-for-linux's, add --dialect linux";
            return ArgumentError::Unknown { word: typed.into(), dialect: "Windows", hint };
        }
    };
    ArgumentError::NotServed { option: option.into(), reason }
}
