//! The one binary, daemon and command line: glue only. Each command is a file in `commands` with
//! its arguments, its help and a function `run`.

mod cli;
mod commands;
mod fold;
mod global;
mod output;

use clap_complete::CompleteEnv;
use cli::{Cli, Command};
use commands::{
    acl, bugreport, capture, check, cni, completions, config, connections, event, ferry_dock,
    fleet, flows, guide, lab, lab_host, ladder, log, mac, man, migrate, mtu, namespace_helper,
    ntttcp, openapi, page, port, queue, report, rsc, rss, run, setup, status, sweep, team, top,
    trace, validate, vmmq,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    abort_at_a_panic();
    CompleteEnv::with_factory(cli::command).var(completions::VARIABLE).complete();
    let Cli { global, command } = match cli::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let outcome = match command {
        Command::Run(args) => run::run(&args, &global),
        Command::Setup(args) => setup::run(&args, &global),
        Command::Status(args) => status::run(&args, &global),
        Command::Top(args) => top::run(&args, &global),
        Command::Flows(args) => flows::run(&args, &global),
        Command::Page(args) => page::run(&args, &global),
        Command::Port(args) => port::run(args, &global),
        Command::Mac(args) => mac::run(&args, &global),
        Command::Event(args) => event::run(&args, &global),
        Command::Log(args) => log::run(&args, &global),
        Command::Acl(args) => acl::run(&args, &global),
        Command::Rsc(args) => rsc::run(&args, &global),
        Command::Rss(args) => rss::run(&args, &global),
        Command::Team(args) => team::run(&args, &global),
        Command::Queue(args) => queue::run(&args, &global),
        Command::Vmmq(args) => vmmq::run(&args, &global),
        Command::Config(args) => config::run(&args, &global),
        Command::Capture(args) => capture::run(&args, &global),
        Command::Trace(args) => trace::run(&args, &global),
        Command::Check(args) => check::run(&args, &global),
        Command::Bugreport(args) => bugreport::run(&args, &global),
        Command::Fleet(args) => fleet::run(&args, &global),
        Command::Migrate(args) => migrate::run(&args, &global),
        Command::Mtu(args) => mtu::run(&args, &global),
        Command::Guide(args) => guide::run(&args, &global),
        Command::Validate(args) => validate::run(&args, &global),
        Command::Ladder(args) => ladder::run(&args, &global),
        Command::Sweep(args) => sweep::run(&args, &global),
        Command::Connections(args) => connections::run(&args, &global),
        Command::Report(args) => report::run(&args, &global),
        Command::Ntttcp(args) => ntttcp::run(args, &global),
        Command::Lab(args) => lab::run(args, &global),
        Command::LabHost(args) => lab_host::run(&args),
        Command::NamespaceHelper(args) => namespace_helper::run(&args),
        Command::FerryDock => ferry_dock::run(),
        Command::Cni(args) => cni::run(&args, &global),
        Command::Openapi(args) => openapi::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    };
    daemon::log::flush();
    output::exit(outcome, &global)
}

/// Makes a panic of any thread abort the process, as in a release build. Builds for tests unwind by
/// default.
fn abort_at_a_panic() {
    if cfg!(panic = "unwind") {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            print(panic);
            std::process::abort();
        }));
    }
}
