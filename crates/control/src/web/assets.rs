//! The files of the page, in the binary.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// A file of `crates/control/page`, by the path that serves it.
macro_rules! asset {
    ($path:literal, $kind:expr) => {
        (concat!("/", $path), $kind, include_str!(concat!("../../page/", $path)))
    };
}

/// Path, type and text.
const ASSETS: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("../../page/index.html")),
    asset!("icon.svg", "image/svg+xml"),
    asset!("page.css", STYLE),
    asset!("main.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("text.js", SCRIPT),
    asset!("history.js", SCRIPT),
    asset!("chart.js", SCRIPT),
    asset!("overview.js", SCRIPT),
    asset!("ports.js", SCRIPT),
    asset!("port.js", SCRIPT),
    asset!("rsc.js", SCRIPT),
    asset!("workers.js", SCRIPT),
    asset!("events.js", SCRIPT),
    asset!("findings.js", SCRIPT),
    asset!("uplot/uPlot.iife.min.js", SCRIPT),
    asset!("uplot/uPlot.min.css", STYLE),
    asset!("uplot/LICENSE", "text/plain; charset=utf-8"),
];

/// A route for each. A new version of the daemon has other files, so none is kept without asking.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.iter().fold(Router::new(), |router, (path, kind, text)| {
        let answer = ([(CONTENT_TYPE, *kind), (CACHE_CONTROL, "no-cache")], *text);
        router.route(path, get(async move || answer))
    })
}
