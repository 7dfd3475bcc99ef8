//! `millrace setup`: writes a first configuration for this host, and undoes it.
//!
//! It shows what it would do as the commands that a person would type, asks, does it, and records
//! what undoes each step before it takes the step. An uplink with addresses of the host gets a port
//! `host`, to which they move: guests cannot reach an address on the uplink itself.

mod command;
mod nic;
mod plan;
mod record;
mod service;

use super::snippet::Vnic;
use crate::global::Global;
use crate::output::{self, Failure, INTERRUPTED, Outcome, tell};
use api::body::{PortBody, StateBody};
use api::client::Client;
use clap::Args;
use lab::Interrupt;
use nic::Nic;
use plan::{DEVICE, HOST, Plan, UPLINK, VM, Wanted, Words};
use problem::Problem;
use record::Record;
use serde::Serialize;
use service::Service;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

/// Longest wait for a daemon with the new ports.
const START: Duration = Duration::from_secs(60);
/// How often it looks for them.
const GLANCE: Duration = Duration::from_millis(100);
/// Longest wait for the gateway's answer after addresses have moved.
const GATEWAY: Duration = Duration::from_secs(15);
/// How long a person has to say that the host is still reachable.
const CONFIRM: Duration = Duration::from_secs(60);

#[derive(Args)]
#[command(after_help = "\
Examples:
  millrace setup                        # asks which device is the uplink, and before it does anything
  millrace setup --uplink eth1 --dry-run
  millrace setup --uplink eth1 --yes
  millrace setup --undo

Writes the configuration, starts the service (or waits until `millrace run` is started), and prints
what connects a first virtual machine. The file as it was, and what undoes each step, is kept in
FILE.setup.json. If the uplink has addresses of this host, they move to a new device `host0`, a port
of the switch. They come back by themselves if the gateway does not answer there, or without a
confirmation within a minute.")]
pub(crate) struct Arguments {
    /// The network device that becomes the uplink [default: asks].
    #[arg(long, value_name = "DEVICE")]
    uplink: Option<String>,
    /// Leave the host's addresses on the uplink; guests and host then cannot reach each other.
    #[arg(long)]
    keep_addresses: bool,
    /// The configuration to write.
    #[arg(long, value_name = "FILE", default_value = service::FILE)]
    file: PathBuf,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Show what would be done, and do nothing.
    #[arg(long, conflicts_with = "undo")]
    dry_run: bool,
    /// Undo what an earlier run did.
    #[arg(long, conflicts_with_all = ["uplink", "keep_addresses"])]
    undo: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Done<'p> {
    #[serde(flatten)]
    plan: &'p Plan,
    file: &'p Path,
    done: bool,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    if arguments.undo {
        return undo(arguments, global);
    }
    Record::refuse_second(&arguments.file)?;
    let nic = choose(arguments.uplink.as_deref(), nic::all()?)?;
    let before = record::content(&arguments.file)?;
    let service = Service::of_host(&arguments.file, global.unusual_socket().is_none());
    let plan = Plan::of(&nic, &wanted(arguments, global, service), before.as_deref())?;
    let done = |done| Done { plan: &plan, file: &arguments.file, done };
    if arguments.dry_run {
        return output::show(global, &done(false), |it| plan.described(it.file));
    }
    tell(&plan.described(&arguments.file));
    if !arguments.yes && !asked("Do this? [y/N] ")?.eq_ignore_ascii_case("y") {
        return Err(Problem::new("nothing was done").seen("no `y`").wanted("`y`, or --yes").into());
    }
    let interrupt = Interrupt::default();
    interrupt.watch_signals().map_err(|error| Problem::new(error.to_string()))?;
    let mut record = Record::new(&arguments.file, before, service);
    record.write_configuration(&plan.text)?;
    if let Err(end) = carry_out(&plan, &mut record, arguments, global, &interrupt) {
        tell("undoing it");
        take_back(record, global);
        return match end {
            End::Interrupted => Ok(ExitCode::from(INTERRUPTED)),
            End::Failed(failure) => Err(failure),
        };
    }
    output::show(global, &done(true), |_| finished(global, arguments))
}

/// Why a setup is undone.
enum End {
    Interrupted,
    Failed(Failure),
}

impl<T: Into<Failure>> From<T> for End {
    fn from(failure: T) -> End {
        End::Failed(failure.into())
    }
}

fn wanted(arguments: &Arguments, global: &Global, service: Service) -> Wanted {
    // The group of libvirt's QEMU, where that is installed.
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    Wanted {
        keeps_addresses: arguments.keep_addresses,
        socket: global.unusual_socket(),
        start: service.line(),
        guests: groups.lines().any(|line| line.starts_with("kvm:")).then_some("kvm"),
    }
}

/// Returns the device that was named, or that a person chooses.
fn choose(named: Option<&str>, nics: Vec<Nic>) -> Result<Nic, Failure> {
    let offered: Vec<&Nic> = nics.iter().filter(|nic| nic.is_offered()).collect();
    let names = offered.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>().join(", ");
    let name = match named {
        Some(name) => name.to_owned(),
        None if offered.is_empty() => {
            let problem = Problem::new("no network device can be the uplink").seen("none");
            return Err(problem
                .wanted("an Ethernet device")
                .remedy("name one: --uplink DEVICE")
                .into());
        }
        None if !std::io::stdin().is_terminal() => {
            let problem = Problem::new("the uplink is not named").seen("no terminal to ask at");
            return Err(Failure::Usage(problem.wanted(names).remedy("--uplink DEVICE")));
        }
        None => {
            let best = nic::best(&offered);
            for nic in &offered {
                tell(&format!("  {}", nic.described()));
            }
            let typed = asked(&format!("Which device is the uplink? [{best}] "))?;
            if typed.is_empty() { best.to_owned() } else { typed }
        }
    };
    let found = nics.iter().find(|nic| nic.name == name).cloned();
    let nic = found.ok_or_else(|| {
        let problem = Problem::new(format!("there is no network device {name}")).seen(&name);
        problem.wanted(names).remedy("`ip link` lists all")
    })?;
    nic.refusal().map_or(Ok(nic.clone()), |problem| Err(problem.into()))
}

/// Prints a question; returns the line that was typed.
fn asked(question: &str) -> Result<String, Failure> {
    let mut err = std::io::stderr().lock();
    write!(err, "{question}")?;
    err.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// Starts the switch, and moves the addresses.
fn carry_out(
    plan: &Plan,
    record: &mut Record,
    arguments: &Arguments,
    global: &Global,
    interrupt: &Interrupt,
) -> Result<(), End> {
    match record.service {
        Service::Absent => tell(&format!(
            "waiting for the switch; start it in another terminal: millrace run -c {}",
            arguments.file.display()
        )),
        service => service.start()?,
    }
    await_ports(plan, global, interrupt)?;
    if plan.moves.is_empty() {
        return Ok(());
    }
    record.note_moves(&plan.back)?;
    let neighbours = nic::neighbours(&plan.uplink);
    for words in &plan.moves {
        perform(words)?;
    }
    greet(&neighbours);
    if let Some(gateway) = &plan.gateway {
        await_gateway(gateway, interrupt)?;
    }
    if !arguments.yes && std::io::stdin().is_terminal() {
        confirm(interrupt)?;
    }
    Ok(())
}

/// Waits until the uplink and the host's port are up.
fn await_ports(plan: &Plan, global: &Global, interrupt: &Interrupt) -> Result<(), End> {
    let end = Instant::now() + START;
    loop {
        let seen = match Client::connect(&global.socket()).and_then(|client| client.ports()) {
            Err(_) => "no daemon answers".to_owned(),
            Ok(ports) => match missing(plan, &ports) {
                None => return Ok(()),
                Some(missing) => missing,
            },
        };
        if Instant::now() >= end {
            let problem =
                Problem::new(format!("the switch is not ready after {} s", START.as_secs()));
            let problem = problem.seen(seen).wanted("its uplink up");
            return Err(problem.remedy("`millrace check`, and `journalctl -u millrace`").into());
        }
        pause(interrupt)?;
    }
}

/// Returns the port that is not ready, with its reason. The host's TAP is ready while it is still
/// down: moving the addresses brings it up.
fn missing(plan: &Plan, ports: &[PortBody]) -> Option<String> {
    let needed = [Some(UPLINK), (!plan.moves.is_empty()).then_some(HOST)];
    needed.into_iter().flatten().find_map(|name| {
        let Some(port) = ports.iter().find(|port| port.name == name) else {
            return Some(format!("there is no port {name}"));
        };
        let is_ready = match port.state {
            StateBody::Up => true,
            StateBody::Down => name == HOST,
            StateBody::Broken => false,
        };
        (!is_ready).then(|| format!("port {name}: {}", port.reason))
    })
}

fn pause(interrupt: &Interrupt) -> Result<(), End> {
    interrupt.pass(GLANCE).map_err(|_| End::Interrupted)
}

/// Runs one command; one that removes what is gone has nothing to do.
fn perform(words: &Words) -> Result<(), Problem> {
    match command::run(words) {
        Err(problem) if !is_moot(words, &problem.seen) => {
            Err(problem.remedy("run as root, and see `ip address`"))
        }
        _ => Ok(()),
    }
}

/// Whether a command failed because what it removes is gone: an address goes with the first one of
/// its network, and the host's device with the switch.
fn is_moot(words: &[String], said: &str) -> bool {
    let removes = words.get(2).is_some_and(|word| matches!(word.as_str(), "del" | "flush"));
    removes && (said.contains("Cannot assign requested address") || said.contains(DEVICE))
}

/// Has those who know the host's addresses learn where they are now: before a ping goes out, its
/// ARP request or neighbour solicitation says so.
fn greet(neighbours: &[String]) {
    let ping = |address: &String| {
        let mut ping = Command::new("ping");
        ping.args(["-c", "1", "-W", "1", address]).stdout(Stdio::null()).stderr(Stdio::null());
        ping.spawn().ok()
    };
    let sent: Vec<_> = neighbours.iter().filter_map(ping).collect();
    for mut ping in sent {
        // Whether one answers matters only for the gateway, which is asked again.
        let _ = ping.wait();
    }
}

/// Waits until the gateway answers by the moved address.
fn await_gateway(gateway: &str, interrupt: &Interrupt) -> Result<(), End> {
    let end = Instant::now() + GATEWAY;
    while Instant::now() < end {
        let asked =
            Command::new("ping").args(["-c", "1", "-W", "1", "-I", DEVICE, gateway]).output();
        match asked {
            Ok(output) if output.status.success() => return Ok(()),
            Ok(_) => pause(interrupt)?,
            Err(error) => {
                tell(&format!("the gateway is not asked: ping: {error}"));
                return Ok(());
            }
        }
    }
    let problem = Problem::new(format!("the gateway {gateway} does not answer through the switch"));
    let problem = problem.seen(format!("no answer in {} s", GATEWAY.as_secs())).wanted("an answer");
    Err(problem.remedy("--keep-addresses leaves the addresses where they are").into())
}

/// Waits for `keep`. A person who has lost the connection cannot type it.
fn confirm(interrupt: &Interrupt) -> Result<(), End> {
    let within = CONFIRM.as_secs();
    tell(&format!("The addresses have moved. Type `keep` within {within} s to leave them there:"));
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        // An Enter that was typed before is no answer.
        let keeps = |line: io::Result<String>| line.is_ok_and(|line| line.trim() == "keep");
        // The receiver is gone after the time.
        let _ = sender.send(std::io::stdin().lines().any(keeps));
    });
    let end = Instant::now() + CONFIRM;
    while Instant::now() < end {
        match receiver.try_recv() {
            Ok(true) => return Ok(()),
            Ok(false) | Err(TryRecvError::Disconnected) => break,
            Err(TryRecvError::Empty) => pause(interrupt)?,
        }
    }
    let problem = Problem::new("there was no confirmation that the host is still reachable");
    Err(problem.seen(format!("no `keep` in {within} s")).wanted("`keep`").into())
}

/// What a person does next.
fn finished(global: &Global, arguments: &Arguments) -> String {
    let guest = Client::connect(&global.socket()).and_then(|client| client.port(VM));
    let options = guest.ok().and_then(|port| Vnic::of(&port).ok()).map(|vnic| vnic.libvirt());
    format!(
        "\
The switch runs. `millrace status` shows it, `millrace check` what is wrong.
A first virtual machine connects to port {VM} (QEMU's options: `millrace port show {VM} --qemu`):

{}
`millrace setup --undo{}` undoes all of it.
",
        options.unwrap_or_default(),
        if arguments.file == Path::new(service::FILE) {
            String::new()
        } else {
            format!(" --file {}", arguments.file.display())
        }
    )
}

fn undo(arguments: &Arguments, global: &Global) -> Outcome {
    let record = Record::read(&arguments.file)?;
    if let Some(copy) = record.set_aside()? {
        tell(&format!(
            "{} was changed since; a copy is in {}",
            arguments.file.display(),
            copy.display()
        ));
        let question = "Undo the setup and remove it? [y/N] ";
        if !arguments.yes && !asked(question)?.eq_ignore_ascii_case("y") {
            let problem = Problem::new("nothing was undone").seen("no `y`");
            return Err(problem.wanted("`y`, or --yes").into());
        }
    }
    if take_back(record, global) {
        output::show(global, &serde_json::json!({ "undone": true }), |_| "undone".to_owned())
    } else {
        Ok(ExitCode::FAILURE)
    }
}

/// Undoes what a record says. Returns whether all of it succeeded; otherwise the record stays.
fn take_back(record: Record, global: &Global) -> bool {
    let neighbours = nic::neighbours(DEVICE);
    let failed = |words| Some((words, perform(words).err()?));
    let failed: Vec<(&Words, Problem)> = record.back.iter().filter_map(failed).collect();
    if !failed.is_empty() {
        for (words, problem) in &failed {
            tell(&format!("{problem}\nStill to be done: {}", words.join(" ")));
        }
        tell("the record is kept: `millrace setup --undo` tries again");
        return false;
    }
    if !record.back.is_empty() {
        greet(&neighbours);
    }
    let service = record.service;
    let ended = record.restore().and_then(|()| service.put_back());
    if service == Service::Absent && Client::connect(&global.socket()).is_ok() {
        tell("the switch still runs: stop `millrace run` with Ctrl-C");
    }
    ended.inspect_err(|problem| tell(&problem.to_string())).is_ok()
}
