//! From text to configuration, and from serde's errors to errors for people.

use super::Config;
use super::rules::{self, Broken};
use problem::Problem;
use serde::de::DeserializeOwned;
use std::ops::Range;
use strict::Strict;
use toml::de::{DeTable, DeValue};

/// Reads a TOML text as strictly as the configuration. Messages call it `name`.
///
/// # Errors
/// The text is not TOML, a key is unknown, or a value is not one of its key.
pub fn from_toml<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, Problem> {
    read(text).map_err(|Misread { problem, span }| problem.at(place(name, text, span)))
}

/// An error of a TOML text.
pub(super) struct Misread {
    pub(super) problem: Problem,
    pub(super) span: Option<Range<usize>>,
}

impl Misread {
    fn of(text: &str, error: &toml::de::Error) -> Misread {
        let mut problem = explain(error.message());
        if problem.seen.is_empty() {
            problem.seen = shown(text, error.span());
        }
        Misread { problem, span: error.span() }
    }
}

/// Reads a TOML text; an error has its place.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Misread> {
    match toml::Deserializer::parse(text) {
        Ok(parsed) => T::deserialize(Strict(parsed)).map_err(|error| Misread::of(text, &error)),
        Err(error) => Err(unquoted(text, &error).unwrap_or_else(|| Misread::of(text, &error))),
    }
}

/// Returns all errors of a text's syntax.
pub(super) fn syntax(text: &str) -> Vec<Misread> {
    let (_, errors) = DeTable::parse_recoverable(text);
    let misread =
        |error: &toml::de::Error| unquoted(text, error).unwrap_or_else(|| Misread::of(text, error));
    errors.iter().map(misread).collect()
}

/// Returns the error of a value whose quotes were forgotten, if that is what is wrong in the line:
/// TOML takes `t0` for the beginning of `true`.
fn unquoted(text: &str, error: &toml::de::Error) -> Option<Misread> {
    let at = error.span()?.start;
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?;
    let (key, value) = line.split_once('=')?;
    let word = value.split('#').next()?.trim();
    let is_of_word = |letter: char| letter.is_alphanumeric() || "-_.:/@+,".contains(letter);
    if word.is_empty() || !word.chars().all(is_of_word) || needs_no_quotes(word) {
        return None;
    }
    let start = start + key.len() + 1 + (value.len() - value.trim_start().len());
    // An error before the value is one of its key: it may be there twice.
    if at < start {
        return None;
    }
    let problem = Problem::new("a text without quotes")
        .seen(word)
        .wanted(format!("\"{word}\""))
        .remedy(format!("write {} = \"{word}\"", key.trim()));
    Some(Misread { problem, span: Some(start..start + word.len()) })
}

/// Returns whether a word was meant as a boolean, a number or a date, also if TOML refuses its form,
/// such as `01500`.
fn needs_no_quotes(word: &str) -> bool {
    let number = word.replace('_', "");
    let digits = number.trim_start_matches(['+', '-']);
    let with_base = ["0x", "0o", "0b"].iter().find_map(|base| digits.strip_prefix(base));
    let is_whole = |digits: &str| digits.chars().all(|digit| digit.is_ascii_hexdigit());
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit())
        && (digits.parse::<f64>().is_ok() || with_base.is_some_and(is_whole));
    let is_digit = |place: usize| word.as_bytes().get(place).is_some_and(u8::is_ascii_digit);
    let is_date = (0..4).all(is_digit) && word.get(4..5) == Some("-") && is_digit(5);
    is_number || is_date || matches!(word, "true" | "false")
}

/// Reads the configuration file's text.
pub(super) fn config(name: &str, text: &str) -> Result<Config, Problem> {
    let config: Config = from_toml(name, text)?;
    match rules::broken_rule(&config) {
        Some(broken) => {
            let span = locate(text, &broken);
            Err(broken.problem().at(place(name, text, span)))
        }
        None => Ok(config),
    }
}

/// Reads a JSON body. [`Config::check`] then checks keys and ports against each other.
///
/// # Errors
/// The text is not JSON, a key is unknown, or a value is not one of its key.
pub fn from_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    strict::from_json(text).map_err(|error| explain_json(&error))
}

/// Reads a parsed JSON value.
///
/// # Errors
/// A key is unknown, or a value is not one of its key.
pub fn from_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, Problem> {
    T::deserialize(Strict(value)).map_err(|error| explain_json(&error))
}

/// Returns an error of serde_json in our four parts. serde_json appends the place to the text; it
/// is removed here, because it would end up in the last part.
fn explain_json(error: &serde_json::Error) -> Problem {
    let text = error.to_string();
    let suffix = format!(" at line {} column {}", error.line(), error.column());
    let problem = explain(text.strip_suffix(&suffix).unwrap_or(&text));
    if error.line() == 0 {
        problem
    } else {
        problem.at(format!("line {}, column {}", error.line(), error.column()))
    }
}

/// Returns `file:line:column`, or only the file if the place is unknown.
pub(super) fn place(name: &str, text: &str, span: Option<Range<usize>>) -> String {
    let Some(before) = span.and_then(|span| text.get(..span.start)) else {
        return name.to_owned();
    };
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    format!("{name}:{line}:{column}")
}

/// Returns the text at the place: its first line, at most 40 characters.
fn shown(text: &str, span: Option<Range<usize>>) -> String {
    let seen = span.and_then(|span| text.get(span)).unwrap_or_default();
    seen.lines().next().unwrap_or_default().chars().take(40).collect()
}

/// Returns the place of the value at fault.
pub(super) fn locate(text: &str, broken: &Broken) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    let ports = root.get_ref().get("port")?.get_ref();
    let DeValue::Array(ports) = ports else { return None };
    let port = ports.get(broken.port)?;
    let value = port.get_ref().as_table().and_then(|table| table.get(broken.key));
    Some(value.map_or(port.span(), |value| value.span()))
}

/// Returns serde's error in our four parts. Our own types pack the parts into the text; serde's
/// sentences about unknown keys and words name, in backticks, first what was seen and then what is
/// known.
fn explain(message: &str) -> Problem {
    if let Some(problem) = Problem::unpack(message) {
        return problem;
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let kind = if message.starts_with("unknown field") {
        "unknown key"
    } else if message.starts_with("unknown variant") {
        "unknown word"
    } else if message.starts_with("missing field") {
        let key = quoted.next().unwrap_or_default();
        return Problem::new(format!("{key} is missing"))
            .wanted(key)
            .remedy(format!("add {key} = …"));
    } else {
        return mismatch(message);
    };
    let seen = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.collect();
    let remedy = match nearest(seen, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("remove `{seen}`, or use one of those wanted"),
    };
    Problem::new(kind).seen(seen).wanted(format!("one of {}", known.join(", "))).remedy(remedy)
}

/// Returns the problem with a value of the wrong type (`invalid type: map, expected a string`) or
/// with the syntax, from the words of serde and toml.
fn mismatch(message: &str) -> Problem {
    let message = message.trim().replace('\n', ", ");
    match message.split_once(", expected ") {
        None if message == "duplicate key" => Problem::new("a key that is there twice")
            .wanted("one value")
            .remedy("remove one of the two"),
        // The text of toml for a value that is no word where an enum is wanted.
        None if message == "wanted string or table" => Problem::new("not a word in quotes")
            .wanted("a word in quotes")
            .remedy("write the word in quotes"),
        Some((what, "a boolean")) => Problem::new("neither true nor false")
            .seen(what.split_once(": ").map_or(what, |(_, seen)| seen))
            .wanted("true or false")
            .remedy("write true or false"),
        Some((what, wanted)) => {
            let wanted = plain(wanted);
            let (error, seen) = what.split_once(": ").unwrap_or((what, ""));
            Problem::new(error).seen(seen).wanted(wanted).remedy(format!("write {wanted}"))
        }
        None => Problem::new(message).remedy("correct the text at this place"),
    }
}

/// Returns what serde expects, in words for people.
fn plain(expected: &str) -> &str {
    match expected {
        "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        name if name.starts_with("struct ") => "keys with values",
        other => other,
    }
}

/// Longest word in bytes that is compared with known words. The comparison's time and memory grow
/// with the length, and the word may be a whole body of the API.
const LONGEST_WORD: usize = 64;

/// Returns the nearest known word, if at most a third of its letters differ and at least one is in
/// its place.
pub fn nearest<'a>(seen: &str, known: &[&'a str]) -> Option<&'a str> {
    if seen.len() > LONGEST_WORD {
        return None;
    }
    let near = known.iter().min_by_key(|word| strsim::damerau_levenshtein(seen, word))?;
    let away = strsim::damerau_levenshtein(seen, near);
    let letters = seen.chars().count().max(near.chars().count());
    (away <= 1 + near.len() / 3 && away < letters).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `port show z` was answered with "did you mean `a`?".
    #[test]
    fn a_word_without_a_letter_of_it_is_not_what_was_meant() {
        assert_eq!(nearest("z", &["a"]), None);
        assert_eq!(nearest("zz", &["a", "ab"]), None);
        assert_eq!(nearest("vm2", &["a", "vm1"]), Some("vm1"));
        assert_eq!(nearest("ab", &["a"]), Some("a"));
    }

    /// A second `mtu = 1400`, and `mtu = 01500`, were taken for texts without quotes.
    #[test]
    fn only_a_text_needs_quotes() {
        let told = |line: &str| {
            let text = format!("[[port]]\nname = 'a'\nmtu = 1500\n{line}\n");
            from_toml::<Config>("t", &text).unwrap_err()
        };
        let twice = told("mtu = 1400");
        assert_eq!((&*twice.error, &*twice.seen), ("t:4:1: a key that is there twice", "mtu"));
        for line in
            ["vlan = 01500", "vlan = 0x_1f", "vlan = +0_1", "tap = 2026-13-29T", "tap = true"]
        {
            let problem = told(line).to_string();
            assert!(!problem.contains("without quotes"), "{line}: {problem}");
        }
        for line in
            ["tap = t0", "tap = 0xen0", "mac = 52:54:00:00:00:01", "trunk = 10,20", "tap = infra"]
        {
            let problem = told(line).to_string();
            assert!(problem.contains("a text without quotes"), "{line}: {problem}");
        }
    }

    /// A name of 2 MiB was compared letter by letter, under the lock of the switch.
    #[test]
    fn a_word_of_any_length_is_compared_in_no_time() {
        assert_eq!(nearest("mtuu", &["name", "mtu"]), Some("mtu"));
        let name = "n".repeat(LONGEST_WORD);
        assert_eq!(nearest(&name, &[name.as_str()]), Some(name.as_str()));
        let longer = format!("{name}n");
        assert_eq!(nearest(&longer, &[longer.as_str()]), None);
    }
    /// `PUT /v1/config` with `[]` removed every port.
    #[test]
    fn a_list_is_no_configuration_however_deep_it_is() {
        for text in ["[]", "[[]]", "[{}]", &"[".repeat(200), &"[".repeat(1 << 20), "null"] {
            let problem = from_json::<Config>(text.as_bytes()).unwrap_err();
            assert_eq!(problem.wanted, "keys with values", "{problem}");
        }
        let problem = from_toml::<Config>("t", "port = [['vm1', 'tap1']]").unwrap_err();
        assert!(problem.error.starts_with("t:1:"), "{problem}");
        assert_eq!(problem.wanted, "keys with values", "{problem}");
        assert!(from_value::<Config>(serde_json::json!([])).is_err());
    }
}
