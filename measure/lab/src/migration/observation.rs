//! Observation of the guest during a migration: its answers to pings, and the frames that a switch
//! delivers to its port. Both come from programs that run for one migration.

use crate::LabError;
use crate::host::Host;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds between two echo requests.
const PING_INTERVAL: &str = "0.005";
/// Direction bits of `epb_flags`: out of the switch.
const EGRESS: u32 = 2;

/// A running program. `end` interrupts it like Ctrl-C; dropping it kills it.
pub(super) struct RunningProgram(Child);

impl RunningProgram {
    fn start(mut command: Command, doing: &str) -> Result<RunningProgram, LabError> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let started = command.spawn().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                let program = command.get_program().to_string_lossy().into_owned();
                LabError::ProgramMissing { program, package: "iputils-ping" }
            }
            _ => LabError::io(doing.to_owned())(error),
        });
        started.map(RunningProgram)
    }

    /// Ends the program, and returns its output.
    fn end(mut self) -> Result<String, LabError> {
        if let Some(process) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            // The program may already have ended.
            let _ = kill_process(process, Signal::INT);
        }
        let mut text = String::new();
        let read =
            self.0.stdout.as_mut().map(|pipe| std::io::Read::read_to_string(pipe, &mut text));
        read.transpose().map_err(LabError::io("reading what a program printed"))?;
        Ok(text)
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts echo requests from a host.
///
/// # Errors
/// `ping` is not installed, or the namespace cannot be entered.
pub(super) fn ping(from: &Host, guest: &str) -> Result<RunningProgram, LabError> {
    let mut command = Command::new("ping");
    command.args(["-n", "-D", "-i", PING_INTERVAL, "-W", "1", guest]);
    let started = from.within(|| Ok(RunningProgram::start(command, "starting ping")));
    started.map_err(LabError::io("entering a host's namespace"))?
}

/// Counts of echo replies.
#[derive(Debug, PartialEq)]
pub(super) struct PingCounts {
    /// Number of replies, with duplicates.
    pub(super) count: usize,
    /// Number of duplicate replies.
    pub(super) duplicates: usize,
    /// The longest time without a reply, in milliseconds, up to the end of the pings.
    pub(super) outage_ms: f64,
}

impl PingCounts {
    /// Ends the pings, and returns the counts.
    ///
    /// # Errors
    /// The output cannot be read.
    pub(super) fn of(pings: RunningProgram) -> Result<PingCounts, LabError> {
        let end = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        pings.end().map(|text| PingCounts::read(&text, end.as_secs_f64()))
    }

    /// Reads what `ping` printed until `end`, in seconds since 1970.
    fn read(text: &str, end: f64) -> PingCounts {
        let answers = text.lines().filter(|line| line.contains("icmp_seq="));
        let time = |line: &str| line.strip_prefix('[')?.split_once(']')?.0.parse().ok();
        let times: Vec<f64> = answers.clone().filter_map(time).collect();
        let gaps =
            times.iter().zip(times.iter().skip(1).chain([&end])).map(|(one, next)| next - one);
        PingCounts {
            count: times.len(),
            duplicates: answers.filter(|line| line.contains("DUP!")).count(),
            outage_ms: gaps.fold(0.0, f64::max) * 1e3,
        }
    }
}

/// Starts a capture of the guest's port into a new file.
///
/// # Errors
/// The program does not start.
pub(super) fn capture(
    program: &Path,
    socket: &Path,
    file: &Path,
) -> Result<RunningProgram, LabError> {
    // Removes the file of an earlier migration.
    let _ = std::fs::remove_file(file);
    let mut command = Command::new(program);
    command.arg("--socket").arg(socket).args(["capture", super::PORT, "--snaplen", "64", "-w"]);
    command.arg(file);
    RunningProgram::start(command, "starting a capture")
}

/// Ends a capture. Returns the times at which frames were delivered to the guest, in seconds since
/// 1970.
///
/// # Errors
/// The capture cannot be read.
pub(super) fn delivery_times(capture: RunningProgram, file: &Path) -> Result<Vec<f64>, LabError> {
    capture.end()?;
    let failed = || format!("reading {}", file.display());
    let opened = File::open(file).map_err(LabError::io(failed()))?;
    read(opened).map_err(|error| LabError::io(failed())(std::io::Error::other(error)))
}

/// Returns the times of the delivered frames in a capture file.
fn read(file: impl std::io::Read) -> Result<Vec<f64>, pcap_file::PcapError> {
    let mut reader = PcapNgReader::new(file)?;
    let mut times = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(frame) = block? else { continue };
        // A dropped frame has a comment with the reason.
        let is_delivered = |option: &EnhancedPacketOption<'_>| match option {
            EnhancedPacketOption::Flags(flags) => flags & 3 == EGRESS,
            other => !matches!(other, EnhancedPacketOption::Comment(_)),
        };
        if frame.options.iter().all(is_delivered) {
            times.push(frame.timestamp.as_secs_f64());
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ports::Nanos;
    use ports::capture::{Capture, CaptureOptions, Direction};
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_longest_time_without_an_answer_and_answers_too_many_are_found() {
        let text = "PING 10.9.0.1 (10.9.0.1) 56(84) bytes of data.\n\
            [100.000] 64 bytes from 10.9.0.1: icmp_seq=1 ttl=64 time=1.00 ms\n\
            [100.010] 64 bytes from 10.9.0.1: icmp_seq=2 ttl=64 time=1.00 ms\n\
            [100.010] 64 bytes from 10.9.0.1: icmp_seq=2 ttl=64 time=1.00 ms (DUP!)\n\
            [100.135] 64 bytes from 10.9.0.1: icmp_seq=9 ttl=64 time=1.00 ms\n\
            [100.140] 64 bytes from 10.9.0.1: icmp_seq=10 ttl=64 time=1.00 ms\n";
        let PingCounts { count, duplicates, outage_ms } = PingCounts::read(text, 100.145);
        assert!(
            (count, duplicates) == (5, 1) && (124.9..125.1).contains(&outage_ms),
            "{outage_ms}"
        );
        assert!(PingCounts::read(text, 101.0).outage_ms > 859.0, "no answer came after the pause");
        assert_eq!(PingCounts::read("", 100.0).count, 0);
    }

    #[test]
    fn only_what_the_guest_was_given_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vm.pcapng");
        let epoch = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        let file = File::create(&path).unwrap();
        let capture = Capture::start(file, CaptureOptions::new("vm", epoch)).unwrap();
        let offer = |ms: u64, direction, reason| {
            capture.offer(Nanos(ms * 1_000_000), direction, &[0; 60], &[], reason);
        };
        offer(1, Direction::Ingress, None);
        offer(2, Direction::Egress, None);
        offer(3, Direction::Egress, Some("egress_down"));
        offer(4, Direction::Egress, None);
        capture.stop();
        assert_eq!(read(File::open(&path).unwrap()).unwrap(), [1000.002, 1000.004]);
    }
}
