//! Queues: shown with their load, and moved between workers.

use super::Running;
use super::port::OpenPort;
use super::report::Report;
use super::rss::within;
use api::body::QueueBody;
use datapath::Switch;
use problem::Problem;

/// Returns all queues, by port.
pub(crate) fn bodies(report: &Report<'_>) -> Vec<QueueBody> {
    report.ports().into_iter().flat_map(|port| port.queues).collect()
}

/// Returns one queue, by its number as typed.
///
/// # Errors
/// There is no such port or queue, or the port is not open.
pub(crate) fn body(report: &Report<'_>, name: &str, number: &str) -> Result<QueueBody, Problem> {
    let queue = number_of(report.switch, report.ports.open_port(name)?, name, number)?;
    let queues = report.port(name)?.queues;
    queues.into_iter().nth(queue).ok_or_else(|| report.ports.no_such(name))
}

impl Running {
    /// Moves a queue, by its number as typed, to a worker, which serves it when this returns.
    ///
    /// # Errors
    ///
    /// Fails if there is no such port, queue or worker, or if the queue cannot move there.
    pub(crate) fn move_queue(
        &mut self,
        name: &str,
        number: &str,
        worker: usize,
    ) -> Result<(), Problem> {
        let open = self.ports.open_port(name)?;
        let queue = number_of(&self.switch, open, name, number)?;
        let workers = self.switch.workers().len();
        if worker >= workers {
            return Err(Problem::new(format!("there is no worker {worker}"))
                .seen(worker)
                .wanted(match workers {
                    1 => "0: the switch has one worker".to_owned(),
                    _ => format!("0 to {}", workers - 1),
                })
                .remedy("choose one of these, or add workers to [switch] and restart"));
        }
        let refused = |error: datapath::SwitchError| Problem::new(error.to_string());
        self.switch.move_queue(open.id, queue, worker).map(drop).map_err(refused)
    }
}

fn number_of(switch: &Switch, port: &OpenPort, name: &str, number: &str) -> Result<usize, Problem> {
    let queues = switch.queues_of(port.id).len();
    let queue = number.parse().ok().filter(|queue| *queue < queues);
    queue.ok_or_else(|| {
        Problem::new(format!("port {name} has no queue {number}"))
            .seen(number)
            .wanted(within(queues))
            .remedy(format!("`millrace queue show {name}` shows its queues"))
    })
}
