//! The version of a configuration that a client has seen: `ETag` in responses, `If-Match` in
//! requests (RFC 9110).
//!
//! A tag covers only settings. Counters, rates and states in the same body change without it.

use super::reply::Refusal;
use axum::Json;
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderName};
use problem::Problem;
use serde::Serialize;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A body with its tag, or a refusal.
pub(super) type Tagged<T> = Result<([(HeaderName, String); 1], Json<T>), Refusal>;

/// Returns the answer of a body with this tag.
pub(super) fn tagged<T>(tag: String, body: T) -> Tagged<T> {
    Ok(([(ETAG, tag)], Json(body)))
}

/// Returns the tag of these settings.
pub(super) fn of(settings: &impl Serialize) -> String {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(settings).unwrap_or_default().hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

/// Refuses with 412 if the client's tag does not match the current one. `what` names what the tag
/// covers, in the plural.
pub(super) fn check(headers: &HeaderMap, what: &str, in_force: &str) -> Result<(), Refusal> {
    let mut seen = headers.get_all(IF_MATCH).iter().peekable();
    if seen.peek().is_none() {
        return Ok(());
    }
    let seen: Vec<&str> =
        seen.flat_map(|tags| tags.to_str().unwrap_or("?").split(',')).map(str::trim).collect();
    if seen.iter().any(|tag| *tag == "*" || *tag == in_force) {
        return Ok(());
    }
    Err(Refusal::changed_meanwhile(
        Problem::new(format!("{what} were changed since they were read; nothing was done"))
            .seen(format!("If-Match: {}", seen.join(", ")))
            .wanted(format!("the tag that they have now, {in_force}"))
            .remedy("read them again, see whether the change is still meant, and repeat it"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_stands_for_settings_and_another_is_refused_with_both() {
        assert_eq!(of(&["a"]), of(&["a"]));
        assert_ne!(of(&["a"]), of(&["b"]));
        let tag = of(&["a"]);
        let checked = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_MATCH, value.parse().unwrap());
            }
            check(&headers, "the settings", &tag).is_ok()
        };
        assert!(checked(&[]) && checked(&["*"]) && checked(&[&tag]));
        assert!(checked(&[&format!("\"x\", {tag}")]) && checked(&["\"x\"", &tag]));
        // A weak tag never matches, and neither does one without quotes.
        for other in ["\"x\"", &format!("W/{tag}"), tag.trim_matches('"'), ""] {
            assert!(!checked(&[other]), "{other}");
        }
    }
}
