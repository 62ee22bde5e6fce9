//! News to the customer of an order that ended: the reason and the refund, in the order's language.
//!
//! A decision says the cause. The words are put to it where the message is written, so a row holds what its customer was told,
//! whatever the settings become, and any version delivers it.

use chrono::{DateTime, Utc};

use super::{
    body::{CancelCause, CustomerBody, MessageBody, MessageEvent},
    message::{Message, MessageAudience, cancelled_after_payment, refund_required},
};
use crate::{
    order::Order,
    texts::{Language, Placeholder, TextCatalog, TextKey},
};

/// To the customer: the system ended the order. Told again when it turns out that it was paid.
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

/// What is told of an order that the system has just ended, by its present status: a paid one needs a refund and is
/// published, and the customer learns of either. Support is told `why`, the customer the cause.
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
    /// Returns the news in the words of these texts, in the language that the order asked for.
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
