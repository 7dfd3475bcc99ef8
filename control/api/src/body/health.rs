//! Findings about the switch, with their severity.

use problem::Problem;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing; no action needed.
    Info,
    /// Frames flow, but some are lost, slowed or unprotected, or a part that carries no frames has
    /// failed.
    Warning,
    /// Traffic that the configuration calls for does not flow, or would not after a restart.
    Error,
}

impl Severity {
    /// All severities, worst first.
    pub const ALL: [Severity; 3] = [Severity::Error, Severity::Warning, Severity::Info];

    /// Returns the name in API, metrics and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FindingBody {
    /// How much it matters.
    pub severity: Severity,
    /// What kind of finding it is, for scripts: `port_broken`, `mtu_mismatch`.
    pub kind: String,
    /// What failed, the value seen, the value wanted and the remedy.
    #[serde(flatten)]
    pub problem: Problem,
}

/// Result of the health check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HealthBody {
    /// Whether there are neither errors nor warnings.
    pub healthy: bool,
    /// Findings, worst first, then in the order of the ports.
    pub findings: Vec<FindingBody>,
}

impl HealthBody {
    /// Returns the result of a check with these findings.
    pub fn of(mut findings: Vec<FindingBody>) -> HealthBody {
        findings.sort_by_key(|found| std::cmp::Reverse(found.severity));
        let healthy = findings.iter().all(|found| found.severity == Severity::Info);
        HealthBody { healthy, findings }
    }

    /// Returns how many findings are of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|found| found.severity == severity).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_what_is_worth_knowing_leaves_it_healthy() {
        let finding = |severity: Severity, error: &str| FindingBody {
            severity,
            kind: "mtu_mismatch".to_owned(),
            problem: Problem::new(error),
        };
        let info = finding(Severity::Info, "a");
        assert!(HealthBody::of(vec![info.clone()]).healthy);
        let (first, second) = (finding(Severity::Warning, "b"), finding(Severity::Warning, "c"));
        let error = finding(Severity::Error, "d");
        let health =
            HealthBody::of(vec![info.clone(), first.clone(), error.clone(), second.clone()]);
        assert!(!health.healthy);
        assert_eq!(Severity::ALL.map(|severity| health.count(severity)), [1, 2, 1]);
        assert_eq!(health.findings, [error, first, second, info]);
    }
}
