//! Captures: started and stopped live, one at a port at a time, written to a file by the daemon.
//!
//! A capture that fails, for a full disk say, ends with its reason; traffic goes on. An existing file is
//! never overwritten: a client of the API must not overwrite what only the daemon may.

use super::{PortDevice, Running, RunningPort};
use crate::body::{CaptureBody, CaptureStart, CaptureState};
use crate::config::PortName;
use crate::{Problem, capture_files};
use datapath::PortId;
use ports::capture::{Capture, CaptureOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A capture that runs, or has ended and can still be asked about.
pub(super) struct Capturing {
    file: PathBuf,
    capture: Arc<Capture>,
    /// Where it ends by itself.
    frames: Option<u64>,
    until: Option<Instant>,
    /// `None`: it runs. Else it has ended, for this reason where it was not told to.
    ended: Option<Option<String>>,
}

impl Running {
    /// Starts a capture at a port, into a file below `directory` where there is one.
    pub fn start_capture(
        &mut self,
        start: &CaptureStart,
        directory: Option<&Path>,
        now: Instant,
    ) -> Result<CaptureBody, Problem> {
        if !start.file.is_absolute() {
            return Err(Problem::new("the capture's file is a relative path")
                .seen(start.file.display())
                .wanted("an absolute path")
                .remedy("write the absolute path"));
        }
        self.free_for_capture(&start.port)?;
        let file = capture_files::create(&start.file, directory)?;
        self.capture_to(file, start, now)
    }

    /// The same into anything that takes bytes.
    fn capture_to(
        &mut self,
        output: impl Write + Send + 'static,
        start: &CaptureStart,
        now: Instant,
    ) -> Result<CaptureBody, Problem> {
        let (name, id) = self.free_for_capture(&start.port)?;
        let mut options = CaptureOptions::new(name.as_str(), self.epoch);
        options.snaplen = start.snaplen.unwrap_or(options.snaplen);
        let capture = Capture::start(output, options)
            .map_err(|error| Problem::new("starting the capture's thread").seen(error))?;
        let capture = Arc::new(capture);
        self.switch
            .set_capture(id, Some(capture.clone()))
            .map_err(|error| Problem::new(error.to_string()))?;
        let capturing = Capturing {
            file: start.file.clone(),
            capture,
            frames: start.count,
            until: start.seconds.and_then(|seconds| now.checked_add(Duration::from_secs(seconds))),
            ended: None,
        };
        let body = capturing.body(&name);
        self.captures.insert(name, capturing);
        Ok(body)
    }

    /// Stops a capture and says what it wrote. Stopping one that has ended only says so.
    pub fn stop_capture(&mut self, port: &str) -> Result<CaptureBody, Problem> {
        let name = self.captured(port)?;
        self.finish_capture(&name, None);
        self.capture(port)
    }

    /// The last capture at a port.
    pub fn capture(&self, port: &str) -> Result<CaptureBody, Problem> {
        let name = self.captured(port)?;
        self.captures.get(&name).map(|capturing| capturing.body(&name)).ok_or_else(|| none_at(port))
    }

    /// The last capture at each port.
    pub fn captures(&self) -> Vec<CaptureBody> {
        self.captures.iter().map(|(name, capturing)| capturing.body(name)).collect()
    }

    /// Ends what has failed, has enough, or has lasted long enough.
    pub(super) fn poll_captures(&mut self, now: Instant) {
        let mut over = Vec::new();
        for (name, capturing) in &self.captures {
            let status = capturing.capture.status();
            let enough = capturing.frames.is_some_and(|most| status.frames >= most)
                || capturing.until.is_some_and(|until| now >= until);
            if capturing.ended.is_none() && (enough || status.error.is_some()) {
                over.push((name.clone(), status.error));
            }
        }
        for (name, reason) in over {
            if let Some(reason) = &reason {
                self.events.note(now, format!("the capture at port {name} has ended: {reason}"));
            }
            self.finish_capture(&name, reason);
        }
    }

    /// The port goes: a capture at it fails for this reason.
    pub(super) fn end_capture(&mut self, name: &PortName, reason: &str) {
        self.finish_capture(name, Some(reason.to_owned()));
    }

    fn finish_capture(&mut self, name: &PortName, reason: Option<String>) {
        let Some(capturing) = self.captures.get_mut(name).filter(|other| other.ended.is_none())
        else {
            return;
        };
        if let Some(RunningPort { device: PortDevice::Open(open), .. }) = self.ports.get(name)
            && let Err(error) = self.switch.set_capture(open.id, None)
        {
            tracing::debug!("the port of a capture is gone: {error}");
        }
        let status = capturing.capture.stop();
        capturing.ended = Some(reason.or(status.error));
    }

    /// The port, where it is open and nobody captures at it.
    fn free_for_capture(&self, port: &str) -> Result<(PortName, PortId), Problem> {
        let found = self.ports.iter().find(|(name, _)| name.as_str() == port);
        let (name, running) = found.ok_or_else(|| self.no_such_port(port))?;
        let busy = self.captures.get(name).filter(|capturing| capturing.ended.is_none());
        if let Some(capturing) = busy {
            return Err(Problem::new(format!("a capture at port {port} is already running"))
                .seen(capturing.file.display())
                .wanted("one capture a port")
                .remedy(format!("stop it with `millrace capture {port} --stop`")));
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
        let found = self.captures.keys().find(|name| name.as_str() == port);
        found.cloned().ok_or_else(|| none_at(port))
    }
}

fn none_at(port: &str) -> Problem {
    Problem::new(format!("there was no capture at port {port}"))
        .seen(port)
        .wanted("a port at which a capture was started")
        .remedy(format!("start one with `millrace capture {port} -w FILE`"))
}

impl Capturing {
    fn body(&self, name: &PortName) -> CaptureBody {
        let status = self.capture.status();
        let (state, reason) = match (&self.ended, status.error) {
            (Some(Some(reason)), _) => (CaptureState::Failed, reason.clone()),
            (Some(None), _) => (CaptureState::Done, String::new()),
            (None, Some(reason)) => (CaptureState::Failed, reason),
            (None, None) => (CaptureState::Running, String::new()),
        };
        CaptureBody {
            port: name.to_string(),
            file: self.file.clone(),
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
    use crate::memory::MemoryDevices;

    struct FullDisk;

    impl Write for FullDisk {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn start() -> CaptureStart {
        let file = PathBuf::from("/full/vm1.pcapng");
        CaptureStart { port: "vm1".into(), file, snaplen: None, count: None, seconds: Some(5) }
    }

    fn running(now: Instant) -> Running {
        let config =
            crate::config::Config::from_toml("t", "[[port]]\nname='vm1'\ntap='t'").unwrap();
        Running::start(config, Box::new(MemoryDevices::default()), now).unwrap()
    }

    #[test]
    fn a_full_disk_ends_the_capture_with_its_reason_and_not_the_port() {
        let now = Instant::now();
        let mut running = running(now);
        running.capture_to(FullDisk, &start(), now).unwrap();
        let body = running.stop_capture("vm1").unwrap();
        assert_eq!(body.state, CaptureState::Failed);
        assert!(body.reason.contains("cannot write"), "{}", body.reason);
        assert_eq!(running.port_body("vm1").unwrap().reason, "");
        running.capture_to(std::io::sink(), &start(), now).unwrap();
    }

    #[test]
    fn a_capture_ends_by_itself_and_when_its_port_goes() {
        let now = Instant::now();
        let mut running = running(now);
        running.capture_to(std::io::sink(), &start(), now).unwrap();
        assert!(running.capture_to(std::io::sink(), &start(), now).is_err());
        running.poll(now + Duration::from_secs(4));
        assert_eq!(running.capture("vm1").unwrap().state, CaptureState::Running);
        running.poll(now + Duration::from_secs(5));
        assert_eq!(running.capture("vm1").unwrap().state, CaptureState::Done);
        running.capture_to(std::io::sink(), &start(), now).unwrap();
        running.remove("vm1", now).unwrap();
        let body = running.capture("vm1").unwrap();
        assert_eq!(
            (body.state, body.reason.as_str()),
            (CaptureState::Failed, "the port was closed")
        );
    }
}
