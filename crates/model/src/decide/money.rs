//! Decisions on payment statuses, refunds and answers of the payment service. Pure.
//!
//! All refunds follow from [`Order::was_ever_paid`](crate::order::Order::was_ever_paid). A payment status never settles
//! a refund. A person settles it, or the payment service under the refund id that it returned.

use crate::{
    actor::Actor,
    decide::{Change, Decision, OrderRefusal, RefundChange},
    messages::{self, CancelCause, PaymentTopic},
    order::{EventReason, HoldCause, OrderStatus, PaymentStatus, RefundProgress, Snapshot},
};

/// Records a payment status under the producer's own event id. A repeated event changes nothing, and a late PENDING
/// never replaces PAID.
pub fn record_payment(s: &Snapshot, actor: &Actor, event_id: &str, word: &PaymentStatus) -> Decision {
    if let Some(known) = s.payments.iter().find(|p| p.event_id == event_id) {
        return if known.payment_status == *word {
            Decision::Unchanged
        } else {
            Decision::Refuse(OrderRefusal::PaymentEventReused)
        };
    }
    let mut change = Change::new(s, actor);
    change.payment_event = Some((event_id.to_owned(), word.clone()));
    if *word == PaymentStatus::Refunded && awaits_acceptance(s) {
        // Another request could pay twice. A person settles the refund.
        let why = "the producer reports that the money was returned".to_owned();
        change.refund = Some(RefundChange::Refused { why, refund_id: None });
    }
    if word.is_paid() && was_refunded(s) {
        let why = format!("the payment is reported as {word} after the refund; it creates no new debt");
        change.record_event(EventReason::PaidAfterRefund, Some(word.to_string()));
        change.notify(messages::payment_alert(&change.order, PaymentTopic::PaidAfterRefund, &why, s.now));
    } else if is_news(s, word) {
        apply_word(&mut change, s, word);
        tell_of_word(&mut change, s, word);
    } else if !word.is_known() && *word != s.order.payment_status {
        // No word replaces REFUNDED. Support checks words that arrive after it.
        tell_of_word(&mut change, s, word);
    }
    change.into()
}

/// Returns whether a refund request is sent or due and the payment service has not accepted it yet.
fn awaits_acceptance(s: &Snapshot) -> bool {
    s.refund_at.is_some() && s.refund.as_ref().is_some_and(|asked| asked.refund_id.is_none())
}

/// Returns whether the money is reported as returned: by the refund, or by the word REFUNDED.
pub fn was_refunded(s: &Snapshot) -> bool {
    s.order.status == OrderStatus::Refunded
        || s.order.payment_status == PaymentStatus::Refunded
        || s.payments.iter().any(|p| p.payment_status == PaymentStatus::Refunded)
}

/// Returns whether the word changes the order. Any known word replaces an unknown one, unless the order was ever paid.
/// A late word is stored with its event and changes nothing.
fn is_news(s: &Snapshot, word: &PaymentStatus) -> bool {
    let clears = !s.order.payment_status.is_known() && !s.order.was_ever_paid();
    clears && *word != s.order.payment_status || word.supersedes(&s.order.payment_status)
}

fn apply_word(change: &mut Change, s: &Snapshot, word: &PaymentStatus) {
    let owed_before = s.order.owes_refund();
    change.order.set_payment(word.clone(), s.now);
    let owes = change.order.owes_refund();
    let detail = Some(word.to_string());
    match s.order.status {
        OrderStatus::CancelledBySystem if owes && word.is_paid() => {
            change.transition_to(OrderStatus::CancelledBySystemAfterPayment, EventReason::PaidAfterCancel, detail);
            let (why, cause) = ("paid after the system had cancelled", CancelCause::PaidLate);
            for message in messages::cancelled_by_system(&change.order, why, cause, s.now) {
                change.notify(message);
            }
        }
        OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver if owes && !owed_before => {
            change.record_event(EventReason::PaidAfterCancel, detail);
            change.notify(messages::refund_required(&change.order, "paid after the order was cancelled", s.now));
        }
        OrderStatus::Compensating if s.order.held_for_review && s.order.hold_cause != Some(HoldCause::ByHand) => {
            // The payment is no longer unknown, so compensation continues.
            change.release_hold();
            change.record_event(EventReason::PaymentChanged, detail);
        }
        _ => change.record_event(EventReason::PaymentChanged, detail),
    }
}

/// Notifies support of a word that a person must check. During COMPENSATING, compensation itself notifies support.
fn tell_of_word(change: &mut Change, s: &Snapshot, word: &PaymentStatus) {
    let status = s.order.status;
    let has_ended = status.is_closed() && status != OrderStatus::Completed;
    let debt = match change.order.refund_progress() {
        Some(RefundProgress::Owed | RefundProgress::Started) => "; the refund stays owed until it is settled",
        Some(RefundProgress::Completed) => "; its refund is completed",
        None => "",
    };
    let (topic, why) = match word {
        PaymentStatus::Other(_) if status == OrderStatus::Compensating => return,
        PaymentStatus::Other(_) if has_ended => {
            let why = format!("cancelled, and its payment is {word} now, which the rules do not know{debt}");
            (PaymentTopic::UnknownAtEnd, why)
        }
        PaymentStatus::Other(_) => {
            (PaymentTopic::UnknownWord, format!("its payment is {word}, which the rules do not know"))
        }
        PaymentStatus::Refunded if !matches!(status, OrderStatus::Refunded | OrderStatus::Completed) => {
            let stopped = if change.refund.is_some() { "; the payment service is no longer asked" } else { "" };
            let why = format!(
                "the producer reports that the money was returned; check it, then record it by hand{debt}{stopped}"
            );
            (PaymentTopic::ReportedRefund, why)
        }
        _ => return,
    };
    change.notify(messages::payment_alert(&change.order, topic, &why, s.now));
}

pub fn start_refund(s: &Snapshot, actor: &Actor, note: Option<String>) -> Decision {
    match s.order.status {
        OrderStatus::RefundPending | OrderStatus::Refunded => Decision::Unchanged,
        OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver if !s.order.owes_refund() => {
            Decision::Refuse(OrderRefusal::NothingPaid)
        }
        OrderStatus::CancelledBySystemAfterPayment | OrderStatus::CancelledByUser | OrderStatus::CancelledByDriver => {
            let mut change = Change::new(s, actor);
            change.transition_to(OrderStatus::RefundPending, EventReason::RefundStarted, note);
            change.into()
        }
        status => Decision::Refuse(OrderRefusal::WrongState {
            status,
            allowed: "CANCELLED_BY_SYSTEM_AFTER_PAYMENT, CANCELLED_BY_USER, CANCELLED_BY_DRIVER",
        }),
    }
}

/// Returns whether the payment service may be asked for a refund, which needs an amount and a currency. After the word
/// REFUNDED a request could pay twice, so a person settles the refund.
pub fn may_ask_service(s: &Snapshot) -> bool {
    let has_amount = s.order.amount_minor.is_some_and(|amount| amount > 0) && s.order.currency.is_some();
    has_amount && !was_refunded(s)
}

/// Records that the money was returned.
pub fn finish_refund(s: &Snapshot, actor: &Actor, note: Option<String>) -> Decision {
    match s.order.status {
        OrderStatus::Refunded => Decision::Unchanged,
        OrderStatus::RefundPending => {
            let mut change = Change::new(s, actor);
            change.release_hold();
            change.transition_to(OrderStatus::Refunded, EventReason::Refunded, note);
            change.into()
        }
        status => Decision::Refuse(OrderRefusal::WrongState { status, allowed: "REFUND_PENDING (order refund start)" }),
    }
}

pub fn complete_refund(s: &Snapshot, refund_id: &str) -> Decision {
    if s.order.status == OrderStatus::Refunded {
        return record_late_report(s, refund_id, RefundReport::Completed);
    }
    let mut decision = finish_refund(s, &Actor::SYSTEM, Some(RefundReport::Completed.describe(refund_id)));
    if let Decision::Change(change) = &mut decision {
        change.refund = Some(RefundChange::Done(Some(refund_id.to_owned())));
    }
    decision
}

/// Records that the payment service refused the refund, and notifies support. If the service is no longer asked, only a
/// failure of an accepted refund is recorded.
pub fn refuse_refund(s: &Snapshot, why: &str, refund_id: Option<&str>) -> Decision {
    if s.order.status != OrderStatus::RefundPending || s.refund_at.is_none() {
        return match refund_id {
            Some(refund_id) => record_late_report(s, refund_id, RefundReport::Failed(why)),
            None => Decision::Unchanged,
        };
    }
    let mut change = Change::new(s, Actor::SYSTEM);
    change.refund = Some(RefundChange::Refused { why: why.to_owned(), refund_id: refund_id.map(str::to_owned) });
    let named = refund_id.map(|id| format!("refund {id}: ")).unwrap_or_default();
    change.record_event(EventReason::RefundFailed, Some(format!("{named}{why}")));
    let told = format!("the payment service refused the refund ({why}); refund by hand, then record it");
    change.notify(messages::unexpected_state(&change.order, &told, s.now));
    change.into()
}

/// Records a result of the service's own refund that arrives after the refund was settled, each result once. Support is
/// notified if the result contradicts how the refund was settled.
fn record_late_report(s: &Snapshot, refund_id: &str, report: RefundReport<'_>) -> Decision {
    let Some(asked) = &s.refund else { return Decision::Unchanged };
    let (is_known, reason, contradiction) = match report {
        RefundReport::Completed => (
            asked.was_paid,
            EventReason::RefundedTwice,
            Some(
                "was paid after the refund had been settled by hand; the customer may have been refunded twice"
                    .to_owned(),
            ),
        ),
        RefundReport::Failed(why) => (
            asked.has_failed,
            EventReason::RefundFailed,
            asked
                .was_paid
                .then(|| format!("failed after it had been paid ({why}); the customer may not have the money")),
        ),
    };
    if is_known {
        return Decision::Unchanged;
    }
    let mut change = Change::new(s, Actor::SYSTEM);
    change.refund =
        Some(RefundChange::Late { refund_id: refund_id.to_owned(), was_paid: report == RefundReport::Completed });
    change.record_event(reason, Some(report.describe(refund_id)));
    if let Some(what) = contradiction {
        let why = format!("refund {refund_id} of the payment service {what}");
        change.notify(messages::payment_alert(&change.order, PaymentTopic::SettledRefund, &why, s.now));
    }
    change.into()
}

/// Result reported by a callback of the payment service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefundReport<'a> {
    Completed,
    Failed(&'a str),
}

impl RefundReport<'_> {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Completed => "refund.completed",
            Self::Failed(_) => "refund.failed",
        }
    }

    fn describe(&self, refund_id: &str) -> String {
        match self {
            Self::Completed => format!("refund {refund_id} of the payment service"),
            Self::Failed(why) => format!("refund {refund_id}: {why}"),
        }
    }
}

/// Applies a callback of the payment service. Only the refund id that the service returned settles the order. Another
/// id is recorded once and reported to support. A callback that arrives before the service's answer is refused, and the
/// service sends it again.
pub fn take_refund_report(s: &Snapshot, refund_id: &str, report: RefundReport<'_>) -> Decision {
    let status = s.order.status;
    if !matches!(status, OrderStatus::RefundPending | OrderStatus::Refunded) {
        return Decision::Refuse(OrderRefusal::WrongState { status, allowed: "REFUND_PENDING (order refund start)" });
    }
    let Some(asked) = &s.refund else {
        let is_done = status == OrderStatus::Refunded;
        return if is_done { Decision::Unchanged } else { Decision::Refuse(OrderRefusal::RefundNotAsked) };
    };
    match (asked.refund_id.as_deref(), report) {
        (None, _) if s.refund_at.is_some() && status == OrderStatus::RefundPending => {
            Decision::Refuse(OrderRefusal::RefundUnanswered)
        }
        (Some(known), RefundReport::Completed) if known == refund_id => complete_refund(s, refund_id),
        (Some(known), RefundReport::Failed(why)) if known == refund_id => refuse_refund(s, why, Some(refund_id)),
        _ if asked.other_refund_ids.iter().any(|other| other == refund_id) => Decision::Unchanged,
        (known, report) => {
            let mut change = Change::new(s, Actor::SYSTEM);
            change.refund = Some(RefundChange::OtherId(refund_id.to_owned()));
            let known = known.unwrap_or("none");
            let what = format!("{} names refund {refund_id}; the payment service returned {known}", report.as_str());
            change.record_event(EventReason::RefundIdMismatch, Some(what.clone()));
            change.notify(messages::payment_alert(&change.order, PaymentTopic::OtherRefund, &what, s.now));
            change.into()
        }
    }
}
