//! `millrace report`: compares two reports, and prints the reports' schemas.

use super::guide;
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use clap::{Args, Subcommand, ValueEnum};
use daemon::Replacement;
use lab::compare;
use problem::Problem;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compare two reports of the same experiment, before and after a change
    Compare(Compare),
    /// Print the JSON schema of a report
    Schema(Schema),
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace report compare before/report.json after/report.json --tolerance 3 --html change.html

Exit codes: 0 no regression, 1 a regression beyond the tolerance, 2 the reports cannot be compared,
4 no regression seen, but too few samples (each side needs 5) or a load that only one report has.")]
struct Compare {
    /// The report.json from before the change.
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The report.json from after the change.
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    /// Smallest worsening, beyond the noise, that counts as a regression, in per cent.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    tolerance: f64,
    /// Also write the comparison as an HTML page.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "Example:\n  millrace report schema ntttcp > ntttcp.schema.json")]
struct Schema {
    /// The document to describe.
    #[arg(value_enum, default_value_t = Document::Report)]
    of: Document,
}

#[derive(Clone, Copy, ValueEnum)]
enum Document {
    /// Written by `validate`, `ladder`, `sweep` and `connections`.
    Report,
    /// Written by `report compare`.
    Comparison,
    /// Written by `ntttcp`.
    Ntttcp,
    /// Written by `guide`.
    Guide,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match &arguments.verb {
        Verb::Compare(asked) => compared(asked, global),
        Verb::Schema(Schema { of }) => {
            let schema = match of {
                Document::Report => lab::report::json_schema(),
                Document::Comparison => compare::json_schema(),
                Document::Ntttcp => traffic::report::json_schema(),
                Document::Guide => guide::json_schema(),
            };
            output::print(&format!("{schema:#}"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn compared(asked: &Compare, global: &Global) -> Outcome {
    let found = compare::compare(&asked.before, &asked.after, asked.tolerance / 100.0)
        .map_err(|error| Failure::Usage(Problem::new(error.to_string())))?;
    output::show(global, &found, compare::text)?;
    if let Some(path) = &asked.html {
        // 1 would be a regression.
        let failed =
            |why: String| Failure::Usage(Problem::new(format!("--html {}: {why}", path.display())));
        let page = compare::page(&found).map_err(|error| failed(error.to_string()))?;
        Replacement::write(path, &page).map_err(|error| failed(error.to_string()))?;
    }
    Ok(ExitCode::from(found.exit_code()))
}
