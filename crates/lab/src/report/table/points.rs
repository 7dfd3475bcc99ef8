//! Cases that have one arm each and differ in their load: a sweep, or a row of connection counts.

use super::{LOSSES, Table, arm_row, heads, losses};
use crate::experiment::Measure;
use crate::report::Case;
use crate::report::case::{block, capital, plural};
use crate::topology::Way;
use std::collections::BTreeSet;

/// See the module; with what occurs of each coordinate, in order.
pub(in crate::report) struct Points<'r> {
    cases: &'r [Case],
    pub(in crate::report) ways: Vec<Option<Way>>,
    pub(in crate::report) connections: Vec<u32>,
    pub(in crate::report) blocks: Vec<u32>,
}

impl<'r> Points<'r> {
    /// `None` where arms are compared.
    pub(in crate::report) fn of(cases: &'r [Case]) -> Option<Points<'r>> {
        if cases.iter().any(|case| case.order.len() != 1) {
            return None;
        }
        let mut ways = Vec::new();
        for way in cases.iter().map(|case| case.setting.way) {
            if !ways.contains(&way) {
                ways.push(way);
            }
        }
        let connections: BTreeSet<u32> =
            cases.iter().map(|case| case.setting.connections).collect();
        let blocks: BTreeSet<u32> =
            cases.iter().filter_map(|case| case.setting.buffer_bytes).collect();
        Some(Points {
            cases,
            ways,
            connections: connections.into_iter().collect(),
            blocks: blocks.into_iter().collect(),
        })
    }

    /// `512 B`, `1 KiB`, …
    pub(in crate::report) fn block_words(&self) -> Vec<String> {
        self.blocks.iter().map(|bytes| block(*bytes)).collect()
    }

    /// A measure's medians, for people, over the blocks.
    pub(in crate::report) fn over_blocks(
        &self,
        way: Option<Way>,
        connections: u32,
        measure: &Measure,
    ) -> Vec<Option<f64>> {
        let value = |bytes: &u32| self.value(way, connections, *bytes, measure);
        self.blocks.iter().map(value).collect()
    }

    /// A measure's medians, for people, over the connection counts.
    pub(in crate::report) fn over_connections(
        &self,
        way: Option<Way>,
        measure: &Measure,
    ) -> Vec<Option<f64>> {
        let block = self.blocks.first().copied().unwrap_or_default();
        let value = |connections: &u32| self.value(way, *connections, block, measure);
        self.connections.iter().map(value).collect()
    }

    fn value(
        &self,
        way: Option<Way>,
        connections: u32,
        block: u32,
        measure: &Measure,
    ) -> Option<f64> {
        let case = self.cases.iter().find(|case| {
            let setting = case.setting;
            setting.way == way
                && setting.connections == connections
                && setting.buffer_bytes.unwrap_or_default() == block
        })?;
        Some(case.arms_in_order().next()?.median(measure.key)? * measure.scale)
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

    fn matrix(&self, way: Option<Way>, measure: &Measure) -> Table {
        let cell = |value: Option<f64>| {
            value.map_or("–".to_owned(), |value| format!("{value:.*}", measure.decimals))
        };
        let columns: Vec<Vec<Option<f64>>> = self
            .connections
            .iter()
            .map(|connections| self.over_blocks(way, *connections, measure))
            .collect();
        let rows = self.block_words().into_iter().enumerate().map(|(place, word)| {
            let cells = columns.iter().map(|column| cell(column.get(place).copied().flatten()));
            std::iter::once(word).chain(cells).collect()
        });
        let heads = self.connections.iter().map(|count| plural(*count, "connection"));
        Table {
            title: format!("{}, {}, medians", measure.label, way.map_or("", |way| way.words())),
            head: std::iter::once("Block".to_owned()).chain(heads).collect(),
            rows: rows.collect(),
        }
    }

    fn list(&self, measures: &[Measure]) -> Table {
        let row = |case: &Case| {
            let arm = case.arms_in_order().next()?;
            let row = arm_row(capital(&case.setting.words()), arm, measures);
            Some(row.into_iter().chain(losses(arm)).collect())
        };
        let losses = LOSSES.map(str::to_owned);
        Table {
            title: "Median (min–max) of each load".to_owned(),
            head: heads(measures).into_iter().chain(losses).collect(),
            rows: self.cases.iter().filter_map(row).collect(),
        }
    }

    /// `Throughput (Gb/s): at most 4.48 (guest sends, 4 connections) and 4.31 (guest receives, 4 connections).`
    pub(in crate::report) fn sentence(&self, measure: &Measure) -> Option<String> {
        let most = |way: &Option<Way>| {
            let own = self.cases.iter().filter(|case| case.setting.way == *way);
            let medians = own.filter_map(|case| {
                Some((case, case.arms_in_order().next()?.median(measure.key)? * measure.scale))
            });
            let (case, value) = medians.max_by(|a, b| a.1.total_cmp(&b.1))?;
            Some(format!("{value:.*} ({})", measure.decimals, case.setting.words()))
        };
        let most: Vec<String> = self.ways.iter().filter_map(most).collect();
        (!most.is_empty()).then(|| format!("{}: at most {}.", measure.label, most.join(" and ")))
    }
}
