//! A repeated request has the effect and the answer of the first.
//!
//! The key is claimed in Postgres before the work and keeps the answer after it, for 24 h, by the caller's name. If the process
//! dies in between, the claim lapses after a minute and a repeated request does the work again, under the same work id,
//! so that this changes nothing (the order's id follows from the work id). An order may be created together with its key and answer.
//! Only successes are kept: a refused request may
//! be corrected and sent again under a new key, or under the same if nothing else changed.

use axum::{
    Json,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::Row;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{auth::ApiCaller, created::CreatedResource, error::ApiError};
use foundation::{
    db::Pool,
    idempotency_rows::{ClaimedKey, IdempotencyStore, NewClaim},
};
use orders::order_store::create::CreationKey;

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

/// Writes an answer. A creation's answer names the resource, for its `Location`.
pub(super) fn write_answer((status, body): Answer) -> Response {
    let created = if status == StatusCode::CREATED { CreatedResource::of_body(&body) } else { None };
    let mut answer = (status, Json(body)).into_response();
    if let Some(created) = created {
        answer.extensions_mut().insert(created);
    }
    answer
}

/// The request's key, if it brings one.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refuse = |rule: String| Err(ApiError::invalid_header("Idempotency-Key", rule));
    if values.next().is_some() {
        return refuse("Idempotency-Key must be given once".to_owned());
    }
    let key = value.as_bytes();
    let fits = (1..=MAX_KEY_BYTES).contains(&key.len()) && key.iter().all(u8::is_ascii_graphic);
    match value.to_str() {
        Ok(key) if fits => Ok(Some(key.to_owned())),
        _ => refuse(format!(
            "Idempotency-Key must have 1 to {MAX_KEY_BYTES} printable ASCII characters, and no blank among them"
        )),
    }
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
    Mine(ClaimedKey, WorkContext),
    Answered(Answer),
}

/// Does `work` unless this caller had it done before under the same key. Keys of the command line in this process are not read: nobody
/// sends its requests again.
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
    let (Some(key), Some(holder)) = (key, caller.holder_id()) else {
        return Ok(write_answer(work(WorkContext { id: Uuid::now_v7(), resumed: false }).await?));
    };
    let (claim, claimed) = match claim_key(rows, holder, key, request).await? {
        ClaimOutcome::Mine(claim, work) => (claim, work),
        ClaimOutcome::Answered(answer) => {
            return Ok(([("idempotency-replayed", "true")], write_answer(answer)).into_response());
        }
    };
    // Given up in the middle of its work, or by a panic, this request leaves the key to the next.
    let worked = work(claimed).await;
    match worked {
        Ok((status, body)) => {
            if let Err(error) = rows.keep_answer(claim, status.as_u16().cast_signed(), body.clone()).await {
                tracing::warn!(%error, "An answer could not be kept; asked again, the work is done again and changes nothing.");
            }
            Ok(write_answer((status, body)))
        }
        Err(error) if error.is_final() => {
            claim.forget().await?;
            Err(error)
        }
        Err(error) => {
            // How far the work came is unknown: the next request goes on with it, under the same work id.
            claim.release().await;
            Err(error)
        }
    }
}

/// The key of a request whose work keeps it, with its answer, in its own statement.
pub(super) fn key_of_creation(holder: Uuid, key: &str, request: &[&[u8]]) -> CreationKey {
    let request_hash = hash_request(request);
    CreationKey { holder, key: key.to_owned(), request_hash, work_id: Uuid::now_v7() }
}

/// Claims the key for this request, or returns the answer given before.
async fn claim_key(
    rows: &IdempotencyStore,
    holder: Uuid,
    key: &str,
    request: &[&[u8]],
) -> Result<ClaimOutcome, ApiError> {
    let hash = hash_request(request);
    let work_id = Uuid::now_v7();
    let new = NewClaim { holder, key: key.to_owned(), request_hash: hash.clone(), work_id };
    if let Some(claim) = rows.claim_key(new).await? {
        let context = WorkContext { id: claim.work_id, resumed: claim.work_id != work_id };
        return Ok(ClaimOutcome::Mine(claim, context));
    }
    let earlier = sqlx::query(
        "-- earlier answer
         SELECT request_hash, status, body FROM idempotency_keys WHERE holder_id = $1 AND key = $2",
    )
    .bind(holder)
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

/// Each part with its length, so that no two requests run together into one.
fn hash_request(request: &[&[u8]]) -> Vec<u8> {
    let mut sha = Sha256::new();
    for part in request {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    sha.finalize().to_vec()
}
