//! What a customer is told of an order that ended: why, and what becomes of the money, in the order's language.
//!
//! A decision says the cause. The words are put to it where the message is written, so a row holds what its customer was told,
//! whatever the settings become, and any version delivers it.

use chrono::{DateTime, Utc};
use jobs::OrderId;
use serde::{Deserialize, Serialize};

use super::{
    body::{MessageBody, MessageEvent},
    message::{Message, MessageAudience, cancelled_after_payment, refund_required},
};
use crate::{
    order::{Order, OrderStatus},
    texts::{Language, Placeholder, TextCatalog, TextKey},
};

/// Why an order ended, for its customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelCause {
    /// No driver took it in its time.
    NoDriver,
    /// The partner named no job id, or lost the booking.
    NotConfirmed,
    /// The driver gave it back when no time was left for another.
    DriverLeft,
    /// Staff ended it.
    ByStaff,
    /// It was paid after it had ended.
    PaidLate,
    /// What a newer version wrote.
    #[serde(other)]
    Other,
}

impl CancelCause {
    pub const ALL: [Self; 6] =
        [Self::NoDriver, Self::NotConfirmed, Self::DriverLeft, Self::ByStaff, Self::PaidLate, Self::Other];

    /// The sentence that tells it.
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

/// News to the customer whose order was cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CustomerBody {
    pub event: MessageEvent,
    pub order_id: OrderId,
    pub customer_id: Option<String>,
    pub status: OrderStatus,
    /// A sentence in the customer's language. Rows of versions before 0039 have it in English, for engineers.
    pub reason: String,
    /// The customer gets money back.
    pub refund: bool,
    pub timestamp: DateTime<Utc>,
    /// Why, for programs; `None` in rows of versions before 0039, as all that follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<CancelCause>,
    /// BCP 47: what the order asked for and, once it is put into words, what these are in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The heading.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// All that the customer is told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

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
