//! Keys and users as staff change them: each change in one transaction with its record.

use std::time::Duration;

use uuid::Uuid;

use super::{
    api_keys::ApiKey,
    key_admin::{self, KeyError, KeySelection, NewKey},
    staff_actions::{ActionAuthor, StaffAction, record_action},
    users::{self, UserAccount, UserError},
};
use crate::db::Pool;

/// Makes a key. Returns it with its text, which is stored nowhere.
pub async fn create_key(db: &Pool, new: &NewKey<'_>, by: ActionAuthor<'_>) -> Result<(ApiKey, String), KeyError> {
    let mut tx = db.begin().await?;
    let made = key_admin::issue_key(&mut tx, new).await?;
    record_action(&mut tx, by, StaffAction::KeyCreated, &made.row.name).await?;
    if made.took_over {
        record_action(&mut tx, by, StaffAction::OrdersTakenOver, &made.row.name).await?;
    }
    tx.commit().await?;
    Ok((made.row, made.text))
}

/// Replaces the key of this name, as [`key_admin::rotate_key`].
pub async fn rotate_key(
    db: &Pool,
    name: &str,
    overlap: Duration,
    expires_in: Option<Duration>,
    by: ActionAuthor<'_>,
) -> Result<(ApiKey, String), KeyError> {
    let mut tx = db.begin().await?;
    let made = key_admin::replace_key(&mut tx, name, overlap, expires_in).await?;
    record_action(&mut tx, by, StaffAction::KeyRotated, &made.0.name).await?;
    tx.commit().await?;
    Ok(made)
}

/// Revokes keys. Returns id and name of those that were live.
pub async fn revoke_keys(
    db: &Pool,
    which: &KeySelection,
    by: ActionAuthor<'_>,
) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let mut tx = db.begin().await?;
    let revoked = key_admin::revoke_keys(&mut tx, which).await?;
    for (id, name) in &revoked {
        record_action(&mut tx, by, StaffAction::KeyRevoked, &format!("{id} {name}")).await?;
    }
    tx.commit().await?;
    Ok(revoked)
}

/// Adds a user, or brings one that exists up to date. `channels` are the configured names beside "log".
pub async fn save_user(
    db: &Pool,
    user: &UserAccount,
    channels: &[&str],
    by: ActionAuthor<'_>,
) -> Result<(), UserError> {
    if let Some(problem) = user.find_problem(channels) {
        return Err(UserError::Invalid(problem));
    }
    let mut tx = db.begin().await?;
    users::save_user(&mut *tx, user).await?;
    record_action(&mut tx, by, StaffAction::UserSaved, &user.id).await?;
    Ok(tx.commit().await?)
}

/// Tells this person nothing more, or takes that back.
pub async fn set_user_disabled(db: &Pool, id: &str, disabled: bool, by: ActionAuthor<'_>) -> Result<(), UserError> {
    let mut tx = db.begin().await?;
    if !users::set_disabled(&mut *tx, id, disabled).await? {
        return Err(UserError::NotFound);
    }
    let action = if disabled { StaffAction::UserDisabled } else { StaffAction::UserEnabled };
    record_action(&mut tx, by, action, id).await?;
    Ok(tx.commit().await?)
}

/// Removes a user.
pub async fn remove_user(db: &Pool, id: &str, by: ActionAuthor<'_>) -> Result<(), UserError> {
    let mut tx = db.begin().await?;
    if !users::remove_user(&mut *tx, id).await? {
        return Err(UserError::NotFound);
    }
    record_action(&mut tx, by, StaffAction::UserRemoved, id).await?;
    Ok(tx.commit().await?)
}
