//! Members of etcd that are far away: each connection's request and answer take a random time.
//!
//! This widens every gap between what an agent has read and what it then writes, in which other
//! agents act.

use super::{NETWORK, members};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

const FIRST_PORT: usize = 7000;

/// Returns the client URLs of members that are far away.
pub(super) fn endpoints() -> String {
    [0, 1, 2].map(|number| format!("http://{}", listener(number))).join(",")
}

fn listener(number: usize) -> String {
    format!("{NETWORK}.1:{}", FIRST_PORT + number)
}

/// Passes connections on to the members, for as long as the process lives. Data takes `longest` at
/// most, and a quarter of that on average.
pub(super) fn start(longest: Duration) {
    for number in 0..members::COUNT {
        let listener = TcpListener::bind(listener(number)).unwrap();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || pass(near, number, longest));
            }
        });
    }
}

/// Passes one connection on. If the member cannot be reached, the connection is closed.
fn pass(near: TcpStream, number: usize, longest: Duration) -> Option<()> {
    let far = members::connect_to(number)?;
    let back = (far.try_clone().ok()?, near.try_clone().ok()?);
    std::thread::spawn(move || carry(back.0, back.1, longest));
    carry(near, far, longest);
    Some(())
}

/// Passes on what one end sends. The first data takes time. What follows belongs to it, or is an
/// event of a watch.
fn carry(mut from: TcpStream, mut to: TcpStream, longest: Duration) {
    let mut bytes = vec![0; 64 << 10];
    let mut wait = longest.mul_f64(fastrand::f64().powi(3));
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        std::thread::sleep(std::mem::take(&mut wait));
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
