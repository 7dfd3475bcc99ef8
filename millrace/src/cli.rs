//! The command line: commands and help groups.

mod suggestion;

use crate::commands::{
    acl, bugreport, capture, check, cni, completions, config, connections, event, fleet, flows,
    guide, lab, lab_host, ladder, log, mac, man, migrate, mtu, namespace_helper, ntttcp, openapi,
    page, port, queue, report, rsc, rss, run, setup, status, sweep, team, top, trace, validate,
    vmmq,
};
use crate::global::Global;
use crate::output;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use problem::Problem;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// Shown at the end of every help.
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failure or findings, 2 wrong usage, 3 no daemon answers, 4 too little was
measured to tell (`report compare`), 5 a condition of `--fail-if` holds, 130 ended by Ctrl-C.";

/// The commands in the groups that the help shows.
const GROUPS: [(&str, &[&str]); 5] = [
    (
        "Run and watch the switch",
        &[
            "setup",
            "run",
            "status",
            "top",
            "flows",
            "page",
            "event",
            "check",
            "trace",
            "capture",
            "bugreport",
        ],
    ),
    (
        "Change the switch while it runs",
        &["port", "mac", "acl", "rsc", "rss", "team", "queue", "vmmq", "config", "log", "migrate"],
    ),
    ("Run many hosts", &["fleet"]),
    (
        "Measure",
        &["guide", "validate", "ladder", "sweep", "connections", "report", "ntttcp", "mtu", "lab"],
    ),
    ("For tools", &["cni", "openapi", "completions", "man"]),
];

/// Returns the clap command, with its subcommands in groups.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command();
    let line = |name: &&str| {
        let about = command.find_subcommand(name)?.get_about()?;
        Some(format!("  {name:<12} {about}\n"))
    };
    let group = |(title, names): &(&str, &[&str])| {
        format!("{title}:\n{}\n", names.iter().filter_map(line).collect::<String>())
    };
    let groups: String = GROUPS.iter().map(group).collect();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{options}}{{after-help}}"
    );
    command.clone().help_template(template)
}

/// Parses the command line.
///
/// # Errors
/// The error is an exit code: help was printed, or the usage error was, as JSON with `--json`.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    let words = words();
    let typed = command()
        .try_get_matches_from(&words)
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| suggestion::improve(error, &words));
    typed.map_err(|error| {
        let json =
            std::env::args_os().skip(1).take_while(|word| word != "--").any(|it| it == "--json");
        if json && error.use_stderr() {
            output::exit_with(usage(&error), 2, true)
        } else {
            error.exit()
        }
    })
}

/// Returns the command that a link of this name stands for.
fn command_of_link(name: &OsStr) -> Option<&'static str> {
    let lower = name.to_str()?.to_ascii_lowercase();
    match lower.as_str() {
        cni::LINK => Some("cni"),
        "ntttcp" | "ntttcp.exe" => Some("ntttcp"),
        _ => None,
    }
}

/// Returns the words of the command line, with the command that a link to this program stands for.
/// Runtimes call the CNI plugin by its link, without arguments, and people type `ntttcp` or
/// `ntttcp.exe` as their documents do.
fn words() -> Vec<OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    let name = words.first().and_then(|path| Path::new(path).file_name());
    if let Some(command) = name.and_then(command_of_link) {
        words.insert(1, command.into());
    }
    customary(words)
}

/// Replaces words that people type by custom with those that mean it here: `help port add`, `ls`,
/// `version`.
fn customary(mut words: Vec<OsString>) -> Vec<OsString> {
    match words.get(1).and_then(|word| word.to_str()) {
        Some("help") => {
            words.remove(1);
            words.push("--help".into());
        }
        Some("ls") => drop(words.splice(1..2, ["port".into(), "list".into()])),
        Some("version") => drop(words.splice(1..2, ["--version".into()])),
        _ => {}
    }
    words
}

/// Returns clap's error as a problem: its first paragraph is the error, `tip:` the remedy.
fn usage(error: &clap::Error) -> Problem {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    let (tips, rest): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("tip: "));
    let usage = rest.iter().find(|line| line.starts_with("Usage: ")).copied().unwrap_or_default();
    let told = rest.iter().take_while(|line| !line.starts_with("Usage: ")).copied();
    let seen: Vec<_> = told.filter(|line| !line.starts_with("For more")).collect();
    let tips: Vec<_> = tips.iter().map(|tip| tip.trim_start_matches("tip: ")).collect();
    let remedy = if tips.is_empty() {
        "`--help` shows what may be typed".to_owned()
    } else {
        tips.join("; ")
    };
    Problem::new(first)
        .seen(seen.join("; "))
        .wanted(usage.trim_start_matches("Usage: "))
        .remedy(remedy)
}

/// A user-space virtual switch that brings Hyper-V's network path to Linux hosts.
#[derive(Parser)]
#[command(
    name = "millrace",
    version,
    after_help = EXIT_CODES,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Write a first configuration for this host, or undo it
    Setup(setup::Arguments),
    /// Run the switch in the foreground
    Run(run::Arguments),
    /// Show ports, rates, workers and health at a glance
    Status(status::Arguments),
    /// Watch ports live, in the terminal
    Top(top::Arguments),
    /// Show who talks to whom, and what was dropped for which reason
    Flows(flows::Arguments),
    /// Print the page's address with a key, by which its buttons may change the switch
    Page(page::Arguments),
    /// Add, remove, show, change and list ports
    Port(port::Arguments),
    /// List addresses and where they are, and forget learned ones
    Mac(mac::Arguments),
    /// Show past events, and follow new ones
    #[command(alias = "logs")]
    Event(event::Arguments),
    /// Show, add and remove the rules of a port
    Acl(acl::Arguments),
    /// Show and toggle receive segment coalescing
    Rsc(rsc::Arguments),
    /// Show and change how frames are spread over a port's queues
    Rss(rss::Arguments),
    /// Show teamed uplinks, change their members, and pin vNICs to members
    Team(team::Arguments),
    /// Show queues with their workers and loads, and move queues
    Queue(queue::Arguments),
    /// Show what dynamic VMMQ moved and why, and record loads
    Vmmq(vmmq::Arguments),
    /// Show, compare, replace and save the configuration
    Config(config::Arguments),
    /// Show and set the daemon's log level
    Log(log::Arguments),
    /// Capture the frames of a port to a pcapng file
    Capture(capture::Arguments),
    /// Show step by step what the switch would do with a frame, and why
    Trace(trace::Arguments),
    /// Check a configuration file, or the health of the running switch
    Check(check::Arguments),
    /// Collect diagnostics in a tar file, without secrets
    Bugreport(bugreport::Arguments),
    /// Plan, apply and watch the desired state of many hosts, kept in etcd
    Fleet(fleet::Arguments),
    /// Check before a migration what would break a guest at its destination
    Migrate(migrate::Arguments),
    /// Prove by probes that every path carries the MTU
    Mtu(mtu::Arguments),
    /// Walk through the activities of Microsoft's documents on the running switch
    Guide(guide::Arguments),
    /// Measure a feature on this host, on against off, and write a report
    Validate(validate::Arguments),
    /// Measure what each offload adds to the one before it
    Ladder(ladder::Arguments),
    /// Measure throughput by block size and connections, in both directions
    Sweep(sweep::Arguments),
    /// Measure one to ten thousand connections
    Connections(connections::Arguments),
    /// Compare two reports, or print their schema
    Report(report::Arguments),
    /// Measure TCP and UDP with NTttcp's own command lines
    Ntttcp(ntttcp::Arguments),
    /// Run a remote measurement agent, or simulate dynamic VMMQ
    Lab(lab::Arguments),
    /// One host of `validate`
    #[command(hide = true)]
    LabHost(lab_host::Arguments),
    /// Enters network namespaces for `run`
    #[command(hide = true)]
    NamespaceHelper(namespace_helper::Arguments),
    /// Starts processes that wait for guests' pages, for `run`
    #[command(hide = true)]
    FerryDock,
    /// Attach a container (the CNI plugin, run by a container runtime)
    Cni(cni::Arguments),
    /// Print the OpenAPI document of the daemon's API
    Openapi(openapi::Arguments),
    /// Print completions for a shell
    Completions(completions::Arguments),
    /// Print the manual page, or write all manual pages to a directory
    Man(man::Arguments),
}
