//! An uplink's ring stands behind sixteen streams: a lone byte there and back does not wait for it.

use crate::host::Host;
use crate::sandbox::{Need, story};
use crate::switch::Switch;
use crate::topology::{Family, Topology};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};
use waiting::until;

const NEEDS: [Need; 3] = [Need::Tap, Need::Program("ethtool"), Need::Program("iperf3")];
/// The time over which the switch takes the mean of what frames waited.
const WINDOW: Duration = Duration::from_secs(1);
/// Mean wait from which on the ring stands. A rate makes it stand on any machine: 4,096 frames take
/// 245 ms at 200 Mbit/s.
const STANDS: Duration = Duration::from_millis(50);

#[test]
fn a_lone_byte_does_not_wait_for_sixteen_streams() {
    story(&NEEDS, || {
        let topology = Topology::with("rate = '200Mbit'\n", "");
        let mut server = topology.guest.command("iperf3");
        let mut server = server.args(["-s"]).stdout(Stdio::null()).spawn().unwrap();
        until("iperf3 listens", || {
            topology.guest.run("ss -ltnH sport = :5201").contains("5201").then_some(())
        });
        let mut pair = connect(&topology.far, &topology.guest);
        let mut client = topology.far.command("iperf3");
        let options = format!("-c {} -t 600 -P 16", Family::V4.guest());
        let mut client = client.args(options.split(' ')).stdout(Stdio::null()).spawn().unwrap();

        // TCP may back off meanwhile; then the trips say nothing.
        let (trip, stood) = until("the ring stands", || {
            let trip = median(&mut pair);
            let stood = wait(&topology.switch).filter(|wait| *wait > STANDS)?;
            Some((trip, stood))
        });
        for child in [&mut client, &mut server] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(trip < stood / 2, "{trip:?}, where frames in their turn wait for {stood:?}");
    });
}

/// Returns the mean wait of the uplink's frames in the last second.
fn wait(switch: &Switch) -> Option<Duration> {
    let queues: Value = switch.ask("queue show uplink");
    queues[0]["wait"]["mean_us"].as_u64().map(Duration::from_micros)
}

/// Returns both ends of a connection between two hosts.
fn connect(from: &Host, to: &Host) -> (TcpStream, TcpStream) {
    let address = (Family::V4.guest(), 7007);
    let listener = to.within(|| TcpListener::bind(address)).unwrap();
    let stream = from.within(|| TcpStream::connect(address)).unwrap();
    let (answerer, _) = listener.accept().unwrap();
    for end in [&stream, &answerer] {
        end.set_nodelay(true).unwrap();
    }
    (stream, answerer)
}

/// Makes round trips of one byte for longer than the window. Returns the median of those that ended
/// within it.
fn median((asker, answerer): &mut (TcpStream, TcpStream)) -> Duration {
    let mut trip = || {
        let (start, mut byte) = (Instant::now(), [7]);
        asker.write_all(&byte).unwrap();
        answerer.read_exact(&mut byte).unwrap();
        answerer.write_all(&byte).unwrap();
        asker.read_exact(&mut byte).unwrap();
        (Instant::now(), start.elapsed())
    };
    let (begin, mut trips) = (Instant::now(), Vec::new());
    while begin.elapsed() < 2 * WINDOW {
        trips.push(trip());
    }
    trips.retain(|(end, _)| end.elapsed() < WINDOW);
    let mut times: Vec<_> = trips.into_iter().map(|(_, time)| time).collect();
    times.sort_unstable();
    times[times.len() / 2]
}
