//! `millrace fleet`: the desired state of many hosts, kept in etcd and rolled out in steps.

use super::fleet_agent::Agent;
use super::fleet_etcd::At;
use super::fleet_mtu::Mtu;
use super::fleet_options::{Author, Labels, name};
use super::fleet_page::Page;
use super::fleet_setup::{Bootstrap, Certificates};
use super::fleet_text as text;
use super::fleet_validate;
use super::top::plain::HOME;
use crate::global::Global;
use crate::output::{self, Failure, Outcome};
use clap::{Args, Subcommand};
use config::PortName;
use fleet::configuration::{Claimed, configuration};
use fleet::model::Model;
use fleet::store::{Phase, Store};
use fleet::{Applied, Apply, Name, Observer};
use problem::Problem;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show what applying a directory would do on each host
    Plan(Plan),
    /// Make a directory the fleet's desired state, and roll it out step by step
    Apply(ApplyFolder),
    /// Show how a directory differs from the revision in force
    Diff(Plan),
    /// Show the roll-out, and the hosts with their revisions and findings
    Status(Status),
    /// Show on which host a port is, by its name or address
    Where(Where),
    /// List the revisions that were applied
    History(History),
    /// Go back to an earlier revision, on all hosts at once
    Rollback(Rollback),
    /// Move a port whose host the model does not name to a host
    Move(Move),
    /// Have the hosts prove by probes that the paths between them carry the MTU
    Mtu(Mtu),
    /// Measure a feature between two hosts, on against off
    Validate(fleet_validate::Arguments),
    /// Forget a host that is gone for good
    Forget(Forget),
    /// Print the configuration that a directory gives a host
    Config(HostConfig),
    /// Print the JSON Schema of the directory's files, for editors
    Schema(Schema),
    /// Run the agent of this host in the foreground
    Agent(Agent),
    /// Serve a read-only page of the fleet to browsers on this machine
    Page(Page),
    /// Make certificates for etcd, for hosts and for people
    Certificates(Certificates),
    /// Set up users and roles in etcd, one for each host, and write their passwords to files
    Bootstrap(Bootstrap),
}

#[derive(Args)]
struct Folder {
    /// The directory with the fleet's TOML files.
    #[arg(short = 'f', long = "folder", value_name = "DIRECTORY")]
    folder: PathBuf,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet plan -f fleet/             # each host's steps; the revision compared with
  millrace fleet diff -f fleet/             # in the terms of the files; exits with 1 if they differ

docs/fleet.md describes the files.")]
struct Plan {
    #[command(flatten)]
    folder: Folder,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet apply -f fleet/ -m 'jumbo frames in blue'
  millrace fleet apply -f fleet/ --base 7 --rollback-on-failure

The roll-out takes the steps of [rollout]: one host, 10 %, all, unless the files say otherwise.
After each step its hosts have to stay without a new finding; otherwise the roll-out stops, says why
and exits with 1. With --base it is refused, showing the difference, if another revision is in force
than the one that `plan` showed. An interrupted roll-out stays where it is; apply again to
continue.")]
struct ApplyFolder {
    #[command(flatten)]
    folder: Folder,
    /// The reason, for the history.
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    message: String,
    /// Refuse unless this revision is in force: the one that `plan` showed.
    #[arg(long, value_name = "REVISION")]
    base: Option<u64>,
    /// If the roll-out stops, put all hosts back to the revision before.
    #[arg(long)]
    rollback_on_failure: bool,
    #[command(flatten)]
    author: Author,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet status
  millrace fleet status --watch
  millrace fleet status --json | jq '.hosts[] | select(.lag_s != null) | .name'

LAG counts from when the revision that a host is to have was written, while the host does not have
it. Exits with 1 if the roll-out has stopped, or if a host is away, does not have the revision that
it should have, or has an error.")]
struct Status {
    /// Draw it anew every second until Ctrl-C; with --json one document a line.
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet where vm1
  millrace fleet where 52:54:00:00:00:01
  millrace fleet where vm1 --json | jq -r .host

Ports that were added on a host itself are only in `millrace port list` of that host.")]
struct Where {
    /// The port's name, or its address.
    #[arg(value_name = "NAME|MAC")]
    what: String,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(after_help = "Example:\n  millrace fleet history -n 5")]
struct History {
    /// How many revisions to list, newest first.
    #[arg(short = 'n', long = "number", value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    number: u32,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet rollback          # to the revision before the newest
  millrace fleet rollback 5

The model of that revision becomes a new revision, which all hosts get in one step.")]
struct Rollback {
    /// The revision whose model is to be in force again; 0: the empty model.
    #[arg(value_name = "REVISION")]
    to: Option<u64>,
    #[command(flatten)]
    author: Author,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace fleet move vm1 b
  millrace fleet move vm1 b --migrate-with ./migrate
  millrace fleet move vm1 b --take-over     # only if the host that has it is off for good

The port's present host removes it and gives up the claim on its address; then the new host claims
the address and adds the port: at no time do both carry it. What runs behind the port is not moved,
unless a program does: with --migrate-with HOST first gets the vhost-user port, then the program
migrates the guest, and then the claim follows. If a step fails, give the command again. After
--take-over, erase the state of the old host's switch and agent before you switch it on again: its
switch opens the ports that it had until its agent reaches etcd.")]
struct Move {
    /// The port, which has no `host` in the model.
    #[arg(value_name = "PORT")]
    port: PortName,
    /// The host to which it moves.
    #[arg(value_name = "HOST", value_parser = name)]
    host: Name,
    /// Migrate the guest with this program, called with the port, the host that has it and HOST,
    /// while HOST has the port prepared.
    #[arg(long, value_name = "PROGRAM", conflicts_with = "take_over")]
    migrate_with: Option<PathBuf>,
    /// Take the claim from a host that is off and so cannot give it up.
    #[arg(long)]
    take_over: bool,
    /// How long to wait until the host has claimed the port; after that the move stays requested.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    wait: u32,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(after_help = "Example:\n  millrace fleet forget old-host     # its agent has to be away")]
struct Forget {
    /// The host.
    #[arg(value_name = "HOST", value_parser = name)]
    host: Name,
    #[command(flatten)]
    at: At,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace fleet config -f fleet/ a --label role=compute     # needs no etcd

Ports without `host` are left out, because only etcd has their claims.")]
struct HostConfig {
    #[command(flatten)]
    folder: Folder,
    /// The host.
    #[arg(value_name = "HOST", value_parser = name)]
    host: Name,
    #[command(flatten)]
    labels: Labels,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  millrace fleet schema > fleet.schema.json     # needs no etcd")]
struct Schema {}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    match &arguments.verb {
        Verb::Plan(plan) => plan.steps(global),
        Verb::Diff(plan) => plan.difference(global),
        Verb::Apply(apply) => apply.run(global),
        Verb::Status(status) => status.run(global),
        Verb::Where(it) => {
            it.at.work(|store| output::show(global, &fleet::place(store, &it.what)?, text::place))
        }
        Verb::History(history) => history.at.work(|store| {
            output::show(global, &store.history(history.number)?, |it| text::history(it))
        }),
        Verb::Rollback(rollback) => rollback.run(global),
        Verb::Move(it) => it.run(global),
        Verb::Mtu(mtu) => mtu.run(global),
        Verb::Validate(validate) => validate.run(global),
        Verb::Forget(forget) => forget.run(global),
        Verb::Config(config) => config.run(global),
        Verb::Schema(Schema {}) => {
            output::print(&format!("{:#}", fleet::model::schema()))?;
            Ok(ExitCode::SUCCESS)
        }
        Verb::Agent(agent) => agent.run(global),
        Verb::Page(page) => page.run(),
        Verb::Certificates(certificates) => certificates.run(),
        Verb::Bootstrap(bootstrap) => bootstrap.run(),
    }
}

impl Folder {
    fn model(&self) -> Result<Model, Failure> {
        Model::read(&self.folder).map_err(Failure::Usage)
    }
}

impl Plan {
    fn steps(&self, global: &Global) -> Outcome {
        let model = self.folder.model()?;
        self.at.work(|store| output::show(global, &fleet::preview(store, &model)?, text::preview))
    }

    fn difference(&self, global: &Global) -> Outcome {
        let model = self.folder.model()?;
        self.at.work(|store| {
            let changes = fleet::preview(store, &model)?.changes;
            output::show(global, &changes, |changes| text::changes(changes))?;
            Ok(exit(changes.is_empty()))
        })
    }
}

impl ApplyFolder {
    fn run(&self, global: &Global) -> Outcome {
        let apply = Apply {
            model: self.folder.model()?,
            author: self.author.author.clone(),
            message: self.message.clone(),
            base: self.base,
            back_to: None,
            at_once: false,
            rollback_on_failure: self.rollback_on_failure,
        };
        self.at.work(|store| carry_out(&apply, store, global))
    }
}

impl Rollback {
    fn run(&self, global: &Global) -> Outcome {
        self.at.work(|store| {
            let apply = fleet::back(store, self.to, self.author.author.clone())?;
            carry_out(&apply, store, global)
        })
    }
}

fn carry_out(apply: &Apply, store: &Store, global: &Global) -> Outcome {
    let applied: Applied = apply.run(store, &mut output::tell)?;
    output::show(global, &applied, text::applied)?;
    Ok(exit(applied.phase == Phase::Done))
}

impl Status {
    fn run(&self, global: &Global) -> Outcome {
        self.at.work(|store| {
            let mut observer = Observer::default();
            if self.watch {
                return watch(&mut observer, store, global);
            }
            let status = observer.look(store)?;
            output::show(global, &status, text::status)?;
            Ok(exit(text::is_well(&status)))
        })
    }
}

/// Draws the status for ever. While etcd does not answer, it says so instead.
fn watch(observer: &mut Observer, store: &Store, global: &Global) -> Outcome {
    let clear = if std::io::stdout().is_terminal() && !global.json { HOME } else { "" };
    loop {
        let status = observer.look(store);
        let drawn = match (&status, global.json) {
            (Ok(status), true) => serde_json::to_string(status),
            (Err(problem), true) => serde_json::to_string(problem),
            (Ok(status), false) => Ok(text::status(status) + "\n"),
            (Err(problem), false) => Ok(format!("{problem}\n")),
        };
        let drawn = drawn.map_err(|error| Problem::new("writing JSON").seen(error))?;
        output::print(&format!("{clear}{drawn}"))?;
        std::thread::sleep(Duration::from_secs(1));
    }
}

impl Move {
    fn run(&self, global: &Global) -> Outcome {
        let wait = Duration::from_secs(self.wait.into());
        self.at.work(|store| {
            match &self.migrate_with {
                None => fleet::move_port(store, &self.port, &self.host, self.take_over, wait)?,
                Some(program) => {
                    fleet::migrate_port(
                        store,
                        (&self.port, &self.host),
                        program,
                        wait,
                        &mut output::tell,
                    )?;
                }
            }
            Ok(ExitCode::SUCCESS)
        })?;
        let said = format!("host {} has claimed port {}", self.host, self.port);
        output::show(global, &said, Clone::clone)
    }
}

impl Forget {
    fn run(&self, global: &Global) -> Outcome {
        self.at.work(|store| {
            if !store.forget(&self.host)? {
                return Err(Failure::Failed(
                    Problem::new(format!("host {} cannot be forgotten", self.host))
                        .seen("its status has not expired")
                        .wanted("a host whose agent is away")
                        .remedy("stop its agent, and try again in 30 s"),
                ));
            }
            output::show(global, &format!("host {} was forgotten", self.host), Clone::clone)
        })
    }
}

impl HostConfig {
    fn run(&self, global: &Global) -> Outcome {
        let host = self.labels.host(&self.host);
        let config = configuration(&self.folder.model()?, &host, &Claimed::new())?;
        let text = config.to_toml()?;
        output::show(global, &config, |_| text)
    }
}

fn exit(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
