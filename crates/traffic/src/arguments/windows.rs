//! Windows NTttcp's options, in any case.

use super::draft::Draft;
use super::words::Words;
use super::{ArgumentError, Destination, value};
use crate::plan::Transport;

const WINDOWS_ONLY: &str = "it chooses how Windows does its work";
const HOST_DECIDES: &str = "the host and the switch decide about UDP offloads";

/// Options that have no counterpart here and no effect, with the value they take and why; the report says so.
const WITHOUT_EFFECT: [(&str, Option<&str>, &str); 14] = [
    ("-w", None, WINDOWS_ONLY),
    ("-wa", None, WINDOWS_ONLY),
    ("-hpt", None, WINDOWS_ONLY),
    ("-nsb", None, WINDOWS_ONLY),
    ("-cfi", None, WINDOWS_ONLY),
    ("-sp", None, WINDOWS_ONLY),
    ("-es", None, WINDOWS_ONLY),
    ("-na", Some("a number"), WINDOWS_ONLY),
    ("-icp", Some("a number"), WINDOWS_ONLY),
    ("-uro", None, HOST_DECIDES),
    ("-uso", Some("a message size"), HOST_DECIDES),
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
    ("-brn", Some("an amount of work"), "no processor time is burnt beside the run"),
];

pub(super) fn read(words: &mut Words, draft: &mut Draft) -> Result<(), ArgumentError> {
    while let Some(word) = words.next() {
        let option = word.to_ascii_lowercase();
        if flag(&option, draft) {
            continue;
        }
        if let Some((_, takes, why)) = WITHOUT_EFFECT.iter().find(|(name, ..)| *name == option) {
            if let Some(wanted) = takes {
                value::number::<u32>(&option, &words.value(&option, "see --help")?, wanted)?;
            }
            draft.plan.notes.push(format!("{option} has no effect: {why}"));
            continue;
        }
        match option.as_str() {
            "-m" => mappings(words, draft)?,
            "-a" => {
                let asked = words.optional(value::is_size);
                let asked = asked
                    .map(|word| value::number(&option, &word, "a number of outstanding requests"));
                let asked: u32 = asked.transpose()?.unwrap_or(2);
                draft.plan.notes.push(format!(
                    "-a {asked} is served by epoll: no request waits in the kernel, up to {asked} calls are made for a connection whenever it is ready"
                ));
                draft.outstanding = Some(asked);
            }
            "-xml" => {
                let file = words.optional(|_| true).unwrap_or_else(|| "xml.txt".into());
                draft.output.xml = Some(Destination::File(file.into()));
            }
            "-uc" | "-hv" | "-sam" | "-jm" | "-x" | "-rt" => {
                return Err(not_served(&option));
            }
            _ => with_value(&option, &word, words, draft)?,
        }
    }
    Ok(())
}

fn flag(option: &str, draft: &mut Draft) -> bool {
    match option {
        "-s" => draft.sender = true,
        "-r" => draft.receiver = true,
        "-u" => draft.plan.transport = Transport::Udp,
        "-6" => draft.v6 = true,
        "-ns" => draft.plan.sync = false,
        "-ndl" => draft.plan.no_delay = true,
        "-v" => draft.verbose = true,
        "-d" => draft.plan.verify = true,
        "-lm" => draft.plan.request_times = true,
        _ => return false,
    }
    true
}

/// One `-m` may be followed by several triples.
fn mappings(words: &mut Words, draft: &mut Draft) -> Result<(), ArgumentError> {
    let first = words.value("-m", "THREADS,PROCESSOR,ADDRESS")?;
    draft.plan.mappings.push(value::mapping("-m", &first)?);
    while let Some(next) = words.optional(|word| word.contains(',')) {
        draft.plan.mappings.push(value::mapping("-m", &next)?);
    }
    Ok(())
}

fn with_value(
    option: &str,
    typed: &str,
    words: &mut Words,
    draft: &mut Draft,
) -> Result<(), ArgumentError> {
    let word = words.value(option, "see --help");
    match option {
        "-thr" => {
            let each: u32 = value::number(option, &word?, "KB/s of each thread")?;
            draft.kibibytes_per_s = Some(each.max(1));
        }
        "-l" => draft.buffer_bytes = Some(value::bytes(option, &word?)?),
        "-n" => draft.buffers = Some(value::size(option, &word?)?),
        "-p" => draft.plan.base_port = value::port(option, &word?)?,
        "-rb" => draft.plan.receive_socket_bytes = value::socket_bytes(option, &word?)?,
        "-sb" => {
            let word = word?;
            draft.plan.send_socket_bytes = value::socket_bytes(option, &word)?;
            if word == "0" {
                draft.plan.notes.push("-sb 0: a socket without a send buffer is Windows's alone; the host's default is used".into());
            }
        }
        "-t" => draft.seconds = Some(value::seconds(option, &word?)?),
        "-wu" => draft.plan.warm_up_s = value::seconds(option, &word?)?,
        "-cd" => draft.plan.cool_down_s = value::seconds(option, &word?)?,
        "-to" => {
            let milliseconds: u64 = value::number(option, &word?, "milliseconds")?;
            draft.plan.wait_s = milliseconds.div_ceil(1000);
        }
        "-nic" => draft.plan.interface = Some(word?),
        _ => {
            let hint = "; if the line is ntttcp-for-linux's, add --dialect linux";
            return Err(ArgumentError::Unknown { word: typed.into(), dialect: "Windows", hint });
        }
    }
    Ok(())
}

fn not_served(option: &str) -> ArgumentError {
    let reason = match option {
        "-rt" | "-jm" => "--latency measures round trips with their distribution",
        _ => "it has no counterpart on Linux: leave it out",
    };
    ArgumentError::NotServed { option: option.into(), reason }
}
