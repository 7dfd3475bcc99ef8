//! Captures: started and stopped live, one per port at a time, and sent to the client that started
//! them.
//!
//! No capture delays traffic or the switch's thread: a slow client misses frames, and a capture
//! ends when its client disconnects. Nothing here waits for a capture's thread.

mod stream;

use super::Running;
use super::journal::Journal;
use super::port::{PortDevice, RunningPort};
use super::ports::Ports;
use api::body::{CaptureBody, CaptureStart, CaptureState};
use config::PortName;
use datapath::{PortId, Switch};
use ports::capture::{Capture, CaptureOptions, CaptureProgress};
use problem::Problem;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
pub(crate) use stream::CaptureStream;
use stream::Gone;
use tracing::Level;

/// Most captures at once, including ended ones that are not yet read to their end: each has a
/// thread and a queue.
const MOST: usize = 16;

/// A running capture, or an ended one whose state can still be queried.
struct Capturing {
    progress: CaptureProgress,
    /// Whether the client has disconnected.
    gone: Gone,
    /// The number of frames after which it ends.
    frames: Option<u64>,
    until: Option<Instant>,
    /// `None` while it runs; then the reason, if it was not stopped on request.
    ended: Option<Option<String>>,
}

/// The captures of all ports.
pub(crate) struct Captures {
    /// The last capture on each port, running or ended.
    last: BTreeMap<PortName, Capturing>,
    /// Shared with each capture's stream, to count them.
    streams: Arc<()>,
    /// The wall clock at 0 of the workers' clock.
    epoch: SystemTime,
}

impl Captures {
    /// Creates the list, without captures. `epoch` is the wall clock at 0 of the workers' clock.
    pub(super) fn new(epoch: SystemTime) -> Captures {
        Captures { last: BTreeMap::new(), streams: Arc::default(), epoch }
    }

    /// Starts a capture on a port.
    ///
    /// # Errors
    /// There is no such port, it is not open, or too many captures run.
    fn start(
        &mut self,
        start: &CaptureStart,
        ports: &Ports,
        switch: &mut Switch,
        now: Instant,
    ) -> Result<CaptureStream, Problem> {
        let (name, id) = self.free(&start.port, ports)?;
        let mut options = CaptureOptions::new(name.as_str(), self.epoch);
        options.snaplen = start.snaplen.unwrap_or(options.snaplen);
        let (to_client, stream, gone) = stream::queue(Arc::clone(&self.streams));
        let capture = Capture::start(to_client, options)
            .map_err(|error| Problem::new("the capture's thread cannot be started").seen(error))?;
        let progress = capture.progress();
        // Only the workers hold the capture: once they drop it, its thread writes the rest and
        // ends.
        switch
            .set_capture(id, Some(Arc::new(capture)))
            .map_err(|error| Problem::new(error.to_string()))?;
        let capturing = Capturing {
            progress,
            gone,
            frames: start.count,
            until: start.seconds.and_then(|seconds| now.checked_add(Duration::from_secs(seconds))),
            ended: None,
        };
        self.last.insert(name, capturing);
        Ok(stream)
    }

    /// Stops a capture and returns its state.
    fn stop(
        &mut self,
        port: &str,
        ports: &Ports,
        switch: &mut Switch,
    ) -> Result<CaptureBody, Problem> {
        let name = self.captured(port)?;
        self.finish(&name, None, ports, switch);
        self.body(port)
    }

    /// Returns the last capture on a port.
    ///
    /// # Errors
    /// There was none.
    fn body(&self, port: &str) -> Result<CaptureBody, Problem> {
        let name = self.captured(port)?;
        self.last.get(&name).map(|capturing| capturing.body(&name)).ok_or_else(|| none_at(port))
    }

    /// Returns the last capture on each port.
    pub(crate) fn bodies(&self) -> Vec<CaptureBody> {
        self.last.iter().map(|(name, capturing)| capturing.body(name)).collect()
    }

    /// Returns the captures that failed or reached a limit, with the reason of a failure.
    fn over(&self, now: Instant) -> Vec<(PortName, Option<String>)> {
        let mut over = Vec::new();
        for (name, capturing) in &self.last {
            let status = capturing.progress.status();
            let enough = capturing.frames.is_some_and(|most| status.frames >= most)
                || capturing.until.is_some_and(|until| now >= until)
                || capturing.gone.is_so();
            if capturing.ended.is_none() && (enough || status.error.is_some()) {
                // A client's disconnecting is a regular end.
                over.push((name.clone(), status.error.filter(|_| !capturing.gone.is_so())));
            }
        }
        over
    }

    /// Ends captures that failed or reached a limit.
    pub(super) fn poll(
        &mut self,
        ports: &Ports,
        switch: &mut Switch,
        journal: &mut Journal,
        now: Instant,
    ) {
        for (name, reason) in self.over(now) {
            if let Some(reason) = &reason {
                let text = format!("the capture on port {name} ended: {reason}");
                journal.note(Level::INFO, now, text);
            }
            self.finish(&name, reason, ports, switch);
        }
    }

    /// Fails the capture of a port that closes, with this reason.
    pub(super) fn fail(&mut self, name: &PortName, reason: &str) {
        if let Some(capturing) = self.last.get_mut(name) {
            capturing.ended.get_or_insert_with(|| Some(reason.to_owned()));
        }
    }

    /// Ends a running capture on an open port; `reason` if it failed.
    fn finish(
        &mut self,
        name: &PortName,
        reason: Option<String>,
        ports: &Ports,
        switch: &mut Switch,
    ) {
        let Some(capturing) = self.last.get_mut(name).filter(|other| other.ended.is_none()) else {
            return;
        };
        if let Some(open) = ports.get(name).and_then(RunningPort::open)
            && let Err(error) = switch.set_capture(open.id, None)
        {
            tracing::debug!(target: "control::running::captures", "the port of a capture is gone: {error}");
        }
        capturing.ended = Some(reason);
    }

    /// Returns the port, if it is open and has no running capture.
    fn free(&self, port: &str, ports: &Ports) -> Result<(PortName, PortId), Problem> {
        let (name, running) = ports.port(port)?;
        let busy = self.last.get(name).filter(|capturing| capturing.ended.is_none());
        if let Some(capturing) = busy {
            return Err(Problem::new(format!("a capture on port {port} is already running"))
                .seen(format!("{} frames so far", capturing.progress.status().frames))
                .wanted("one capture per port")
                .remedy(format!("stop it with `millrace capture {port} --stop`")));
        }
        let at_once = Arc::strong_count(&self.streams) - 1;
        if at_once >= MOST {
            return Err(Problem::new(
                "too many captures are running, or not yet read to their end",
            )
            .seen(at_once)
            .wanted(format!("at most {MOST}"))
            .remedy(
                "stop one with `millrace capture PORT --stop`, or end a client that does not read",
            ));
        }
        match &running.device {
            PortDevice::Open(open) => Ok((name.clone(), open.id)),
            PortDevice::Closed { reason, .. } => {
                Err(Problem::new(format!("port {port} is broken"))
                    .seen(reason)
                    .wanted("an open port")
                    .remedy("fix the cause; the port recovers by itself"))
            }
        }
    }

    fn captured(&self, port: &str) -> Result<PortName, Problem> {
        let found = self.last.keys().find(|name| name.as_str() == port);
        found.cloned().ok_or_else(|| none_at(port))
    }
}

impl Running {
    /// Starts a capture on a port. It ends when the returned stream is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the port is not open or is being captured, or if the system refuses a thread.
    pub(crate) fn start_capture(
        &mut self,
        start: &CaptureStart,
        now: Instant,
    ) -> Result<CaptureStream, Problem> {
        self.captures.poll(&self.ports, &mut self.switch, &mut self.journal, now);
        self.captures.start(start, &self.ports, &mut self.switch, now)
    }

    /// Stops a capture and returns its state. Stopping an ended one only returns its state.
    ///
    /// # Errors
    ///
    /// Fails if no capture was started on the port.
    pub(crate) fn stop_capture(&mut self, port: &str) -> Result<CaptureBody, Problem> {
        self.captures.stop(port, &self.ports, &mut self.switch)
    }

    /// The last capture on a port.
    ///
    /// # Errors
    ///
    /// Fails if no capture was started on the port.
    pub(crate) fn capture(&self, port: &str) -> Result<CaptureBody, Problem> {
        self.captures.body(port)
    }
}

fn none_at(port: &str) -> Problem {
    Problem::new(format!("there was no capture on port {port}"))
        .seen(port)
        .wanted("a port on which a capture was started")
        .remedy(format!("start one with `millrace capture {port} -w FILE`"))
}

impl Capturing {
    fn body(&self, name: &PortName) -> CaptureBody {
        let status = self.progress.status();
        let (state, reason) = match (&self.ended, status.error) {
            (Some(Some(reason)), _) => (CaptureState::Failed, reason.clone()),
            (Some(None), _) => (CaptureState::Done, String::new()),
            (None, Some(reason)) => (CaptureState::Failed, reason),
            (None, None) => (CaptureState::Running, String::new()),
        };
        CaptureBody {
            port: name.to_string(),
            state,
            reason,
            frames: status.frames,
            bytes: status.bytes,
            missed: status.missed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::body::Body;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};
    use test_devices::MemoryDevices;

    fn start(port: &str) -> CaptureStart {
        CaptureStart { port: port.into(), snaplen: None, count: None, seconds: Some(5) }
    }

    fn running(ports: usize, now: Instant) -> Running {
        let port = |number| format!("[[port]]\nname='vm{number}'\ntap='t{number}'\n");
        let text = (0..ports).map(port).collect::<String>();
        let config = config::Config::from_toml("t", &text).unwrap();
        Running::start(config, Box::new(MemoryDevices::default()), now).unwrap()
    }

    /// Reads a stream to its end.
    fn read(mut stream: CaptureStream) -> Vec<u8> {
        let (mut all, mut context) = (Vec::new(), Context::from_waker(Waker::noop()));
        loop {
            match Pin::new(&mut stream).poll_frame(&mut context) {
                Poll::Ready(Some(Ok(frame))) => all.extend(frame.into_data().unwrap()),
                Poll::Ready(None) => return all,
                Poll::Pending => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    #[test]
    fn a_capture_ends_by_itself_and_when_its_port_goes() {
        let now = Instant::now();
        let mut running = running(1, now);
        let stream = running.start_capture(&start("vm0"), now).unwrap();
        assert!(running.start_capture(&start("vm0"), now).is_err());
        running.poll(now + Duration::from_secs(4));
        assert_eq!(running.capture("vm0").unwrap().state, CaptureState::Running);
        running.poll(now + Duration::from_secs(5));
        assert_eq!(running.capture("vm0").unwrap().state, CaptureState::Done);
        assert_eq!(read(stream)[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a pcapng section, and an end");
        let stream = running.start_capture(&start("vm0"), now).unwrap();
        running.remove("vm0", now).unwrap();
        let body = running.capture("vm0").unwrap();
        assert_eq!(
            (body.state, body.reason.as_str()),
            (CaptureState::Failed, "the port was closed")
        );
        read(stream);
    }

    /// Captures that ended by themselves and were not read held a thread and 20 MiB each, without a
    /// limit.
    #[test]
    fn an_ended_capture_that_is_not_read_takes_a_place() {
        let now = Instant::now();
        let mut running = running(1, now);
        let mut streams = Vec::new();
        for _ in 0..MOST {
            streams.push(running.start_capture(&start("vm0"), now).unwrap());
            running.stop_capture("vm0").unwrap();
        }
        let problem = running.start_capture(&start("vm0"), now).err().unwrap();
        assert_eq!(problem.seen, MOST.to_string());
        streams.pop();
        running.start_capture(&start("vm0"), now).unwrap();
    }

    #[test]
    fn a_client_that_goes_ends_its_capture_and_makes_room() {
        let now = Instant::now();
        let mut running = running(MOST + 1, now);
        let name = |number: usize| format!("vm{number}");
        let mut streams: Vec<_> = (0..MOST)
            .map(|number| running.start_capture(&start(&name(number)), now).unwrap())
            .collect();
        let last = name(MOST);
        let problem = running.start_capture(&start(&last), now).err().unwrap();
        assert!(problem.error.contains("too many captures"), "{problem}");
        drop(streams.remove(0));
        streams.push(running.start_capture(&start(&last), now).unwrap());
        let body = running.capture("vm0").unwrap();
        assert_eq!((body.state, body.reason.as_str()), (CaptureState::Done, ""));
        // It reads nothing, and stopping it waits for nothing.
        assert_eq!(running.stop_capture(&last).unwrap().state, CaptureState::Done);
    }
}
