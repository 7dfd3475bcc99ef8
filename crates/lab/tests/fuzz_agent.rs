//! Fuzz target: whatever bytes a peer sends to an agent, they are requests for traffic and counters or are refused with a
//! reason; what is a request means the same when it is written and read again.
//!
//! `cargo test` runs it over random bytes for a moment, `fuzz/run` under libFuzzer for as long as it is told.

use lab::host::{LINE_MAX, Lines, Request};

/// Random bytes hardly ever are JSON: the first choice lets the short run reach behind the syntax, too.
#[test]
fn fuzz_agent() {
    bolero::check!().with_type::<(u8, u32, Vec<u8>)>().for_each(|(start, number, bytes)| {
        let before = match start % 6 {
            0 => format!("{{\"do\":\"read\",\"link\":\"{number}"),
            1 => format!("{{\"do\":\"answer\",\"port\":{number}}}\n"),
            2 => {
                let bulk = format!("{{\"connections\":{number},\"buffer_bytes\":1}}");
                format!("{{\"do\":\"send\",\"to\":\"10.0.0.1:5001\",\"bulk\":{bulk}}}\n")
            }
            3 => "{\"do\":\"run\",\"program\":\"sh\",\"arguments\":[]}\n".to_owned(),
            4 => " ".repeat(LINE_MAX - 1),
            _ => String::new(),
        };
        let all = [before.as_bytes(), bytes].concat();
        let mut lines = Lines::new(all.as_slice());
        loop {
            match lines.request() {
                Ok(Some(request)) => is_for_peers(&request),
                Ok(None) => break,
                Err(refusal) => {
                    assert!(!refusal.to_string().is_empty());
                    break;
                }
            }
        }
    });
}

fn is_for_peers(request: &Request) {
    let runs = matches!(
        request,
        Request::Run { .. }
            | Request::Start { .. }
            | Request::Become { .. }
            | Request::Hello { .. }
    );
    assert!(!runs, "{request:?}");
    let written = serde_json::to_string(request).unwrap_or_default();
    let again = Lines::new(format!("{written}\n").as_bytes()).request();
    assert!(again.is_ok_and(|again| again.as_ref() == Some(request)), "{request:?}: {written}");
}
