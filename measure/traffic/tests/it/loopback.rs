//! Whole runs over the loopback interface. Tests check the received bytes and the reports, never
//! speed.

use crate::own_ports::base_port;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::thread::{scope, sleep};
use std::time::Duration;
use traffic::report::{Ending, PeerKind};
use traffic::{Length, Plan, Progress, Report, Role, TrafficError, Transport, run};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Runs both ends of a plan. Returns the reports of the sender and the receiver.
fn both(host: IpAddr, ports: u16, shape: impl Fn(&mut Plan)) -> (Report, Report) {
    let base = base_port(host, ports);
    let plan = |role| {
        let mut plan = Plan::new(role, host, base, 1);
        plan.mappings[0].ports = ports;
        shape(&mut plan);
        plan
    };
    let (sender, receiver) = (plan(Role::Sender), plan(Role::Receiver));
    let mut quiet = |_: Progress| {};
    scope(|scope| {
        let receiver = scope.spawn(move || run(&receiver, &mut |_| {}));
        let sender = run(&sender, &mut quiet).unwrap();
        (sender, receiver.join().unwrap().unwrap())
    })
}

/// Checks the JSON of a report against the shipped schema.
fn holds_to_schema(report: &Report) {
    let schema = traffic::report::json_schema();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let json = serde_json::to_value(report).unwrap();
    let errors: Vec<String> = schema.iter_errors(&json).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

fn buffers(count: u64) -> impl Fn(&mut Plan) {
    move |plan| plan.length = Length::Buffers(count)
}

#[test]
fn every_byte_sent_over_v4_and_v6_is_received_and_both_ends_know() {
    for host in [V4, V6] {
        let (sender, receiver) = both(host, 1, buffers(100));
        assert_eq!(sender.own.bytes, 100 * 65_536);
        assert_eq!(receiver.own.whole_run_bytes, sender.own.whole_run_bytes);
        assert_eq!(sender.peer.as_ref().unwrap().whole_run_bytes, receiver.own.whole_run_bytes);
        assert_eq!(receiver.peer.as_ref().unwrap().whole_run_bytes, sender.own.whole_run_bytes);
        assert_eq!((sender.ending, receiver.ending), (Ending::Complete, Ending::Complete));
        assert_eq!(
            (sender.peer_kind, receiver.peer_kind),
            (PeerKind::Millrace, PeerKind::Millrace)
        );
    }
}

#[test]
fn a_timed_run_measures_its_second_and_loses_nothing() {
    let (sender, receiver) = both(V4, 2, |plan| plan.threads_per_port = 2);
    assert_eq!(receiver.own.whole_run_bytes, sender.own.whole_run_bytes);
    assert!(receiver.own.bytes > 0 && receiver.own.bytes <= receiver.own.whole_run_bytes);
    assert!((0.9..3.0).contains(&receiver.own.seconds), "{}", receiver.own.seconds);
    assert_eq!((sender.own.connections, receiver.own.connections), (4, 4));
    assert_eq!(receiver.ending, Ending::Complete);
    assert!(receiver.own.segments.average_frame_bytes.value.unwrap() > 500.0);
    for report in [&sender, &receiver] {
        holds_to_schema(report);
        assert_eq!(report.bytes_missing, Some(0));
        assert!(!report.to_text().unwrap().contains("NOT ARRIVED"));
    }
}

#[test]
fn many_connections_are_checked_byte_for_byte() {
    let (sender, receiver) = both(V4, 4, |plan| {
        plan.connections_per_thread = 100;
        plan.verify = true;
        plan.buffer_bytes = 10_007;
        plan.length = Length::Buffers(2_000);
    });
    assert_eq!(receiver.own.connections, 400);
    assert_eq!(sender.own.whole_run_bytes, 4 * 2_000 * 10_007);
    assert_eq!(receiver.own.verified_bytes, Some(sender.own.whole_run_bytes));
    assert_eq!(receiver.own.errors, 0);
}

#[test]
fn datagrams_over_v4_and_v6_are_counted_at_both_ends() {
    for host in [V4, V6] {
        let (sender, receiver) = both(host, 1, |plan| {
            plan.transport = Transport::Udp;
            plan.buffer_bytes = 1000;
            plan.verify = true;
            plan.length = Length::Buffers(500);
            plan.bandwidth_bits_per_s = Some(40_000_000);
        });
        assert_eq!(sender.own.whole_run_calls, 500);
        let lost = sender.datagrams_lost.unwrap();
        assert_eq!(receiver.own.whole_run_calls + lost, 500);
        assert_eq!(receiver.own.verified_bytes, Some(receiver.own.whole_run_bytes));
        holds_to_schema(&sender);
    }
}

#[test]
fn round_trips_are_counted_one_by_one() {
    let (sender, receiver) = both(V4, 1, |plan| {
        plan.latency = true;
        plan.length = Length::Buffers(300);
    });
    let trips = sender.round_trips.unwrap();
    assert!(trips.count > 0 && trips.count <= 300);
    assert!(trips.min_ns > 0 && trips.min_ns <= trips.p50_ns && trips.p50_ns <= trips.max_ns);
    assert_eq!(receiver.own.whole_run_bytes, 300);
    holds_to_schema(&sender);
}

#[test]
fn each_request_of_the_bulk_data_is_timed_at_both_ends() {
    for transport in [Transport::Tcp, Transport::Udp] {
        let (sender, receiver) = both(V4, 1, |plan| {
            plan.request_times = true;
            plan.transport = transport;
            plan.buffer_bytes = 5_000;
            plan.connections_per_thread = 2;
        });
        for report in [&sender, &receiver] {
            let times = report.request_times.unwrap();
            // One time for each buffer except a connection's first. A read may return less than a
            // buffer.
            assert!(times.count > 0 && times.count <= report.own.calls, "{times:?}");
            assert!(times.min_ns <= times.p50_ns && times.p50_ns <= times.max_ns, "{times:?}");
            assert!(report.round_trips.is_none());
            holds_to_schema(report);
        }
    }
    assert!(both(V4, 1, buffers(9)).0.request_times.is_none());
}

/// Forwards the bytes that arrive at a port. With `loses`, drops every tenth block of 1000 bytes.
fn relay(from: u16, to: u16, loses: bool) {
    use std::io::{Read, Write};
    let listener = TcpListener::bind((V4, from)).unwrap();
    std::thread::spawn(move || {
        let (mut sender, _) = listener.accept().unwrap();
        let mut receiver = std::net::TcpStream::connect((V4, to)).unwrap();
        let (mut back, mut forth) = (receiver.try_clone().unwrap(), sender.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut forth));
        let mut bytes = [0; 1000];
        for count in 1_u64.. {
            let size = if loses { bytes.len() } else { 1 };
            if sender.read_exact(&mut bytes[..size]).is_err() {
                break;
            }
            if !loses || count % 10 != 0 {
                receiver.write_all(&bytes[..size]).unwrap();
            }
        }
        let _ = receiver.shutdown(std::net::Shutdown::Write);
    });
}

#[test]
fn a_generator_that_counts_what_never_arrives_is_caught_by_the_receiver() {
    let (lies, truth) = (base_port(V4, 1), base_port(V4, 1));
    let receiver = Plan::new(Role::Receiver, V4, truth, 1);
    let mut sender = Plan::new(Role::Sender, V4, lies, 1);
    sender.buffer_bytes = 10_000;
    sender.length = Length::Buffers(1_000);
    let receiver = std::thread::spawn(move || run(&receiver, &mut |_| {}));
    while std::net::TcpStream::connect((V4, truth - 1)).is_err() {
        sleep(Duration::from_millis(10));
    }
    relay(lies - 1, truth - 1, false);
    relay(lies, truth, true);
    let sender = run(&sender, &mut |_| {}).unwrap();
    let receiver = receiver.join().unwrap().unwrap();
    assert_eq!(sender.own.whole_run_bytes, 10_000_000);
    assert_eq!(receiver.own.whole_run_bytes, 9_000_000);
    for report in [&sender, &receiver] {
        assert_eq!(report.bytes_missing, Some(1_000_000));
        assert!(report.to_text().unwrap().contains("(10.00 %)"), "{}", report.to_text().unwrap());
    }
    let rate = receiver.own.throughput.bytes_per_s;
    assert_eq!(
        sender.peer.unwrap().throughput.bytes_per_s,
        rate,
        "what counts is what was received"
    );
}

#[test]
fn xml_has_every_field_of_ntttcps() {
    let (sender, receiver) = both(V4, 1, buffers(20));
    for (report, root) in [(sender, "ntttcps"), (receiver, "ntttcpr")] {
        let xml = report.to_xml().unwrap();
        let document = roxmltree::Document::parse(&xml).unwrap();
        assert!(document.root_element().has_tag_name(root));
        let has = |name: &str, metric: &str| {
            let metric = (!metric.is_empty()).then_some(metric);
            let mut children = document.root_element().children();
            children.any(|child| {
                let absent = child.attribute("absent").is_some();
                child.has_tag_name(name) && (child.attribute("metric") == metric || absent)
            })
        };
        for (name, metric) in [
            ("parameters", ""),
            ("total_bytes", "MB"),
            ("realtime", "s"),
            ("avg_bytes_per_compl", "B"),
            ("avg_frame_size", "B"),
            ("throughput", "MB/s"),
            ("throughput", "mbps"),
            ("throughput", "buffers/s"),
            ("total_buffers", ""),
            ("avg_packets_per_interrupt", "packets/interrupt"),
            ("interrupts", "count/sec"),
            ("dpcs", "count/sec"),
            ("avg_packets_per_dpc", "packets/dpc"),
            ("cycles", "cycles/byte"),
            ("packets_sent", ""),
            ("packets_received", ""),
            ("packets_retransmitted", ""),
            ("errors", ""),
            ("cpu", "%"),
            ("bufferCount", ""),
            ("bufferLen", ""),
            ("io", ""),
        ] {
            assert!(has(name, metric), "{name} {metric}\n{xml}");
        }
    }
}

#[test]
fn without_synchronisation_the_first_connection_begins() {
    let (sender, receiver) = both(V4, 1, |plan| {
        plan.sync = false;
        plan.length = Length::Buffers(50);
    });
    assert_eq!(sender.peer_kind, PeerKind::Unsynchronised);
    assert_eq!(receiver.own.whole_run_bytes, sender.own.whole_run_bytes);
    assert!(sender.peer.is_none());
}

#[test]
fn a_sender_without_a_receiver_says_what_to_do() {
    let mut plan = Plan::new(Role::Sender, V4, base_port(V4, 1), 1);
    plan.connect_attempts = 2;
    let error = run(&plan, &mut |_| {}).unwrap_err();
    assert!(matches!(error, TrafficError::Unreachable { attempts: 2, .. }));
    assert!(error.to_string().contains("start the receiver first"), "{error}");
}

/// A sender behind a firewall that drops was silent for ten minutes. A full backlog drops connection
/// requests as a firewall does.
#[test]
fn a_sender_that_nothing_answers_says_so_and_gives_up() {
    let base = base_port(V4, 1);
    let silent = TcpListener::bind((V4, base - 1)).unwrap();
    rustix::net::listen(&silent, 0).unwrap();
    let address = silent.local_addr().unwrap();
    let timeout = Duration::from_millis(200);
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, timeout) {
        held.push(stream);
    }
    let plan = Plan { connect_attempts: 2, ..Plan::new(Role::Sender, V4, base, 1) };
    let mut waits = Vec::new();
    let error = run(&plan, &mut |step| {
        if let Progress::Waiting(wait) = step {
            waits.push(wait);
        }
    });
    let error = error.unwrap_err();
    assert!(matches!(error, TrafficError::Unreachable { attempts: 2, .. }), "{error}");
    let ports = format!("open TCP ports {} to {base} in the receiver's firewall", base - 1);
    assert!(error.to_string().contains(&ports), "{error}");
    assert!(waits.len() >= 3 && waits.iter().all(|wait| wait.is_silent), "{waits:?}");
    assert_eq!(waits[0].address, address);
}

#[test]
fn a_receiver_waits_only_as_long_as_it_was_told() {
    let mut plan = Plan::new(Role::Receiver, V4, base_port(V4, 1), 1);
    plan.wait_s = 1;
    assert!(matches!(run(&plan, &mut |_| {}), Err(TrafficError::NoSender { seconds: 1 })));
}

#[test]
fn ends_that_mean_different_tests_say_so() {
    let base = base_port(V4, 1);
    let receiver = Plan::new(Role::Receiver, V4, base, 1);
    let mut sender = Plan::new(Role::Sender, V4, base, 1);
    sender.verify = true;
    let stop = receiver.stop.clone();
    scope(|scope| {
        let receiver = scope.spawn(move || run(&receiver, &mut |_| {}));
        let error = run(&sender, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("the sender has --verify"), "{error}");
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(receiver.join().unwrap(), Err(TrafficError::StoppedEarly)));
    });
}

#[test]
fn an_interrupted_sender_leaves_two_partial_reports() {
    let base = base_port(V4, 1);
    let receiver = Plan::new(Role::Receiver, V4, base, 30);
    let sender = Plan::new(Role::Sender, V4, base, 30);
    let stop = sender.stop.clone();
    scope(|scope| {
        let receiver = scope.spawn(move || run(&receiver, &mut |_| {}));
        let sender = run(&sender, &mut |progress| {
            if matches!(progress, Progress::Rate { .. }) {
                stop.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
        let receiver = receiver.join().unwrap().unwrap();
        assert_eq!(
            (sender.ending, receiver.ending),
            (Ending::StoppedByUser, Ending::StoppedByPeer)
        );
        assert_eq!(sender.own.whole_run_bytes, receiver.own.whole_run_bytes);
        assert!(sender.to_text().unwrap().contains("INTERRUPTED"));
    });
}

#[test]
fn a_receiver_that_goes_away_is_reported_and_not_waited_for() {
    let base = base_port(V4, 1);
    let receiver = Plan::new(Role::Receiver, V4, base, 30);
    let sender = Plan::new(Role::Sender, V4, base, 30);
    let stop = receiver.stop.clone();
    scope(|scope| {
        let receiver = scope.spawn(move || run(&receiver, &mut |_| {}));
        let sender = run(&sender, &mut |progress| {
            if matches!(progress, Progress::Rate { .. }) {
                stop.store(true, Ordering::Relaxed);
            }
        })
        .unwrap();
        assert_eq!(receiver.join().unwrap().unwrap().ending, Ending::StoppedByUser);
        assert_eq!(sender.ending, Ending::PeerLost);
        assert!(sender.own.bytes > 0);
    });
}

#[test]
fn a_stranger_at_the_synchronisation_port_changes_nothing() {
    use std::io::Write;
    let base = base_port(V4, 1);
    let receiver = Plan::new(Role::Receiver, V4, base, 1);
    let mut sender = Plan::new(Role::Sender, V4, base, 1);
    sender.length = Length::Buffers(10);
    scope(|scope| {
        let receiver = scope.spawn(move || run(&receiver, &mut |_| {}));
        let mut stranger = loop {
            match std::net::TcpStream::connect((V4, base - 1)) {
                Ok(stream) => break stream,
                Err(_) => sleep(Duration::from_millis(10)),
            }
        };
        stranger.write_all(b"GET / HTTP/1.1\r\n\r\nMR\x02\x01\xff\xff\xff\xff").unwrap();
        let sender = run(&sender, &mut |_| {}).unwrap();
        assert_eq!(
            receiver.join().unwrap().unwrap().own.whole_run_bytes,
            sender.own.whole_run_bytes
        );
    });
}

const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn two_hosts(plan: &mut Plan) {
    plan.mappings.push(traffic::Mapping { ports: 1, processor: None, host: OTHER });
    plan.length = Length::Buffers(40);
}

#[test]
fn one_sender_serves_two_receivers() {
    let base = base_port(V4, 2);
    let receivers = [(V4, base), (OTHER, base + 1)]
        .map(|(host, port)| Plan::new(Role::Receiver, host, port, 0));
    let mut sender = Plan::new(Role::Sender, V4, base, 0);
    two_hosts(&mut sender);
    scope(|scope| {
        let receivers = receivers.map(|plan| scope.spawn(move || run(&plan, &mut |_| {})));
        let sender = run(&sender, &mut |_| {}).unwrap();
        let received =
            receivers.map(|receiver| receiver.join().unwrap().unwrap().own.whole_run_bytes);
        assert_eq!(received, [40 * 65_536; 2]);
        assert_eq!(sender.peer.unwrap().whole_run_bytes, sender.own.whole_run_bytes);
    });
}

#[test]
fn a_receiver_with_two_addresses_is_one_end() {
    let (sender, receiver) = both(V4, 1, two_hosts);
    assert_eq!(receiver.own.whole_run_bytes, 2 * 40 * 65_536);
    assert_eq!(sender.peer.unwrap().whole_run_bytes, receiver.own.whole_run_bytes);
    assert_eq!(receiver.peer.unwrap().whole_run_bytes, sender.own.whole_run_bytes);
}

#[test]
fn several_senders_begin_with_the_last_one() {
    let base = base_port(V4, 1);
    let mut receiver = Plan::new(Role::Receiver, V4, base, 1);
    receiver.multi_client = true;
    let first = Plan::new(Role::Sender, V4, base, 1);
    let mut last = first.clone();
    last.last_client = true;
    scope(|scope| {
        let receiver = scope.spawn(move || run(&receiver, &mut |_| {}));
        let (tell, told) = std::sync::mpsc::channel();
        let first = scope.spawn(move || {
            run(&first, &mut |progress| {
                if matches!(progress, Progress::AwaitingOthers) {
                    let _ = tell.send(());
                }
            })
        });
        told.recv().unwrap();
        let last = run(&last, &mut |_| {});
        let receiver = receiver.join().unwrap().unwrap();
        let first = first.join().unwrap().unwrap();
        assert_eq!(
            receiver.own.whole_run_bytes,
            first.own.whole_run_bytes + last.unwrap().own.whole_run_bytes
        );
        assert_eq!(receiver.own.connections, 2);
    });
}

#[test]
fn a_receiver_that_takes_data_and_no_synchronisation_is_told_of_ns() {
    let base = base_port(V4, 1);
    let _unsynchronised = TcpListener::bind((V4, base)).unwrap();
    let plan = Plan { connect_attempts: 6, ..Plan::new(Role::Sender, V4, base, 1) };
    let mut told = 0;
    let error = run(&plan, &mut |step| told += i32::from(step == Progress::Tokens(V4)));
    let error = error.unwrap_err();
    assert!(matches!(error, TrafficError::Unsynchronised { .. }) && told == 1, "{error}");
    assert!(error.to_string().contains("-ns"), "{error}");
}

#[test]
fn a_sender_that_brings_data_and_no_synchronisation_is_told_of_once() {
    let base = base_port(V4, 1);
    let plan = Plan { wait_s: 30, ..Plan::new(Role::Receiver, V4, base, 1) };
    let (stop, mut windows, mut told) = (plan.stop.clone(), None, 0);
    let error = run(&plan, &mut |step| match step {
        Progress::Listening(address) => windows = Some(TcpStream::connect(address)),
        Progress::Unsynchronised => {
            told += 1;
            stop.store(true, Ordering::Relaxed);
        }
        _ => {}
    });
    assert!(matches!(error, Err(TrafficError::StoppedEarly)) && told == 1, "{told}");
    drop(windows);
}
