//! Queues: shown with their load, and moved between workers.

use super::rss::within;
use super::{OpenPort, Running, RunningPort};
use api::body::QueueBody;
use config::PortName;
use datapath::{PortInfo, QueueInfo};
use problem::Problem;

impl Running {
    /// All queues, by port.
    pub fn queue_bodies(&self) -> Vec<QueueBody> {
        self.port_bodies().into_iter().flat_map(|port| port.queues).collect()
    }

    /// One queue, by its number as typed.
    pub fn queue_body(&self, name: &str, number: &str) -> Result<QueueBody, Problem> {
        let (_, queue) = self.queue_of(name, number)?;
        let queues = self.port_body(name)?.queues;
        queues.into_iter().nth(queue).ok_or_else(|| self.no_such_port(name))
    }

    /// Moves a queue, by its number as typed, to a worker, which serves it when this returns.
    pub fn move_queue(&mut self, name: &str, number: &str, worker: usize) -> Result<(), Problem> {
        let (id, queue) = self.queue_of(name, number).map(|(open, queue)| (open.id, queue))?;
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
        self.switch.move_queue(id, queue, worker).map(drop).map_err(refused)
    }

    fn queue_of(&self, name: &str, number: &str) -> Result<(&OpenPort, usize), Problem> {
        let open = self.open_port(name)?;
        let queues = self.switch.queues_of(open.id).len();
        let queue = number.parse().ok().filter(|queue| *queue < queues);
        let queue = queue.ok_or_else(|| {
            Problem::new(format!("port {name} has no queue {number}"))
                .seen(number)
                .wanted(within(queues))
                .remedy(format!("`millrace queue show {name}` shows its queues"))
        })?;
        Ok((open, queue))
    }

    /// The queues of a port as the API shows them.
    pub(super) fn queues(
        &self,
        name: &PortName,
        port: &RunningPort,
        info: &PortInfo,
    ) -> Vec<QueueBody> {
        let workers = self.switch.workers();
        let mac = info.settings.mac.or(info.held_mac).map(|mac| mac.to_string());
        let mut vnics = port.open().map_or_else(Vec::new, OpenPort::queue_vnics);
        let body = |queue: QueueInfo| QueueBody {
            port: name.to_string(),
            queue: queue.queue,
            mac: mac.clone(),
            vlan: port.config.vlan_text(),
            worker: queue.worker,
            cpu: workers.get(queue.worker).and_then(|worker| worker.cpu),
            load_percent: port.open().map_or(0.0, |open| open.load(queue.queue)),
            entries: queue.entries,
            busy_ns: queue.busy.0,
            frames: queue.frames,
            bytes: queue.bytes,
            movable: queue.movable,
            vnics: vnics.get_mut(queue.queue).map(std::mem::take).unwrap_or_default(),
        };
        self.switch.queues_of(info.id).into_iter().map(body).collect()
    }
}
