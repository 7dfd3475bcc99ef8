//! The two text formats, and which one a client gets.
//!
//! Metrics are written as OpenMetrics 1.0. The older format, Prometheus' text format 0.0.4, is made
//! from that: every collector reads it, so a client that asks for nothing gets it.

use axum::body::Bytes;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use std::fmt::Write;

/// Media type of Prometheus' text format.
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Media type of OpenMetrics.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Headers of a response.
type Names = [(HeaderName, HeaderValue); 2];

/// Metrics in both formats.
#[derive(Clone, Debug)]
pub struct Exposition {
    open: Bytes,
    text: Bytes,
}

impl Exposition {
    /// Makes both formats of metrics in OpenMetrics format.
    pub(super) fn of(open: String) -> Exposition {
        Exposition { text: text(&open).into(), open: open.into() }
    }

    /// Returns the response in the format that the request's `Accept` prefers.
    pub fn response(&self, headers: &HeaderMap) -> Response {
        self.response_with(headers, |text| text(self).clone())
    }

    /// Returns the response with the body that `body` makes of the preferred format.
    pub(super) fn response_with<B>(
        &self,
        headers: &HeaderMap,
        body: impl FnOnce(fn(&Exposition) -> &Bytes) -> B,
    ) -> Response
    where
        (Names, B): IntoResponse,
    {
        let (kind, text): (_, fn(&Exposition) -> &Bytes) = match prefers_open(headers) {
            true => (OPEN_METRICS, Exposition::open),
            false => (TEXT, Exposition::text),
        };
        let names = [(CONTENT_TYPE, HeaderValue::from_static(kind)), (VARY, ACCEPT.into())];
        (names, body(text)).into_response()
    }

    fn open(&self) -> &Bytes {
        &self.open
    }

    pub(super) fn text(&self) -> &Bytes {
        &self.text
    }
}

/// Translates OpenMetrics to the text format: a family has its samples' name there, there are no
/// types of information and no unit, and the end is not marked.
fn text(open: &str) -> String {
    let mut text = String::with_capacity(open.len() + open.len() / 64);
    let mut lines = open.lines().peekable();
    while let Some(line) = lines.next() {
        // Help comes first, and the type, in the line after, decides about its name.
        let kind_of = |line: &str| {
            let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
            Some((name.to_owned(), kind.to_owned()))
        };
        let told = |line: &str| {
            let (name, help) = line.strip_prefix("# HELP ")?.split_once(' ')?;
            Some((name.to_owned(), help.to_owned()))
        };
        if let Some((name, help)) = told(line) {
            let kind = lines.peek().and_then(|next| kind_of(next)).map(|(_, kind)| kind);
            let (suffix, _) = in_text(kind.as_deref().unwrap_or_default());
            let _ = writeln!(text, "# HELP {name}{suffix} {help}");
        } else if let Some((name, kind)) = kind_of(line) {
            let (suffix, kind) = in_text(&kind);
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Returns what a family of this type has in the text format: the suffix of its name, and its type.
fn in_text(kind: &str) -> (&'static str, &str) {
    match kind {
        "counter" => ("_total", "counter"),
        "info" => ("_info", "gauge"),
        "unknown" => ("", "untyped"),
        kind => ("", kind),
    }
}

/// Whether the client prefers OpenMetrics (RFC 9110, section 12.5.1): it must give it more weight
/// than the text format, or as much by name where the text format is only among others.
fn prefers_open(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<Range<'_>> =
        accepted.flat_map(|value| value.split(',')).filter_map(Range::of).collect();
    let weight = |kind, version| {
        let fits = ranges.iter().filter_map(|range| range.fits(kind, version));
        // The most specific range decides.
        fits.max_by_key(|(specific, weight)| (*specific, *weight))
    };
    let open = weight(["application", "openmetrics-text"], "1.0.0");
    let text = weight(["text", "plain"], "0.0.4");
    let rank = |fit: Option<(u8, u16)>| fit.map(|(specific, weight)| (weight, specific));
    open.is_some_and(|(_, weight)| weight > 0) && rank(open) > rank(text)
}

/// One media range of `Accept`.
struct Range<'a> {
    kind: [&'a str; 2],
    version: Option<&'a str>,
    /// Thousandths.
    weight: u16,
}

impl<'a> Range<'a> {
    fn of(text: &'a str) -> Option<Range<'a>> {
        let mut parts = text.split(';').map(str::trim);
        let (kind, subtype) = parts.next()?.split_once('/')?;
        let mut range = Range { kind: [kind.trim(), subtype.trim()], version: None, weight: 1000 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim() {
                name if name.eq_ignore_ascii_case("version") => range.version = Some(value),
                name if name.eq_ignore_ascii_case("q") => range.weight = thousandths(value),
                // Others, such as `charset` and `escaping`, are met by both formats.
                _ => {}
            }
        }
        Some(range)
    }

    /// Returns how specific the range is, and its weight, if the format is in it.
    fn fits(&self, [kind, subtype]: [&str; 2], version: &str) -> Option<(u8, u16)> {
        let [asked_kind, asked_subtype] = self.kind;
        let is_kind = asked_kind.eq_ignore_ascii_case(kind);
        let is_both = is_kind && asked_subtype.eq_ignore_ascii_case(subtype);
        let specific = match self.version {
            _ if self.kind == ["*", "*"] => 0,
            _ if is_kind && asked_subtype == "*" => 1,
            None if is_both => 2,
            Some(asked) if is_both && asked == version => 3,
            _ => return None,
        };
        Some((specific, self.weight))
    }
}

/// Returns a weight such as `0.5` in thousandths; 0 if it is none.
fn thousandths(weight: &str) -> u16 {
    let (whole, part) = weight.split_once('.').unwrap_or((weight, ""));
    let is_number = part.len() <= 3 && part.bytes().all(|digit| digit.is_ascii_digit());
    let part = format!("{part:0<3}").parse::<u16>().ok().filter(|_| is_number);
    match (whole, part) {
        ("0", Some(part)) => part,
        ("1", Some(0)) => 1000,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn open_for(accept: &[&str]) -> bool {
        let values = accept.iter().map(|value| (ACCEPT, HeaderValue::from_str(value).unwrap()));
        prefers_open(&values.collect())
    }

    #[test]
    fn each_client_gets_the_format_that_it_prefers() {
        for asks in [
            &[][..],
            &["*/*"],
            &["text/plain;version=0.0.4"],
            &["text/plain"],
            &["application/openmetrics-text;q=0, */*"],
            &["application/openmetrics-text; version=0.0.1"],
            &["application/openmetrics-text;q=0.5, text/plain;q=0.6"],
            &["application/openmetrics-text, text/plain"],
            &["application/json"],
            &["application/openmetrics-text;q=nonsense"],
            &["nonsense", ";;;", ""],
        ] {
            assert!(!open_for(asks), "{asks:?}");
        }
        for asks in [
            &["application/openmetrics-text"][..],
            &["application/openmetrics-text; version=1.0.0; charset=utf-8, */*"],
            &["Application/OpenMetrics-Text;Version=\"1.0.0\";Q=0.2, text/*;q=0.1"],
            &["text/plain;q=0", "application/openmetrics-text;q=0.001"],
            // Prometheus 2.49 and 3.
            &["application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
               version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"],
            &["application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;q=0.6,\
               application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
               text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,\
               */*;q=0.2"],
        ] {
            assert!(open_for(asks), "{asks:?}");
        }
    }

    #[test]
    fn a_family_has_the_name_of_its_samples_in_the_text_format() {
        let open = "# HELP a Frames\n# TYPE a counter\na_total{port=\"x\"} 1\n\
                    # HELP b What it is\n# TYPE b info\nb_info{version=\"1\"} 1\n\
                    # HELP c_seconds Wait\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\n\
                    c_seconds_sum 0.5\nc_seconds_count 1\nc_seconds_bucket{le=\"+Inf\"} 1\n# EOF\n";
        let wanted = "# HELP a_total Frames\n# TYPE a_total counter\na_total{port=\"x\"} 1\n\
                      # HELP b_info What it is\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n\
                      # HELP c_seconds Wait\n# TYPE c_seconds histogram\n\
                      c_seconds_sum 0.5\nc_seconds_count 1\nc_seconds_bucket{le=\"+Inf\"} 1\n";
        assert_eq!(text(open), wanted);
    }

    proptest! {
        /// Any header is read, and a client that refuses OpenMetrics never gets it.
        #[test]
        fn whatever_is_asked_is_answered(asks in "[ -~]{0,60}", weight in "0(\\.0{0,3})?") {
            let refused = format!("application/openmetrics-text;version=1.0.0;q={weight}");
            let _ = open_for(&[&asks]);
            prop_assert!(!open_for(&[&refused]));
        }
    }
}
