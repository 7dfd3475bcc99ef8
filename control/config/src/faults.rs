//! All errors of a configuration file at once, for `millrace check FILE`.
//!
//! serde stops at the first error. So what an error points at is blanked, which leaves all places
//! as they are, and the rest is read again. An error that only follows from a blank is not
//! reported: a port without the key that was blanked, or a rule that the port then breaks.

use super::read::{Misread, locate, place, read, syntax};
use super::{Config, rules};
use problem::{Problem, harmless};
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Most errors that are looked for.
const MOST: usize = 100;

/// An error, and the line it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The error, with its place.
    pub problem: Problem,
    /// The line, and marks below what is wrong in it; empty if the place is unknown.
    pub excerpt: String,
}

/// The text, with what was found wrong blanked.
struct Blanked<'t> {
    name: &'t str,
    text: &'t str,
    rest: String,
    blanks: Vec<Range<usize>>,
    /// Where sections started that are blanked with their headers.
    gone: Vec<usize>,
    found: Vec<(usize, Fault)>,
}

/// Returns all errors of a file's text, in its order. Messages call it `name`.
pub fn faults(name: &str, text: &str) -> Vec<Fault> {
    let mut blanked = Blanked {
        name,
        text,
        rest: text.to_owned(),
        blanks: Vec::new(),
        gone: Vec::new(),
        found: Vec::new(),
    };
    let broken = syntax(text);
    if broken.is_empty() {
        if let Some(config) = blanked.values() {
            blanked.rules(config);
        }
    } else {
        // What follows in a line after a syntax error follows from it.
        let mut line = None;
        for misread in broken {
            let here = misread.span.as_ref().map(|span| line_of(text, span.start).start);
            if here.is_none() || here != line {
                blanked.report(misread);
            }
            line = here;
        }
    }
    blanked.found.sort_by_key(|(start, _)| *start);
    blanked.found.into_iter().map(|(_, fault)| fault).collect()
}

impl Blanked<'_> {
    /// Reports errors of keys and values until the rest is a configuration.
    fn values(&mut self) -> Option<Config> {
        for _ in 0..MOST {
            let misread = match read(&self.rest) {
                Ok(config) => return Some(config),
                Err(misread) => misread,
            };
            let Some(span) = misread.span.clone() else {
                self.report(misread);
                return None;
            };
            let section = section(&self.rest, span.start);
            let is_absent = misread.problem.error.ends_with("is missing");
            let blank = match entry(&self.rest, &span) {
                Some(entry) if !is_absent => entry,
                _ => {
                    self.gone.push(section.start);
                    section.clone()
                }
            };
            let follows = is_absent && self.is_blanked(&section);
            if !follows {
                self.report(misread);
            }
            if !self.blank(blank) {
                return None;
            }
        }
        None
    }

    /// Reports broken rules of ports without other errors.
    fn rules(&mut self, mut config: Config) {
        let headers = headers(self.text);
        let is_there = |(_, start): &(usize, &usize)| !self.gone.contains(start);
        let mut places: Vec<usize> =
            headers.iter().enumerate().filter(is_there).map(|(place, _)| place).collect();
        while let Some(mut broken) = rules::broken_rule(&config) {
            let at = broken.port;
            // Ports that are not written as sections are not told apart.
            if places.len() != config.ports.len() {
                places = (0..config.ports.len()).collect();
            }
            broken.port = places.get(at).copied().unwrap_or(at);
            let section = headers.get(broken.port).map(|start| section(self.text, *start));
            let is_whole = match section {
                Some(section) => !self.is_blanked(&section),
                None => self.blanks.is_empty(),
            };
            if is_whole {
                let span = locate(self.text, &broken);
                self.report(Misread { problem: broken.problem(), span });
            }
            if at >= config.ports.len() {
                return;
            }
            config.ports.remove(at);
            places.remove(at);
        }
    }

    fn report(&mut self, Misread { problem, span }: Misread) {
        let excerpt = span.as_ref().map(|span| excerpt(self.text, span)).unwrap_or_default();
        let start = span.as_ref().map_or(usize::MAX, |span| span.start);
        let problem = problem.at(place(self.name, self.text, span));
        self.found.push((start, Fault { problem, excerpt }));
    }

    fn is_blanked(&self, section: &Range<usize>) -> bool {
        self.blanks.iter().any(|blank| section.contains(&blank.start))
    }

    /// Blanks a part of the text. Returns whether anything was there.
    fn blank(&mut self, range: Range<usize>) -> bool {
        let Some(part) = self.rest.get(range.clone()) else { return false };
        let blank: String = part
            .chars()
            .flat_map(|letter| {
                let blank = if letter == '\n' { '\n' } else { ' ' };
                std::iter::repeat_n(blank, letter.len_utf8())
            })
            .collect();
        let changes = blank != part;
        self.rest.replace_range(range.clone(), &blank);
        self.blanks.push(range);
        changes
    }
}

/// Returns the key with its value that a place is in, if it is in one.
fn entry(text: &str, span: &Range<usize>) -> Option<Range<usize>> {
    let root = DeTable::parse(text).ok()?;
    in_table(root.get_ref(), span.start)
}

fn in_table(table: &DeTable<'_>, at: usize) -> Option<Range<usize>> {
    table.iter().find_map(|(key, value)| {
        let inner = match value.get_ref() {
            DeValue::Table(table) => in_table(table, at),
            DeValue::Array(array) => array
                .iter()
                .find_map(|value| value.get_ref().as_table().and_then(|table| in_table(table, at))),
            _ => None,
        };
        let holds_tables = match value.get_ref() {
            DeValue::Table(_) => true,
            DeValue::Array(array) => array.iter().any(|value| value.get_ref().is_table()),
            _ => false,
        };
        let own = key.span().start..value.span().end;
        inner.or_else(|| (!holds_tables && own.contains(&at)).then_some(own))
    })
}

/// Returns the lines from the header at or above a place to the next header.
fn section(text: &str, at: usize) -> Range<usize> {
    let starts = || starts(text).filter(|start| is_header(text, *start));
    let begin = starts().take_while(|start| *start <= at).last().unwrap_or_default();
    let end = starts().find(|start| *start > at).unwrap_or(text.len());
    begin..end
}

/// Returns where the headers of ports are.
fn headers(text: &str) -> Vec<usize> {
    let is_port = |start: &usize| {
        text.get(*start..).is_some_and(|rest| rest.trim_start().starts_with("[[port]]"))
            && is_header(text, *start)
    };
    starts(text).filter(is_port).collect()
}

/// Returns where lines start.
fn starts(text: &str) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1))
}

fn is_header(text: &str, start: usize) -> bool {
    let line = text.get(line_of(text, start)).unwrap_or_default();
    line.trim_start().starts_with('[')
}

/// Returns the line that a place is in, without its end.
fn line_of(text: &str, at: usize) -> Range<usize> {
    let start = text.get(..at).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let end = text.get(at..).and_then(|after| after.find('\n')).map_or(text.len(), |end| at + end);
    start..end
}

/// Returns the line of a place, and marks below it. The file may be a stranger's, and the line goes
/// to a terminal, so control characters are replaced, one by one.
fn excerpt(text: &str, span: &Range<usize>) -> String {
    let line = line_of(text, span.start);
    let shown = text.get(line.clone()).unwrap_or_default().trim_end();
    let before = text.get(line.start..span.start).unwrap_or_default().chars().count();
    let end = span.end.min(line.start + shown.len());
    let width = text.get(span.start..end).unwrap_or_default().chars().count().max(1);
    let shown = harmless(shown).replace('\t', " ");
    format!("{shown}\n{}{}", " ".repeat(before), "^".repeat(width))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Vec<String> {
        faults("t", text).into_iter().map(|fault| fault.problem.error).collect()
    }

    #[test]
    fn all_errors_are_found_in_the_order_of_the_file() {
        let text = "\
[switch]
workerz = 2

[[port]]
name = 'a b'
tap = 5
mtu = 20

[[port]]
name = 'b'
tap = 'tapb'
vlan = 10
trunk = '20'

[[port]]
name = 'c'
";
        let found = told(text);
        let wanted = [
            "t:2:1: unknown key",
            "t:5:8: not a port name",
            "t:6:7: not a device name",
            "t:7:7: out of range",
            "t:13:9: port b: vlan and trunk exclude each other",
            "t:16:8: port c: the port names no device",
        ];
        assert_eq!(found, wanted);
        assert_eq!(told("[[port]]\nname='a'\ntap='t'\n"), Vec::<String>::new());
    }

    #[test]
    fn the_line_is_shown_with_what_is_wrong_marked() {
        let found = faults("t", "[[port]]\nname = 'a'\nmtu = 20\ntap = 't'\n");
        assert_eq!(found[0].excerpt, "mtu = 20\n      ^^");
    }

    /// A file set the title of the terminal of who checked it.
    #[test]
    fn a_line_has_no_control_characters() {
        let found = faults("t", "[[port]]\nname = 'a'\n\tmtu = 20 # \u{1b}]0;x\u{7}\u{9b}\n");
        let marks = "\u{fffd}]0;x\u{fffd}\u{fffd}";
        assert!(found[0].excerpt.starts_with(" mtu = 20 # "), "{found:?}");
        assert!(found.iter().any(|fault| fault.excerpt.contains(marks)), "{found:?}");
        let controls =
            |text: &str| text.chars().any(|letter| letter != '\n' && letter.is_control());
        assert!(!found.iter().any(|fault| controls(&fault.excerpt)), "{found:?}");
    }

    /// What was wrong with a key made the port lack it.
    #[test]
    fn an_error_that_follows_from_another_is_not_reported() {
        let found = told("[[port]]\nname = 5.5\ntap = 'a'\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        let found = told("[[port]]\nname = 'a'\ntap = ''\n");
        assert_eq!(found.len(), 1, "{found:#?}");
    }

    #[test]
    fn errors_of_syntax_are_found_one_in_a_line() {
        let found = faults("t", "[[port]]\nname = 'a'\ntap = t0\nmac = 52:54:00:00:00:01\n");
        let told: Vec<_> = found.iter().map(|fault| fault.problem.to_string()).collect();
        assert_eq!(told.len(), 2, "{told:#?}");
        assert!(told[0].starts_with("t:3:7: a text without quotes"), "{told:#?}");
        assert!(told[0].contains("write tap = \"t0\""), "{told:#?}");
        assert!(told[1].contains("write mac = \"52:54:00:00:00:01\""), "{told:#?}");
    }

    /// Nothing that may be in a file ends the search by a panic or keeps it from its end.
    #[test]
    fn any_text_is_searched() {
        for text in [
            "port = 5",
            "port = [5]",
            "[port]",
            "[[port]",
            "= 1",
            "ä = 'ö",
            "[[port]]\nä='",
            "switch=[]",
        ] {
            assert!(!faults("t", text).is_empty(), "{text}");
        }
        assert!(faults("t", &"[[port]]\nname='a'\nx=1\n".repeat(300)).len() >= 100);
    }
}
