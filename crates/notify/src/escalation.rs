//! Repetition of unacknowledged alerts.

use jobs::OrderId;
use model::messages::{self, AlertTelling, ChannelRoutes, RepeatedAlert};

use super::{alerts, outbox};
use foundation::db::Pool;

/// Repeats a due alert, or warns that its SLA ends soon, in one transaction. Does nothing if the alert is acknowledged,
/// not due, or was just repeated by another run.
pub async fn tell_again(db: &Pool, routes: &ChannelRoutes, id: i64) -> Result<(), sqlx::Error> {
    let mut tx = db.begin().await?;
    let Some((alert, now)) = alerts::lock_due_alert(&mut tx, id).await? else { return Ok(()) };
    let Some(Ok(order)) = alert.order_id.as_deref().map(str::parse::<OrderId>) else { return Ok(()) };
    let telling = routes.next_telling(&alert.kind, alert.raised_at, alert.escalations, now);
    let (number, next) = match telling {
        AlertTelling::Warning { sla_ends_at } => (0, Some(sla_ends_at)),
        AlertTelling::Again { number, next } => (number, next),
    };
    sqlx::query(
        "-- count escalation
         UPDATE alerts SET escalations = $2, next_escalation_at = $3 WHERE id = $1",
    )
    .bind(id)
    .bind(number)
    .bind(next)
    .execute(&mut *tx)
    .await?;
    let repeated = RepeatedAlert {
        alert_id: id,
        order_id: &order,
        kind: &alert.kind,
        raised_at: alert.raised_at,
        number,
        told: &alert.payload,
    };
    let message = match telling {
        AlertTelling::Warning { sla_ends_at } => messages::sla_warning(&repeated, sla_ends_at, now),
        AlertTelling::Again { .. } if messages::is_for_dispatchers(&alert.kind) => {
            messages::dispatcher_reminder(&repeated, now)
        }
        AlertTelling::Again { .. } => messages::alert_escalation(&repeated, now),
    };
    outbox::insert_messages(&mut tx, routes, &order, &[message], now).await?;
    tx.commit().await
}
