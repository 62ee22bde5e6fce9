//! The record of what staff did to queues, drivers, keys, sessions, users, partners and shards, and of who was on which order: who, when, to what, and why. A
//! record is written in the transaction of its change. Changes of orders have their record in the order's history.
//! Design: docs/design/staff-and-roles.md.

use model::actor::Actor;
use serde_json::Value;

use crate::db::Connection;

/// Who does something, and why.
#[derive(Debug, Clone, Copy)]
pub struct ActionAuthor<'a> {
    pub actor: &'a Actor,
    pub reason: Option<&'a str>,
}

impl<'a> From<&'a Actor> for ActionAuthor<'a> {
    fn from(actor: &'a Actor) -> Self {
        Self { actor, reason: None }
    }
}

/// What an action changed, from what to what. Neither holds a secret, a phone number or an address of a person, nor a name other than
/// that of the staff member who took an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionValues {
    /// `None`: it did not exist.
    pub old: Option<Value>,
    /// `None`: it no longer exists.
    pub new: Option<Value>,
}

impl ActionValues {
    pub fn created(new: Value) -> Self {
        Self { old: None, new: Some(new) }
    }

    pub fn changed(old: Value, new: Value) -> Self {
        Self { old: Some(old), new: Some(new) }
    }

    pub fn removed(old: Value) -> Self {
        Self { old: Some(old), new: None }
    }
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum StaffAction {
    QueuePaused,
    QueueResumed,
    JobCancelled,
    JobRescheduled,
    /// A person is on an order that waits for one.
    OrderTaken,
    OrderLeft,
    DriverCreated,
    DriverChanged,
    DriverDisabled,
    DriverEnabled,
    DriverRemoved,
    /// A person has seen the driver's phone number.
    DriverPhoneShown,
    KeyCreated,
    KeyRotated,
    KeyRevoked,
    /// A new key of a producer has the orders of an earlier holder of its name.
    OrdersTakenOver,
    UserSaved,
    UserDisabled,
    UserEnabled,
    UserRemoved,
    SessionEnded,
    /// The share of orders whose job id a partner is asked for.
    PartnerShareSet,
    /// The number of shards of the queue.
    ShardsSet,
    /// A provider's server.
    ServerCreated,
    ServerChanged,
    /// The limit of all calls of providers.
    CallLimitSet,
}

impl StaffAction {
    /// The stored word.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Records an action on the transaction that carries it out.
pub async fn record_action(
    tx: &mut Connection,
    by: ActionAuthor<'_>,
    action: StaffAction,
    subject: &str,
    values: ActionValues,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- record staff action
         INSERT INTO staff_actions (actor, key_id, action, subject, reason, old_value, new_value)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(by.actor.to_string())
    .bind(by.actor.key)
    .bind(action.as_str())
    .bind(subject)
    .bind(by.reason)
    .bind(values.old)
    .bind(values.new)
    .execute(tx)
    .await
    .map(drop)
}
