//! Audit record of staff actions on queues, workers, drivers, keys, sessions, users, partners and shards, and of desk claims:
//! the author, the time, the subject and the reason. A record is written in the transaction of its change, except that of
//! long upkeep ([`record_work`]). Changes of
//! orders are recorded in the order's history. Design: docs/design/staff-and-roles.md.

use model::actor::Actor;
use serde_json::Value;

use crate::db::{Connection, Pool};

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

/// Values before and after an action. Neither contains a secret, a phone number or a personal address. The only
/// personal name is that of the staff member who took an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActionValues {
    /// `None` if it did not exist before.
    pub old: Option<Value>,
    /// `None` if it no longer exists.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "SCREAMING_SNAKE_CASE")]
pub enum StaffAction {
    QueuePaused,
    QueueResumed,
    /// A worker takes no more jobs.
    WorkerDrained,
    WorkerResumed,
    JobCancelled,
    JobRescheduled,
    /// A person claimed an order that waits for one.
    OrderTaken,
    OrderLeft,
    DriverCreated,
    DriverChanged,
    DriverDisabled,
    DriverEnabled,
    DriverRemoved,
    /// A person saw the driver's phone number.
    DriverPhoneShown,
    /// A one-time link was created with which the driver signs in to the driver page.
    DriverSignInLinkCreated,
    /// A person read the contact of an order.
    ContactViewed,
    KeyCreated,
    KeyRotated,
    KeyRevoked,
    /// The orders that the holder of a key may read were limited, or the limit was removed.
    KeyScopeSet,
    /// A producer's new key took over the orders of an earlier holder with the same name.
    OrdersTakenOver,
    UserSaved,
    UserDisabled,
    UserEnabled,
    UserRemoved,
    SessionEnded,
    /// The share of orders for which a partner is polled for the job id was set.
    PartnerShareSet,
    ShardsSet,
    /// Jobs were moved out of shards that are no longer used.
    ShardsDrained,
    /// Redis was compared with Postgres.
    ReconciliationRun,
    /// Rows past their retention were removed.
    CleanupRun,
    ServerCreated,
    ServerChanged,
    /// The limit on all provider calls was set.
    CallLimitSet,
    EndpointCreated,
    /// An event `endpoint.test` was sent.
    EndpointTested,
    /// The secret of a webhook endpoint was replaced.
    EndpointRotated,
    EndpointPaused,
    EndpointResumed,
    /// Earlier events are sent to a webhook endpoint again.
    EndpointReplayed,
    EndpointDeleted,
}

impl StaffAction {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Records work that was done in many transactions, and its result.
pub async fn record_work(
    db: &Pool,
    by: ActionAuthor<'_>,
    action: StaffAction,
    subject: &str,
    result: Value,
) -> Result<(), sqlx::Error> {
    let mut connection = db.acquire().await?;
    record_action(&mut connection, by, action, subject, ActionValues::created(result)).await
}

/// Records an action in the transaction that performs it.
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
