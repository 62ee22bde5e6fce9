//! May a dead job of an order have another life? What the order says is in [`model::decide::requeue`]; here are the rows of its
//! messages and alerts. Pure.

pub use model::decide::requeue::{RequeuePermission, RequeueRefusal, check_timer, requeue_change};

use model::messages::OutboxState;
use notify::{alerts::RaisedAlert, outbox::OutboxRow};

/// May this message be sent after all? `None`: there is no such message.
pub fn check_message(row: Option<&OutboxRow>) -> RequeuePermission {
    let Some(row) = row else { return RequeuePermission::Refused(RequeueRefusal::NoMessage) };
    if !matches!(row.state, OutboxState::Pending | OutboxState::Dead) {
        RequeuePermission::Refused(RequeueRefusal::MessageDone { state: row.state })
    } else if row.is_offer() && (row.offer_is_live != Some(true) || row.now >= row.expires_at) {
        RequeuePermission::Refused(RequeueRefusal::OfferGone)
    } else {
        RequeuePermission::Wanted
    }
}

/// May this alert be told again after all? `None`: there is no such alert.
pub fn check_alert(row: Option<&RaisedAlert>) -> RequeuePermission {
    match row {
        None => RequeuePermission::Refused(RequeueRefusal::NoAlert),
        Some(row) if row.acked_at.is_some() => RequeuePermission::Refused(RequeueRefusal::AlertAcknowledged),
        Some(row) if row.next_escalation_at.is_none() => RequeuePermission::Refused(RequeueRefusal::AlertToldOften),
        Some(_) => RequeuePermission::Wanted,
    }
}
