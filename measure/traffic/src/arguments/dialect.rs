//! Detection of a line's dialect: the rules of the parent module, as code.

use super::value::is_size;
use super::{ArgumentError, Dialect, Draft};

/// Windows-only options: those of several letters, and single ones. They may be typed in any case.
const WINDOWS: &str = "rb sb ns ndl wu cd wa xml na sp to hpt rt nic ps lm jm cfi es icp uso uro uc hv nsb thr brn sam qos d w nsc io";

/// What a word says about the dialect.
enum Evidence {
    Nothing,
    Windows,
    Linux,
    /// An option of both dialects: its meanings on Windows and on Linux.
    Either(&'static str, &'static str),
}

pub(super) fn decide(words: &[String], draft: &mut Draft) -> Result<Dialect, ArgumentError> {
    if let Some(dialect) = draft.dialect {
        return Ok(dialect);
    }
    let (mut windows, mut linux, mut either) = (None, None, None);
    for (place, word) in words.iter().enumerate() {
        let next = words.get(place + 1).map(String::as_str);
        let typed = || match next {
            Some(value) if !value.starts_with('-') => format!("{word} {value}"),
            _ => word.clone(),
        };
        match evidence(word, next) {
            Evidence::Nothing => {}
            Evidence::Windows => windows = windows.or_else(|| Some(typed())),
            Evidence::Linux => linux = linux.or_else(|| Some(typed())),
            Evidence::Either(here, there) => {
                either = either.or_else(|| Some((typed(), here, there)))
            }
        }
    }
    match (windows, linux, either) {
        (Some(windows), Some(linux), _) => Err(ArgumentError::Mixed { windows, linux }),
        (Some(_), None, _) => Ok(Dialect::Windows),
        (None, Some(_), _) => Ok(Dialect::Linux),
        (None, None, Some((word, windows, linux))) => {
            Err(ArgumentError::Ambiguous { word, windows, linux })
        }
        (None, None, None) => Ok(by_mapping(words, draft)),
    }
}

fn by_mapping(words: &[String], draft: &mut Draft) -> Dialect {
    if !words.iter().any(|word| word.contains(',')) {
        return Dialect::Linux;
    }
    draft.plan.notes.push(
        "the line was read as Windows NTttcp's; --dialect linux reads it as ntttcp-for-linux's"
            .into(),
    );
    Dialect::Windows
}

fn evidence(word: &str, next: Option<&str>) -> Evidence {
    let Some(name) = word.strip_prefix('-').filter(|name| !name.starts_with('-')) else {
        return Evidence::Nothing;
    };
    let follows = next.filter(|next| !next.starts_with('-'));
    let number = follows.and_then(|next| next.parse::<u64>().ok());
    let unit = follows.is_some_and(|next| is_size(next) && number.is_none());
    match name {
        "m" | "p" | "u" | "6" | "t" | "v" | "V" | "h" => Evidence::Nothing,
        "s" | "r" if follows.is_none() => Evidence::Nothing,
        "S" | "R" | "T" | "U" | "A" | "X" => Evidence::Windows,
        "M" if follows.is_some_and(|next| next.contains(',')) => Evidence::Windows,
        "a" if follows.is_none_or(is_size) => Evidence::Windows,
        "P" if number.is_some_and(|ports| ports > 512) => Evidence::Windows,
        "N" | "L" if follows.is_some_and(is_size) => Evidence::Windows,
        "W" if number.is_none() => Evidence::Windows,
        // Lower-case spellings belong to Windows.
        "W" | "D" => Evidence::Linux,
        "x" if number.is_some() => Evidence::Windows,
        "l" if unit || number.is_some_and(|bytes| bytes > 1000) => Evidence::Windows,
        "n" if unit || number.is_some_and(|buffers| buffers > 25_600) => Evidence::Windows,
        "l" => Evidence::Either("the buffer length in bytes", "the connections of each thread"),
        "n" => Evidence::Either("the buffers to send", "the threads for each port"),
        name if WINDOWS.split(' ').any(|known| known.eq_ignore_ascii_case(name)) => {
            Evidence::Windows
        }
        name if name.starts_with(|letter| super::linux::LETTERS.contains(letter)) => {
            Evidence::Linux
        }
        _ => Evidence::Nothing,
    }
}
