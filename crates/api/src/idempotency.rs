//! A repeated request has the effect and the answer of the first.
//!
//! The key is claimed in Postgres before the work and keeps the answer after it, for 24 h, by caller. If the process
//! dies in between, the claim lapses after a minute and a repeated request does the work again, under the same work id,
//! so that this changes nothing (the order's id follows from the work id). Only successes are kept: a refused request may
//! be corrected and sent again under a new key, or under the same if nothing else changed.

use std::time::Duration;

use axum::{
    Json,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::Row;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{auth::ApiCaller, error::ApiError};
use dispatch::{
    db::Pool,
    idempotency_rows::{IdempotencyStore, KeptAnswer, NewClaim},
};

const HEADER: &str = "idempotency-key";
const MAX_KEY_BYTES: usize = 255;

/// The header, for the description of operations.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the header; `idempotency_key` reads it")]
pub(super) struct IdempotencyHeader {
    /// the same request again has the effect and the answer of the first, for 24 hours
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    idempotency_key: Option<String>,
}

/// An answer that can be stored: status and JSON body.
pub type Answer = (StatusCode, Value);

/// The request's key, if it brings one.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(HEADER) else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    if key.is_empty() || key.len() > MAX_KEY_BYTES || key.chars().any(char::is_control) {
        let rule = format!("Idempotency-Key must have 1 to {MAX_KEY_BYTES} printable ASCII characters");
        return Err(ApiError::invalid_header("Idempotency-Key", rule));
    }
    Ok(Some(key.to_owned()))
}

/// What the work is to know of its request.
#[derive(Debug, Clone, Copy)]
pub struct WorkContext {
    /// The same again when a request is repeated whose process died; otherwise new.
    pub id: Uuid,
    /// The same request came before and its process died: the work may have been done.
    pub resumed: bool,
}

enum ClaimOutcome {
    Mine(KeyClaim, WorkContext),
    Answered(Answer),
}

/// A key claimed for one run of its work. A later run that took over a lapsed claim has another time.
#[derive(Debug, Clone)]
struct KeyClaim {
    rows: IdempotencyStore,
    api_key: Uuid,
    key: String,
    at: DateTime<Utc>,
}

/// Does `work` unless this caller had it done before under the same key.
///
/// `request` is what makes two requests the same: what is asked, of what, with which body.
pub async fn run_once(
    db: &Pool,
    caller: &ApiCaller,
    key: Option<&str>,
    request: &[&[u8]],
    work: impl AsyncFnOnce(WorkContext) -> Result<Answer, ApiError>,
) -> Result<Response, ApiError> {
    run_once_with_others(&IdempotencyStore::new(db), caller, key, request, work).await
}

/// As [`run_once`], for requests that come in great numbers: keys are claimed, and answers kept, many in one statement.
pub async fn run_once_with_others(
    rows: &IdempotencyStore,
    caller: &ApiCaller,
    key: Option<&str>,
    request: &[&[u8]],
    work: impl AsyncFnOnce(WorkContext) -> Result<Answer, ApiError>,
) -> Result<Response, ApiError> {
    let Some(key) = key else {
        let (status, body) = work(WorkContext { id: Uuid::now_v7(), resumed: false }).await?;
        return Ok((status, Json(body)).into_response());
    };
    let (claim, claimed) = match claim_key(rows, caller, key, request).await? {
        ClaimOutcome::Mine(claim, work) => (claim, work),
        ClaimOutcome::Answered((status, body)) => {
            return Ok((status, [("idempotency-replayed", "true")], Json(body)).into_response());
        }
    };
    let guard = ClaimGuard(Some(claim.clone()));
    let worked = work(claimed).await;
    guard.disarm();
    match worked {
        Ok((status, body)) => {
            if let Err(error) = claim.store_answer(status, &body).await {
                tracing::warn!(%error, "An answer could not be kept; asked again, the work is done again and changes nothing.");
                claim.release_soon().await;
            }
            Ok((status, Json(body)).into_response())
        }
        Err(error) if error.is_final() => {
            claim.delete_claim().await?;
            Err(error)
        }
        Err(error) => {
            // How far the work came is unknown: the next request goes on with it, under the same work id.
            claim.release_soon().await;
            Err(error)
        }
    }
}

/// A claim whose work is being done. Dropped in the middle of it (the work panicked, or was given up) it releases the key, so
/// that the next request goes on at once.
struct ClaimGuard(Option<KeyClaim>);

impl ClaimGuard {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        if let Some(claim) = self.0.take() {
            tokio::spawn(claim.release_until_done());
        }
    }
}

/// Claims the key for this request, or returns the answer given before.
async fn claim_key(
    rows: &IdempotencyStore,
    caller: &ApiCaller,
    key: &str,
    request: &[&[u8]],
) -> Result<ClaimOutcome, ApiError> {
    let hash = hash_request(request);
    let work_id = Uuid::now_v7();
    let new = NewClaim { api_key: caller.0.id, key: key.to_owned(), request_hash: hash.clone(), work_id };
    if let Some(claimed) = rows.claim_key(new).await? {
        let claim = KeyClaim { rows: rows.clone(), api_key: caller.0.id, key: key.to_owned(), at: claimed.at };
        let resumed = claimed.work_id != work_id;
        return Ok(ClaimOutcome::Mine(claim, WorkContext { id: claimed.work_id, resumed }));
    }
    let earlier = sqlx::query(
        "-- earlier answer
         SELECT request_hash, status, body FROM idempotency_keys WHERE api_key_id = $1 AND key = $2",
    )
    .bind(caller.0.id)
    .bind(key)
    .fetch_optional(&rows.db)
    .await?
    .ok_or(ApiError::IdempotencyRunning)?;
    if earlier.try_get::<Vec<u8>, _>("request_hash")? != hash {
        return Err(ApiError::IdempotencyMismatch);
    }
    let status: Option<i16> = earlier.try_get("status")?;
    let status = status.ok_or(ApiError::IdempotencyRunning)?;
    let body: Option<Value> = earlier.try_get("body")?;
    let status = u16::try_from(status).ok().and_then(|s| StatusCode::from_u16(s).ok()).unwrap_or(StatusCode::OK);
    Ok(ClaimOutcome::Answered((status, body.unwrap_or_default())))
}

impl KeyClaim {
    async fn store_answer(&self, status: StatusCode, body: &Value) -> Result<(), sqlx::Error> {
        let answer = KeptAnswer {
            api_key: self.api_key,
            key: self.key.clone(),
            claimed_at: self.at,
            status: status.as_u16().cast_signed(),
            body: body.clone(),
        };
        self.rows.keep_answer(answer).await
    }

    /// Lets the next request of this key resume the work at once, instead of after a minute.
    async fn release_claim(&self) -> Result<(), sqlx::Error> {
        sqlx::query(
            "-- release idempotency key
             UPDATE idempotency_keys SET created_at = dispatchq_now() - interval '61 seconds'
             WHERE api_key_id = $1 AND key = $2 AND created_at = $3 AND status IS NULL",
        )
        .bind(self.api_key)
        .bind(&self.key)
        .bind(self.at)
        .execute(&self.rows.db)
        .await?;
        Ok(())
    }

    /// Releases the key now, or in the background while Postgres is too busy for it.
    async fn release_soon(self) {
        if self.release_claim().await.is_err() {
            tokio::spawn(self.release_until_done());
        }
    }

    /// Releases the key as soon as Postgres takes it. A minute later there is nothing left to release.
    async fn release_until_done(self) {
        for _ in 0..60 {
            if self.release_claim().await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn delete_claim(&self) -> Result<(), sqlx::Error> {
        sqlx::query(
            "-- forget idempotency key
             DELETE FROM idempotency_keys
             WHERE api_key_id = $1 AND key = $2 AND created_at = $3 AND status IS NULL",
        )
        .bind(self.api_key)
        .bind(&self.key)
        .bind(self.at)
        .execute(&self.rows.db)
        .await?;
        Ok(())
    }
}

/// Each part with its length, so that no two requests run together into one.
fn hash_request(request: &[&[u8]]) -> Vec<u8> {
    let mut sha = Sha256::new();
    for part in request {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    sha.finalize().to_vec()
}
