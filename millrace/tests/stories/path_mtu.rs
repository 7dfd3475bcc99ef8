//! A path that carries less than its ends. TCP hangs if no hop reports it, and goes on once the
//! switch does. Losses behind the switch are reported.
//!
//! ```text
//! a [9000] ── port big 9000 ── millrace ── port small 1500 ── b [9000]     a ── port big ── uplink ══ bridge 1500 ── far [9000]
//! ```

use crate::host::Host;
use crate::sandbox::{Need, run, story};
use crate::shell::addresses;
use crate::switch::Switch;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use waiting::until;

const NEEDS: [Need; 1] = [Need::Tap];
const TOTAL: usize = 4 << 20;

fn byte(at: usize) -> u8 {
    // Take the top byte.
    at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0]
}

/// Sends over TCP from one host to another, in the background. Returns the number of bytes that
/// have arrived and were right.
fn send(from: Host, to: Host, address: IpAddr) -> Arc<AtomicUsize> {
    let listener = to.within(|| TcpListener::bind((address, 7)).unwrap());
    let arrived = Arc::new(AtomicUsize::new(0));
    let count = arrived.clone();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut room, mut at) = (vec![0; 1 << 16], 0);
        while let Ok(length @ 1..) = stream.read(&mut room) {
            assert!(room[..length].iter().enumerate().all(|(place, it)| *it == byte(at + place)));
            at += length;
            count.store(at, Ordering::Relaxed);
        }
    });
    let mut stream = from.within(|| TcpStream::connect((address, 7)).unwrap());
    std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..TOTAL).map(byte).collect();
        let _ = stream.write_all(&bytes).and_then(|()| stream.shutdown(Shutdown::Write));
        // Stays open: the story, which ends when all bytes have arrived, closes it by ending.
        std::mem::forget(stream);
    });
    arrived
}

#[test]
fn tcp_heals_where_a_port_is_smaller_than_both_ends() {
    story(&NEEDS, || {
        let (a, b) = (Host::new("a"), Host::new("b"));
        let switch = Switch::start(
            "[[port]]\nname = 'big'\ntap = 'tap0'\nnetns = 'a'\nmtu = 9000\n\
             [[port]]\nname = 'small'\ntap = 'tap0'\nnetns = 'b'\nmtu = 1500\n",
        );
        a.assign_addresses("tap0", 1);
        b.assign_addresses("tap0", 2);
        // The port has MTU 1500 and the device 9000: the handshake does not reveal it.
        b.run("ip link set tap0 mtu 9000");
        ["big", "small"].iter().for_each(|port| drop(switch.wait_for(port, "up")));
        for address in addresses(2) {
            switch.tell("port set big path-mtu=off");
            let too_big = || switch.counter("small", "/drops/too_big");
            let (before, told) = (too_big(), switch.counter("big", "/path_mtu_messages"));
            let arrived = send(a, b, address);
            until("segments are dropped repeatedly", || (too_big() > before + 3).then_some(()));
            assert_eq!(arrived.load(Ordering::Relaxed), 0, "it hangs");
            assert_eq!(switch.counter("big", "/path_mtu_messages"), told);
            until("both MTUs are told", || {
                switch
                    .noted("small has MTU 1500, big has 9000: raise small or lower big")
                    .then_some(())
            });
            switch.tell("port set big path-mtu=on");
            until("all has arrived", || (arrived.load(Ordering::Relaxed) == TOTAL).then_some(()));
            let messages = switch.counter("big", "/path_mtu_messages") - told;
            assert!(messages > 0);
            println!("    {address}: hung, then {TOTAL} bytes arrived after {messages} messages");
        }
        // Without the option: then the MTUs differ.
        switch.tell("port set big path-mtu=");
        a.run("ip route flush cache");
        let arrived = send(a, b, addresses(2)[0]);
        until("all has arrived by default", || {
            (arrived.load(Ordering::Relaxed) == TOTAL).then_some(())
        });
    });
}

#[test]
fn a_black_hole_behind_an_uplink_is_told_with_both_ports_and_both_mtus() {
    story(&[Need::Tap, Need::Program("ethtool")], || {
        let (a, rack, far) = (Host::new("a"), Host::new("rack"), Host::new("far"));
        rack.run("ip link add br0 mtu 9000 type bridge");
        rack.run("ip link set br0 up");
        run("ip link add uplink mtu 9000 type veth peer name up0 mtu 9000 netns rack");
        run("ip link set uplink up");
        // A bridge lets trains pass whatever its MTU.
        run("ethtool -K uplink tso off gso off");
        rack.run("ip link set up0 master br0 up");
        rack.run("ip link add down0 mtu 9000 type veth peer name eth0 mtu 9000 netns far");
        rack.run("ip link set down0 master br0 up");
        far.assign_addresses("eth0", 2);
        // Two workers, so that tap0 and the uplink have two queues each.
        let switch = Switch::start(
            "[switch]\nworkers = 2\n[[port]]\nname = 'big'\ntap = 'tap0'\nnetns = 'a'\nmtu = 9000\n\
             [[port]]\nname = 'uplink'\npacket = 'uplink'\n",
        );
        a.assign_addresses("tap0", 1);
        ["big", "uplink"].iter().for_each(|port| drop(switch.wait_for(port, "up")));
        let told = "big (MTU 9000) repeatedly retransmits large packets through uplink (MTU 9000)";
        let [v4, v6] = addresses(2);
        let healthy = send(a, far, v4);
        until("all has arrived", || (healthy.load(Ordering::Relaxed) == TOTAL).then_some(()));
        assert!(!switch.noted(told), "nothing is lost");
        rack.run("ip link set down0 mtu 1500");
        let arrived = send(a, far, v6);
        until("the black hole is told", || switch.noted(told).then_some(()));
        assert_eq!(arrived.load(Ordering::Relaxed), 0);
    });
}
