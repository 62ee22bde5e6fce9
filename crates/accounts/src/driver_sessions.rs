//! Sessions of the driver page. The browser keeps a token, and Postgres stores its SHA-256. A session ends after
//! [`VALID`], when the driver signs out, and when the driver is disabled or removed.

use std::time::Duration;

use model::ids::DriverId;
use uuid::Uuid;

use super::sessions::hash_token;
use foundation::db::Pool;

/// Time that a session is valid.
pub const VALID: Duration = Duration::from_hours(30 * 24);

/// A valid session.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct DriverSession {
    pub id: Uuid,
    pub driver_id: DriverId,
}

/// Returns the session of a token, or `None` if the token is unknown or the session has ended.
pub async fn find_session(db: &Pool, token: &str) -> Result<Option<DriverSession>, sqlx::Error> {
    let Some(hash) = hash_token(token) else { return Ok(None) };
    sqlx::query_as(
        "-- find session of driver
         SELECT s.id, s.driver_id FROM driver_sessions s JOIN drivers d ON d.id = s.driver_id
         WHERE s.sha256 = $1 AND s.expires_at > dispatchq_now() AND d.disabled_at IS NULL",
    )
    .bind(hash)
    .fetch_optional(db)
    .await
}

/// Signs the driver out: removes the session of this token. Does nothing if it has ended.
pub async fn end_session(db: &Pool, token: &str) -> Result<(), sqlx::Error> {
    let Some(hash) = hash_token(token) else { return Ok(()) };
    sqlx::query(
        "-- end session of driver
         DELETE FROM driver_sessions WHERE sha256 = $1",
    )
    .bind(hash)
    .execute(db)
    .await
    .map(drop)
}
