//! Sessions of the console: a staff key is exchanged for a token that ends by itself. A person who signs in elsewhere gets a key
//! for it whose text is thrown away.
//!
//! The key stays with the person, the token in the browser, and its SHA-256 in Postgres. A session holds as long as its key does,
//! [`IDLE`] after it was last used by hand, and [`LONGEST`] in all.

use std::{net::IpAddr, time::Duration};

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use sqlx::types::Json;
use uuid::Uuid;

use super::api_keys::{AccountRole, ApiKey, generate_key, hash_key};
use foundation::{
    db::Pool,
    queue_pauses::PausedQueue,
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};

/// A session that is not used for so long has ended.
pub const IDLE: Duration = Duration::from_secs(8 * 3600);
/// A session of this age has ended, used or not.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// When a session was last used is written at most this often.
const SEEN_EVERY: Duration = Duration::from_secs(60);

/// A session that holds.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ConsoleSession {
    pub session_id: Uuid,
    /// The key it was opened with.
    #[sqlx(flatten)]
    pub key: ApiKey,
    /// It was last written down as used longer than a minute ago.
    pub is_stale: bool,
    /// The queues that operators stopped: each page names them, and this costs it no statement.
    pub paused_queues: Json<Vec<PausedQueue>>,
}

/// 256 random bits, as text that fits into a cookie.
fn generate_token() -> String {
    let random: [u8; 32] = rand::random();
    hex::encode(random)
}

/// Returns the hash of a token, unless [`generate_token`] cannot have made it.
fn hash_token(token: &str) -> Option<Vec<u8>> {
    let is_token = token.len() == 64 && token.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_token.then(|| Sha256::digest(token.as_bytes()).to_vec())
}

/// Opens a session with a key, for a person at this address. Returns its token, which is stored nowhere.
pub async fn open_session(db: &Pool, key: &ApiKey, address: IpAddr) -> Result<String, sqlx::Error> {
    let token = generate_token();
    sqlx::query(
        "-- open session
         INSERT INTO console_sessions (id, sha256, key_id, role, address) VALUES ($1, $2, $3, $4, $5::text::inet)",
    )
    .bind(Uuid::now_v7())
    .bind(hash_token(&token))
    .bind(key.id)
    .bind(key.role)
    .bind(address.to_string())
    .execute(db)
    .await?;
    Ok(token)
}

/// A person as another service knows them, who signs in without a key.
#[derive(Debug, Clone, Copy)]
pub struct SignedInPerson<'a> {
    pub name: &'a str,
    pub role: AccountRole,
    /// How the service identifies the person.
    pub subject: &'a str,
}

/// Opens a session of a person. Returns its token, and the key it has: one that ends with the session, and that counts as
/// superseded, so that it takes no name from another and cannot be rotated.
pub async fn open_personal_session(
    db: &Pool,
    person: SignedInPerson<'_>,
    address: IpAddr,
) -> Result<(String, Uuid), sqlx::Error> {
    let token = generate_token();
    let key = Uuid::now_v7();
    sqlx::query(
        "-- open session of person
         WITH made AS (
             INSERT INTO api_keys (id, name, sha256, role, oidc_subject, expires_at, superseded_at)
             VALUES ($1, $2, $3, $4, $5, dispatchq_now() + $6 * interval '1 second', dispatchq_now())
             RETURNING id, role)
         INSERT INTO console_sessions (id, sha256, key_id, role, address)
         SELECT $7::uuid, $8::bytea, id, role, $9::text::inet FROM made",
    )
    .bind(key)
    .bind(person.name)
    .bind(hash_key(&generate_key()))
    .bind(person.role)
    .bind(person.subject)
    .bind(LONGEST.as_secs_f64())
    .bind(Uuid::now_v7())
    .bind(hash_token(&token))
    .bind(address.to_string())
    .execute(db)
    .await?;
    Ok((token, key))
}

/// Returns the session of a token, unless it is unknown or has ended.
pub async fn find_session(db: &Pool, token: &str) -> Result<Option<ConsoleSession>, sqlx::Error> {
    let Some(hash) = hash_token(token) else { return Ok(None) };
    sqlx::query_as(
        "-- find session
         SELECT s.id AS session_id, k.id, k.name, k.role, k.driver_id, k.holder_id, k.created_at, k.revoked_at,
                s.last_seen_at < t.now - $4 * interval '1 second' AS is_stale,
                coalesce((SELECT jsonb_agg(p ORDER BY p.queue) FROM paused_queues p), '[]') AS paused_queues
         FROM (SELECT dispatchq_now() AS now) t, console_sessions s JOIN valid_api_keys k ON k.id = s.key_id AND k.role = s.role
         WHERE s.sha256 = $1 AND s.ended_at IS NULL AND s.last_seen_at > t.now - $2 * interval '1 second'
           AND s.created_at > t.now - $3 * interval '1 second'",
    )
    .bind(hash)
    .bind(IDLE.as_secs_f64())
    .bind(LONGEST.as_secs_f64())
    .bind(SEEN_EVERY.as_secs_f64())
    .fetch_optional(db)
    .await
}

/// Writes down that a session is used now.
pub async fn record_seen(db: &Pool, session: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- session seen
         UPDATE console_sessions SET last_seen_at = dispatchq_now() WHERE id = $1 AND ended_at IS NULL",
    )
    .bind(session)
    .execute(db)
    .await
    .map(drop)
}

/// Ends the session of a token: its person signs out. One that has ended stays as it was.
pub async fn end_session(db: &Pool, token: &str) -> Result<(), sqlx::Error> {
    let Some(hash) = hash_token(token) else { return Ok(()) };
    sqlx::query(
        "-- end session
         UPDATE console_sessions SET ended_at = dispatchq_now() WHERE sha256 = $1 AND ended_at IS NULL",
    )
    .bind(hash)
    .execute(db)
    .await
    .map(drop)
}

/// A session as it is listed.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ListedSession {
    pub id: Uuid,
    pub key_id: Uuid,
    /// The name of its key.
    pub name: String,
    pub role: AccountRole,
    pub created_at: DateTime<Utc>,
    /// To the minute.
    pub last_seen_at: DateTime<Utc>,
    /// Address from which the person signed in, where it is known.
    pub address: Option<String>,
}

/// Lists the sessions that hold, the newest first; at most 500.
pub async fn list_sessions(db: &Pool) -> Result<Vec<ListedSession>, sqlx::Error> {
    sqlx::query_as(
        "-- list sessions
         SELECT s.id, s.key_id, k.name, k.role, s.created_at, s.last_seen_at, host(s.address) AS address
         FROM console_sessions s,
              -- Each session looks for its key: the limit keeps a plan from reading all keys.
              LATERAL (SELECT name, role FROM valid_api_keys WHERE id = s.key_id AND role = s.role LIMIT 1) k
         WHERE s.ended_at IS NULL AND s.last_seen_at > (SELECT dispatchq_now()) - $1 * interval '1 second'
           AND s.created_at > (SELECT dispatchq_now()) - $2 * interval '1 second'
         ORDER BY s.created_at DESC LIMIT 500",
    )
    .bind(IDLE.as_secs_f64())
    .bind(LONGEST.as_secs_f64())
    .fetch_all(db)
    .await
}

/// Ends a session of another person, and records it. Returns whether it had not ended before.
pub async fn close_session(db: &Pool, id: Uuid, by: ActionAuthor<'_>) -> Result<bool, sqlx::Error> {
    let mut tx = db.begin().await?;
    let name: Option<String> = sqlx::query_scalar(
        "-- close session
         UPDATE console_sessions s SET ended_at = dispatchq_now() FROM api_keys k
         WHERE s.id = $1 AND s.ended_at IS NULL AND k.id = s.key_id RETURNING k.name",
    )
    .bind(id)
    .fetch_optional(&mut *tx)
    .await?;
    let Some(name) = name else { return Ok(false) };
    let values = ActionValues::changed(json!({ "ended": false }), json!({ "ended": true }));
    record_action(&mut tx, by, StaffAction::SessionEnded, &format!("{id} {name}"), values).await?;
    tx.commit().await?;
    Ok(true)
}
