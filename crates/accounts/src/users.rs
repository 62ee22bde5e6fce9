//! Users: people of the company and the channels that reach them.

use chrono::{DateTime, Utc};
use lettre::Address;
use model::{
    ids::is_phone,
    input::{self, PHONE_RULE},
    messages::routes::LOG,
    plain_text,
    scope::Scope,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgExecutor, types::Json};

use super::api_keys::AccountRole;
use foundation::db::Pool;
use settings::{ChannelConfig, Config};

/// A user, as imported from one JSON object per line and as listed.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, sqlx::FromRow)]
#[serde(deny_unknown_fields)]
pub struct UserAccount {
    pub id: String,
    pub name: String,
    pub role: AccountRole,
    /// Configured channel that reaches this person.
    #[serde(default = "default_channel")]
    pub channel: String,
    /// E-mail address for an e-mail channel. `None`: the channel's own addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Phone number for a voice channel in E.164 form, such as +628123456789.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phone: Option<String>,
    /// Orders that this person may read after a sign-in without a key; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[sqlx(json(nullable))]
    pub scope: Option<Scope>,
}

/// Reason that a user was not changed.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    #[error("no user with this id")]
    NotFound,
    #[error("{0}")]
    Invalid(String),
    #[error("the database lacks the role dispatchq_scoped; run deploy/postgres/roles.sql")]
    NoScopes,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

fn default_channel() -> String {
    LOG.to_owned()
}

impl UserAccount {
    /// Returns a problem with the user, if there is one. `channels` are the configured channels apart from "log".
    pub fn find_problem(&self, channels: &[&str]) -> Option<String> {
        if let Some(problem) = input::ID.find_problem(&self.id) {
            Some(format!("id {problem}"))
        } else if let Some(problem) = plain_text::find_problem(&self.name, 200) {
            Some(format!("name {problem}"))
        } else if matches!(self.role, AccountRole::Producer | AccountRole::Driver | AccountRole::Viewer) {
            Some("role must be dispatcher, support, operator or admin".to_owned())
        } else if self.channel != LOG && !channels.contains(&self.channel.as_str()) {
            Some(format!("no channel '{}' is configured; add [channels.{}] to config.toml", self.channel, self.channel))
        } else if self.email.as_ref().is_some_and(|email| email.len() > 254 || email.parse::<Address>().is_err()) {
            Some("email must be an address such as anna@example.com".to_owned())
        } else if self.phone.as_deref().is_some_and(|phone| !is_phone(phone)) {
            Some(format!("phone {PHONE_RULE}"))
        } else {
            None
        }
    }
}

/// Returns a problem if the user's channel makes calls and the user has no phone number. Every alert to such a user
/// would fail.
pub fn find_missing_phone(user: &UserAccount, config: &Config) -> Option<String> {
    let is_called = matches!(config.channels.get(&user.channel), Some(ChannelConfig::Voice(_)));
    (is_called && user.phone.is_none()).then(|| format!("channel '{}' makes calls, and phone is missing", user.channel))
}

/// Returns the channels that reach dispatchers, without duplicates.
pub async fn dispatcher_channels(db: &Pool) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "-- channels of dispatchers
         SELECT DISTINCT channel FROM users WHERE role = 'dispatcher' AND disabled_at IS NULL ORDER BY channel",
    )
    .fetch_all(db)
    .await
}

/// Inserts or updates a user.
pub(super) async fn save_user(db: impl PgExecutor<'_>, user: &UserAccount) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- import user
         INSERT INTO users (id, name, role, channel, email, phone, scope) VALUES ($1, $2, $3, $4, $5, $6, $7)
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, role = excluded.role, channel = excluded.channel,
            email = excluded.email, phone = excluded.phone, scope = excluded.scope",
    )
    .bind(&user.id)
    .bind(&user.name)
    .bind(user.role)
    .bind(&user.channel)
    .bind(&user.email)
    .bind(&user.phone)
    .bind(user.scope.as_ref().map(Json))
    .execute(db)
    .await
    .map(drop)
}

#[derive(Debug, Clone, PartialEq, Serialize, sqlx::FromRow)]
pub struct ListedUser {
    #[sqlx(flatten)]
    #[serde(flatten)]
    pub user: UserAccount,
    /// Time since which the user receives no messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<DateTime<Utc>>,
}

/// Reads a user and locks its row, so that the transaction can change it.
pub(super) async fn lock_user(db: impl PgExecutor<'_>, id: &str) -> Result<Option<ListedUser>, sqlx::Error> {
    sqlx::query_as(
        "-- lock user
         SELECT id, name, role, channel, email, phone, scope, disabled_at FROM users WHERE id = $1 FOR UPDATE",
    )
    .bind(id)
    .fetch_optional(db)
    .await
}

pub async fn list_users(db: &Pool) -> Result<Vec<ListedUser>, sqlx::Error> {
    sqlx::query_as(
        "-- list users
                    SELECT id, name, role, channel, email, phone, scope, disabled_at FROM users ORDER BY id LIMIT 10000",
    )
    .fetch_all(db)
    .await
}

/// Disables or enables messages to a user. Returns false if the user does not exist.
pub async fn set_disabled(db: impl PgExecutor<'_>, id: &str, disabled: bool) -> Result<bool, sqlx::Error> {
    let updated = sqlx::query(
        "-- set user disabled
         UPDATE users SET disabled_at = CASE WHEN $2 THEN coalesce(disabled_at, dispatchq_now()) END WHERE id = $1",
    )
    .bind(id)
    .bind(disabled)
    .execute(db)
    .await?;
    Ok(updated.rows_affected() == 1)
}

/// Removes a user. Returns false if the user does not exist.
pub async fn remove_user(db: impl PgExecutor<'_>, id: &str) -> Result<bool, sqlx::Error> {
    let removed = sqlx::query(
        "-- remove user
         DELETE FROM users WHERE id = $1",
    )
    .bind(id)
    .execute(db)
    .await?;
    Ok(removed.rows_affected() == 1)
}
