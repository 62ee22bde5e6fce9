//! Idempotency keys of requests. Claims and responses are written in batches: one statement and one commit for many.
//!
//! A claim covers one run of the work. After the run, the next request with the key does not have to wait for the claim
//! to expire. A dropped claim is released, even if its request was aborted before the claim was returned.

use std::{collections::HashMap, iter, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use model::id_prefix::IdPrefix;
use serde_json::Value;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::{
    batch::{BatchLost, BatchQueue, BatchSize},
    db::{Pool, write_or_halve},
};

const WRITES: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };

/// Key and holder (`api_keys.holder_id`). A holder is one producer with any number of API keys.
type RequestKey = (Uuid, String);

/// Key to claim for one run of its work.
#[derive(Debug, Clone)]
pub struct NewClaim {
    pub holder: Uuid,
    pub key: String,
    pub request_hash: Vec<u8>,
    /// Id of the work. Ignored if the same request came before and its process died: then the earlier id is used.
    pub work_id: Uuid,
}

/// Key that is claimed for one run of its work. Dropping it releases it. The progress of the work is then unknown, and
/// the next request continues it under the same id.
#[derive(Debug)]
pub struct ClaimedKey {
    pub work_id: Uuid,
    /// Prefix of the ids that the work generates. It is stored with the first claim, so that repeated work generates the
    /// same ids after the setting has changed.
    pub id_prefix: IdPrefix,
    /// `None` after the response was stored or the key was forgotten.
    row: Option<ClaimedRow>,
}

/// Row of a claim. `at` tells the claim apart from a later run that took over the expired claim.
#[derive(Debug, Clone)]
struct ClaimedRow {
    db: Pool,
    key: RequestKey,
    at: DateTime<Utc>,
}

/// Response to store with its claimed key.
#[derive(Debug, Clone)]
struct KeptAnswer {
    key: RequestKey,
    claimed_at: DateTime<Utc>,
    status: i16,
    body: Value,
}

type ClaimResult = Result<Option<ClaimedKey>, sqlx::Error>;

/// Store of claims and responses. Cheap to clone.
#[derive(Debug, Clone)]
pub struct IdempotencyStore {
    pub db: Pool,
    /// Prefix of the ids that new work generates.
    pub id_prefix: IdPrefix,
    claims: BatchQueue<RequestKey, NewClaim, ClaimResult>,
    answers: BatchQueue<RequestKey, KeptAnswer, Result<(), sqlx::Error>>,
}

impl IdempotencyStore {
    pub fn new(db: &Pool, id_prefix: &IdPrefix) -> Self {
        let (db_of_claims, db_of_answers, prefix_of_claims) = (db.clone(), db.clone(), id_prefix.clone());
        Self {
            db: db.clone(),
            id_prefix: id_prefix.clone(),
            claims: BatchQueue::new("claim idempotency keys", WRITES, move |items: Vec<NewClaim>| {
                let (db, id_prefix) = (db_of_claims.clone(), prefix_of_claims.clone());
                async move { claim_all(&db, &id_prefix, items).await }
            }),
            answers: BatchQueue::new("keep answers", WRITES, move |items: Vec<KeptAnswer>| {
                let db = db_of_answers.clone();
                async move { keep_all(&db, items).await }
            }),
        }
    }

    /// Claims a key. Returns `None` if another request has or had it.
    pub async fn claim_key(&self, claim: NewClaim) -> ClaimResult {
        self.claims.submit_item([(claim.holder, claim.key.clone())], claim).await.map_err(lost)?
    }

    /// Stores a response, unless a later run has taken over the claim. If the response cannot be stored, the key is
    /// released.
    pub async fn keep_answer(&self, mut claim: ClaimedKey, status: i16, body: Value) -> Result<(), sqlx::Error> {
        // Take the row first: the response is stored even if the request is aborted from here on.
        let Some(row) = claim.row.take() else { return Ok(()) };
        let answer = KeptAnswer { key: row.key.clone(), claimed_at: row.at, status, body };
        let kept = self.answers.submit_item([row.key.clone()], answer).await.unwrap_or_else(|error| Err(lost(error)));
        if kept.is_err() {
            claim.row = Some(row);
            claim.release().await;
        }
        kept
    }
}

impl ClaimedKey {
    /// Releases the key, so that the next request continues the work immediately instead of after a minute. If Postgres
    /// fails, the release is retried in the background.
    pub async fn release(mut self) {
        let is_free = match &self.row {
            Some(row) => row.release().await.is_ok(),
            None => true,
        };
        if is_free {
            self.row = None;
        }
    }

    /// Frees the key for another request, because this request was refused.
    pub async fn forget(mut self) -> Result<(), sqlx::Error> {
        if let Some(row) = &self.row {
            row.delete().await?;
        }
        self.row = None;
        Ok(())
    }
}

impl Drop for ClaimedKey {
    fn drop(&mut self) {
        if let (Some(row), Ok(runtime)) = (self.row.take(), Handle::try_current()) {
            runtime.spawn(row.release_until_done());
        }
    }
}

impl ClaimedRow {
    async fn release(&self) -> Result<(), sqlx::Error> {
        sqlx::query(
            "-- release idempotency key
             UPDATE idempotency_keys SET created_at = dispatchq_now() - interval '61 seconds'
             WHERE holder_id = $1 AND key = $2 AND created_at = $3 AND status IS NULL",
        )
        .bind(self.key.0)
        .bind(&self.key.1)
        .bind(self.at)
        .execute(&self.db)
        .await
        .map(drop)
    }

    /// Retries the release once a second for a minute. After that the claim has expired.
    async fn release_until_done(self) {
        for _ in 0..60 {
            if self.release().await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn delete(&self) -> Result<(), sqlx::Error> {
        sqlx::query(
            "-- forget idempotency key
             DELETE FROM idempotency_keys
             WHERE holder_id = $1 AND key = $2 AND created_at = $3 AND status IS NULL",
        )
        .bind(self.key.0)
        .bind(&self.key.1)
        .bind(self.at)
        .execute(&self.db)
        .await
        .map(drop)
    }
}

/// Returns the error for an item whose batch panicked. Its outcome is unknown, as after a lost connection.
fn lost(_: BatchLost) -> sqlx::Error {
    sqlx::Error::WorkerCrashed
}

/// Claims the keys. Returns one result per claim, in their order.
async fn claim_all(db: &Pool, id_prefix: &IdPrefix, items: Vec<NewClaim>) -> Vec<ClaimResult> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    write_or_halve(&items, |items| {
        let (db, id_prefix) = (db.clone(), id_prefix.clone());
        async move { claim_rows(&db, &id_prefix, &items).await }
    })
    .await
}

#[derive(sqlx::FromRow)]
struct NewRow {
    holder_id: Uuid,
    key: String,
    work_id: Uuid,
    #[sqlx(try_from = "String")]
    id_prefix: IdPrefix,
    created_at: DateTime<Utc>,
}

async fn claim_rows(
    db: &Pool,
    id_prefix: &IdPrefix,
    items: &[Arc<NewClaim>],
) -> Result<Vec<Option<ClaimedKey>>, sqlx::Error> {
    let rows: Vec<NewRow> = sqlx::query_as(include_str!("claim_keys.sql"))
        .bind(items.iter().map(|item| item.holder).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.request_hash.as_slice()).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.work_id).collect::<Vec<_>>())
        .bind(id_prefix.as_str())
        .fetch_all(db)
        .await?;
    let claimed = rows.into_iter().map(|NewRow { holder_id, key, work_id, id_prefix, created_at: at }| {
        let key = (holder_id, key);
        let row = Some(ClaimedRow { db: db.clone(), key: key.clone(), at });
        (key, ClaimedKey { work_id, id_prefix, row })
    });
    let mut claimed: HashMap<RequestKey, ClaimedKey> = claimed.collect();
    Ok(items.iter().map(|item| claimed.remove(&(item.holder, item.key.clone()))).collect())
}

/// Stores the responses. Returns one result per response, in their order.
async fn keep_all(db: &Pool, items: Vec<KeptAnswer>) -> Vec<Result<(), sqlx::Error>> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    write_or_halve(&items, |items| {
        let db = db.clone();
        async move {
            keep_rows(&db, &items).await?;
            Ok(iter::repeat_n((), items.len()).collect())
        }
    })
    .await
}

async fn keep_rows(db: &Pool, items: &[Arc<KeptAnswer>]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- keep answer
         UPDATE idempotency_keys k SET status = a.status, body = a.body
         FROM unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::smallint[], $5::jsonb[])
              AS a (holder_id, key, claimed_at, status, body)
         WHERE k.holder_id = a.holder_id AND k.key = a.key AND k.created_at = a.claimed_at",
    )
    .bind(items.iter().map(|item| item.key.0).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.key.1.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.claimed_at).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.status).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.body.clone()).collect::<Vec<_>>())
    .execute(db)
    .await
    .map(drop)
}
