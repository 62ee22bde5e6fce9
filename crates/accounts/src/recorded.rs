//! Changes that staff make to keys and users. Each change and its audit record are in one transaction.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    api_keys::ApiKey,
    key_admin::{self, KeyError, KeySelection, NewKey},
    users::{self, UserAccount, UserError},
};
use foundation::{
    db::{Connection, Pool},
    staff_actions::{ActionAuthor, ActionValues, StaffAction, record_action},
};
use model::scope::Scope;

/// Creates a key. Returns it with its text, which is not stored.
pub async fn create_key(db: &Pool, new: &NewKey<'_>, by: ActionAuthor<'_>) -> Result<(ApiKey, String), KeyError> {
    let mut tx = db.begin().await?;
    key_admin::check_driver(&mut tx, new).await?;
    if new.scope.is_some() && !key_admin::scopes_work(&mut tx).await? {
        return Err(KeyError::NoScopes);
    }
    let made = key_admin::issue_key(&mut tx, new).await?;
    let values = ActionValues::created(recorded_key(&made.row, new.expires_in));
    record_action(&mut tx, by, StaffAction::KeyCreated, &made.row.name, values).await?;
    if made.took_over {
        let values = ActionValues::changed(json!({ "owns_orders": false }), json!({ "owns_orders": true }));
        record_action(&mut tx, by, StaffAction::OrdersTakenOver, &made.row.name, values).await?;
    }
    tx.commit().await?;
    Ok((made.row, made.text))
}

/// Replaces the key of this name; see [`key_admin::rotate_key`].
pub async fn rotate_key(
    db: &Pool,
    name: &str,
    overlap: Duration,
    expires_in: Option<Duration>,
    by: ActionAuthor<'_>,
) -> Result<(ApiKey, String), KeyError> {
    let mut tx = db.begin().await?;
    let (old, made) = key_admin::replace_key(&mut tx, name, overlap, expires_in).await?;
    let old = json!({ "id": old, "ends_in_s": overlap.as_secs() });
    let values = ActionValues::changed(old, recorded_key(&made.0, expires_in));
    record_action(&mut tx, by, StaffAction::KeyRotated, &made.0.name, values).await?;
    tx.commit().await?;
    Ok(made)
}

/// Sets or removes the scope of a key. It takes effect in all processes like a revocation.
pub async fn set_key_scope(db: &Pool, id: Uuid, scope: Option<&Scope>, by: ActionAuthor<'_>) -> Result<(), KeyError> {
    let mut tx = db.begin().await?;
    if scope.is_some() && !key_admin::scopes_work(&mut tx).await? {
        return Err(KeyError::NoScopes);
    }
    let old = key_admin::set_scope(&mut tx, id, scope).await?;
    let (name, old) = old.ok_or_else(|| KeyError::NoSuchName(id.to_string()))?;
    let values = ActionValues::changed(json!({ "scope": old }), json!({ "scope": scope }));
    record_action(&mut tx, by, StaffAction::KeyScopeSet, &format!("{id} {name}"), values).await?;
    Ok(tx.commit().await?)
}

/// Revokes keys. Returns id and name of the keys that it revoked.
pub async fn revoke_keys(
    db: &Pool,
    which: &KeySelection,
    by: ActionAuthor<'_>,
) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let mut tx = db.begin().await?;
    let revoked = revoke_keys_in(&mut tx, which, by).await?;
    tx.commit().await?;
    Ok(revoked)
}

/// Same as [`revoke_keys`], in the caller's transaction.
pub async fn revoke_keys_in(
    tx: &mut Connection,
    which: &KeySelection,
    by: ActionAuthor<'_>,
) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let revoked = key_admin::revoke_keys(tx, which).await?;
    for (id, name) in &revoked {
        let values = ActionValues::changed(json!({ "revoked": false }), json!({ "revoked": true }));
        record_action(tx, by, StaffAction::KeyRevoked, &format!("{id} {name}"), values).await?;
    }
    Ok(revoked)
}

/// Inserts or updates a user. `channels` are the configured channels apart from "log".
pub async fn save_user(
    db: &Pool,
    user: &UserAccount,
    channels: &[&str],
    by: ActionAuthor<'_>,
) -> Result<(), UserError> {
    if let Some(problem) = user.find_problem(channels) {
        return Err(UserError::Invalid(problem));
    }
    import_users(db, std::slice::from_ref(user), by).await
}

/// Inserts or updates users and records each change. All or none are saved. The caller has validated them.
pub async fn import_users(db: &Pool, users: &[UserAccount], by: ActionAuthor<'_>) -> Result<(), UserError> {
    let mut tx = db.begin().await?;
    if users.iter().any(|user| user.scope.is_some()) && !key_admin::scopes_work(&mut tx).await? {
        return Err(UserError::NoScopes);
    }
    for user in users {
        let old = users::lock_user(&mut *tx, &user.id).await?;
        users::save_user(&mut *tx, user).await?;
        let old = old.as_ref().map(|old| recorded_user(&old.user));
        let values = ActionValues { old, new: Some(recorded_user(user)) };
        record_action(&mut tx, by, StaffAction::UserSaved, &user.id, values).await?;
    }
    Ok(tx.commit().await?)
}

/// Disables or enables messages to a user.
pub async fn set_user_disabled(db: &Pool, id: &str, disabled: bool, by: ActionAuthor<'_>) -> Result<(), UserError> {
    let mut tx = db.begin().await?;
    let old = users::lock_user(&mut *tx, id).await?.ok_or(UserError::NotFound)?;
    users::set_disabled(&mut *tx, id, disabled).await?;
    let action = if disabled { StaffAction::UserDisabled } else { StaffAction::UserEnabled };
    let values =
        ActionValues::changed(json!({ "disabled": old.disabled_at.is_some() }), json!({ "disabled": disabled }));
    record_action(&mut tx, by, action, id, values).await?;
    Ok(tx.commit().await?)
}

pub async fn remove_user(db: &Pool, id: &str, by: ActionAuthor<'_>) -> Result<(), UserError> {
    let mut tx = db.begin().await?;
    let old = users::lock_user(&mut *tx, id).await?.ok_or(UserError::NotFound)?;
    users::remove_user(&mut *tx, id).await?;
    let values = ActionValues::removed(recorded_user(&old.user));
    record_action(&mut tx, by, StaffAction::UserRemoved, id, values).await?;
    Ok(tx.commit().await?)
}

/// Returns the properties of a user that an audit record stores. Name and address are left out.
fn recorded_user(user: &UserAccount) -> Value {
    let UserAccount { role, channel, email, phone, scope, .. } = user;
    let mut values =
        json!({ "role": role, "channel": channel, "has_email": email.is_some(), "has_phone": phone.is_some() });
    if let Some(scope) = scope {
        values["scope"] = json!(scope);
    }
    values
}

/// Returns the properties of a key that an audit record stores.
fn recorded_key(key: &ApiKey, expires_in: Option<Duration>) -> Value {
    let mut values = json!({ "id": key.id, "role": key.role, "expires_in_s": expires_in.map(|time| time.as_secs()) });
    if let Some(scope) = &key.scope {
        values["scope"] = json!(scope);
    }
    values
}
