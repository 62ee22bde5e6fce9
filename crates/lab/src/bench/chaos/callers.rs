//! A partner that repeats job ids in new callbacks. For some of them, it hangs up before the answer.

use std::time::Duration;

use anyhow::Context;
use chrono::Utc;
use rand::RngExt;
use serde_json::{Value, json};
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

use super::crowd::ChaosCrowd;
use crate::testbed::partner;
use foundation::db::Pool;

const EVERY: Duration = Duration::from_millis(400);

/// Repeats job ids under new event ids until the run ends. `secret` signs them.
pub(super) async fn repeat_job_ids(crowd: ChaosCrowd, db: Pool, secret: String) -> anyhow::Result<()> {
    let signer = Webhook::new(&secret).ok().context("the partner's secret is invalid")?;
    let mut n = 0_u32;
    while !crowd.stop.is_cancelled() {
        crowd.sleep_unless_stopped(EVERY).await;
        // While Postgres is down there is nothing to repeat.
        let Ok(Some((order, attempt, booking, job_id))) = latest_booking(&db).await else { continue };
        n += 1;
        let event_id = format!("chaos-{}-repeat-{n}", crowd.seed);
        let body = json!({
            "event_id": event_id,
            "type": "job_id_assigned",
            "booking_id": booking,
            "reference": format!("{order}:{attempt}"),
            "job_id": job_id,
        });
        let timestamp = Utc::now().timestamp();
        let text = body.to_string();
        let signature = signer.sign(&event_id, timestamp, text.as_bytes()).unwrap_or_default();
        send_callback(&crowd, &event_id, timestamp, &signature, &body).await;
    }
    Ok(())
}

/// Sends a callback. Half of the callbacks hang up; the others record an answer with status 200.
async fn send_callback(crowd: &ChaosCrowd, event_id: &str, timestamp: i64, signature: &str, body: &Value) {
    let path = format!("/callbacks/{}", partner::NAME);
    let timestamp = timestamp.to_string();
    let headers = [
        (HEADER_WEBHOOK_ID, event_id),
        (HEADER_WEBHOOK_TIMESTAMP, timestamp.as_str()),
        (HEADER_WEBHOOK_SIGNATURE, signature),
    ];
    if rand::rng().random() {
        return crowd.hang_up("callback", &path, &headers, body).await;
    }
    let mut request = crowd.client.http_client().post(format!("{}/api/v1{path}", crowd.client.next_base()));
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let answer = request.header("content-type", "application/json").body(body.to_string()).send().await;
    let mut claims = crowd.ledger.lock_claims();
    let counts = claims.requests.entry("callback").or_default();
    match answer {
        Ok(answer) if answer.status().is_success() => {
            counts.done += 1;
            claims.called_back.push(event_id.to_owned());
        }
        Ok(answer) if answer.status().is_client_error() && answer.status().as_u16() != 429 => {
            counts.refused += 1;
            claims.wrong.push(format!("callback {event_id}: answered {}", answer.status()));
        }
        // A real partner would retry; this one continues with the next callback.
        _ => counts.unanswered += 1,
    }
}

/// Returns order, attempt, booking and job id of the latest booking with a job id.
async fn latest_booking(db: &Pool) -> Result<Option<(String, i32, String, String)>, sqlx::Error> {
    sqlx::query_as(
        "-- latest booking with a job id
         SELECT order_id, attempt_no, booking_id, job_id FROM bookings
         WHERE state = 'booked' AND booking_id IS NOT NULL AND job_id IS NOT NULL
         ORDER BY created_at DESC LIMIT 1",
    )
    .fetch_optional(db)
    .await
}
