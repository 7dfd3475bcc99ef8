//! The report in NTttcp's layouts: tables for people, NTttcp's XML, and ntttcp-for-linux's JSON.
//! The templates beside this file hold the layouts; this file prepares their values.
//!
//! A figure that could not be measured is a dash in a table, with its reason below; an XML element
//! without text that says why in an attribute; and `NA` in JSON. In text MB are 2^20 bytes. In XML
//! they are those of the dialect's own program: 10^6 bytes on Linux, 2^20 on Windows. Our own
//! element `throughput_decimal` or `throughput_binary` has the other one. In JSON they are 10^6
//! bytes, and `cpu` is of this process alone.

use super::{Ending, PeerKind, Report, Side};
use crate::TrafficError;
use crate::measure::{Figure, KernelDelta};
use crate::plan::Role;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};
use serde::Serialize;
use std::io;

impl Report {
    /// Returns NTttcp's familiar tables.
    ///
    /// # Errors
    /// Fails if the template cannot be rendered, for want of memory.
    pub fn to_text(&self) -> Result<String, TrafficError> {
        let interrupted = match self.ending {
            Ending::Complete => None,
            Ending::StoppedByUser => Some("stopped by the user"),
            Ending::StoppedByPeer => Some("stopped by the other end before its time"),
            Ending::PeerLost => Some("the other end was lost"),
        };
        self.laid_out(include_str!("ntttcp.txt.jinja"), context! { interrupted })
    }

    /// Returns NTttcp's XML: root `ntttcps` or `ntttcpr`, NTttcp's element names.
    ///
    /// # Errors
    /// Fails if the template cannot be rendered, for want of memory.
    pub fn to_xml(&self) -> Result<String, TrafficError> {
        let decimal = self.decimal_megabytes;
        let (kilo, mega) = if decimal { (1e3, 1e6) } else { (1024.0, 1_048_576.0) };
        self.laid_out(include_str!("ntttcp.xml.jinja"), context! { decimal, kilo, mega })
    }

    /// Returns ntttcp-for-linux's JSON (`-j`): its keys, every value a string.
    ///
    /// # Errors
    /// Fails if the template cannot be rendered, for want of memory.
    pub fn to_linux_json(&self) -> Result<serde_json::Value, TrafficError> {
        let os = std::fs::read_to_string("/proc/version");
        let os = os.map_or_else(|_| "NA".to_owned(), |text| text.trim().to_owned());
        let text = self.laid_out(include_str!("ntttcp.json.jinja"), context! { os })?;
        serde_json::from_str(&text).map_err(TrafficError::system("lay out the report"))
    }

    fn laid_out(&self, template: &str, more: Value) -> Result<String, TrafficError> {
        let text = self.render(template, more).map_err(io::Error::other);
        text.map_err(TrafficError::system("lay out the report"))
    }

    fn render(&self, template: &str, more: Value) -> Result<String, minijinja::Error> {
        let mut syntax = SyntaxConfig::builder();
        syntax.trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true);
        let mut environment = Environment::new();
        environment.set_syntax(syntax.build()?);
        environment.add_filter("xml", |text: String| escape(&text));
        environment.add_filter("plain", plain);
        environment.add_function("table", table);
        let sides: Vec<Shown<'_>> =
            std::iter::once(&self.own).chain(&self.peer).map(Shown::of).collect();
        let sender = self.own.role == Role::Sender;
        let given = context! {
            report => Value::from(Serde(self)),
            settings => Value::from(Serde(&self.settings)),
            own => Value::from(Serde(Shown::of(&self.own))),
            sides => Value::from(Serde(sides)),
            root => if sender { "ntttcps" } else { "ntttcpr" },
            ..more
        };
        environment.render_str(template, given)
    }

    /// Returns one line that says how much the receiver took.
    pub fn summary(&self) -> String {
        let throughput = self.own.throughput;
        let verb = if self.own.role == Role::Sender { "sent" } else { "received" };
        let peer = match self.peer_kind {
            PeerKind::Millrace => "Millrace",
            PeerKind::Ntttcp => "NTttcp",
            PeerKind::Unsynchronised => "unsynchronised",
        };
        format!(
            "{verb} {:.3} MB/s (2^20), {:.3} Mbit/s over {:.3} s; peer: {peer}",
            throughput.mebibytes_per_s, throughput.megabits_per_s, self.own.seconds
        )
    }
}

/// One end's figures, with those derived from them.
#[derive(Serialize)]
struct Shown<'r> {
    #[serde(flatten)]
    side: &'r Side,
    buffers_per_s: f64,
    interrupts_per_s: Figure<f64>,
    net_rx_softirqs_per_s: Figure<f64>,
    packets_per_interrupt: Figure<f64>,
    packets_per_softirq: Figure<f64>,
}

impl Shown<'_> {
    fn of(side: &Side) -> Shown<'_> {
        let KernelDelta { interrupts, net_rx_softirqs, .. } = &side.kernel;
        Shown {
            side,
            buffers_per_s: if side.seconds > 0.0 { side.buffers / side.seconds } else { 0.0 },
            interrupts_per_s: side.per_second(interrupts),
            net_rx_softirqs_per_s: side.per_second(net_rx_softirqs),
            packets_per_interrupt: side.received_per(interrupts),
            packets_per_softirq: side.received_per(net_rx_softirqs),
        }
    }
}

/// Lays out heads, a rule and one row, each column as wide as its widest cell.
fn table(columns: Vec<Vec<String>>) -> String {
    let width = |column: &Vec<String>| column.iter().map(String::len).max().unwrap_or(0);
    let row = |cell: &dyn Fn(&Vec<String>) -> String| {
        let cells = columns.iter().map(|column| format!("{:>1$}", cell(column), width(column)));
        cells.collect::<Vec<_>>().join(" ") + "\n"
    };
    let part = |place: usize| row(&|column| column.get(place).cloned().unwrap_or_default());
    part(0) + &row(&|column| "=".repeat(width(column))) + &part(1)
}

/// Returns up to `most` characters of a peer's text, without control characters.
fn plain(text: String, most: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(most).collect()
}

/// Escapes text for an element or an attribute. Characters that XML 1.0 does not allow are left
/// out.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => {}
            character if character.is_control() => escaped.push(' '),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_stays_itself_but_for_controls(text in ".*") {
            let document = format!("<a b=\"{0}\">{0}</a>", escape(&text));
            let parsed = roxmltree::Document::parse(&document).unwrap();
            let wanted: String = text
                .chars()
                .filter(|c| !matches!(c, '\u{fffe}' | '\u{ffff}'))
                .map(|c| if c.is_control() { ' ' } else { c })
                .collect();
            prop_assert_eq!(parsed.root_element().attribute("b").unwrap(), wanted.as_str());
        }
    }
}
