//! Adds to the document the refusals that any operation can return, and their form, which is that
//! of RFC 9457.

use utoipa::PartialSchema;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder, Schema};

/// Media type of a problem.
pub(super) const PROBLEM_JSON: &str = "application/problem+json";

/// Completes a document.
pub(super) fn describe(document: &mut OpenApi) {
    for item in document.paths.paths.values_mut() {
        let PathItem { get, put, post, delete, patch, .. } = item;
        for (operation, changes) in
            [(get, false), (put, true), (post, true), (delete, true), (patch, true)]
        {
            if let Some(operation) = operation {
                complete(operation, changes);
            }
        }
    }
    let schemas = document.components.as_mut().map(|components| &mut components.schemas);
    if let Some(RefOr::T(Schema::Object(problem))) =
        schemas.and_then(|schemas| schemas.get_mut("Problem"))
    {
        let members = ["type", "title", "detail"].map(|name| (name, String::schema()));
        for (name, schema) in members.into_iter().chain([("status", u16::schema())]) {
            problem.properties.insert(name.to_owned(), schema);
        }
    }
}

fn complete(operation: &mut Operation, changes: bool) {
    let responses = &mut operation.responses.responses;
    responses.insert("403".into(), RefOr::T(refusal("The client may not do this")));
    if changes {
        let told = "A worker does not answer, so nothing can be changed";
        responses.insert("503".into(), RefOr::T(refusal(told)));
        let told =
            "The change was made, but would not survive a restart: the state cannot be written";
        responses.insert("507".into(), RefOr::T(refusal(told)));
    }
    for (status, response) in responses {
        if let RefOr::T(response) = response
            && status.starts_with(['4', '5'])
            && let Some(content) = response.content.swap_remove("application/json")
        {
            response.content.insert(PROBLEM_JSON.into(), content);
        }
    }
}

fn refusal(description: &str) -> Response {
    let problem = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    ResponseBuilder::new().description(description).content("application/json", problem).build()
}
