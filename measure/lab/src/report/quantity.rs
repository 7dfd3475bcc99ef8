//! Medians of two arms in the unit that people read first: `1.80 → 4.84 Gb/s`, `840 → 310 µs`.

use super::Case;
use crate::measure::Measure;

/// Two medians of a figure in one unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantity {
    before: f64,
    after: f64,
    unit: Unit,
}

/// How a figure is written.
#[derive(Clone, Copy, Debug)]
struct Unit {
    scale: f64,
    decimals: usize,
    word: &'static str,
}

/// Returns the medians of a figure in two arms, the baseline second; `None` if one lacks it.
pub(super) fn both(case: &Case, [on, off]: [&str; 2], measure: &Measure) -> Option<Quantity> {
    let [after, before] = [on, off].map(|arm| case.median(arm, measure.key));
    let (after, before) = (after?, before?);
    Some(Quantity { before, after, unit: unit(measure, before, after) })
}

/// Returns a value in the unit that suits the largest of several.
pub(super) fn among(measure: &Measure, value: f64, largest: f64) -> String {
    let unit = unit(measure, value, largest);
    format!("{}{}", unit.number(value), unit.spaced())
}

impl Quantity {
    /// Returns `1.80 → 4.84 Gb/s`.
    pub(super) fn words(&self) -> String {
        format!("{}{}", self.numbers(), self.unit.spaced())
    }

    /// Returns `1.80 → 4.84`.
    pub(super) fn numbers(&self) -> String {
        format!("{} → {}", self.unit.number(self.before), self.unit.number(self.after))
    }

    /// Returns the second alone, with its unit.
    pub(super) fn last(&self) -> String {
        format!("{}{}", self.unit.number(self.after), self.unit.spaced())
    }

    /// Returns the unit, such as `Gb/s`; empty if the measure's label has none.
    pub(super) fn unit(&self) -> &'static str {
        self.unit.word
    }
}

impl Unit {
    fn number(self, value: f64) -> String {
        format!("{:.*}", self.decimals, value * self.scale)
    }

    fn spaced(self) -> String {
        if self.word.is_empty() { String::new() } else { format!(" {}", self.word) }
    }
}

/// Returns the unit in which both values have about three digits.
fn unit(measure: &Measure, before: f64, after: f64) -> Unit {
    let (least, most) = (before.min(after), before.max(after));
    let fine = |scale: f64| usize::from(least * scale < 100.0) + usize::from(least * scale < 2.0);
    let of = |scale, word| Unit { scale, decimals: fine(scale), word };
    match measure.key {
        "throughput_bps" if most >= 1e9 => of(1e-9, "Gb/s"),
        "throughput_bps" => of(1e-6, "Mb/s"),
        key if key.ends_with("_ns") && most >= 1e6 => of(1e-6, "ms"),
        key if key.ends_with("_ns") => of(1e-3, "µs"),
        key if key.ends_with("_s_per_gib") => of(1.0, "s/GiB"),
        _ => Unit { scale: measure.scale, decimals: measure.decimals, word: in_label(measure) },
    }
}

/// Returns the unit in a label's parentheses, or `%` at its end.
fn in_label(measure: &Measure) -> &'static str {
    let label = measure.label;
    let inside = label.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    inside.map_or(if label.ends_with('%') { "%" } else { "" }, |(unit, _)| unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{CPU, RECEIVING, THROUGHPUT};
    use crate::round_trips;

    #[test]
    fn bars_of_a_chart_have_one_unit() {
        let words = [0.998e9, 4.4e9].map(|value| among(&THROUGHPUT, value, 5e9));
        assert_eq!(words, ["1.00 Gb/s", "4.4 Gb/s"]);
    }

    #[test]
    fn both_values_have_the_unit_that_suits_the_larger() {
        let words = |measure: &Measure, before, after| {
            Quantity { before, after, unit: unit(measure, before, after) }.words()
        };
        let trips = &round_trips::MEASURES[0];
        for (measure, before, after, said) in [
            (&THROUGHPUT, 1.8e9, 4.84e9, "1.80 → 4.84 Gb/s"),
            (&THROUGHPUT, 12.0e9, 44.0e9, "12.0 → 44.0 Gb/s"),
            (&THROUGHPUT, 48.2e6, 49.9e6, "48.2 → 49.9 Mb/s"),
            (&RECEIVING, 6.25, 2.41, "6.2 → 2.4 s/GiB"),
            (trips, 840_000.0, 310_000.0, "840 → 310 µs"),
            (trips, 840_000.0, 2_310_000.0, "0.84 → 2.31 ms"),
            (&CPU, 98.41, 100.0, "98.41 → 100.00 %"),
        ] {
            assert_eq!(words(measure, before, after), said);
        }
    }
}
