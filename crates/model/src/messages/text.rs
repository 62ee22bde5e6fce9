//! Messages as people read them: in Slack, by e-mail, on a ticket. Pure.
//!
//! The refund alert reads as the requirement document on job id retrieval writes it.

use std::{fmt::Write, time::Duration};

use serde_json::Value;

use super::{kinds::*, money};

/// A message as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageText {
    /// One line.
    pub subject: String,
    /// Begins with its heading.
    pub body: String,
}

/// Renders a message. `sla` is the time within which an alert is to be acknowledged.
pub fn render_message(kind: &str, payload: &Value, sla: Duration) -> MessageText {
    let order = show_value(&payload["order_id"]).unwrap_or_default();
    let heading = heading_of(kind, payload);
    let mut body = format!("{heading}\n\n");
    match kind {
        ESCALATION | REMINDER => {
            let kind = payload["alert_kind"].as_str().unwrap_or_default();
            let told = &payload["alert"];
            let raised = show_value(&payload["raised_at"]).unwrap_or_default();
            let _ = writeln!(
                body,
                "Raised at {raised} and not acknowledged. Do so: dispatchq alert ack {}\n",
                payload["alert_id"]
            );
            body += &render_message(kind, told, sla).body;
        }
        ORDER_CANCELLED => {
            let _ = write!(
                body,
                "Your order {order} was cancelled: {}.",
                show_value(&payload["reason"]).unwrap_or_default()
            );
            if payload["refund"] == true {
                body += " You will get your money back; our support team takes care of it.";
            }
        }
        _ => match actions_for(kind) {
            [] => body += &list_fields(payload),
            actions => body += &alert_text(payload, actions, sla),
        },
    }
    MessageText { subject: format!("{heading}: {order}"), body }
}

fn heading_of(kind: &str, payload: &Value) -> String {
    let said = match kind {
        MANUAL_REFUND_REQUIRED => "🚨 Manual Refund Required",
        UNEXPECTED_STATE => "🚨 Unexpected State",
        TIMER_DEAD => "🚨 Order Stuck",
        STALE_TRIP => "🚨 Trip Overdue",
        FAILED_TO_GET_ORDER => "🚨 Failed To Get Order",
        STATUS_UPDATE_FAILED => "🚨 Status Update Failed",
        PARTNER_REFUSES_KEY => "🚨 Partner Refuses Our Key",
        DISPATCH_FAILED => "🚨 Dispatcher Needed",
        ORDER_CANCELLED => "Order Cancelled",
        REMINDER => return format!("🚨 Reminder {}: Dispatcher Needed", payload["number"]),
        ESCALATION => {
            let alert = heading_of(payload["alert_kind"].as_str().unwrap_or_default(), &payload["alert"]);
            return format!("🚨 Escalation {}: {}", payload["number"], alert.trim_start_matches("🚨 "));
        }
        other => other,
    };
    said.to_owned()
}

/// What the reader of an alert is to do; nothing for messages that ask nothing.
fn actions_for(kind: &str) -> &'static [&'static str] {
    match kind {
        MANUAL_REFUND_REQUIRED => &[
            "Verify order details in admin panel",
            "Process full refund via refund module",
            "Contact customer if needed",
            "Mark as resolved in support system",
        ],
        UNEXPECTED_STATE => &[
            "Verify order and payment details in admin panel",
            "Decide whether the customer is to get money back",
            "End the order, or report the payment's true status",
            "Mark as resolved in support system",
        ],
        TIMER_DEAD => &[
            "Verify order details in admin panel",
            "Assign a driver, redispatch or cancel the order",
            "Report the reason to the engineers",
        ],
        STALE_TRIP => &[
            "Ask the driver how the trip stands",
            "Have it completed, take the order back (dispatchq order release), or cancel it",
        ],
        FAILED_TO_GET_ORDER => {
            &["Find out what became of the order and whether it was paid", "Report it to the engineers"]
        }
        STATUS_UPDATE_FAILED => &[
            "Verify order and payment details in admin panel",
            "Report the error to the engineers; the update is tried again by itself",
            "Contact customer if needed",
        ],
        PARTNER_REFUSES_KEY => &["Ask the partner for a valid key and put it into the configuration"],
        DISPATCH_FAILED => &["Assign a driver, redispatch or cancel the order"],
        _ => &[],
    }
}

fn alert_text(payload: &Value, actions: &[&str], sla: Duration) -> String {
    let mut text = String::new();
    for (label, field) in [
        ("Order ID", "order_id"),
        ("Service Type", "service_type"),
        ("Area", "area_id"),
        ("Partner", "partner"),
        ("Attempts", "attempts"),
        ("Lifetime Ends", "lifetime_deadline"),
        ("Driver", "driver_id"),
        ("Status", "status"),
        ("Reason", "reason"),
        ("Error", "error"),
        ("Payment Status", "payment_status"),
    ] {
        if let Some(value) = show_value(&payload[field]) {
            let _ = writeln!(text, "{label}: {value}");
        }
    }
    if payload.get("payment_status").is_some() {
        let _ = writeln!(text, "Payment Amount: {}", amount_text(payload));
    }
    text += "\nAction Required:\n";
    for (i, action) in actions.iter().enumerate() {
        let _ = writeln!(text, "{}. {action}", i + 1);
    }
    if payload.get("severity").is_some() {
        let _ = write!(text, "\nPriority: High\nSLA: Within {}", duration_words(sla));
    }
    text.trim_end().to_owned()
}

fn amount_text(payload: &Value) -> String {
    match (payload["payment_amount_minor"].as_i64(), payload["payment_currency"].as_str()) {
        (Some(minor), Some(currency)) => money::format_amount(minor, currency),
        (Some(minor), None) => format!("{minor} (currency unknown)"),
        (None, _) => "unknown".to_owned(),
    }
}

/// Everything a message says, line by line.
fn list_fields(payload: &Value) -> String {
    let lines = payload
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some(format!("{name}: {}", show_value(value)?)));
    lines.collect::<Vec<_>>().join("\n")
}

/// On one line, whatever is in it.
fn show_value(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.replace(crate::plain_text::is_unsafe, " ")),
        other => Some(other.to_string()),
    }
}

/// `24 hours`, `90 minutes`, `30 seconds`
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
    use crate::order::{OrderStatus, PaymentStatus, order::fixture};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn refund() -> Message {
        let mut s = fixture::created_snapshot();
        s.order.id = "CCT-20260109XXXXX".parse().unwrap();
        s.order.status = OrderStatus::CancelledBySystemAfterPayment;
        s.order.payment_status = PaymentStatus::Paid;
        refund_required(&s.order, "Job ID retrieval timeout after 30 minutes", s.now)
    }

    #[test]
    fn the_refund_alert_reads_as_the_requirement_writes_it() {
        let alert = refund();
        let text = render_message(alert.kind, &alert.payload, DAY);
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
    fn an_escalation_says_what_it_is_about() {
        let s = fixture::created_snapshot();
        let told = refund().payload;
        let alert = RepeatedAlert {
            alert_id: 7,
            order_id: "CCT-20260109XXXXX",
            kind: MANUAL_REFUND_REQUIRED,
            raised_at: s.now,
            number: 2,
            told: &told,
        };
        let escalation = alert_escalation(&alert, s.now);
        let text = render_message(ESCALATION, &escalation.payload, DAY);
        assert_eq!(text.subject, "🚨 Escalation 2: Manual Refund Required: CCT-20260109XXXXX");
        assert!(text.body.contains("dispatchq alert ack 7"), "{}", text.body);
        assert!(text.body.contains("Payment Amount: Rp 150,000"), "{}", text.body);
    }

    #[test]
    fn a_line_of_an_alert_stays_one_line() {
        let s = fixture::created_snapshot();
        let alert = refund_required(&s.order, "first\nPayment Amount: Rp 9", s.now);
        let text = render_message(alert.kind, &alert.payload, DAY).body;
        assert!(text.contains("Reason: first Payment Amount: Rp 9\nPayment Status: UNPAID\n"), "{text}");
    }

    #[test]
    fn a_message_of_any_kind_can_be_read() {
        let text = render_message("order.something", &json!({ "order_id": "ORD-1", "count": 3, "none": null }), DAY);
        assert_eq!(
            (text.subject.as_str(), text.body.as_str()),
            ("order.something: ORD-1", "order.something\n\norder_id: ORD-1\ncount: 3")
        );
    }

    #[test]
    fn the_time_to_acknowledge_reads_in_its_largest_whole_unit() {
        let texts = [86_400, 3_600, 5_400, 61].map(|s| duration_words(Duration::from_secs(s)));
        assert_eq!(texts, ["24 hours", "1 hour", "90 minutes", "61 seconds"]);
    }
}
