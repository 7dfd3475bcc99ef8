//! The rules of a port, with the frames that each matched. A rule is named by its place in the list,
//! so the list has a tag, which says that it still is the list that the client has read.

use super::etag::Tagged;
use super::reply::{Body, Name, Refusal};
use super::{Shared, etag};
use crate::running::{Running, acl};
use api::body::{AclAdd, AclBody};
use axum::extract::State;
use axum::http::HeaderMap;
use problem::Problem;
use std::time::Instant;

/// Returns the rules of a port, with the tag of the rules without their counters.
fn tagged(running: &Running, name: &str) -> Tagged<AclBody> {
    let body = acl::body(&running.report(), name).map_err(Refusal::not_found)?;
    etag::tagged(tag(&body), body)
}

fn tag(AclBody { rules, .. }: &AclBody) -> String {
    etag::of(&rules.iter().map(|rule| &rule.rule).collect::<Vec<_>>())
}

/// Refuses a request whose tag is not that of the port's rules.
fn check(headers: &HeaderMap, running: &Running, name: &str) -> Result<(), Refusal> {
    let body = acl::body(&running.report(), name).map_err(Refusal::not_found)?;
    etag::check(headers, &format!("the rules of port {name}"), &tag(&body))
}

/// The rules of a port in order, with counters. `ETag` is the tag of the rules, for `If-Match`.
#[utoipa::path(get, path = "/v1/ports/{name}/acl", operation_id = "show_acl", tag = "acl",
    params(("name" = String, Path, description = "Name of the port")),
    responses(
        (status = 200, body = AclBody, description = "The rules", headers(("ETag" = String, description = "The tag of the rules"))),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port"),
))]
pub(super) async fn show(State(shared): State<Shared>, Name(name): Name) -> Tagged<AclBody> {
    shared.run(move |running| tagged(running, &name)).await?
}

/// Adds a rule, at the end or at a given number. The rule is in force when this returns; other
/// ports are not touched.
#[utoipa::path(post, path = "/v1/ports/{name}/acl", operation_id = "add_acl_rule", tag = "acl",
    params(("name" = String, Path, description = "Name of the port"), ("If-Match" = Option<String>, Header, description = "Only if the port's rules have one of these tags")),
    request_body = AclAdd,
    responses(
        (status = 200, body = AclBody, description = "The rules, with the new one", headers(("ETag" = String, description = "The tag of the rules"))),
        (status = 400, body = Problem, description = "The body is not JSON, or a key or value is not allowed"),
        (status = 404, body = Problem, description = "There is no such port"),
        (status = 412, body = Problem, description = "The port's rules do not match `If-Match`; nothing was changed"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "The rule exists already, or there are too many"),
))]
pub(super) async fn add(
    State(shared): State<Shared>,
    Name(name): Name,
    headers: HeaderMap,
    Body(add): Body<AclAdd>,
) -> Tagged<AclBody> {
    let done = shared.change(move |running| {
        check(&headers, running, &name)?;
        let added =
            running.change(Instant::now(), |ports, wanted| acl::add(ports, wanted, &name, add));
        added.map_err(Refusal::refused)?;
        tagged(running, &name)
    });
    done.await?
}

/// Removes the rule with this number; later rules move up by one.
#[utoipa::path(delete, path = "/v1/ports/{name}/acl/{number}", operation_id = "remove_acl_rule", tag = "acl",
    params(
        ("name" = String, Path, description = "Name of the port"),
        ("number" = usize, Path, minimum = 1, description = "Number of the rule"),
        ("If-Match" = Option<String>, Header, description = "Only if the port's rules have one of these tags"),
    ),
    responses(
        (status = 200, body = AclBody, description = "The remaining rules", headers(("ETag" = String, description = "The tag of the rules"))),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port or rule"),
        (status = 412, body = Problem, description = "The port's rules do not match `If-Match`; nothing was changed"),
))]
pub(super) async fn remove(
    State(shared): State<Shared>,
    Name((name, number)): Name<(String, String)>,
    headers: HeaderMap,
) -> Tagged<AclBody> {
    let done = shared.change(move |running| {
        check(&headers, running, &name)?;
        let remove = |ports: &_, wanted: &mut _| acl::remove(ports, wanted, &name, &number);
        running.change(Instant::now(), remove).map_err(Refusal::not_found)?;
        tagged(running, &name)
    });
    done.await?
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::body::AclRuleBody;

    #[test]
    fn a_tag_stands_for_rules_and_their_order_and_not_for_counters() {
        let tag = |rules: &[(&str, u64)]| {
            let rules = rules.iter().enumerate().map(|(place, (rule, hits))| AclRuleBody {
                number: place + 1,
                rule: rule.parse().unwrap(),
                hits: *hits,
            });
            tag(&AclBody { port: "a".to_owned(), rules: rules.collect() })
        };
        let (arp, udp) = ("deny in arp", "deny in udp");
        assert_eq!(tag(&[(arp, 0), (udp, 0)]), tag(&[(arp, 7), (udp, 9)]));
        assert_ne!(tag(&[(arp, 0), (udp, 0)]), tag(&[(udp, 0), (arp, 0)]));
        assert_ne!(tag(&[(arp, 0)]), tag(&[]));
    }
}
