//! Rules for requeueing a dead job. Rules about the order itself are in [`model::decide::requeue`]; this module has the
//! rules about messages and alerts. Pure.

pub use model::decide::requeue::{RequeuePermission, RequeueRefusal, check_timer, requeue_change};

use model::messages::OutboxState;
use notify::{alerts::RaisedAlert, outbox::OutboxRow};

/// Checks whether a message may be sent again. `None`: the message does not exist.
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

/// Checks whether an alert may be repeated again. `None`: the alert does not exist.
pub fn check_alert(row: Option<&RaisedAlert>) -> RequeuePermission {
    match row {
        None => RequeuePermission::Refused(RequeueRefusal::NoAlert),
        Some(row) if row.acked_at.is_some() => RequeuePermission::Refused(RequeueRefusal::AlertAcknowledged),
        Some(row) if row.next_escalation_at.is_none() => RequeuePermission::Refused(RequeueRefusal::AlertToldOften),
        Some(_) => RequeuePermission::Wanted,
    }
}
