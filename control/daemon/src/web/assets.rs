//! The files of the page, in the binary.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;

pub(crate) const SCRIPT: &str = "text/javascript; charset=utf-8";
pub(crate) const STYLE: &str = "text/css; charset=utf-8";

/// Names a file of `control/daemon/page`, by the path that serves it.
macro_rules! asset {
    ($path:literal, $kind:expr) => {
        (concat!("/", $path), $kind, include_str!(concat!("../../page/", $path)))
    };
}

/// Path, media type and text of each file.
const ASSETS: &[(&str, &str, &str)] = &[
    ("/", "text/html; charset=utf-8", include_str!("../../page/index.html")),
    asset!("icon.svg", "image/svg+xml"),
    asset!("page.css", STYLE),
    asset!("switch.css", STYLE),
    asset!("main.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("text.js", SCRIPT),
    asset!("list.js", SCRIPT),
    asset!("history.js", SCRIPT),
    asset!("chart.js", SCRIPT),
    asset!("overview.js", SCRIPT),
    asset!("past.js", SCRIPT),
    asset!("ranges.js", SCRIPT),
    asset!("spark.js", SCRIPT),
    asset!("tiles.js", SCRIPT),
    asset!("topology.js", SCRIPT),
    asset!("ports.js", SCRIPT),
    asset!("port.js", SCRIPT),
    asset!("action-form.js", SCRIPT),
    asset!("actions.js", SCRIPT),
    asset!("changes.js", SCRIPT),
    asset!("strip.js", SCRIPT),
    asset!("trace.js", SCRIPT),
    asset!("workers.js", SCRIPT),
    asset!("events.js", SCRIPT),
    asset!("findings.js", SCRIPT),
    asset!("flows.js", SCRIPT),
    asset!("uplot/uPlot.iife.min.js", SCRIPT),
    asset!("uplot/uPlot.min.css", STYLE),
    asset!("uplot/LICENSE", "text/plain; charset=utf-8"),
];

/// Files that the fleet's page has too.
const SHARED: [&str; 6] =
    ["/icon.svg", "/page.css", "/dom.js", "/text.js", "/list.js", "/findings.js"];

/// Returns a route for each of the shared files.
pub(crate) fn shared() -> Router {
    let shared = ASSETS.iter().filter(|(path, _, _)| SHARED.contains(path));
    shared.fold(Router::new(), |router, (path, kind, text)| file(router, path, kind, text))
}

/// Returns a route for each file. A new version of the daemon has other files, so browsers must ask
/// each time.
pub(super) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.iter().fold(Router::new(), |router, (path, kind, text)| file(router, path, kind, text))
}

/// Adds a route for a file.
pub(crate) fn file<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    path: &str,
    kind: &'static str,
    text: &'static str,
) -> Router<S> {
    let answer = ([(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-cache")], text);
    router.route(path, get(async move || answer))
}
