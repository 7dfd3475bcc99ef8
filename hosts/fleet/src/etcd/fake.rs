//! A member of etcd for tests, which gives the answers that a test chooses.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as the member got it.
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) token: Option<String>,
    pub(crate) body: String,
}

/// A status of HTTP, and the body.
pub(crate) type Answer = (u16, String);

/// Starts a member. Returns its client URL.
pub(crate) fn member(answer: impl FnMut(Asked) -> Answer + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let answer = Arc::new(Mutex::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, answer) = (stream.unwrap(), Arc::clone(&answer));
            // Each client keeps its last connection open until it asks again.
            std::thread::spawn(move || {
                let asked = read(&mut stream);
                let (status, body) = (answer.lock().unwrap())(asked);
                let head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}", body.len());
                let _ = write!(stream, "{head}\r\n\r\n{body}");
                // The connection stays open until the client has read the answer.
                while stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {}
            });
        }
    });
    endpoint
}

fn read(stream: &mut TcpStream) -> Asked {
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes).unwrap();
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        if body.len() >= header("content-length: ").unwrap().parse().unwrap() {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            let token = header("authorization: ").map(str::to_owned);
            return Asked { path, token, body: body.to_owned() };
        }
    }
}
