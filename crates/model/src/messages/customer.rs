//! Messages to the customer of a cancelled order: the reason and the refund, in the order's language.
//!
//! A decision only contains the cause. The text is rendered when the message is written. The row therefore keeps the
//! text even if the settings change later, and any version can deliver it.

use chrono::{DateTime, Utc};

use super::{
    body::{CancelCause, CustomerBody, MessageBody, MessageEvent},
    message::{Message, MessageAudience, cancelled_after_payment, refund_required},
};
use crate::{
    order::Order,
    texts::{Language, Placeholder, TextCatalog, TextKey},
};

/// Builds the message to the customer that the order was cancelled. It is sent again if the order turns out to be paid.
pub fn customer_cancelled(order: &Order, cause: CancelCause, now: DateTime<Utc>) -> Message {
    let body = CustomerBody {
        event: MessageEvent::OrderCancelled,
        order_id: order.id.clone(),
        customer_id: order.customer_id.clone(),
        status: order.status,
        reason: String::new(),
        refund: order.owes_refund(),
        timestamp: now,
        cause: Some(cause),
        language: order.language.as_ref().map(ToString::to_string),
        title: None,
        message: None,
    };
    let dedupe_key = order.status.as_str().to_owned();
    Message::new(MessageBody::OrderCancelled(body), MessageAudience::Customer, dedupe_key, now)
}

/// Returns the messages about an order that the system has just ended. If it was paid, support gets a refund alert and
/// the producer an event. The customer is notified in any case. `why` is for support, `cause` for the customer.
pub fn cancelled_by_system(order: &Order, why: &str, cause: CancelCause, now: DateTime<Utc>) -> Vec<Message> {
    let mut messages = Vec::new();
    if order.owes_refund() {
        messages.push(refund_required(order, why, now));
        messages.push(cancelled_after_payment(order, now));
    }
    messages.push(customer_cancelled(order, cause, now));
    messages
}

impl CancelCause {
    /// Returns the key of the sentence that explains the cause.
    const fn text_key(self) -> TextKey {
        match self {
            Self::NoDriver => TextKey::CancelledNoDriver,
            Self::NotConfirmed => TextKey::CancelledNotConfirmed,
            Self::DriverLeft => TextKey::CancelledDriverLeft,
            Self::ByStaff | Self::Other => TextKey::CancelledByStaff,
            Self::PaidLate => TextKey::CancelledPaidLate,
        }
    }
}

impl CustomerBody {
    /// Returns the message rendered with these texts, in the language that the order requested.
    #[must_use]
    pub(super) fn put_into_words(&self, texts: &TextCatalog) -> Self {
        let asked = self.language.as_deref().and_then(Language::from_tag);
        let language = asked.unwrap_or(texts.customer_language);
        let id = (Placeholder::OrderId, self.order_id.as_str());
        let reason = texts.render(language, self.cause.unwrap_or(CancelCause::Other).text_key(), &[id]);
        let mut message =
            texts.render(language, TextKey::OrderCancelled, &[id, (Placeholder::Reason, reason.as_str())]);
        if self.refund {
            message += " ";
            message += &texts.render(language, TextKey::RefundFollows, &[id]);
        }
        Self {
            language: Some(language.code().to_owned()),
            title: Some(texts.render(language, TextKey::OrderCancelledTitle, &[id])),
            message: Some(message),
            reason,
            ..self.clone()
        }
    }
}
