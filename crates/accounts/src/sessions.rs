//! Sessions of the console. A staff member exchanges a key for a token that expires. A person who signs in at the
//! OpenID Connect provider gets a key whose text is discarded.
//!
//! The staff member keeps the key, the browser keeps the token, and Postgres stores the token's SHA-256. A session is
//! valid as long as its key is valid, until [`IDLE`] after its last manual use, and for [`LONGEST`] at most.

use std::{net::IpAddr, time::Duration};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
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

/// A session ends after this time without use.
pub const IDLE: Duration = Duration::from_secs(8 * 3600);
/// Maximum age of a session.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Minimum time between two updates of a session's last use.
const SEEN_EVERY: Duration = Duration::from_secs(60);

/// A valid session.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct ConsoleSession {
    pub session_id: Uuid,
    /// Key that opened the session.
    #[sqlx(flatten)]
    pub key: ApiKey,
    /// Whether the stored last use is more than a minute old.
    pub is_stale: bool,
    /// Queues that operators have paused. Every console page shows them; here they need no extra statement.
    pub paused_queues: Json<Vec<PausedQueue>>,
    /// How far the history is proven. Every console page shows it.
    pub proof: Json<ProofGlance>,
}

/// How far the history is proven.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct ProofGlance {
    /// Number of the last proven step of the feed.
    pub event: u64,
    /// Time in seconds since which steps are not proven.
    pub lag_s: f64,
    /// Open violations; at most 1,000 are counted.
    pub open: u64,
}

/// Returns 256 random bits as text that fits into a cookie.
pub(super) fn generate_token() -> String {
    let random: [u8; 32] = rand::random();
    hex::encode(random)
}

/// Returns the hash of a token, or `None` if [`generate_token`] cannot have produced the text.
pub(super) fn hash_token(token: &str) -> Option<Vec<u8>> {
    let is_token = token.len() == 64 && token.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    is_token.then(|| Sha256::digest(token.as_bytes()).to_vec())
}

/// Opens a session with a key, for a person at this address. Returns the token, which is not stored.
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

/// A person whom the OpenID Connect provider has identified, and who has no key.
#[derive(Debug, Clone, Copy)]
pub struct SignedInPerson<'a> {
    pub name: &'a str,
    pub role: AccountRole,
    /// The provider's id of the person.
    pub subject: &'a str,
}

/// Opens a session for a person without a key. Returns the token and the id of the key made for it. The key expires
/// with the session and is inserted as superseded, so it uses up no name and cannot be rotated.
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

/// Returns the session of a token, or `None` if the token is unknown or the session has ended.
pub async fn find_session(db: &Pool, token: &str) -> Result<Option<ConsoleSession>, sqlx::Error> {
    let Some(hash) = hash_token(token) else { return Ok(None) };
    sqlx::query_as(
        "-- find session
         SELECT s.id AS session_id, k.id, k.name, k.role, k.driver_id, k.holder_id, k.created_at, k.revoked_at, k.scope,
                s.last_seen_at < t.now - $4 * interval '1 second' AS is_stale,
                coalesce((SELECT jsonb_agg(p ORDER BY p.queue) FROM paused_queues p), '[]') AS paused_queues,
                (SELECT jsonb_build_object(
                     'event', p.event, 'lag_s', greatest(extract(epoch FROM t.now - p.proven_at), 0),
                     'open', (SELECT count(*) FROM (SELECT 1 FROM proof_violations WHERE gone_at IS NULL LIMIT 1000) v))
                 FROM proof_place p) AS proof
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

/// Sets a session's last use to now.
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

/// Signs a person out: ends the session of this token. A session that has already ended is not changed.
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

/// A session as listed by the API.
#[derive(Debug, Clone, Serialize, sqlx::FromRow)]
pub struct ListedSession {
    pub id: Uuid,
    pub key_id: Uuid,
    /// Name of the session's key.
    pub name: String,
    pub role: AccountRole,
    pub created_at: DateTime<Utc>,
    /// Precise to the minute.
    pub last_seen_at: DateTime<Utc>,
    /// Address that the person signed in from, if known.
    pub address: Option<String>,
}

/// Lists the valid sessions, newest first, at most 500.
pub async fn list_sessions(db: &Pool) -> Result<Vec<ListedSession>, sqlx::Error> {
    sqlx::query_as(
        "-- list sessions
         SELECT s.id, s.key_id, k.name, k.role, s.created_at, s.last_seen_at, host(s.address) AS address
         FROM console_sessions s,
              -- One key per session: the LIMIT prevents a plan that reads all keys.
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

/// Ends another person's session and writes the audit record. Returns whether the session was still open.
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
