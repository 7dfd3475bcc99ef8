//! Points: cases that differ in their load and have one arm each, as in a sweep or a row of
//! connection counts; or a sweep in which all cases have the same arms.

use super::{Table, lossy_heads, lossy_row};
use crate::load::Way;
use crate::measure::Measure;
use crate::report::Case;
use crate::report::case::{block, capital, plural};
use std::collections::BTreeSet;

/// Cases as points, with the sorted values of each coordinate.
pub(in crate::report) struct Points<'r> {
    cases: &'r [Case],
    pub(in crate::report) ways: Vec<Option<Way>>,
    pub(in crate::report) connections: Vec<u32>,
    pub(in crate::report) blocks: Vec<u32>,
    /// Arms of the cases, the baseline first.
    pub(in crate::report) arms: Vec<&'r str>,
}

impl<'r> Points<'r> {
    /// Returns the points of the cases; `None` if arms are compared under few loads.
    pub(in crate::report) fn of(cases: &'r [Case]) -> Option<Points<'r>> {
        let order = &cases.first()?.order;
        let alike = cases.iter().all(|case| case.order == *order);
        let mut ways: Vec<_> = cases.iter().map(|case| case.setting.way).collect();
        ways.dedup();
        let connections: BTreeSet<u32> =
            cases.iter().map(|case| case.setting.connections).collect();
        let blocks: BTreeSet<u32> =
            cases.iter().filter_map(|case| case.setting.buffer_bytes).collect();
        (alike && (order.len() == 1 || blocks.len() > 1)).then(|| Points {
            cases,
            ways,
            connections: connections.into_iter().collect(),
            blocks: blocks.into_iter().collect(),
            arms: order.iter().rev().map(String::as_str).collect(),
        })
    }

    /// Returns `512 B`, `1 KiB` and so on.
    pub(in crate::report) fn block_words(&self) -> Vec<String> {
        self.blocks.iter().map(|bytes| block(*bytes)).collect()
    }

    /// Returns the label of an arm.
    pub(in crate::report) fn label(&self, arm: &'r str) -> &'r str {
        self.cases.first().map_or(arm, |case| case.label(arm))
    }

    /// Returns a measure's median in an arm, in the unit of its label, for a direction, a number of
    /// connections and a block size.
    pub(in crate::report) fn value(
        &self,
        way: Option<Way>,
        [connections, block]: [u32; 2],
        arm: &str,
        measure: &Measure,
    ) -> Option<f64> {
        let case = self.cases.iter().find(|case| {
            let setting = case.setting;
            setting.way == way
                && setting.connections == connections
                && setting.buffer_bytes.unwrap_or_default() == block
        })?;
        Some(case.median(arm, measure.key)? * measure.scale)
    }

    /// Whether there is only one arm, so that its name is not shown.
    pub(in crate::report) fn one_unnamed(&self) -> bool {
        self.arms == ["measured"]
    }

    /// Returns a table for each direction and measure if block sizes differ, otherwise one table of
    /// all measures.
    pub(super) fn tables(&self, measures: &[Measure]) -> Vec<Table> {
        if self.blocks.len() < 2 {
            return vec![self.list(measures)];
        }
        let both =
            measures.iter().flat_map(|measure| self.ways.iter().map(move |way| (measure, way)));
        both.map(|(measure, way)| self.matrix(*way, measure)).collect()
    }

    /// Returns the table of a measure by block size and connections. Each cell has the arms'
    /// values, the baseline's first: `1.23 → 1.50`.
    fn matrix(&self, way: Option<Way>, measure: &Measure) -> Table {
        let show = |value: Option<f64>| {
            value.map_or("–".to_owned(), |value| format!("{value:.*}", measure.decimals))
        };
        let rows = self.blocks.iter().zip(self.block_words()).map(|(block, word)| {
            let cells = self.connections.iter().map(|connections| {
                let value = |arm: &&str| self.value(way, [*connections, *block], arm, measure);
                self.arms.iter().map(value).map(show).collect::<Vec<_>>().join(" → ")
            });
            std::iter::once(word).chain(cells).collect()
        });
        let heads = self.connections.iter().map(|count| plural(*count, "connection"));
        let arms: Vec<&str> = self.arms.iter().map(|arm| self.label(arm)).collect();
        let of =
            if self.one_unnamed() { String::new() } else { format!(" of {}", arms.join(" → ")) };
        Table {
            title: format!("{}, {}, medians{of}", measure.label, way.map_or("", |way| way.words())),
            head: std::iter::once("Block".to_owned()).chain(heads).collect(),
            rows: rows.collect(),
        }
    }

    fn list(&self, measures: &[Measure]) -> Table {
        let row = |case: &Case| {
            let arm = case.arms_in_order().next()?;
            Some(lossy_row(capital(&case.setting.words()), arm, measures))
        };
        Table {
            title: "Median (min–max) of each load".to_owned(),
            head: lossy_heads(measures),
            rows: self.cases.iter().filter_map(row).collect(),
        }
    }

    /// Returns `Throughput (Gb/s): at most 4.48 (guest sends, 4 connections) and 4.31 (guest
    /// receives, 4 connections).` or, with several arms, `Throughput (Gb/s): with 1 queue at most
    /// …; with 2 queues at most ….`
    pub(in crate::report) fn sentence(&self, measure: &Measure) -> Option<String> {
        let with = |arm: &&str| {
            let with = if self.one_unnamed() {
                String::new()
            } else {
                format!("with {} ", self.label(arm))
            };
            Some(format!("{with}at most {}", self.most(arm, measure)?))
        };
        let all: Vec<String> = self.arms.iter().filter_map(with).collect();
        (!all.is_empty()).then(|| format!("{}: {}.", measure.label, all.join("; ")))
    }

    /// Returns an arm's maximum in each direction.
    fn most(&self, arm: &str, measure: &Measure) -> Option<String> {
        let most = |way: &Option<Way>| {
            let own = self.cases.iter().filter(|case| case.setting.way == *way);
            let medians = own.filter_map(|case| Some((case, case.median(arm, measure.key)?)));
            let (case, value) = medians.max_by(|a, b| a.1.total_cmp(&b.1))?;
            let (value, words) = (value * measure.scale, case.setting.words());
            Some(format!("{value:.*} ({words})", measure.decimals))
        };
        let most: Vec<String> = self.ways.iter().filter_map(most).collect();
        (!most.is_empty()).then(|| most.join(" and "))
    }
}
