//! `millrace lab`: `agent` is the remote measurement agent, started by hand on another machine.
//! `vmmq` is the simulator.

use super::vmmq_sim;
use crate::global::Global;
use crate::output::{self, Failure, INTERRUPTED, Outcome};
use clap::{Args, Subcommand};
use lab::Interrupt;
use lab::host::{Listening, Targets, Token};
use problem::Problem;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Run a measurement agent for a `millrace validate` on another host
    Agent(Agent),
    /// Simulate dynamic VMMQ and other balancers on 64 cores
    Vmmq(vmmq_sim::Arguments),
}

#[derive(Args)]
#[command(after_help = "\
Example:
  far$  millrace lab agent --listen 192.0.2.1:5900
  near$ millrace validate rsc --sender TOKEN@192.0.2.1:5900

The agent sends, receives and reads counters for any client that presents its token, one experiment
at a time, until Ctrl-C. It runs no programs and changes no settings. The load uses TCP ports 5001
to 5016, round trips use 4999. The token is valid until the agent ends. It is a bearer token sent
over HTTP, unencrypted: use a tunnel on an untrusted network.
Exits with 130 after Ctrl-C.")]
struct Agent {
    /// Address to listen on; port 0 picks a free port.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The token, at least 16 letters [default: random].
    #[arg(long, env = "MILLRACE_LAB_TOKEN", hide_env_values = true)]
    token: Option<Token>,
    /// Send load only to the address from which the client connects
    #[arg(long)]
    only_to_client: bool,
}

pub(crate) fn run(arguments: Arguments, global: &Global) -> Outcome {
    match arguments.what {
        What::Agent(agent) => serve(agent),
        What::Vmmq(arguments) => vmmq_sim::run(&arguments, global),
    }
}

fn serve(agent: Agent) -> Outcome {
    let failed = |error: lab::LabError| Failure::Failed(Problem::new(error.to_string()));
    let token = agent.token.map_or_else(Token::random, Ok)?;
    let interrupt = Interrupt::default();
    interrupt.watch_signals().map_err(failed)?;
    let targets = if agent.only_to_client { Targets::Client } else { Targets::Any };
    let listening =
        Listening::start(agent.listen, (token.clone(), targets), interrupt, say).map_err(failed)?;
    let at = reached_at(listening.address().map_err(failed)?);
    output::print(&format!(
        "Listening on {at}. On the host with the switch, to use this agent as the sender or the receiver:\n\
         \n  millrace validate rsc --sender {token}@{at}\n  millrace validate rsc --sender … --receiver {token}@{at}\n"
    ))?;
    listening.serve();
    Ok(ExitCode::from(INTERRUPTED))
}

/// Returns the address to type on another host. If the agent listens on all addresses, the user
/// must choose one.
fn reached_at(at: SocketAddr) -> String {
    if at.ip().is_unspecified() { format!("THIS-HOST:{}", at.port()) } else { at.to_string() }
}

/// Prints one event.
fn say(line: &str) {
    // A closed standard output is no reason to stop.
    let _ = writeln!(std::io::stdout(), "{line}");
}
