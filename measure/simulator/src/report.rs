//! What a simulation found.

use serde::Serialize;

/// Several loads on one machine.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The same seed gives the same loads and figures.
    pub seed: u64,
    /// Workers of the machine.
    pub workers: usize,
    /// NUMA nodes of the machine.
    pub nodes: usize,
    /// One for each load.
    pub loads: Vec<LoadReport>,
}

/// One load under all algorithms.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// What it is called.
    pub name: String,
    /// What it consists of.
    pub description: String,
    /// Virtual time.
    pub seconds: f64,
    /// Figures by algorithm.
    pub algorithms: Algorithms,
}

/// Figures by algorithm.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Algorithms {
    /// Ours.
    pub millrace: Figures,
    /// Open vSwitch's PMD auto load balance.
    pub ovs: Figures,
    /// As irqbalance does.
    pub irqbalance: Figures,
    /// Dealt out once.
    pub round_robin: Figures,
    /// What could be had.
    pub oracle: Figures,
}

impl Algorithms {
    /// All with their names, ours first.
    pub fn named(&self) -> [(&'static str, Figures); 5] {
        [
            ("Millrace", self.millrace),
            ("Open vSwitch", self.ovs),
            ("irqbalance", self.irqbalance),
            ("round robin", self.round_robin),
            ("oracle", self.oracle),
        ]
    }
}

/// One load under one algorithm.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// What was served, as a share of what the oracle served.
    pub throughput_of_oracle: f64,
    /// Moves of entries and queues a minute; `null`: the load takes no time.
    pub moves_per_minute: Option<f64>,
    /// The longest time from a rise of the load until 95 % of what the oracle serves is served, and
    /// stays so; `null`: not within 10 s of some rise, or the load has none.
    pub converge_ms: Option<u64>,
    /// Workers that something was placed on while the load was at rest, on average; `null`: it
    /// never was.
    pub idle_cores: Option<f64>,
}

impl LoadReport {
    /// Whether ours serves at least nine tenths of what the oracle serves.
    pub fn is_near_oracle(&self) -> bool {
        self.algorithms.millrace.throughput_of_oracle >= 0.9
    }

    /// The others that serve more than ours.
    pub fn ahead(&self) -> Vec<&'static str> {
        let ours = self.algorithms.millrace.throughput_of_oracle;
        let others = self.algorithms.named().into_iter().filter(|(name, figures)| {
            !["Millrace", "oracle"].contains(name) && figures.throughput_of_oracle > ours
        });
        others.map(|(name, _)| name).collect()
    }
}
