//! `millrace config`: the configuration in force, shown, compared, replaced and saved.

use crate::cli::Global;
use crate::output::{self, Failure, Outcome};
use clap::{Args, Subcommand};
use control::body::{Origin, PlanBody, StepBody, StepOutcome};
use control::client::Client;
use control::config::Config;
use control::plan::Step;
use control::{Problem, Replacement, daemon};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the configuration in force, and where each port comes from
    Show(Show),
    /// Show the steps from what is in force to a file
    Diff(Diff),
    /// Make a file the configuration in force
    Apply(Apply),
    /// Have the daemon read its own file again, and wait for it
    Reload(Reload),
    /// Write the configuration in force to a file
    Save(Save),
    /// Print the JSON Schema of the file, for editors
    Schema(Schema),
}

#[derive(Args)]
#[command(after_help = "Example:\n  millrace config show > millrace.toml")]
struct Show {}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace config diff                # what reading the daemon's own file again would do
  millrace config diff new.toml       # what `config apply new.toml` would do

Exits with 1 where there are steps to take.")]
struct Diff {
    /// The file; where absent, the daemon's own.
    file: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace config apply new.toml --dry-run
  millrace config apply new.toml

Ports that do not differ are not touched. Ports that come are kept, as those of `port add`; changes to ports of the daemon's own
file last until it reads that again. It is refused where something else changes between plan and application, and exits with 1
where a step fails.")]
struct Apply {
    /// The file.
    file: PathBuf,
    /// Show the steps only.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace config reload

The same as SIGHUP, with an answer: exits with 1 where the file is refused or a step fails.")]
struct Reload {
    /// Show the steps only.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace config schema > millrace.schema.json     # needs no daemon

Editors that know Taplo use it by a comment in the first line of the file: #:schema ./millrace.schema.json")]
struct Schema {}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace config save                # the daemon's own file; what was there is kept as FILE~
  millrace config save all.toml

Comments of the old file are not carried over. Once the daemon's own file has them, ports that the API had added are the file's.")]
struct Save {
    /// The file; where absent, the daemon's own.
    file: Option<PathBuf>,
    /// Print what would be written.
    #[arg(long)]
    dry_run: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match &arguments.verb {
        Verb::Show(Show {}) => {
            let client = global.client()?;
            output::show(global, &client.config()?, |config| {
                text(config, &origins(&client)).unwrap_or_else(|problem| problem.to_string())
            })
        }
        Verb::Diff(Diff { file }) => {
            let client = global.client()?;
            let plan = match file {
                Some(file) => client.put_config(&daemon::read_file(file)?, true)?,
                None => client.reload_config(true)?,
            };
            output::show(global, &plan, steps)?;
            Ok(exit(plan.steps.is_empty()))
        }
        Verb::Apply(apply) => apply.run(&global.client()?, global),
        Verb::Reload(Reload { dry_run }) => {
            let plan = global.client()?.reload_config(*dry_run)?;
            output::show(global, &plan, steps)?;
            Ok(exit(plan.applied || *dry_run))
        }
        Verb::Save(save) => save.run(&global.client()?, global),
        // The types say it: no daemon is asked.
        Verb::Schema(Schema {}) => {
            output::print(&format!("{:#}", control::reference::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Apply {
    fn run(&self, client: &Client, global: &Global) -> Outcome {
        let wanted = daemon::read_file(&self.file)?;
        let mut plan = client.put_config(&wanted, true)?;
        if !self.dry_run {
            plan = client.replace_config(&wanted, &plan.etag)?;
        }
        output::show(global, &plan, steps)?;
        Ok(exit(plan.applied || self.dry_run))
    }
}

impl Save {
    fn run(&self, client: &Client, global: &Global) -> Outcome {
        let own = client.config_source()?.file.map(PathBuf::from);
        let file = self.file.as_ref().or(own.as_ref()).ok_or_else(|| {
            Failure::Usage(
                Problem::new("the daemon has no configuration file")
                    .seen("no FILE")
                    .wanted("a file to write")
                    .remedy("name one: millrace config save FILE"),
            )
        })?;
        let text = client.config()?.to_toml()?;
        if self.dry_run {
            output::print(&text)?;
            return Ok(ExitCode::SUCCESS);
        }
        write(file, &text).map_err(|error| {
            Problem::new(format!("{} cannot be written", file.display()))
                .seen(error)
                .wanted("a file that you may write")
                .remedy("run as its owner, or name another file")
        })?;
        if own.as_deref() == Some(file.as_path()) {
            let plan = client.reload_config(false)?;
            output::show(global, &plan, |_| format!("written to {}", file.display()))?;
            return Ok(exit(plan.applied));
        }
        output::show(global, &file.display().to_string(), |file| format!("written to {file}"))
    }
}

/// What was there stays beside it.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Ok(old) = std::fs::read_to_string(file) {
        let mut beside = file.as_os_str().to_owned();
        beside.push("~");
        Replacement::write(Path::new(&beside), &old)?;
    }
    Replacement::write(file, text)
}

fn exit(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn origins(client: &Client) -> BTreeMap<String, Origin> {
    let ports = client.ports().unwrap_or_default();
    ports.into_iter().map(|port| (port.name, port.origin)).collect()
}

/// The file's text, with a comment above each port of the API.
fn text(config: &Config, origins: &BTreeMap<String, Origin>) -> Result<String, Problem> {
    let switch = Config { ports: Vec::new(), ..config.clone() };
    let mut text = switch.to_toml()?;
    for port in &config.ports {
        let one = Config { ports: vec![port.clone()], ..Config::default() }.to_toml()?;
        let table = one.find("[[port]]").and_then(|place| one.get(place..)).unwrap_or_default();
        let added = origins.get(port.name.as_str()) == Some(&Origin::Api);
        let comment = if added { "# added by the API\n" } else { "" };
        text.push_str(&format!("\n{comment}{table}"));
    }
    Ok(text)
}

fn steps(plan: &PlanBody) -> String {
    if plan.steps.is_empty() {
        return "nothing to do".to_owned();
    }
    plan.steps.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// `add port vm1`, and why not if it failed.
fn line(step: &StepBody) -> String {
    let what = match &step.plan {
        Step::Remove { port, reopens: false, .. } => format!("remove port {port}"),
        Step::Remove { port, keys, .. } => format!("close port {port} for {}", keys.join(", ")),
        Step::Change { port, keys } => format!("change port {}: {}", port.name, keys.join(", ")),
        Step::Switch { keys, restart } if restart.is_empty() => {
            format!("change [switch]: {}", keys.join(", "))
        }
        Step::Switch { keys, restart } => format!(
            "change [switch]: {} (after a restart: {})",
            keys.join(", "),
            restart.join(", ")
        ),
        Step::Add { port, reopens: false } => format!("add port {}", port.name),
        Step::Add { port, .. } => format!("open port {} again", port.name),
    };
    match step.outcome {
        StepOutcome::Failed => format!("{what}: failed: {}", step.reason),
        StepOutcome::Planned | StepOutcome::Done => what,
    }
}
