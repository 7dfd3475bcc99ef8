//! Draws a report's matrix as SVG, for a page or a ticket. Rows send, columns receive.
//!
//! If not all hosts fit, it shows those with a failing direction. The picture has no script and
//! needs no other file.

use crate::judge::Observation;
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// Most hosts that are shown.
const SHOWN: usize = 64;
/// Side of a cell, and room for names, in pixels.
const CELL: usize = 14;
const NAMES: usize = 150;
const HEAD: usize = 60;
/// Most characters of a name. A longer one is cut.
const NAME: usize = 22;

/// Returns the picture as an SVG document.
pub fn svg(report: &Report) -> String {
    let shown = shown(report);
    let grid = shown.len() * CELL;
    let (width, height) = ((NAMES + grid + 20).max(620), HEAD + NAMES + grid + 20);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\" role=\"img\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        escape(&head(report, shown.len()))
    );
    let _ = writeln!(
        text,
        "<text x=\"10\" y=\"20\" font-size=\"14\">{}</text>",
        escape(&head(report, shown.len()))
    );
    text += &legend();
    let places: BTreeMap<usize, usize> =
        shown.iter().enumerate().map(|(place, host)| (*host, place)).collect();
    for (place, host) in shown.iter().enumerate() {
        let name = report.hosts.get(*host).map_or("", |host| &host.name);
        text += &names(place, name);
    }
    for it in &report.directions {
        if let (Some(row), Some(column)) = (places.get(&it.from), places.get(&it.to)) {
            text += &cell(report, it, (*row, *column));
        }
    }
    text + "</svg>\n"
}

/// Returns the hosts of the picture.
fn shown(report: &Report) -> Vec<usize> {
    if report.hosts.len() <= SHOWN {
        return (0..report.hosts.len()).collect();
    }
    let fails = report.directions.iter().filter(|it| it.carried < report.wanted);
    let hosts: BTreeSet<usize> = fails.flat_map(|it| [it.from, it.to]).collect();
    hosts.into_iter().take(SHOWN).collect()
}

fn head(report: &Report, shown: usize) -> String {
    let (hosts, wanted) = (report.hosts.len(), report.wanted);
    let all = match shown == hosts {
        true => String::new(),
        false => format!(", {shown} of them at fault and shown"),
    };
    let fails = report.directions.iter().filter(|it| it.carried < wanted).count();
    let probed = report.directions.len();
    format!("MTU {wanted}: {hosts} hosts{all}, {fails} of {probed} directions carry less")
}

const GOOD: &str = "#7fbf7b";
const LESS: &str = "#e08214";
const NOTHING: &str = "#a50026";

fn legend() -> String {
    let words = [(GOOD, "carries the MTU"), (LESS, "carries less"), (NOTHING, "carries nothing")];
    let entries = words.iter().enumerate().map(|(place, (colour, words))| {
        let x = 10 + place * 150;
        format!(
            "<rect x=\"{x}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"42\">{words}</text>\n",
            x + 18
        )
    });
    entries.collect::<String>() + "<text x=\"460\" y=\"42\">rows send, columns receive</text>\n"
}

/// Draws a host's name beside its row and above its column.
fn names(place: usize, name: &str) -> String {
    let name = escape(&name.chars().take(NAME).collect::<String>());
    let (y, x) = (HEAD + NAMES + place * CELL + CELL - 3, NAMES + place * CELL + CELL - 3);
    let (row_end, column_end) = (NAMES - 4, HEAD + NAMES - 4);
    format!(
        "<text x=\"{row_end}\" y=\"{y}\" text-anchor=\"end\">{name}</text>\
         <text transform=\"translate({x} {column_end}) rotate(-90)\">{name}</text>\n"
    )
}

/// Draws the cell of a direction, with a title that a browser shows under the pointer.
fn cell(report: &Report, it: &Observation, (row, column): (usize, usize)) -> String {
    let (x, y, side) = (NAMES + column * CELL, HEAD + NAMES + row * CELL, CELL - 1);
    let name = |host: usize| report.hosts.get(host).map_or("", |host| &host.name);
    let (from, to) = (escape(name(it.from)), escape(name(it.to)));
    let (colour, carries) = match it.carried {
        0 => (NOTHING, "nothing".to_owned()),
        carried if carried < report.wanted => (LESS, carried.to_string()),
        carried => (GOOD, carried.to_string()),
    };
    format!(
        "<rect x=\"{x}\" y=\"{y}\" width=\"{side}\" height=\"{side}\" fill=\"{colour}\"><title>{from} to {to}: {carries}</title></rect>\n"
    )
}

fn escape(text: &str) -> String {
    let escaped = |letter: char| match letter {
        '&' => "&amp;".to_owned(),
        '<' => "&lt;".to_owned(),
        '>' => "&gt;".to_owned(),
        '"' => "&quot;".to_owned(),
        letter => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn each_direction_is_a_cell_with_its_size() {
        let picture = svg(&report(4, &[(0, 2, 1500), (1, 3, 0)]));
        let of = |colour: &str| picture.matches(&format!("fill=\"{colour}\"><title>")).count();
        assert_eq!((of(GOOD), of(LESS), of(NOTHING)), (10, 1, 1));
        assert!(picture.contains("<title>host0 to host2: 1500</title>"), "{picture}");
        assert!(picture.contains("4 hosts, 2 of 12 directions carry less"), "{picture}");
    }

    #[test]
    fn of_many_hosts_only_those_at_fault_are_drawn() {
        let picture = svg(&report(100, &[(7, 90, 1500)]));
        assert!(picture.contains("100 hosts, 2 of them at fault and shown"), "{picture}");
        assert_eq!(picture.matches("><title>").count(), 2);
    }

    #[test]
    fn names_are_text_and_not_markup() {
        let mut report = report(2, &[]);
        report.hosts[0].name = "<script>\"&".to_owned();
        let picture = svg(&report);
        assert!(!picture.contains("<script") && picture.contains("&lt;script&gt;&quot;&amp;"));
    }
}
