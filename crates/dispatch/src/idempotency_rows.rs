//! Keys of requests that may come twice, claimed and answered many in one statement and one commit.

use std::{collections::HashMap, iter, sync::Arc};

use chrono::{DateTime, Utc};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    batch::{BatchLost, BatchQueue, BatchSize},
    db::{Pool, write_or_halve},
};

const WRITES: BatchSize = BatchSize { most: 100, lanes: 4, crowd: 25 };

/// A key and whose it is: the API key it came with.
type RequestKey = (Uuid, String);

/// A key to be claimed for one run of its work.
#[derive(Debug, Clone)]
pub struct NewClaim {
    pub api_key: Uuid,
    pub key: String,
    pub request_hash: Vec<u8>,
    /// Unless the same request came before and its process died.
    pub work_id: Uuid,
}

/// A key that is claimed. A later run that took over a lapsed claim has another time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimedKey {
    pub work_id: Uuid,
    pub at: DateTime<Utc>,
}

/// An answer to be kept with its claimed key.
#[derive(Debug, Clone)]
pub struct KeptAnswer {
    pub api_key: Uuid,
    pub key: String,
    pub claimed_at: DateTime<Utc>,
    pub status: i16,
    pub body: Value,
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
        self.claims.submit_item([(claim.api_key, claim.key.clone())], claim).await.map_err(lost)?
    }

    /// Keeps an answer, unless a later run has taken over the claim.
    pub async fn keep_answer(&self, answer: KeptAnswer) -> Result<(), sqlx::Error> {
        self.answers.submit_item([(answer.api_key, answer.key.clone())], answer).await.map_err(lost)?
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
         INSERT INTO idempotency_keys AS k (api_key_id, key, request_hash, work_id)
         SELECT * FROM unnest($1::uuid[], $2::text[], $3::bytea[], $4::uuid[]) ORDER BY 1, 2
         ON CONFLICT (api_key_id, key) DO UPDATE
             SET request_hash = excluded.request_hash, created_at = dispatchq_now(), status = NULL, body = NULL,
                 work_id = CASE WHEN k.created_at < dispatchq_now() - interval '24 hours' THEN excluded.work_id
                                ELSE k.work_id END
             WHERE k.created_at < dispatchq_now() - interval '24 hours'
                OR (k.status IS NULL AND k.request_hash = excluded.request_hash
                    AND k.created_at < dispatchq_now() - interval '1 minute')
         RETURNING api_key_id, key, work_id, created_at",
    )
    .bind(items.iter().map(|item| item.api_key).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.request_hash.as_slice()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.work_id).collect::<Vec<_>>())
    .fetch_all(db)
    .await?;
    let mut claimed: HashMap<RequestKey, ClaimedKey> =
        rows.into_iter().map(|(api_key, key, work_id, at)| ((api_key, key), ClaimedKey { work_id, at })).collect();
    Ok(items.iter().map(|item| claimed.remove(&(item.api_key, item.key.clone()))).collect())
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
              AS a (api_key_id, key, claimed_at, status, body)
         WHERE k.api_key_id = a.api_key_id AND k.key = a.key AND k.created_at = a.claimed_at",
    )
    .bind(items.iter().map(|item| item.api_key).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.claimed_at).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.status).collect::<Vec<_>>())
    .bind(items.iter().map(|item| item.body.clone()).collect::<Vec<_>>())
    .execute(db)
    .await
    .map(drop)
}
