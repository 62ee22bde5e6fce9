//! The company's own people: whom the system tells what.

use serde::{Deserialize, Serialize};
use sqlx::PgPool;

use super::api_keys::Role;
use crate::notifications::routes::LOG;

/// A user as imported, one JSON object per line, and as listed.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, sqlx::FromRow)]
#[serde(deny_unknown_fields)]
pub struct User {
    pub id: String,
    pub name: String,
    pub role: Role,
    /// The configured channel that reaches this person.
    #[serde(default = "log")]
    pub channel: String,
}

fn log() -> String {
    LOG.to_owned()
}

impl User {
    /// What is wrong with it, if anything. `channels` are the configured names beside "log".
    pub fn problem(&self, channels: &[&str]) -> Option<String> {
        let id_fits = (1..=64).contains(&self.id.len())
            && self.id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if !id_fits {
            Some(format!("id '{}' must be 1 to 64 letters, digits, '_' or '-'", self.id))
        } else if matches!(self.role, Role::Producer | Role::Driver) {
            Some("role must be dispatcher, support, operator or admin".to_owned())
        } else if self.channel != LOG && !channels.contains(&self.channel.as_str()) {
            Some(format!("no channel '{}' is configured; add [channels.{}] to config.toml", self.channel, self.channel))
        } else {
            None
        }
    }
}

/// Adds users, or brings those that exist up to date. All or none.
pub async fn import(db: &PgPool, users: &[User]) -> Result<u64, sqlx::Error> {
    let mut tx = db.begin().await?;
    for user in users {
        sqlx::query(
            "-- import user
             INSERT INTO users (id, name, role, channel) VALUES ($1, $2, $3, $4)
             ON CONFLICT (id) DO UPDATE SET name = excluded.name, role = excluded.role, channel = excluded.channel",
        )
        .bind(&user.id)
        .bind(&user.name)
        .bind(user.role)
        .bind(&user.channel)
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(users.len() as u64)
}

pub async fn list(db: &PgPool) -> Result<Vec<User>, sqlx::Error> {
    sqlx::query_as(
        "-- list users
                    SELECT id, name, role, channel FROM users ORDER BY id LIMIT 10000",
    )
    .fetch_all(db)
    .await
}
