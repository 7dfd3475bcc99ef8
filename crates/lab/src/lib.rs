//! Experiments: topology, plan, run, statistics, figures, report.
