//! The results of a simulation.

use serde::Serialize;

/// Results of several loads on one machine.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed of the random numbers; it determines loads and figures.
    pub seed: u64,
    /// Workers of the machine.
    pub workers: usize,
    /// NUMA nodes of the machine.
    pub nodes: usize,
    /// One report for each load.
    pub loads: Vec<LoadReport>,
}

/// Results of one load under all algorithms.
#[derive(Clone, Debug, Serialize)]
pub struct LoadReport {
    /// The load's name.
    pub name: String,
    /// Description of the load.
    pub description: String,
    /// Virtual time, in seconds.
    pub seconds: f64,
    /// Figures by algorithm.
    pub algorithms: Algorithms,
}

/// Figures by algorithm.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Algorithms {
    /// Figures of our algorithm.
    pub millrace: Figures,
    /// Figures of Open vSwitch's PMD auto load balance.
    pub ovs: Figures,
    /// Figures of irqbalance's policy.
    pub irqbalance: Figures,
    /// Figures without moves: queues are assigned once, in turn.
    pub round_robin: Figures,
    /// Figures of the oracle, which no algorithm can exceed.
    pub oracle: Figures,
}

impl Algorithms {
    /// Returns all figures with their algorithms' names, ours first.
    pub fn with_names(&self) -> [(&'static str, Figures); 5] {
        [
            ("Millrace", self.millrace),
            ("Open vSwitch", self.ovs),
            ("irqbalance", self.irqbalance),
            ("round robin", self.round_robin),
            ("oracle", self.oracle),
        ]
    }
}

/// Figures of one load under one algorithm.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    /// Work served, as a share of the work that the oracle served.
    pub throughput_of_oracle: f64,
    /// Moves of entries and queues per minute; `null` if the load takes no time.
    pub moves_per_minute: Option<f64>,
    /// Convergence time: the longest time from a rise of the load until an algorithm serves, and
    /// keeps serving, 95 % of the oracle's work. `null` if a rise is not followed by that within 10
    /// s, or without a rise.
    pub converge_ms: Option<u64>,
    /// Average number of workers in use while the load was at rest; `null` if it never was.
    pub idle_cores: Option<f64>,
}

impl LoadReport {
    /// Whether our algorithm serves at least nine tenths of what the oracle serves.
    pub fn is_near_oracle(&self) -> bool {
        self.algorithms.millrace.throughput_of_oracle >= 0.9
    }

    /// Returns the names of the algorithms, except the oracle, that serve more than ours.
    pub fn ahead(&self) -> Vec<&'static str> {
        let ours = self.algorithms.millrace.throughput_of_oracle;
        let others = self.algorithms.with_names().into_iter().filter(|(name, figures)| {
            !["Millrace", "oracle"].contains(name) && figures.throughput_of_oracle > ours
        });
        others.map(|(name, _)| name).collect()
    }
}
