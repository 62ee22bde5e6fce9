//! /healthz: the process lives. /readyz: it can do its work. /metrics: what it has done, and how the queues stand.

use axum::{Json, extract::State, http::StatusCode};
use metrics::gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::{Value, json};

use crate::{app::App, worker::gate};

pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

pub(super) async fn readyz(State(app): State<App>) -> (StatusCode, Json<Value>) {
    let (postgres, redis) = tokio::join!(gate::is_ready(&app.db), app.store.ping());
    let ready = postgres && redis.is_ok();
    let word = |ok: bool| if ok { "ok" } else { "unreachable" };
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": ready, "postgres": word(postgres), "redis": word(redis.is_ok()) })))
}

pub(super) async fn metrics(State(app): State<App>, handle: PrometheusHandle) -> String {
    // Queue gauges are read at each scrape; while Redis is away the last values would lie, so they are left as they are
    // and readiness tells.
    if let Ok(stats) = app.store.stats(&jobs::queues::ALL).await {
        for s in stats {
            let queue = [("queue", s.queue)];
            let set = |name: &'static str, value: u64| {
                gauge!(name, &queue).set(u32::try_from(value).map_or(f64::MAX, f64::from));
            };
            set("dispatchq_queue_depth", s.due + s.scheduled);
            set("dispatchq_queue_due", s.due);
            set("dispatchq_queue_leased", s.leased);
            set("dispatchq_queue_dead", s.dead);
            set("dispatchq_due_next_minute", s.next_minute);
            gauge!("dispatchq_queue_oldest_due_seconds", &queue)
                .set(std::time::Duration::from_millis(s.oldest_due_ms.unwrap_or(0)).as_secs_f64());
        }
    }
    if let Ok(seconds) = outbox_oldest_seconds(&app).await {
        gauge!("dispatchq_outbox_oldest_seconds").set(seconds);
    }
    handle.render()
}

async fn outbox_oldest_seconds(app: &App) -> Result<f64, sqlx::Error> {
    sqlx::query_scalar(
        "-- oldest undelivered message
         SELECT coalesce(extract(epoch FROM dispatchq_now() - min(created_at)), 0)::float8
         FROM outbox WHERE state = 'pending'",
    )
    .fetch_one(&app.db)
    .await
}
