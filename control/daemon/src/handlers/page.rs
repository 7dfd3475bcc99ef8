//! Keys of the page: issued to admins, and ended.

use super::Shared;
use super::reply::{Asked, Refusal, Reply};
use crate::actor;
use crate::page_keys::{Holder, LASTS};
use crate::peer::Peer;
use api::body::PageKeyBody;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use problem::Problem;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;
use utoipa::IntoParams;

/// For whom a key is.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct KeyQuery {
    /// The ID of the user who may use the key. Default: the client's own. Only root may name
    /// another.
    user: Option<u32>,
}

/// Issues a key with which the page may carry out its actions in this client's name, from a browser
/// of this user or of root on this host: settings and rules of ports, ports, queues, captures. A key
/// lasts 12 hours at most and ends with the daemon.
#[utoipa::path(post, path = "/v1/page/keys", operation_id = "issue_page_key", tag = "page", params(KeyQuery), responses(
    (status = 200, body = PageKeyBody, description = "The key"),
    (status = 400, body = Problem, description = "The query cannot be read"),
    (status = 422, body = Problem, description = "There is no page, or no randomness for a key"),
))]
pub(super) async fn issue(
    State(shared): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(query): Asked<KeyQuery>,
) -> Reply<PageKeyBody> {
    let holder = holder(&peer, query.user)?;
    let issued = shared.run(move |running| {
        running.config().web.listen.ok_or_else(no_page)?;
        let listen = running.page_keys.served_at.ok_or_else(not_served)?;
        let issued = running.page_keys.issue(holder, Instant::now());
        let key = issued.map_err(|error| Problem::new("no key can be made").seen(error))?;
        Ok::<_, Problem>((listen, key))
    });
    let (listen, key) = issued.await?.map_err(Refusal::refused)?;
    let address = format!("http://{}/", from_here(listen));
    Ok(Json(PageKeyBody { address, key: key.to_string(), lasts_s: LASTS.as_secs() }))
}

/// Ends all keys of the page.
#[utoipa::path(delete, path = "/v1/page/keys", operation_id = "end_page_keys", tag = "page", responses(
    (status = 204, description = "No key is left"),
))]
pub(super) async fn end(State(shared): State<Shared>) -> Result<StatusCode, Refusal> {
    let ended = shared.run(|running| running.page_keys.end()).await?;
    actor::log("keys of the page are ended", &ended);
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the holder of a key that this client asks for.
///
/// # Errors
/// The client asks for a key of another user, and is not root.
fn holder(peer: &Peer, user: Option<u32>) -> Result<Holder, Refusal> {
    let (user, admin) = (user.unwrap_or(peer.uid), peer.uid);
    if user != admin && admin != 0 {
        return Err(Refusal::forbidden(others(user, admin)));
    }
    let by = actor::current();
    let client = if user == admin { by } else { format!("user {user}, issued by {by}") };
    Ok(Holder { user, admin, client })
}

fn others(user: u32, admin: u32) -> Problem {
    Problem::new("a key cannot be issued to another user")
        .seen(format!("user {admin} asks for a key of user {user}"))
        .wanted("a key of one's own, or root")
        .remedy("run `millrace page` as the user who runs the browser, or as root with --user")
}

fn no_page() -> Problem {
    Problem::new("there is no page")
        .seen("no `listen` in [web]")
        .wanted("an address of this host, such as 127.0.0.1:9478")
        .remedy("write it into the configuration and start the daemon again")
}

/// The program that listens at the address meanwhile would get the key.
fn not_served() -> Problem {
    Problem::new("the page is not served")
        .seen("its address cannot be bound")
        .wanted("the address of `listen` in [web], free")
        .remedy("`millrace check` says what is wrong with it")
}

/// Returns the address by which a browser on this host reaches a listener: a key is taken only from
/// this host.
fn from_here(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Access;

    #[test]
    fn root_issues_keys_to_any_user_and_others_to_themselves() {
        let found = |uid, user| {
            let peer = Peer { uid, pid: 1, access: Access::Admin, admin_group: None };
            holder(&peer, user).ok().map(|holder| (holder.user, holder.admin))
        };
        assert_eq!(found(7, None), Some((7, 7)));
        assert_eq!(found(7, Some(7)), Some((7, 7)));
        assert_eq!(found(0, Some(7)), Some((7, 0)));
        assert_eq!(found(7, Some(8)), None);
        assert_eq!(found(7, Some(0)), None);
    }

    #[test]
    fn a_browser_on_this_host_opens_an_address_of_its_own() {
        for (listen, opened) in [
            ("127.0.0.1:9478", "127.0.0.1:9478"),
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("192.0.2.7:80", "192.0.2.7:80"),
        ] {
            assert_eq!(from_here(listen.parse().unwrap()).to_string(), opened);
        }
    }
}
