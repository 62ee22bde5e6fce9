//! Gives a repeated request the effect and the answer of the first one.
//!
//! Postgres claims the key before the work and stores the answer after it, for 24 h, per key holder. If the process
//! dies in between, the claim expires after a minute. A repeated request then does the work again with the same work
//! id. The second run changes nothing, because the id of an order derives from the work id. An order can be created in
//! one statement together with its key and answer. Only successes are stored. A refused request may be corrected and
//! sent under a new key, or repeated unchanged under the same key.

use axum::{
    Json,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Row;
use utoipa::IntoParams;
use uuid::Uuid;

use super::{auth::ApiCaller, created::CreatedResource, error::ApiError};
use foundation::{
    db::Pool,
    idempotency_rows::{ClaimedKey, IdempotencyStore, NewClaim},
};
use model::id_prefix::IdPrefix;
use orders::{
    created_answer::{self, StoredCreation},
    order_store::create::CreationKey,
};

const HEADER: &str = "idempotency-key";
const MAX_KEY_BYTES: usize = 255;

/// Describes the header for the OpenAPI document.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "describes the header; `idempotency_key` reads it")]
pub(super) struct IdempotencyHeader {
    /// Key of the request. A repeated request with the same key has the effect and answer of the first one, for 24
    /// hours.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    idempotency_key: Option<String>,
}

/// An answer that can be stored: status and JSON body.
pub type Answer = (StatusCode, Value);

/// Answer to a request that runs once.
#[derive(Debug)]
pub struct OnceAnswer {
    pub answer: Answer,
    /// Whether an earlier request did the work.
    pub(super) is_replayed: bool,
}

impl OnceAnswer {
    pub(super) fn new(answer: Answer) -> Self {
        Self { answer, is_replayed: false }
    }

    fn replayed(answer: Answer) -> Self {
        Self { answer, is_replayed: true }
    }
}

impl IntoResponse for OnceAnswer {
    fn into_response(self) -> Response {
        let answer = write_answer(self.answer);
        if self.is_replayed { ([("idempotency-replayed", "true")], answer).into_response() } else { answer }
    }
}

/// Creates the response. The answer to a creation carries the resource for its `Location`.
fn write_answer((status, body): Answer) -> Response {
    let created = if status == StatusCode::CREATED { CreatedResource::of_body(&body) } else { None };
    let mut answer = (status, Json(body)).into_response();
    if let Some(created) = created {
        answer.extensions_mut().insert(created);
    }
    answer
}

/// Returns the request's key, if it has one.
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
        _ => {
            refuse(format!("Idempotency-Key must have 1 to {MAX_KEY_BYTES} printable ASCII characters without spaces"))
        }
    }
}

/// Information about the request for its work.
#[derive(Debug, Clone)]
pub struct WorkContext {
    /// Id of the work. It is the same when a request is repeated after its process died; otherwise it is new.
    pub id: Uuid,
    /// Prefix of the ids that derive from `id`. It is that of the first request, even if the setting has changed.
    pub id_prefix: IdPrefix,
    /// Whether the same request came before and its process died. The work may have been done.
    pub resumed: bool,
}

enum ClaimOutcome {
    Mine(ClaimedKey, WorkContext),
    Answered(Answer),
}

/// Runs `work`, unless the caller's earlier request with the same key ran it. The keys of the command line in this
/// process are ignored, because its requests are not repeated.
///
/// `request` identifies equal requests: the kind of request, its subject and its body.
pub async fn run_once(
    db: &Pool,
    caller: &ApiCaller,
    key: Option<&str>,
    request: &[&[u8]],
    work: impl AsyncFnOnce(WorkContext) -> Result<Answer, ApiError>,
) -> Result<Response, ApiError> {
    // This work generates no ids with a prefix.
    let rows = IdempotencyStore::new(db, &IdPrefix::default());
    answer_once(&rows, caller, key, request, work).await.map(IntoResponse::into_response)
}

/// Does the same as [`run_once`] for frequent requests. One statement claims many keys or stores many answers.
pub async fn answer_once(
    rows: &IdempotencyStore,
    caller: &ApiCaller,
    key: Option<&str>,
    request: &[&[u8]],
    work: impl AsyncFnOnce(WorkContext) -> Result<Answer, ApiError>,
) -> Result<OnceAnswer, ApiError> {
    let (Some(key), Some(holder)) = (key, caller.holder_id()) else {
        let work_of = WorkContext { id: Uuid::now_v7(), id_prefix: rows.id_prefix.clone(), resumed: false };
        return Ok(OnceAnswer::new(work(work_of).await?));
    };
    let (claim, claimed) = match claim_key(rows, holder, key, request).await? {
        ClaimOutcome::Mine(claim, work) => (claim, work),
        ClaimOutcome::Answered(answer) => return Ok(OnceAnswer::replayed(answer)),
    };
    // If the work is cancelled or panics, the claim is released for the next request.
    let worked = work(claimed).await;
    match worked {
        Ok((status, body)) => {
            if let Err(error) = rows.keep_answer(claim, status.as_u16().cast_signed(), body.clone()).await {
                tracing::warn!(%error, "An answer could not be stored; a repeated request does the work again and changes nothing.");
            }
            Ok(OnceAnswer::new((status, body)))
        }
        Err(error) if error.is_final() => {
            claim.forget().await?;
            Err(error)
        }
        Err(error) => {
            // The progress of the work is unknown. The next request continues it with the same work id.
            claim.release().await;
            Err(error)
        }
    }
}

/// Returns the stored answer to the caller's earlier request with the same key, without claiming the key.
pub(super) async fn find_answer(
    rows: &IdempotencyStore,
    caller: &ApiCaller,
    key: Option<&str>,
    request: &[&[u8]],
) -> Result<Option<OnceAnswer>, ApiError> {
    let (Some(key), Some(holder)) = (key, caller.holder_id()) else { return Ok(None) };
    Ok(read_answer(&rows.db, holder, key, &hash_request(request)).await?.map(OnceAnswer::replayed))
}

/// Returns the key of a request whose work stores key and answer in its own statement.
pub(super) fn key_of_creation(holder: Uuid, key: &str, request: &[&[u8]]) -> CreationKey {
    let request_hash = hash_request(request);
    CreationKey { holder, key: key.to_owned(), request_hash, work_id: Uuid::now_v7() }
}

/// Claims the key for this request, or returns the stored answer.
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
        let resumed = claim.work_id != work_id;
        let context = WorkContext { id: claim.work_id, id_prefix: claim.id_prefix.clone(), resumed };
        return Ok(ClaimOutcome::Mine(claim, context));
    }
    let answer = read_answer(&rows.db, holder, key, &hash).await?;
    answer.map(ClaimOutcome::Answered).ok_or(ApiError::IdempotencyRunning)
}

/// Returns the stored answer to an earlier request with this key. `None` if there is none, or if it is not stored yet.
async fn read_answer(db: &Pool, holder: Uuid, key: &str, hash: &[u8]) -> Result<Option<Answer>, ApiError> {
    let earlier = sqlx::query(
        "-- earlier answer
         SELECT request_hash, status, body FROM idempotency_keys WHERE holder_id = $1 AND key = $2",
    )
    .bind(holder)
    .bind(key)
    .fetch_optional(db)
    .await?;
    let Some(earlier) = earlier else { return Ok(None) };
    if earlier.try_get::<Vec<u8>, _>("request_hash")? != hash {
        return Err(ApiError::IdempotencyMismatch);
    }
    let Some(status) = earlier.try_get::<Option<i16>, _>("status")? else { return Ok(None) };
    let body = render_body(db, earlier.try_get::<Option<Value>, _>("body")?.unwrap_or_default()).await?;
    let status = u16::try_from(status).ok().and_then(|s| StatusCode::from_u16(s).ok()).unwrap_or(StatusCode::OK);
    Ok(Some((status, body)))
}

/// Returns the body of a stored answer. The answer to a creation is rendered from its order.
async fn render_body(db: &Pool, stored: Value) -> Result<Value, ApiError> {
    let Ok(creation) = StoredCreation::deserialize(&stored) else { return Ok(stored) };
    let created = created_answer::render_creation(db, creation).await?.ok_or(ApiError::NoSuchOrder)?;
    Ok(json!(created))
}

/// Hashes each part with its length, so that different requests cannot have the same bytes.
fn hash_request(request: &[&[u8]]) -> Vec<u8> {
    let mut sha = Sha256::new();
    for part in request {
        sha.update((part.len() as u64).to_be_bytes());
        sha.update(part);
    }
    sha.finalize().to_vec()
}
