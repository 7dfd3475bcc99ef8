//! Processor time that a look of dynamic VMMQ takes in the thread that owns the switch, at an
//! uplink of 1,023 vNICs: `cargo bench -p millrace-daemon`.
#![allow(missing_docs, clippy::print_stdout, clippy::unwrap_used, reason = "a bench")]

use config::Config;
use daemon::running::Running;
use ports::steering::{ENTRIES, Vnic};
use rustix::time::{ClockId, clock_gettime};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};
use test_devices::MemoryDevices;

/// One for each port that a switch can have besides the uplink.
const VNICS: u16 = 1023;
const LOOKS: usize = 200;

/// Returns the processor time of this thread.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.cast_unsigned(), u32::try_from(time.tv_nsec).unwrap())
}

fn main() {
    let mut text = "[switch]\nworkers=2\n\
                    [[port]]\nname='up'\npacket='eth9'\nqueues=2\nvmmq='dynamic'\n"
        .to_owned();
    for number in 1..=VNICS {
        let [high, low] = number.to_be_bytes();
        let mac = format!("02:00:00:00:{high:02x}:{low:02x}");
        text += &format!("[[port]]\nname='v{number}'\ntap='v{number}'\nmac='{mac}'\n");
    }
    for (load, active) in [("none", 0), ("one entry of each vNIC", 1), ("all entries", ENTRIES)] {
        let devices = MemoryDevices::default();
        let config = Config::from_toml("bench", &text).unwrap();
        let begin = Instant::now();
        let mut running = Running::start(config, Box::new(devices.clone()), begin).unwrap();
        let steering = devices.steering("eth9").unwrap();
        // So that others are the busiest each time.
        let random = RandomState::new();
        let mut times: Vec<Duration> = (1..=LOOKS)
            .map(|look| {
                for number in 0..=VNICS {
                    let vnic = Vnic { number, generation: 0 };
                    let frames = |entry| 1 + random.hash_one((look, number, entry)) % 8;
                    (0..active).for_each(|entry| steering.count(vnic, entry, frames(entry)));
                }
                let now = begin + Duration::from_millis(20) * u32::try_from(look).unwrap();
                let start = used();
                running.balance(now);
                used() - start
            })
            .skip(LOOKS / 10)
            .collect();
        times.sort();
        let at = |part: usize| times[times.len() * part / 100];
        println!("{load}: {:?} at the median of {LOOKS}, {:?} to {:?}", at(50), at(5), at(95));
    }
}
