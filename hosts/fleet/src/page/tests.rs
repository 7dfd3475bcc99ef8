//! What is served, to whom, and how often etcd is asked for it. A story looks at the page in a
//! browser.

use super::*;
use crate::etcd::{Identity, fake};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns a reader of an etcd without keys, and a counter of its requests.
fn empty() -> (Reader, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let asked = Arc::clone(&count);
    let member = fake::member(move |_| {
        asked.fetch_add(1, Ordering::Relaxed);
        (200, r#"{"header": {"cluster_id": "1", "revision": "5"}}"#.to_owned())
    });
    (reader(&member), count)
}

fn reader(member: &str) -> Reader {
    let access = Access::new(&[member.parse().unwrap()], &Identity::default(), false).unwrap();
    Reader::new(Store::new(Etcd::new(Arc::new(access)).unwrap()))
}

fn serve_at_a_free_address(reader: Reader) -> SocketAddr {
    let listener = site::bind("127.0.0.1:0".parse().unwrap(), WORDS).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || site::serve(listener, router(reader)));
    address
}

/// Status, head and body of the answer.
fn ask(address: SocketAddr, request: &str, headers: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{request} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_owned(), body.to_owned())
}

const OWN: &str = "Host: localhost\r\n";

#[test]
fn however_many_look_etcd_is_read_once_a_second() {
    let (reader, count) = empty();
    let (reader, start) = (&reader, Instant::now());
    let look = |after| reader.state(start + after).unwrap();
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..20).map(|_| scope.spawn(|| look(Duration::ZERO))).collect();
        all.into_iter().for_each(|it| assert!(it.join().unwrap().starts_with(b"{\"status\"")));
    });
    assert_eq!(count.load(Ordering::Relaxed), 4, "the desired state, the driver, hosts, history");
    look(FRESH - Duration::from_millis(1));
    assert_eq!(count.load(Ordering::Relaxed), 4);
    look(FRESH);
    assert_eq!(count.load(Ordering::Relaxed), 7, "the history is known");
}

#[test]
fn the_page_is_served_with_all_its_files_and_nothing_else_is() {
    let address = serve_at_a_free_address(empty().0);
    let get = |path: &str| ask(address, &format!("GET {path}"), OWN);
    let (status, head, body) = get("/");
    assert_eq!((status, body.as_str()), (200, include_str!("../../page/index.html")));
    for line in [
        "content-type: text/html; charset=utf-8",
        "x-content-type-options: nosniff",
        "script-src 'self';",
        "default-src 'none';",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(head.contains(line), "{line}\n{head}");
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let mut imported = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let (name, path) = (entry.as_ref().unwrap().file_name(), entry.unwrap().path());
        let (name, text) = (name.to_str().unwrap(), std::fs::read_to_string(path).unwrap());
        if name != "index.html" {
            assert_eq!(get(&format!("/{name}")).2, text, "{name}");
        }
        for (_, rest) in
            text.match_indices("from \"./").map(|(at, it)| text.split_at(at + it.len()))
        {
            let module = rest.split('"').next().unwrap();
            assert_eq!(get(&format!("/{module}")).0, 200, "{name} imports {module}");
            imported += 1;
        }
    }
    assert!(imported > 10);
    assert_eq!((get("/page.css").0, get("/icon.svg").0, get("/state").0), (200, 200, 200));
    for path in ["/metrics", "/v1/config", "/../Cargo.toml", "/ports.js", "/state/"] {
        assert_eq!(get(path).0, 404, "{path}");
    }
}

#[test]
fn a_request_for_another_host_or_from_another_origin_is_refused_and_nothing_changes() {
    let address = serve_at_a_free_address(empty().0);
    for headers in [
        "Host: evil.example\r\n",
        "Host: localhost\r\nOrigin: http://evil.example\r\n",
        "Host: localhost\r\nOrigin: null\r\n",
    ] {
        for path in ["/", "/state"] {
            let (status, head, _) = ask(address, &format!("GET {path}"), headers);
            assert_eq!(status, 403, "{headers}");
            assert!(!head.contains("access-control") && head.contains("nosniff"), "{head}");
        }
    }
    let own = "Host: localhost\r\nOrigin: http://localhost\r\n";
    assert_eq!(ask(address, "GET /state", own).0, 200);
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        assert_eq!(ask(address, &format!("{method} /state"), OWN).0, 405, "{method}");
    }
}

#[test]
fn an_etcd_that_does_not_answer_is_told() {
    let address = serve_at_a_free_address(reader("http://127.0.0.1:1"));
    let (status, _, body) = ask(address, "GET /state", OWN);
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status, 503);
    assert!(body["error"].as_str().unwrap().contains("etcd"), "{body}");
}

#[test]
fn only_loopback_is_served() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:9480"] {
        let problem = check_loopback(address.parse().unwrap()).unwrap_err();
        assert!(problem.remedy.contains("ssh -L"), "{problem}");
    }
    for address in ["127.0.0.1:9480", "127.1.2.3:1", "[::1]:9480"] {
        assert_eq!(check_loopback(address.parse().unwrap()), Ok(()));
    }
}

#[test]
fn no_file_of_the_page_makes_markup_of_text_or_asks_the_network() {
    inert_page::check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("page"));
}
