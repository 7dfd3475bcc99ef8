//! A campaign: the points that one command measures, one after the other, each on a bench of its
//! own.
//!
//! `validate`, `ladder`, `sweep` and `connections` are campaigns; they differ in their points only.
//! [`run`](crate::runner::run) measures them.

use crate::LabError;
use crate::experiment::{Description, Experiment};
use crate::load::{Bulk, Load};
use crate::measure::Measure;
use crate::options::Options;
use crate::plan::{Arm, Phase, Plan};
use crate::report::{self, Setting, Threshold};
use statistics::FEWEST_PAIRS;
use std::time::Duration;

/// Connections from which intervals are reduced to a third, which is enough for a verdict: opening
/// so many again for each other switch takes several times as long.
const MANY: u32 = 1000;

/// Time that connections need to go on after ports were reopened: TCP's shortest timeouts, doubled
/// twice.
pub(crate) const REOPENING: Duration = Duration::from_secs(1);

/// What one command measures. Each experiment has a `campaign` function that returns one.
#[derive(Debug)]
pub struct Campaign {
    /// Key: `rsc`, `sweep`.
    pub(crate) name: &'static str,
    /// Title above the report.
    pub(crate) title: &'static str,
    /// Points in the order of measuring; those of one experiment are adjacent.
    pub(crate) points: Vec<Point>,
}

/// One load, and the plan that is measured under it.
#[derive(Debug)]
pub(crate) struct Point {
    pub(crate) experiment: &'static dyn Experiment,
    pub(crate) load: Load,
    pub(crate) plan: Plan,
}

impl Campaign {
    /// Returns the campaign of an experiment with these points.
    pub(crate) fn new(experiment: &dyn Experiment, points: Vec<Point>) -> Campaign {
        let Description { name, title, .. } = experiment.description();
        Campaign { name, title, points }
    }

    /// Returns the campaign that measures an experiment under each connection count.
    pub(crate) fn by_connections(
        experiment: &'static dyn Experiment,
        options: &Options,
    ) -> Campaign {
        let plan = experiment.plan(options.mtu, options.interval, options.stop());
        Campaign::of_plan(experiment, options, &plan)
    }

    /// Like [`by_connections`](Campaign::by_connections), with arms of these names and labels for
    /// which ports are reopened. Each interval goes through the phases, if there are any.
    pub(crate) fn reopening(
        experiment: &'static dyn Experiment,
        options: &Options,
        arms: impl Iterator<Item = (&'static str, String)>,
        phases: Vec<Phase>,
    ) -> Campaign {
        let plain = experiment.plan(options.mtu, options.interval, options.stop());
        let seconds = phases.iter().map(|phase| phase.seconds).reduce(|sum, next| sum + next);
        let plan = Plan {
            arms: arms.map(|(name, label)| Arm { name: name.into(), label }).collect(),
            interval: seconds.map_or(plain.interval, Duration::from_secs_f64),
            phases,
            settle: REOPENING.max(plain.settle),
            ..plain
        };
        Campaign::of_plan(experiment, options, &plan)
    }

    fn of_plan(experiment: &'static dyn Experiment, options: &Options, plan: &Plan) -> Campaign {
        let counts = options.connections.iter();
        let points = counts.map(|count| Point::bulk(experiment, plan, *count)).collect();
        Campaign::new(experiment, points)
    }

    /// Checks that thresholds are of figures that this campaign compares.
    ///
    /// # Errors
    /// [`LabError::Threshold`] for the first that is not.
    pub(crate) fn check(&self, thresholds: &[Threshold]) -> Result<(), LabError> {
        let compares = self.points.iter().filter(|point| point.plan.arms.len() > 1);
        let known: Vec<&Measure> = compares.flat_map(|point| point.plan.measures).collect();
        report::check_thresholds(thresholds, &known)
    }
}

impl Point {
    /// Returns the point of a plan under bulk connections, with fewer intervals if there are many.
    pub(crate) fn bulk(
        experiment: &'static dyn Experiment,
        plan: &Plan,
        connections: u32,
    ) -> Point {
        let (mut plan, load) = (plan.clone(), Load::bulk(connections));
        if connections >= MANY {
            fewer(&mut plan, 3);
        }
        plan.warm_up += load.gathering();
        Point { experiment, load, plan }
    }

    /// Returns the load as the report states it.
    pub(crate) fn setting(&self) -> Setting {
        let wiring = self.experiment.description().wiring;
        let way = self.experiment.has_way().then_some(wiring.way);
        let (connections, buffer_bytes, beside) = match self.load {
            Load::Bulk(Bulk { connections, buffer_bytes, .. }) => {
                (connections, Some(buffer_bytes), None)
            }
            Load::RoundTrips(beside) => (1, None, beside.map(|bulk| bulk.connections)),
        };
        Setting { connections, buffer_bytes, beside, way, receiver_gro: wiring.receiver_gro }
    }

    /// Whether the point needs hosts: in process there is no kernel that could coalesce, and a
    /// guest does one thing at a time.
    pub(crate) fn takes_hosts(&self) -> bool {
        self.experiment.description().wiring.receiver_gro
            || matches!(self.load, Load::RoundTrips(Some(_)))
    }

    /// Returns the words that are shown while it runs.
    pub(crate) fn words(&self, name: &str) -> String {
        format!("{name}, {}", self.setting().words())
    }
}

/// Keeps one interval of so many, but as many as a difference takes.
pub(crate) fn fewer(plan: &mut Plan, of: usize) {
    let repetitions = &mut plan.stop.repetitions;
    *repetitions = repetitions.div_ceil(of).max(FEWEST_PAIRS).min(*repetitions);
}
