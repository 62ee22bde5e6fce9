//! Keys of requests that may come twice, claimed and answered many in one statement and one commit.
//!
//! A claim is for one run of the work. However that run ends, the next request of the key need not wait for the claim to lapse: a
//! claim that is dropped is released, also where its request was given up before it heard of it.

use std::{collections::HashMap, iter, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use serde_json::Value;
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::{
    batch::{BatchLost, BatchQueue, BatchSize},
    db::{Pool, write_or_halve},
};

const WRITES: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };

/// A key and its holder (`api_keys.holder_id`): one producer, however many API keys it has.
type RequestKey = (Uuid, String);

/// A key to be claimed for one run of its work.
#[derive(Debug, Clone)]
pub struct NewClaim {
    pub holder: Uuid,
    pub key: String,
    pub request_hash: Vec<u8>,
    /// Unless the same request came before and its process died.
    pub work_id: Uuid,
}

/// A key that is claimed for one run of its work. Dropped, it is released: how far the work came is unknown, and the next request goes
/// on with it under the same id.
#[derive(Debug)]
pub struct ClaimedKey {
    pub work_id: Uuid,
    /// `None`: answered or forgotten.
    row: Option<ClaimedRow>,
}

/// The row of a claim. A later run that took over a lapsed claim has another time.
#[derive(Debug, Clone)]
struct ClaimedRow {
    db: Pool,
    key: RequestKey,
    at: DateTime<Utc>,
}

/// An answer to be kept with its claimed key.
#[derive(Debug, Clone)]
struct KeptAnswer {
    key: RequestKey,
    claimed_at: DateTime<Utc>,
    status: i16,
    body: Value,
}

type ClaimResult = Result<Option<ClaimedKey>, sqlx::Error>;

/// Claims keys and keeps answers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct IdempotencyStore {
    pub db: Pool,
    claims: BatchQueue<RequestKey, NewClaim, ClaimResult>,
    answers: BatchQueue<RequestKey, KeptAnswer, Result<(), sqlx::Error>>,
}

impl IdempotencyStore {
    pub fn new(db: &Pool) -> Self {
        let (db_of_claims, db_of_answers) = (db.clone(), db.clone());
        Self {
            db: db.clone(),
            claims: BatchQueue::new("claim idempotency keys", WRITES, move |items: Vec<NewClaim>| {
                let db = db_of_claims.clone();
                async move { claim_all(&db, items).await }
            }),
            answers: BatchQueue::new("keep answers", WRITES, move |items: Vec<KeptAnswer>| {
                let db = db_of_answers.clone();
                async move { keep_all(&db, items).await }
            }),
        }
    }

    /// Claims a key. `None`: another request has it, or had.
    pub async fn claim_key(&self, claim: NewClaim) -> ClaimResult {
        self.claims.submit_item([(claim.holder, claim.key.clone())], claim).await.map_err(lost)?
    }

    /// Keeps an answer, unless a later run has taken over the claim. If it cannot be kept, the key is released.
    pub async fn keep_answer(&self, mut claim: ClaimedKey, status: i16, body: Value) -> Result<(), sqlx::Error> {
        // It is kept also where its request is given up now.
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
    /// Lets the next request of this key go on with the work at once, instead of after a minute; while Postgres is too busy for it,
    /// in the background.
    pub async fn release(mut self) {
        let is_free = match &self.row {
            Some(row) => row.release().await.is_ok(),
            None => true,
        };
        if is_free {
            self.row = None;
        }
    }

    /// Lets the key be used for another request: this one was refused.
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

    /// Releases the key as soon as Postgres takes it. A minute later there is nothing left to release.
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

/// What is known of an item whose batch has panicked: as of a connection that broke.
fn lost(_: BatchLost) -> sqlx::Error {
    sqlx::Error::WorkerCrashed
}

/// One result per claim, in their order.
async fn claim_all(db: &Pool, items: Vec<NewClaim>) -> Vec<ClaimResult> {
    let items: Vec<_> = items.into_iter().map(Arc::new).collect();
    write_or_halve(&items, |items| {
        let db = db.clone();
        async move { claim_rows(&db, &items).await }
    })
    .await
}

async fn claim_rows(db: &Pool, items: &[Arc<NewClaim>]) -> Result<Vec<Option<ClaimedKey>>, sqlx::Error> {
    let rows: Vec<(Uuid, String, Uuid, DateTime<Utc>)> = sqlx::query_as(
        "-- claim idempotency key
         INSERT INTO idempotency_keys AS k (holder_id, key, request_hash, work_id)
         SELECT n.* FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::uuid[]) n ORDER BY 1, 2
         ON CONFLICT (holder_id, key) DO UPDATE
             SET request_hash = excluded.request_hash, created_at = dispatchq_now(), status = NULL, body = NULL,
                 work_id = CASE WHEN k.created_at < dispatchq_now() - interval '24 hours' THEN excluded.work_id
                                ELSE k.work_id END
             WHERE k.created_at < dispatchq_now() - interval '24 hours'
                OR (k.status IS NULL AND k.request_hash = excluded.request_hash
                    AND k.created_at < dispatchq_now() - interval '1 minute')
         RETURNING holder_id, key, work_id, created_at",
    )
    .bind(items.iter().map(|item| item.holder).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.request_hash.as_slice()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.work_id).collect::<Vec<_>>())
    .fetch_all(db)
    .await?;
    let claimed = rows.into_iter().map(|(holder, key, work_id, at)| {
        let key = (holder, key);
        (key.clone(), ClaimedKey { work_id, row: Some(ClaimedRow { db: db.clone(), key, at }) })
    });
    let mut claimed: HashMap<RequestKey, ClaimedKey> = claimed.collect();
    Ok(items.iter().map(|item| claimed.remove(&(item.holder, item.key.clone()))).collect())
}

/// One result per answer, in their order.
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
