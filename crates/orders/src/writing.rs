//! Writes one change with everything that depends on it, completely or not at all.
//!
//! The change shares a statement and a commit with other changes. It is written alone, by the same statement, if its row
//! is locked by another session, if it asks many drivers, or if its area must have room.

use std::sync::Arc;

use model::{
    decide::{Change, OrderRefusal, change::OrderEvent},
    order::{Snapshot, state},
};
use uuid::Uuid;

use crate::{
    capability::Orders,
    message_sending::send_claimed,
    order_store::{
        outgoing::MessageContext,
        planned,
        write::{OrderWrite, WriteVerdict, WrittenAlert, WrittenRows, write_alone},
    },
    seen::AssumedTime,
    write_error::WriteError,
};
use foundation::db::{Connection, Transaction};
use notify::alerts;

/// Maximum number of batches that a change joins because its drivers turn out to be taken. The time to accept is
/// running, so the change is then written alone, which tries all remaining drivers without a pause.
const MOST_BATCHES: usize = 8;

/// A change to write, and the order that it was decided on.
pub(crate) struct Decided<'a> {
    pub(crate) before: &'a Snapshot,
    pub(crate) change: &'a Arc<Change>,
    /// Time of a decision on a kept order.
    pub(crate) assumed: Option<AssumedTime>,
    /// Stored with the change. It identifies the change if the response to its commit is lost.
    pub(crate) write_id: Uuid,
}

impl Decided<'_> {
    /// Writes the change. Returns the order after it.
    pub(crate) async fn write(&self, orders: &Orders) -> Result<Snapshot, WriteError> {
        check_transitions(self.change)?;
        orders.notify.endpoints.ensure_fresh(&orders.core).await?;
        let context = if self.needs_context(orders) {
            self.load_context(orders, &mut orders.core.db.acquire().await?).await?
        } else {
            MessageContext::default()
        };
        let mut is_alone = self.is_written_alone();
        let mut taken = Vec::new();
        for tries in 0..self.most_tries() {
            is_alone |= tries >= MOST_BATCHES;
            orders.notify.endpoints.ensure_fresh(&orders.core).await?;
            let routes = &orders.config.notifications;
            let item = OrderWrite::in_context(self.write_id, self.before, self.change, &taken, routes, &context);
            let mut item = item.ok_or(WriteError::Conflict)?.assuming(self.assumed);
            let claimed = if is_alone { Vec::new() } else { orders.first_tries.claim(&orders.notify, &mut item) };
            let written =
                if is_alone { write_alone(&orders.core.db, &item).await } else { orders.rows.write_change(item).await };
            match written {
                Ok(WriteVerdict::Written(rows)) => {
                    send_claimed(orders, claimed, &rows.written_messages);
                    return Ok(self.finish(rows));
                }
                Ok(WriteVerdict::Taken(drivers)) => taken.extend(drivers),
                Ok(WriteVerdict::Locked) if !is_alone => is_alone = true,
                Ok(WriteVerdict::Conflict | WriteVerdict::Locked) => return Err(WriteError::Conflict),
                Ok(WriteVerdict::NoRoom) => return Err(WriteError::NoRoom),
                // A driver got another offer since the statement started; the next statement sees it.
                Err(error) if violated_constraint(&error) == Some("offers_live_by_driver") => {}
                Err(error) => return Err(driver_busy(error)),
            }
        }
        Err(WriteError::Conflict)
    }

    /// Writes the change in this transaction, which has locked the row, and commits the transaction.
    pub(crate) async fn write_locked(&self, orders: &Orders, mut tx: Transaction<'_>) -> Result<Snapshot, WriteError> {
        check_transitions(self.change)?;
        // `decide_locked` reads the endpoints before it locks the row, so this call waits only after a long wait for the lock.
        orders.notify.endpoints.ensure_fresh(&orders.core).await?;
        // The transaction has a connection. Others that wait for this row may have all the rest.
        let context = self.load_context(orders, &mut tx).await?;
        let routes = &orders.config.notifications;
        let item = OrderWrite::in_context(self.write_id, self.before, self.change, &[], routes, &context);
        let item = item.ok_or(WriteError::Conflict)?;
        match write_alone(&mut *tx, &item).await.map_err(driver_busy)? {
            WriteVerdict::Written(rows) => {
                tx.commit().await?;
                Ok(self.finish(rows))
            }
            WriteVerdict::NoRoom => Err(WriteError::NoRoom),
            WriteVerdict::Conflict | WriteVerdict::Locked | WriteVerdict::Taken(_) => Err(WriteError::Conflict),
        }
    }

    /// Returns whether the messages of the change need rows. An order that this process has written needs no report of
    /// its creation: the statement that created it wrote the report.
    fn needs_context(&self, orders: &Orders) -> bool {
        let is_kept = self.assumed.is_some();
        MessageContext::names_dispatchers(self.change)
            || (!is_kept && MessageContext::may_owe_creation(&orders.config.notifications, self.before))
    }

    async fn load_context(&self, orders: &Orders, db: &mut Connection) -> Result<MessageContext, sqlx::Error> {
        MessageContext::load(db, &orders.config.notifications, self.before, self.change).await
    }

    /// Returns whether a batch would not fit the change, or would wait: rows of alerts and refunds may be locked by
    /// sessions that do not lock the order.
    fn is_written_alone(&self) -> bool {
        let change = self.change;
        change.room.is_some() || change.refund.is_some() || !change.settles.is_empty() || !planned::fits_batch(change)
    }

    /// Each driver may turn out to be taken in a statement of its own.
    fn most_tries(&self) -> usize {
        MOST_BATCHES + self.change.new_offers.as_ref().map_or(1, |new| 1 + new.ranked.len())
    }

    /// Counts the alerts of the committed change. Returns the order after it.
    fn finish(&self, rows: WrittenRows) -> Snapshot {
        for alert in &rows.settled {
            alerts::record_response(&alert.kind, alert.waited_s);
        }
        for alert in &rows.raised {
            alerts::record_order_alert(&self.change.order.id, &alert.kind);
        }
        let mut after = self.before.apply(self.change);
        after.alerts.retain(|open| rows.settled.iter().all(|settled| settled.id != open.id));
        after.alerts.extend(rows.raised.iter().filter_map(WrittenAlert::to_pending));
        after.offers.extend(rows.offers);
        after.messages.extend(rows.messages);
        after.callbacks.extend(rows.callbacks);
        after.now = rows.now;
        after
    }
}

/// Refuses a change with an illegal transition. It is a bug, and no change is better than a wrong history.
fn check_transitions(change: &Change) -> Result<(), OrderRefusal> {
    let is_illegal = |event: &&OrderEvent| !state::is_transition_allowed(Some(event.from), event.to);
    match change.events.iter().find(is_illegal) {
        Some(event) => Err(OrderRefusal::Illegal { from: event.from, to: event.to }),
        None => Ok(()),
    }
}

/// Returns the refusal if a unique index prevents a second active order of the driver.
fn driver_busy(error: sqlx::Error) -> WriteError {
    match violated_constraint(&error) {
        Some("orders_one_active_per_driver") => OrderRefusal::DriverBusy.into(),
        _ => error.into(),
    }
}

fn violated_constraint(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error().and_then(|e| e.constraint())
}
