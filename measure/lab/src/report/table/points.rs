//! Cases that differ in their load and have one arm each: a sweep, or a row of connection counts.
//! Or a sweep whose cases have the same arms.

use super::{Table, lossy_heads, lossy_row};
use crate::load::Way;
use crate::measure::Measure;
use crate::report::Case;
use crate::report::case::{block, capital, plural};
use std::collections::BTreeSet;

/// See the module; with what occurs of each coordinate, in order.
pub(in crate::report) struct Points<'r> {
    cases: &'r [Case],
    pub(in crate::report) ways: Vec<Option<Way>>,
    pub(in crate::report) connections: Vec<u32>,
    pub(in crate::report) blocks: Vec<u32>,
    /// Their arms, the baseline before what should be better.
    pub(in crate::report) arms: Vec<&'r str>,
}

impl<'r> Points<'r> {
    /// `None` where arms are compared under few loads.
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

    /// `512 B`, `1 KiB`, …
    pub(in crate::report) fn block_words(&self) -> Vec<String> {
        self.blocks.iter().map(|bytes| block(*bytes)).collect()
    }

    /// What people read of an arm.
    pub(in crate::report) fn label(&self, arm: &'r str) -> &'r str {
        self.cases.first().map_or(arm, |case| case.label(arm))
    }

    /// A measure's median in an arm, for people, of so many connections and such a block.
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

    /// Whether there is one arm, which has no name worth telling.
    pub(in crate::report) fn one_unnamed(&self) -> bool {
        self.arms == ["measured"]
    }

    /// A table for each way and measure where blocks differ, otherwise one of all measures.
    pub(super) fn tables(&self, measures: &[Measure]) -> Vec<Table> {
        if self.blocks.len() < 2 {
            return vec![self.list(measures)];
        }
        let both =
            measures.iter().flat_map(|measure| self.ways.iter().map(move |way| (measure, way)));
        both.map(|(measure, way)| self.matrix(*way, measure)).collect()
    }

    /// Its cells have the arms from the baseline on: `1.23 → 1.50`.
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

    /// `Throughput (Gb/s): at most 4.48 (guest sends, 4 connections) and 4.31 (guest receives, 4 connections).`
    /// Of several arms one after the other:
    /// `Throughput (Gb/s): with 1 queue at most …; with 2 queues at most ….`
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

    /// The most that an arm has each way.
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
