//! `millrace config`: shows, compares, replaces and saves the running configuration.

use crate::commands::check;
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use api::body::{Origin, PlanBody, StepBody, StepOutcome};
use api::client::Client;
use clap::{Args, Subcommand};
use config::Config;
use config::plan::Step;
use daemon::Replacement;
use problem::Problem;
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
    /// Show the running configuration, and where each port comes from
    Show(Show),
    /// Show the steps from the running configuration to a file
    Diff(Diff),
    /// Make a file the running configuration
    Apply(Apply),
    /// Have the daemon reread its own file, and wait until it has
    Reload(Reload),
    /// Write the running configuration to a file
    Save(Save),
    /// Print the JSON Schema of the configuration file, for editors
    Schema(Schema),
}

#[derive(Args)]
#[command(after_help = "Example:\n  millrace config show > millrace.toml")]
struct Show {}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace config diff                # what `config reload` would do
  millrace config diff new.toml       # what `config apply new.toml` would do

Exits with 1 if there are steps to take.")]
struct Diff {
    /// The file [default: the daemon's own].
    file: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace config apply new.toml --dry-run
  millrace config apply new.toml

Ports that do not differ are not touched. Added ports persist, as with `port add`. Changes to ports
from the daemon's own file last until it rereads that file. The command is refused if the
configuration changes between planning and applying. Exits with 1 if a step fails.")]
struct Apply {
    /// The file.
    file: PathBuf,
    /// Only show the steps.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace config reload

Does what SIGHUP does, and reports the result: exits with 1 if the file is refused or a step fails.")]
struct Reload {
    /// Only show the steps.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace config schema > millrace.schema.json     # needs no daemon

Editors with Taplo use the schema that the file's first line names:
#:schema ./millrace.schema.json")]
struct Schema {}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace config save                # the daemon's own file; the old one is kept as FILE~
  millrace config save all.toml

Comments in the old file are lost. Ports added through the API become ports of the daemon's own file
once it contains them.")]
struct Save {
    /// The file [default: the daemon's own].
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
                Some(file) => match check::read(file, global)? {
                    Ok(wanted) => client.put_config(&wanted, true)?,
                    Err(code) => return Ok(code),
                },
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
        // The schema comes from the types: no daemon is asked.
        Verb::Schema(Schema {}) => {
            output::print(&format!("{:#}", daemon::reference::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Apply {
    fn run(&self, client: &Client, global: &Global) -> Outcome {
        let wanted = match check::read(&self.file, global)? {
            Ok(wanted) => wanted,
            Err(code) => return Ok(code),
        };
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
                    .remedy("run `millrace config save FILE`"),
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
                .wanted("a file that you may write to")
                .remedy("run as the file's owner, or name another file")
        })?;
        if own.as_deref() == Some(file.as_path()) {
            let plan = client.reload_config(false)?;
            output::show(global, &plan, |_| format!("written to {}", file.display()))?;
            return Ok(exit(plan.applied));
        }
        output::show(global, &file.display().to_string(), |file| format!("written to {file}"))
    }
}

/// Writes the file. The old one is kept as FILE~.
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

/// Returns the configuration as TOML, with a comment above each port that is not from the file.
fn text(config: &Config, origins: &BTreeMap<String, Origin>) -> Result<String, Problem> {
    let switch = Config { ports: Vec::new(), ..config.clone() };
    let mut text = switch.to_toml()?;
    for port in &config.ports {
        let one = Config { ports: vec![port.clone()], ..Config::default() }.to_toml()?;
        let table = one.find("[[port]]").and_then(|place| one.get(place..)).unwrap_or_default();
        let comment = match origins.get(port.name.as_str()) {
            None | Some(Origin::File) => String::new(),
            Some(origin) => format!("# added {}\n", origin.by()),
        };
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

/// Returns a text such as `add port vm1`, with the reason if the step failed.
fn line(step: &StepBody) -> String {
    let what = words(&step.plan);
    match step.outcome {
        StepOutcome::Failed => format!("{what}: failed: {}", step.reason),
        StepOutcome::Planned | StepOutcome::Done => what,
    }
}

/// Returns a step of a plan, in words.
pub(crate) fn words(step: &Step) -> String {
    match step {
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
        Step::Add { port, .. } => format!("reopen port {}", port.name),
    }
}
