//! Messages as text for people: in Slack, by e-mail, on a ticket. Pure.
//!
//! The refund alert follows the text in the requirement document on job id retrieval.

use std::{fmt::Write, time::Duration};

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::Value;

use super::{
    body::{ActionHead, CustomerBody, MessageBody, OrderAlertBody, StoredMessage, show_field, show_text},
    kind::MessageKind,
    money,
};

/// Sentence for a customer who gets money back.
const REFUND_FOLLOWS: &str = " You will get your money back; our support team takes care of it.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageText {
    /// A single line.
    pub subject: String,
    /// Starts with the heading.
    pub body: String,
}

/// Renders a message. `sla` is the time within which an alert must be acknowledged. Contents that this version does not
/// know are listed field by field.
pub fn render_message(message: &StoredMessage, sla: Duration) -> MessageText {
    let content = message.read_body();
    let heading = heading_of(message, &content);
    let mut body = format!("{heading}\n\n");
    match &content {
        MessageBody::Escalation(repeated) | MessageBody::Reminder(repeated) => {
            if let Some(name) = &repeated.addressee.user_name {
                let _ = writeln!(body, "Dispatcher: {}", show_text(name));
            }
            let raised = show_time(repeated.raised_at);
            let _ = writeln!(
                body,
                "Raised at {raised} and not acknowledged. Acknowledge it: dispatchq alert ack {}\n",
                repeated.alert_id
            );
            body += &render_message(&repeated.told_alert(), sla).body;
        }
        MessageBody::OrderCancelled(CustomerBody { message: Some(said), .. }) => body += &show_text(said),
        MessageBody::SlaWarning(warning) => {
            let (raised, ends) = (show_time(warning.repeated.raised_at), show_time(warning.sla_ends_at));
            let _ = writeln!(
                body,
                "Raised at {raised}; its SLA ends at {ends}. Acknowledge it: dispatchq alert ack {}\n",
                warning.repeated.alert_id
            );
            body += &render_message(&warning.repeated.told_alert(), sla).body;
        }
        // The row contains only the reason, without a text for the customer.
        MessageBody::OrderCancelled(news) => {
            let _ = write!(body, "Your order {} was cancelled: {}.", news.order_id, show_text(&news.reason));
            if news.refund {
                body += REFUND_FOLLOWS;
            }
        }
        MessageBody::Unknown(_) => body += &unknown_text(message, &content, sla),
        _ => match alert_lines(message, &content) {
            Some(lines) => body += &alert_text(message, &content, lines, sla),
            None => body += &list_fields(&message.payload),
        },
    }
    MessageText { subject: format!("{heading}: {}", content.subject_id()), body }
}

/// Returns the text of a row of another version, as far as this version can parse it. The reader is the person who must
/// act on it, or a customer.
fn unknown_text(message: &StoredMessage, content: &MessageBody, sla: Duration) -> String {
    let field = |name: &str| show_field(&message.payload[name]);
    match message.known_kind() {
        Some(MessageKind::Reminder | MessageKind::Escalation | MessageKind::SlaWarning)
            if message.payload["alert"].is_object() =>
        {
            let told = StoredMessage {
                kind: field("alert_kind").unwrap_or_default(),
                payload: message.payload["alert"].clone(),
            };
            let id = field("alert_id").unwrap_or_default();
            let alert = render_message(&told, sla).body;
            format!("Not acknowledged. Acknowledge it: dispatchq alert ack {id}\n\n{alert}")
        }
        Some(MessageKind::OrderCancelled) if message.payload["message"].is_string() => {
            field("message").unwrap_or_default()
        }
        Some(MessageKind::OrderCancelled) if message.payload["reason"].is_string() => {
            let mut news = format!(
                "Your order {} was cancelled: {}.",
                field("order_id").unwrap_or_default(),
                field("reason").unwrap_or_default()
            );
            if message.payload["refund"] == true {
                news += REFUND_FOLLOWS;
            }
            news
        }
        _ => match alert_lines(message, content) {
            Some(lines) => alert_text(message, content, lines, sla),
            None => list_fields(&message.payload),
        },
    }
}

fn heading_of(message: &StoredMessage, body: &MessageBody) -> String {
    match body {
        MessageBody::OrderCancelled(CustomerBody { title: Some(title), .. }) => return show_text(title),
        MessageBody::Reminder(repeated) => return format!("🚨 Reminder {}: Dispatcher Needed", repeated.number),
        MessageBody::Escalation(repeated) => {
            let told = repeated.told_alert();
            let alert = heading_of(&told, &told.read_body());
            return format!("🚨 Escalation {}: {}", repeated.number, alert.trim_start_matches("🚨 "));
        }
        MessageBody::SlaWarning(warning) => {
            let told = warning.repeated.told_alert();
            let alert = heading_of(&told, &told.read_body());
            return format!("🚨 SLA Ends Soon: {}", alert.trim_start_matches("🚨 "));
        }
        _ => {}
    }
    let said = match message.known_kind() {
        Some(MessageKind::ManualRefundRequired) => "🚨 Manual Refund Required",
        Some(MessageKind::UnexpectedState) => "🚨 Unexpected State",
        Some(MessageKind::TimerDead) => "🚨 Order Stuck",
        Some(MessageKind::StaleTrip) => "🚨 Trip Overdue",
        Some(MessageKind::ScheduledWithoutDriver) => "🚨 No Driver Before Pickup",
        Some(MessageKind::FailedToGetOrder) => "🚨 Failed To Get Order",
        Some(MessageKind::StatusUpdateFailed) => "🚨 Status Update Failed",
        Some(MessageKind::PartnerRefusesKey) => "🚨 Partner Refuses Our Key",
        Some(MessageKind::DispatchFailed) => "🚨 Dispatcher Needed",
        Some(MessageKind::OrderCancelled) => "Order Cancelled",
        Some(MessageKind::OtpWanted) => "OTP Wanted",
        Some(MessageKind::TransactionUnresolved) => "🚨 Transaction Unresolved",
        _ => &message.kind,
    };
    said.to_owned()
}

/// Returns the actions for the reader of an alert; empty for messages that require none.
fn actions_for(kind: MessageKind) -> &'static [&'static str] {
    match kind {
        MessageKind::ManualRefundRequired => &[
            "Verify order details in admin panel",
            "Process full refund via refund module",
            "Contact customer if needed",
            "Mark as resolved in support system",
        ],
        MessageKind::UnexpectedState => &[
            "Verify order and payment details in admin panel",
            "Decide whether to refund the customer",
            "End the order, or report the payment's true status",
            "Mark as resolved in support system",
        ],
        MessageKind::TimerDead => &[
            "Verify order details in admin panel",
            "Assign a driver, redispatch or cancel the order",
            "Report the reason to the engineers",
        ],
        MessageKind::StaleTrip => &[
            "Ask the driver about the trip",
            "Have it completed, take the order back (dispatchq order release), or cancel it",
        ],
        MessageKind::ScheduledWithoutDriver => {
            &["Assign a driver once dispatch has started, move the pickup, or cancel the order"]
        }
        MessageKind::FailedToGetOrder => {
            &["Find out what happened to the order and whether it was paid", "Report it to the engineers"]
        }
        MessageKind::StatusUpdateFailed => &[
            "Verify order and payment details in admin panel",
            "Report the error to the engineers; the update is retried automatically",
            "Contact customer if needed",
        ],
        MessageKind::PartnerRefusesKey => &["Ask the partner for a valid key and put it into the configuration"],
        MessageKind::DispatchFailed => &["Assign a driver, redispatch or cancel the order"],
        MessageKind::OtpWanted => &[
            "Get the OTP from the owner of the account",
            "Submit it before the deadline: dispatchq binding otp, or POST /api/v1/bindings/{id}/otp",
        ],
        MessageKind::TransactionUnresolved => &[
            "Ask the provider's desk how the transaction ended; dispatchq keeps asking automatically",
            "See the calls and answers: dispatchq binding transactions",
        ],
        _ => &[],
    }
}

/// Returns the labelled lines of an alert; `None` for messages that require no action. An alert that this version
/// cannot parse shows all its fields.
fn alert_lines(message: &StoredMessage, body: &MessageBody) -> Option<String> {
    let mut lines = AlertLines::default();
    match body {
        MessageBody::DispatchFailed(alert) => lines
            .push_some("Dispatcher", alert.addressee.user_name.as_deref())
            .push("Order ID", alert.order_id.as_str())
            .push_some("Customer ID", alert.customer_id.as_deref())
            .push("Service Type", &alert.service_type)
            .push_some("Area", alert.area_id.as_deref())
            .push("Attempts", &alert.attempts.to_string())
            .push("Lifetime Ends", &show_time(alert.lifetime_deadline)),
        MessageBody::ScheduledWithoutDriver(alert) => lines
            .push_some("Dispatcher", alert.addressee.user_name.as_deref())
            .push("Order ID", alert.order_id.as_str())
            .push("Pickup At", &show_time(alert.pickup_at))
            .push("Status", alert.status.as_str())
            .push_some("Customer ID", alert.customer_id.as_deref())
            .push("Service Type", &alert.service_type)
            .push_some("Area", alert.area_id.as_deref())
            .push("Attempts", &alert.attempts.to_string())
            .push("Lifetime Ends", &show_time(alert.lifetime_deadline)),
        MessageBody::ManualRefundRequired(alert)
        | MessageBody::UnexpectedState(alert)
        | MessageBody::TimerDead(alert) => lines.push_head(&alert.head).push_order(alert),
        MessageBody::StaleTrip(trip) => {
            lines.push_head(&trip.alert.head).push_some("Driver", trip.driver_id.as_deref()).push_order(&trip.alert)
        }
        MessageBody::FailedToGetOrder(head) => lines.push_head(head),
        MessageBody::StatusUpdateFailed(alert) => lines.push_head(&alert.head).push("Error", &alert.error),
        MessageBody::PartnerRefusesKey(alert) => {
            lines.push_head(&alert.head).push("Partner", &alert.partner).push("Error", &alert.error)
        }
        MessageBody::OtpWanted(wanted) => lines
            .push("Binding ID", wanted.binding_id.as_str())
            .push("Server ID", wanted.server_id.as_str())
            .push("Account ID", wanted.account_id.as_str())
            .push("Transaction ID", wanted.trx_id.as_str())
            .push("Ask", &wanted.ask.to_string())
            .push("Deadline", &show_time(wanted.deadline)),
        MessageBody::TransactionUnresolved(left) => lines
            .push("Binding ID", left.binding_id.as_str())
            .push("Server ID", left.server_id.as_str())
            .push("Account ID", left.account_id.as_str())
            .push("Transaction ID", left.trx_id.as_str())
            .push("Deadline", &show_time(left.deadline)),
        MessageBody::Unknown(_) if message.known_kind().is_some_and(|kind| !actions_for(kind).is_empty()) => {
            return Some(list_fields(&message.payload) + "\n");
        }
        _ => return None,
    };
    Some(lines.text)
}

#[derive(Debug, Default)]
struct AlertLines {
    text: String,
}

impl AlertLines {
    fn push(&mut self, label: &str, value: &str) -> &mut Self {
        let _ = writeln!(self.text, "{label}: {}", show_text(value));
        self
    }

    fn push_some(&mut self, label: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.push(label, value);
        }
        self
    }

    fn push_head(&mut self, head: &ActionHead) -> &mut Self {
        self.push("Order ID", head.order_id.as_str())
    }

    fn push_order(&mut self, alert: &OrderAlertBody) -> &mut Self {
        self.push("Status", alert.status.as_str())
            .push("Reason", &alert.reason)
            .push("Payment Status", alert.payment_status.as_str())
            .push("Payment Amount", &amount_text(alert))
            .push_some("Customer ID", alert.customer_id.as_deref())
    }
}

fn alert_text(message: &StoredMessage, body: &MessageBody, lines: String, sla: Duration) -> String {
    let mut text = lines + "\nAction Required:\n";
    for (i, action) in message.known_kind().map_or(&[][..], actions_for).iter().enumerate() {
        let _ = writeln!(text, "{}. {action}", i + 1);
    }
    if body.is_urgent() {
        let _ = write!(text, "\nPriority: High\nSLA: Within {}", duration_words(sla));
    }
    text.trim_end().to_owned()
}

fn amount_text(alert: &OrderAlertBody) -> String {
    match (alert.payment_amount_minor, &alert.payment_currency) {
        (Some(minor), Some(currency)) => money::format_amount(minor, currency),
        (Some(minor), None) => format!("{minor} (currency unknown)"),
        (None, _) => "unknown".to_owned(),
    }
}

/// Returns all fields of a message, one per line.
fn list_fields(payload: &Value) -> String {
    let lines = payload
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some(format!("{name}: {}", show_field(value)?)));
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats a time as in JSON.
fn show_time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Formats a duration: `24 hours`, `90 minutes`, `30 seconds`.
fn duration_words(duration: Duration) -> String {
    let secs = duration.as_secs();
    let (number, unit) = match secs {
        0 => return humantime::format_duration(duration).to_string(),
        s if s.is_multiple_of(3600) => (s / 3600, "hour"),
        s if s.is_multiple_of(60) => (s / 60, "minute"),
        s => (s, "second"),
    };
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        messages::{MANUAL_REFUND_REQUIRED, Message, RepeatedAlert, alert_escalation, refund_required},
        order::{OrderStatus, PaymentStatus, order::fixture},
    };

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn refund() -> Message {
        let mut s = fixture::created_snapshot();
        s.order.id = "CCT-20260109XXXXX".parse().unwrap();
        s.order.status = OrderStatus::CancelledBySystemAfterPayment;
        s.order.payment_status = PaymentStatus::Paid;
        refund_required(&s.order, "Job ID retrieval timeout after 30 minutes", s.now)
    }

    #[test]
    fn refund_alert_matches_the_requirement() {
        let alert = refund();
        let text = render_message(&alert.to_stored(), DAY);
        assert_eq!(text.subject, "🚨 Manual Refund Required: CCT-20260109XXXXX");
        assert_eq!(
            text.body,
            "🚨 Manual Refund Required\n\
             \n\
             Order ID: CCT-20260109XXXXX\n\
             Status: CANCELLED_BY_SYSTEM_AFTER_PAYMENT\n\
             Reason: Job ID retrieval timeout after 30 minutes\n\
             Payment Status: PAID\n\
             Payment Amount: Rp 150,000\n\
             \n\
             Action Required:\n\
             1. Verify order details in admin panel\n\
             2. Process full refund via refund module\n\
             3. Contact customer if needed\n\
             4. Mark as resolved in support system\n\
             \n\
             Priority: High\n\
             SLA: Within 24 hours"
        );
    }

    #[test]
    fn escalation_shows_its_alert() {
        let s = fixture::created_snapshot();
        let told = refund().body.to_payload();
        let alert = RepeatedAlert {
            alert_id: 7,
            order_id: &"CCT-20260109XXXXX".parse().unwrap(),
            kind: MANUAL_REFUND_REQUIRED,
            raised_at: s.now,
            number: 2,
            told: &told,
        };
        let escalation = alert_escalation(&alert, s.now);
        let text = render_message(&escalation.to_stored(), DAY);
        assert_eq!(text.subject, "🚨 Escalation 2: Manual Refund Required: CCT-20260109XXXXX");
        assert!(text.body.contains("dispatchq alert ack 7"), "{}", text.body);
        assert!(text.body.contains("Payment Amount: Rp 150,000"), "{}", text.body);
    }

    #[test]
    fn alert_value_stays_on_one_line() {
        let s = fixture::created_snapshot();
        let alert = refund_required(&s.order, "first\nPayment Amount: Rp 9", s.now);
        let text = render_message(&alert.to_stored(), DAY).body;
        assert!(text.contains("Reason: first Payment Amount: Rp 9\nPayment Status: UNPAID\n"), "{text}");
    }

    #[test]
    fn unknown_message_lists_its_fields() {
        let payload = json!({ "order_id": "ORD-1", "count": 3, "none": null });
        let text = render_message(&StoredMessage { kind: "order.something".to_owned(), payload }, DAY);
        assert_eq!(
            (text.subject.as_str(), text.body.as_str()),
            ("order.something: ORD-1", "order.something\n\norder_id: ORD-1\ncount: 3")
        );
    }

    #[test]
    fn sla_uses_its_largest_whole_unit() {
        let texts = [86_400, 3_600, 5_400, 61].map(|s| duration_words(Duration::from_secs(s)));
        assert_eq!(texts, ["24 hours", "1 hour", "90 minutes", "61 seconds"]);
    }
}
