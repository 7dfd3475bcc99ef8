//! Queues: their workers and loads, and moves.

use super::Shared;
use super::reply::{Body, Name, Refusal, Reply, found};
use crate::actor;
use crate::running::queues;
use api::body::{QueueBody, QueueMove};
use axum::Json;
use axum::extract::State;
use problem::Problem;

/// All queues, each with its worker, its load and its entries of the indirection table.
#[utoipa::path(get, path = "/v1/queues", operation_id = "list_queues", tag = "queues", responses(
    (status = 200, body = Vec<QueueBody>, description = "All queues, by port"),
))]
pub(super) async fn list(State(shared): State<Shared>) -> Reply<Vec<QueueBody>> {
    Ok(Json(shared.run(|running| queues::bodies(&running.report())).await?))
}

/// One queue.
#[utoipa::path(get, path = "/v1/ports/{name}/queues/{queue}", operation_id = "show_queue", tag = "queues",
    params(
        ("name" = String, Path, description = "Name of the port"),
        ("queue" = usize, Path, description = "Number of the queue"),
    ),
    responses(
        (status = 200, body = QueueBody, description = "The queue"),
        (status = 400, body = Problem, description = "The path is not UTF-8"),
        (status = 404, body = Problem, description = "There is no such port or queue, or the port is not open"),
))]
pub(super) async fn show(
    State(shared): State<Shared>,
    Name((name, queue)): Name<(String, String)>,
) -> Reply<QueueBody> {
    found(&shared, move |running| queues::body(&running.report(), &name, &queue)).await
}

/// Moves a queue to another worker, which serves it when this returns. No frame is lost, and every
/// flow stays in order. The move lasts until the port is reopened.
#[utoipa::path(put, path = "/v1/ports/{name}/queues/{queue}", operation_id = "move_queue", tag = "queues",
    params(
        ("name" = String, Path, description = "Name of the port"),
        ("queue" = usize, Path, description = "Number of the queue"),
    ),
    request_body = QueueMove,
    responses(
        (status = 200, body = QueueBody, description = "The worker has the queue"),
        (status = 400, body = Problem, description = "The body is not JSON"),
        (status = 404, body = Problem, description = "There is no such port or queue, or the port is not open"),
        (status = 413, body = Problem, description = "The body is longer than 2 MiB"),
        (status = 422, body = Problem, description = "There is no such worker, or a key or value is refused"),
))]
pub(super) async fn set(
    State(shared): State<Shared>,
    Name((name, queue)): Name<(String, String)>,
    Body(QueueMove { worker }): Body<QueueMove>,
) -> Reply<QueueBody> {
    let done = shared.run(move |running| {
        queues::body(&running.report(), &name, &queue).map_err(Refusal::not_found)?;
        running.move_queue(&name, &queue, worker).map_err(Refusal::refused)?;
        actor::log(&format!("queue {queue} of port {name} is moved"), &QueueMove { worker });
        queues::body(&running.report(), &name, &queue).map(Json).map_err(Refusal::not_found)
    });
    done.await?
}
