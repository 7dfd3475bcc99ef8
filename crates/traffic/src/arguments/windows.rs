//! Windows NTttcp's options, in any case.

use super::draft::Draft;
use super::words::Words;
use super::{ArgumentError, Destination, value};

/// Options that choose how Windows does its input and output, or what its measuring reads; here they have no counterpart
/// and no effect, and the report says so.
const WITHOUT_EFFECT: [&str; 7] = ["-w", "-wa", "-hpt", "-nsb", "-cfi", "-sp", "-es"];
/// The same, each with a value.
const VALUE_WITHOUT_EFFECT: [&str; 2] = ["-na", "-icp"];

pub(super) fn read(words: &mut Words, draft: &mut Draft) -> Result<(), ArgumentError> {
    while let Some(word) = words.next() {
        let option = word.to_ascii_lowercase();
        if flag(&option, draft) {
            continue;
        }
        if WITHOUT_EFFECT.contains(&option.as_str()) {
            draft.notes.push(windows_only(&option));
            continue;
        }
        match option.as_str() {
            "-m" => mappings(words, draft)?,
            "-a" => {
                let asked = words.optional(value::is_size);
                let asked = asked
                    .map(|word| value::number(&option, &word, "a number of outstanding requests"));
                let asked: u32 = asked.transpose()?.unwrap_or(2);
                draft.notes.push(format!(
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
            "-uro" => draft.notes.push(format!("{option} has no effect: {HOST_DECIDES}")),
            _ => with_value(&option, &word, words, draft)?,
        }
    }
    Ok(())
}

fn flag(option: &str, draft: &mut Draft) -> bool {
    match option {
        "-s" => draft.sender = true,
        "-r" => draft.receiver = true,
        "-u" => draft.udp = true,
        "-6" => draft.v6 = true,
        "-ns" => draft.no_sync = true,
        "-ndl" => draft.no_delay = true,
        "-v" => draft.verbose = true,
        "-d" => draft.verify = true,
        "-lm" => draft.request_times = true,
        _ => return false,
    }
    true
}

/// One `-m` may be followed by several triples.
fn mappings(words: &mut Words, draft: &mut Draft) -> Result<(), ArgumentError> {
    let first = words.value("-m", "THREADS,PROCESSOR,ADDRESS")?;
    draft.mappings.push(value::mapping("-m", &first)?);
    while let Some(next) = words.optional(|word| word.contains(',')) {
        draft.mappings.push(value::mapping("-m", &next)?);
    }
    Ok(())
}

fn with_value(
    option: &str,
    typed: &str,
    words: &mut Words,
    draft: &mut Draft,
) -> Result<(), ArgumentError> {
    let known = [
        "-l", "-n", "-p", "-rb", "-sb", "-t", "-wu", "-cd", "-to", "-nic", "-uso", "-ps", "-thr",
        "-qos", "-brn",
    ];
    let ignored = VALUE_WITHOUT_EFFECT.contains(&option);
    if !ignored && !known.contains(&option) {
        let hint = "; if the line is ntttcp-for-linux's, add --dialect linux";
        return Err(ArgumentError::Unknown { word: typed.into(), dialect: "Windows", hint });
    }
    let word = words.value(option, "see --help")?;
    let number = |wanted| value::number::<u32>(option, &word, wanted);
    if ignored {
        number("a number")?;
        draft.notes.push(windows_only(option));
        return Ok(());
    }
    match option {
        "-thr" => draft.kibibytes_per_s = Some(number("KB/s of each thread")?.max(1)),
        "-uso" => {
            number("a message size")?;
            draft.notes.push(format!("{option} has no effect: {HOST_DECIDES}"));
        }
        "-ps" => {
            number("milliseconds")?;
            draft.notes.push(format!(
                "{option} has no effect: sends are not spaced in time, -thr or --fq-rate-limit paces them"
            ));
        }
        "-qos" => {
            number("a priority from 0 to 5")?;
            draft.notes.push(format!(
                "{option} has no effect: Linux has no traffic types, `tc` marks and orders packets"
            ));
        }
        "-brn" => {
            number("an amount of work")?;
            draft
                .notes
                .push(format!("{option} has no effect: no processor time is burnt beside the run"));
        }
        "-l" => draft.buffer_bytes = Some(value::bytes(option, &word)?),
        "-n" => draft.buffers = Some(value::size(option, &word)?),
        "-p" => draft.base_port = Some(value::port(option, &word)?),
        "-rb" => draft.receive_socket_bytes = value::socket_bytes(option, &word)?,
        "-sb" => {
            draft.send_socket_bytes = value::socket_bytes(option, &word)?;
            if word == "0" {
                draft.notes.push("-sb 0: a socket without a send buffer is Windows's alone; the host's default is used".into());
            }
        }
        "-t" => draft.seconds = Some(value::seconds(option, &word)?),
        "-wu" => draft.warm_up_s = value::seconds(option, &word)?,
        "-cd" => draft.cool_down_s = value::seconds(option, &word)?,
        "-to" => {
            let milliseconds: u64 = value::number(option, &word, "milliseconds")?;
            draft.wait_s = Some(milliseconds.div_ceil(1000));
        }
        _ => draft.interface = Some(word),
    }
    Ok(())
}

const HOST_DECIDES: &str = "the host and the switch decide about UDP offloads";

fn windows_only(option: &str) -> String {
    format!("{option} has no effect here: it chooses how Windows does its work")
}

fn not_served(option: &str) -> ArgumentError {
    let reason = match option {
        "-rt" | "-jm" => "--latency measures round trips with their distribution",
        _ => "it has no counterpart on Linux: leave it out",
    };
    ArgumentError::NotServed { option: option.into(), reason }
}
