//! `millrace queue`: which worker serves which queue.

use crate::cli::Global;
use crate::output::{self, Outcome, table};
use clap::{Args, Subcommand};
use control::body::QueueBody;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Show the worker and core of each queue
    Show(Port),
}

#[derive(Args)]
#[command(after_help = "Examples:\n  millrace queue show\n  millrace queue show vm1 --json")]
struct Port {
    /// The port [default: all ports].
    port: Option<String>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global) -> Outcome {
    let client = global.client()?;
    let Verb::Show(Port { port }) = &arguments.verb;
    let queues = match port {
        Some(name) => client.port(name)?.queues,
        None => client.queues()?,
    };
    output::show(global, &queues, |queues| text(queues))
}

fn text(queues: &[QueueBody]) -> String {
    let row = |queue: &QueueBody| {
        vec![
            queue.port.clone(),
            queue.queue.to_string(),
            queue.worker.to_string(),
            queue.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
        ]
    };
    table(&["PORT", "QUEUE", "WORKER", "CORE"], queues.iter().map(row))
}
