//! Responders of this process, on loopback: a check that finds nothing, and clients that get
//! nothing.

use path_mtu::check::{Network, Options, check, check_networks};
use path_mtu::frame::{Answer, Hello, LEN, Order, Probe, ProbeRequest, Status};
use path_mtu::session::Host;
use path_mtu::{Responder, addresses};
use problem::token::Token;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

const TOKEN: &str = "0123456789abcdef";

fn responder(ip: [u8; 4]) -> Responder {
    let token: Token = TOKEN.parse().unwrap();
    Responder::start(path_mtu::Options::new((ip, 0).into(), token)).unwrap()
}

fn host(responder: &Responder) -> Host {
    let at = format!("{TOKEN}@{}", responder.address()).parse().unwrap();
    Host { name: responder.address().to_string(), at, netns: None }
}

fn hello(responder: &Responder, token: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(responder.address()).unwrap();
    stream.write_all(Hello::new(token, [7; 16]).as_bytes()).unwrap();
    let mut answer = [0; LEN];
    stream.read_exact(&mut answer).ok()?;
    assert_eq!(Answer::read_from_bytes(&answer).unwrap().read(0).map(drop), Ok(()));
    Some(stream)
}

/// Returns the answer to a datagram; `None` if none comes soon.
fn reply(responder: SocketAddr, datagram: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket.send_to(datagram, responder).unwrap();
    let mut room = [0; 100];
    let (length, _) = socket.recv_from(&mut room).ok()?;
    Some(room[..length].to_vec())
}

#[test]
fn three_healthy_hosts_have_no_findings_and_all_directions_are_probed() {
    assert!(addresses().unwrap().iter().any(|it| it.ip == IpAddr::from([127, 0, 0, 1])));
    let responders = [1, 2, 3].map(|last| responder([127, 0, 0, last]));
    let hosts: Vec<Host> = responders.iter().map(host).collect();
    let options = Options { mtu: Some(9000), ..Options::default() };
    let report = check(&hosts, &options, &|_, _| ()).unwrap();
    assert_eq!(report.directions.len(), 6);
    assert!(report.directions.iter().all(|it| it.carried == 9000 && it.over), "{report:?}");
    assert!(report.text().contains("3 hosts, 6 directions, MTU 9000"), "{}", report.text());
    assert!(report.directions.iter().all(|it| it.interface == "lo" && it.arrives_by == "lo"));
}

#[test]
fn networks_have_a_report_each_and_one_without_a_name_has_the_only() {
    let responders = [5, 6, 7, 8].map(|last| responder([127, 0, 0, last]));
    let hosts: Vec<Host> = responders.iter().map(host).collect();
    let options = Options { mtu: Some(9000), ..Options::default() };
    let named =
        |name: &str, hosts: &[Host]| Network { name: Some(name.into()), hosts: hosts.into() };
    let both = [named("management", &hosts[..2]), named("migration", &hosts[2..])];
    let networks = check_networks(&both, &options, &|_, _| ()).unwrap().into_only().unwrap_err();
    assert!(networks.healthy && networks.unchecked.is_empty(), "{networks:?}");
    let text = networks.text();
    for name in ["management", "migration"] {
        assert!(text.contains(&format!("{name}: 2 hosts, 2 directions, MTU 9000")), "{text}");
    }
    let all = [Network { name: None, hosts }];
    let report = check_networks(&all, &options, &|_, _| ()).unwrap().into_only().unwrap();
    assert_eq!((report.healthy, report.directions.len()), (true, 12));
}

#[test]
fn a_network_with_one_host_is_told_with_its_name_and_the_others_are_checked() {
    let responders = [1, 2, 3].map(|last| responder([127, 0, 0, last]));
    let hosts: Vec<Host> = responders.iter().map(host).collect();
    let options = Options { mtu: Some(9000), ..Options::default() };
    let named =
        |name: &str, hosts: &[Host]| Network { name: Some(name.into()), hosts: hosts.into() };
    let both = [named("lan", &hosts[..2]), named("storage", &hosts[2..])];
    let networks = check_networks(&both, &options, &|_, _| ()).unwrap();
    assert_eq!((networks.healthy, networks.networks.len()), (false, 1));
    assert!(networks.unchecked[0].error.starts_with("storage: there is no path"), "{networks:?}");
    let error = check_networks(&both[1..], &options, &|_, _| ()).unwrap_err();
    assert!(error.error.starts_with("storage: there is no path"), "{error}");
}

#[test]
fn a_client_with_another_token_gets_no_answer() {
    let responder = responder([127, 0, 0, 1]);
    assert!(hello(&responder, "0123456789abcdee").is_none());
    assert!(hello(&responder, "").is_none());
    assert!(hello(&responder, TOKEN).is_some());
}

/// Silent connections kept everyone else out for as long as one peer liked.
#[test]
fn who_comes_when_all_seats_are_taken_waits_for_one() {
    let responder = responder([127, 0, 0, 1]);
    let connect = |_| TcpStream::connect(responder.address()).unwrap();
    let silent: Vec<TcpStream> = (0..40).map(connect).collect();
    assert!(hello(&responder, TOKEN).is_some());
    drop(silent);
}

#[test]
fn only_whole_probes_of_an_open_session_are_acknowledged() {
    let responder = responder([127, 0, 0, 1]);
    let at = responder.address();
    let whole = |badge| {
        let mut datagram = Probe::new(badge, 100, 0).as_bytes().to_vec();
        datagram.resize(100 - 28, 0);
        datagram
    };
    assert_eq!(reply(at, &whole([7; 16])), None, "no session is open");
    let session = hello(&responder, TOKEN).unwrap();
    let answer = reply(at, &whole([7; 16])).unwrap();
    assert_eq!(Probe::acknowledged(&answer, [7; 16], 0), Some(100));
    assert_eq!(reply(at, &whole([8; 16])), None, "another badge");
    assert_eq!(reply(at, &whole([7; 16])[..71]), None, "cut short");
    assert_eq!(reply(at, &answer), None, "an acknowledgement");
    drop(session);
}

#[test]
fn an_order_to_a_group_is_refused() {
    let responder = responder([127, 0, 0, 1]);
    let mut session = hello(&responder, TOKEN).unwrap();
    for to in ["224.0.0.1:9", "255.255.255.255:9", "0.0.0.0:9", "[ff02::1]:9", "127.0.0.1:0"] {
        let request = ProbeRequest { to: to.parse().unwrap(), sizes: vec![100], timeout_ms: 1 };
        session.write_all(Order::new(&request).as_bytes()).unwrap();
        let mut answer = [0; LEN];
        session.read_exact(&mut answer).unwrap();
        let answer = Answer::read_from_bytes(&answer).unwrap();
        assert_eq!(answer.read(1), Err(Status::BadOrder), "{to}");
    }
}
