//! A DHCP server for stories: one address, as much of RFC 2131 as a client needs to get it.

use crate::host::Host;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;

const DISCOVER: u8 = 1;
const OFFER: u8 = 2;
const REQUEST: u8 = 3;
const ACK: u8 = 5;

const COOKIE: [u8; 4] = [99, 130, 83, 99];
const OPTIONS: usize = 240;

/// Starts a server on a host that leases `lease` with a prefix of 24 bits and itself as router. It
/// ends with the story.
pub(crate) fn start(host: Host, own: Ipv4Addr, lease: Ipv4Addr) {
    host.run("ip route add 255.255.255.255 dev eth0");
    let socket = host.within(|| UdpSocket::bind("0.0.0.0:67").unwrap());
    socket.set_broadcast(true).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((length, _)) = socket.recv_from(&mut buffer) {
            let asked = &buffer[..length];
            let Some(kind) = option(asked, 53).and_then(|value| value.first().copied()) else {
                continue;
            };
            if let Some(answer) =
                [(DISCOVER, OFFER), (REQUEST, ACK)].iter().find(|(is, _)| *is == kind)
            {
                let _ = socket.send_to(&reply(asked, answer.1, own, lease), "255.255.255.255:68");
            }
        }
    });
}

/// Returns the value of an option of a message.
fn option(message: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = message.get(OPTIONS..)?;
    while let [kind, length, after @ ..] = rest {
        if *kind == wanted {
            return after.get(..usize::from(*length));
        }
        rest = after.get(usize::from(*length)..)?;
    }
    None
}

fn reply(asked: &[u8], kind: u8, own: Ipv4Addr, lease: Ipv4Addr) -> Vec<u8> {
    let mut message = vec![0; OPTIONS];
    // Hardware type and length, transaction, flags, and the client's hardware address.
    message[..12].copy_from_slice(&asked[..12]);
    message[28..44].copy_from_slice(&asked[28..44]);
    message[0] = 2;
    message[16..20].copy_from_slice(&lease.octets());
    message[236..].copy_from_slice(&COOKIE);
    let mut put = |kind: u8, value: &[u8]| {
        message.extend([kind, u8::try_from(value.len()).unwrap()]);
        message.extend(value);
    };
    put(53, &[kind]);
    put(54, &own.octets());
    put(51, &3600u32.to_be_bytes());
    put(1, &[255, 255, 255, 0]);
    put(3, &own.octets());
    message.push(255);
    message
}
