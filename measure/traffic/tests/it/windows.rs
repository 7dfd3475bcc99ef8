//! Both roles against a stand-in that replays Windows NTttcp's exchange, step by step as its public
//! source (microsoft/ntttcp 5.40: `SetupNet`, `SendReceiveToken`, `StartSenderReceiver`) has it. No
//! Windows has been at the other end.

use crate::own_ports::base_port;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::sync::Barrier;
use std::thread::{scope, sleep};
use std::time::Duration;
use traffic::report::{Ending, PeerKind};
use traffic::{Length, Plan, Progress, Report, Role, TrafficError, Transport, run};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const PORTS: u16 = 3;
const BUFFER: usize = 10_000;
const BUFFERS: usize = 20;

fn plan(role: Role, base: u16, transport: Transport) -> Plan {
    let mut plan = Plan::new(role, HERE, base, 1);
    plan.mappings[0].ports = PORTS;
    plan.buffer_bytes = BUFFER;
    plan.length = Length::Buffers(BUFFERS as u64);
    plan.transport = transport;
    plan.tokens = true;
    plan
}

/// Each try of a Windows sender's hundred, a tenth of a second apart.
fn connect(port: u16) -> TcpStream {
    for _ in 0..100 {
        match TcpStream::connect((HERE, port)) {
            Ok(stream) => return stream,
            Err(_) => sleep(Duration::from_millis(100)),
        }
    }
    panic!("nobody listens on {port}");
}

fn token(mut stream: TcpStream) {
    stream.write_all(b"X").unwrap();
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"X");
}

/// Receives with a thread for each port: one connection is accepted, and no other; when all threads
/// have theirs, each listens for its token; when all have that, they read to the end. Returns
/// the number of bytes.
fn windows_receiver(base: u16) -> u64 {
    let (ready, synched) = (Barrier::new(PORTS.into()), Barrier::new(PORTS.into()));
    scope(|scope| {
        let one = |port: u16| {
            let (ready, synched) = (&ready, &synched);
            let listener = TcpListener::bind((HERE, port)).unwrap();
            scope.spawn(move || {
                let mut data = listener.accept().unwrap().0;
                ready.wait();
                token(TcpListener::bind((HERE, port + 1000)).unwrap().accept().unwrap().0);
                synched.wait();
                std::io::copy(&mut data, &mut std::io::sink()).unwrap()
            })
        };
        let threads: Vec<_> = (base..base + PORTS).map(one).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// A thread for each port: a connection, a token when all are connected, data when all have their
/// tokens.
fn windows_sender(base: u16) {
    let (ready, synched) = (Barrier::new(PORTS.into()), Barrier::new(PORTS.into()));
    scope(|scope| {
        for port in base..base + PORTS {
            let (ready, synched) = (&ready, &synched);
            scope.spawn(move || {
                let mut data = connect(port);
                ready.wait();
                token(connect(port + 1000));
                synched.wait();
                (0..BUFFERS).for_each(|_| data.write_all(&[b'A'; BUFFER]).unwrap());
            });
        }
    });
}

fn is_of_a_windows_peer(report: &Report) {
    assert_eq!((report.ending, report.peer_kind), (Ending::Complete, PeerKind::Ntttcp));
    assert_eq!(report.own.connections, u64::from(PORTS));
    assert!(
        report.to_text().unwrap().contains("tokens, as Windows NTttcp"),
        "{}",
        report.to_text().unwrap()
    );
}

#[test]
fn a_replayed_windows_receiver_gets_one_connection_a_port_its_tokens_and_every_byte() {
    let base = base_port(HERE, PORTS);
    let plan = plan(Role::Sender, base, Transport::Tcp);
    scope(|scope| {
        let receiver = scope.spawn(|| windows_receiver(base));
        let report = run(&plan, &mut |_| {}).unwrap();
        is_of_a_windows_peer(&report);
        assert_eq!(receiver.join().unwrap(), report.own.whole_run_bytes);
        assert_eq!(report.own.whole_run_bytes, (usize::from(PORTS) * BUFFERS * BUFFER) as u64);
    });
}

#[test]
fn a_replayed_windows_sender_begins_after_our_tokens_and_every_byte_is_received() {
    let base = base_port(HERE, PORTS);
    let plan = plan(Role::Receiver, base, Transport::Tcp);
    scope(|scope| {
        let mut sender = None;
        let report = run(&plan, &mut |step| {
            if matches!(step, Progress::Listening(_)) {
                // Strangers at the token ports change nothing.
                connect(base + 1000).write_all(b"GET / HTTP/1.1").unwrap();
                drop(connect(base + 1001));
                sender = Some(scope.spawn(|| windows_sender(base)));
            }
        })
        .unwrap();
        sender.unwrap().join().unwrap();
        is_of_a_windows_peer(&report);
        assert_eq!(report.own.whole_run_bytes, (usize::from(PORTS) * BUFFERS * BUFFER) as u64);
    });
}

#[test]
fn with_datagrams_only_the_tokens_are_connected() {
    let base = base_port(HERE, PORTS);
    let sender = plan(Role::Sender, base, Transport::Udp);
    scope(|scope| {
        let sockets: Vec<UdpSocket> =
            (base..base + PORTS).map(|port| UdpSocket::bind((HERE, port)).unwrap()).collect();
        for port in base..base + PORTS {
            let listener = TcpListener::bind((HERE, port + 1000)).unwrap();
            scope.spawn(move || token(listener.accept().unwrap().0));
        }
        is_of_a_windows_peer(&run(&sender, &mut |_| {}).unwrap());
        for socket in &sockets {
            assert_eq!(socket.recv(&mut [0; BUFFER]).unwrap(), BUFFER);
        }
    });
    let base = base_port(HERE, PORTS);
    let mut receiver = plan(Role::Receiver, base, Transport::Udp);
    receiver.length = Length::Seconds(1);
    scope(|scope| {
        let report = run(&receiver, &mut |step| {
            if matches!(step, Progress::Listening(_)) {
                scope.spawn(move || {
                    let ports = base + 1000..base + 1000 + PORTS;
                    let tokens: Vec<_> =
                        ports.map(|port| scope.spawn(move || token(connect(port)))).collect();
                    tokens.into_iter().for_each(|token| token.join().unwrap());
                    let socket = UdpSocket::bind((HERE, 0)).unwrap();
                    for port in base..base + PORTS {
                        socket.send_to(&[b'B'; BUFFER], (HERE, port)).unwrap();
                    }
                });
            }
        })
        .unwrap();
        assert_eq!(report.own.whole_run_calls, u64::from(PORTS));
        assert_eq!((report.ending, report.peer_kind), (Ending::Complete, PeerKind::Ntttcp));
    });
}

#[test]
fn more_connections_than_a_windows_receiver_takes_are_refused() {
    let base = base_port(HERE, PORTS);
    let _receiver = TcpListener::bind((HERE, base)).unwrap();
    let plan = Plan { connections_per_thread: 2, ..plan(Role::Sender, base, Transport::Tcp) };
    let error = run(&plan, &mut |_| {}).unwrap_err();
    let refused =
        matches!(&error, TrafficError::Plan(text) if text.contains("one connection at each port"));
    assert!(refused, "{error}");
}
