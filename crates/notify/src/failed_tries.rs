//! Result of a failed try: retried, expired, unreachable or dead.

use std::time::Duration;

use chrono::{SubsecRound, TimeDelta};
use model::messages::DeliveryResult;

use crate::{channels::DeliveryError, outbox::OutboxRow};

/// Maximum pause that a receiver may request.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Maximum tries of a message that its receiver refuses (HTTP 4xx except 408, 410, 425 and 429; SMTP 5xx), over about
/// 15 s. A receiver that is being deployed may briefly answer 404. After a 410 there are no more tries.
const REFUSED_TRIES: u32 = 5;

/// Returns the result of a claimed try that failed.
pub fn after_failure(row: &OutboxRow, error: &DeliveryError) -> DeliveryResult {
    let tries = row.attempts.unsigned_abs();
    let tries_in_a_row = tries.saturating_sub(row.backoff_from.unsigned_abs());
    let asked = match error {
        DeliveryError::Again { pause, .. } => pause.unwrap_or_default().min(LONGEST_PAUSE),
        _ => Duration::ZERO,
    };
    let asked = row.now + TimeDelta::from_std(asked).unwrap_or(TimeDelta::hours(1));
    // Whole milliseconds, as in the row, so that row and job have the same time.
    let next = row.next_attempt_at.max(asked).trunc_subsecs(3);
    if let DeliveryError::Withdrawn(error) = error {
        return DeliveryResult::Expired(error.clone());
    }
    let is_final = match error {
        DeliveryError::Gone(_) => true,
        DeliveryError::Refused(_) => tries_in_a_row >= REFUSED_TRIES,
        _ => false,
    };
    if row.is_offer() {
        // An offer is short-lived anyway: the attempt's own timeout moves on to the next driver.
        match next {
            _ if is_final => DeliveryResult::Unreachable(error.to_string()),
            next if next < row.expires_at => DeliveryResult::Again(next, error.to_string()),
            _ => DeliveryResult::Expired(error.to_string()),
        }
    } else if !is_final && next >= row.expires_at && row.is_short_lived() {
        DeliveryResult::Expired(error.to_string())
    } else if is_final || next >= row.expires_at {
        DeliveryResult::Dead(format!("given up after {tries} tries: {error}"))
    } else {
        DeliveryResult::Again(next, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};

    use super::*;
    use crate::deliveries::BACKOFF;
    use model::messages::MessageSubject;
    use model::messages::{self, OutboxState, StoredMessage};

    /// Creates a message with `tries` earlier tries and one claimed try.
    fn row(kind: &str, tries: u32) -> OutboxRow {
        let now: DateTime<Utc> = "2030-01-01T08:00:00Z".parse().unwrap();
        let pause = BACKOFF.backoff(tries + 1, 0.5);
        OutboxRow {
            id: 1,
            message_id: uuid::Uuid::nil(),
            subject: MessageSubject::Order("ORD-1".parse().unwrap()),
            content: StoredMessage { kind: kind.to_owned(), payload: serde_json::json!({}) },
            channel: "hook".to_owned(),
            state: OutboxState::Pending,
            attempts: i32::try_from(tries).unwrap() + 1,
            backoff_from: 0,
            next_attempt_at: now + pause,
            expires_at: now + messages::MESSAGE_EXPIRY,
            offer_is_live: None,
            phone: None,
            email: None,
            now,
        }
    }

    fn wait(row: &OutboxRow, error: &DeliveryError) -> Option<i64> {
        match after_failure(row, error) {
            DeliveryResult::Again(at, _) => Some((at - row.now).num_seconds()),
            _ => None,
        }
    }

    #[test]
    fn receiver_pause_is_honoured_up_to_limit() {
        let again = |pause: Option<u64>| DeliveryError::Again {
            error: "the receiver answered 429".to_owned(),
            pause: pause.map(Duration::from_secs),
        };
        let first = row(messages::MANUAL_REFUND_REQUIRED, 0);
        assert_eq!(wait(&first, &again(None)), Some(1));
        assert_eq!(wait(&first, &again(Some(90))), Some(90));
        assert_eq!(wait(&first, &again(Some(1_000_000))), Some(3600));
        assert_eq!(wait(&row(messages::MANUAL_REFUND_REQUIRED, 20), &again(Some(90))), Some(600));
    }

    #[test]
    fn refused_message_dies_soon_gone_at_once() {
        let refused = DeliveryError::Refused("the receiver answered 404".to_owned());
        let waits: Vec<_> = (0..6).map(|n| wait(&row(messages::MANUAL_REFUND_REQUIRED, n), &refused)).collect();
        assert_eq!(waits, [Some(1), Some(2), Some(4), Some(8), None, None]);
        let gone = DeliveryError::Gone("the receiver answered 410".to_owned());
        assert_eq!(wait(&row(messages::MANUAL_REFUND_REQUIRED, 0), &gone), None);
        // A manual replay gives the message its full number of tries again.
        let replayed = OutboxRow { backoff_from: 5, attempts: 6, ..row(messages::MANUAL_REFUND_REQUIRED, 0) };
        assert_eq!(wait(&replayed, &refused), Some(1));
    }

    #[test]
    fn offer_message_expires_instead_of_dying() {
        let away = DeliveryError::Again { error: "the receiver answered 503".to_owned(), pause: None };
        let mut offer = row(messages::OFFER, 9);
        offer.expires_at = offer.now + TimeDelta::seconds(700);
        assert_eq!(wait(&offer, &away), Some(512));
        let refused = DeliveryError::Refused("the receiver answered 404".to_owned());
        assert_eq!(after_failure(&offer, &refused), DeliveryResult::Unreachable(refused.to_string()));
        offer.expires_at = offer.now + TimeDelta::seconds(100);
        assert_eq!(after_failure(&offer, &away), DeliveryResult::Expired(away.to_string()));
    }

    #[test]
    fn otp_request_expires_with_its_deadline() {
        let away = DeliveryError::Again { error: "the receiver answered 503".to_owned(), pause: None };
        let mut request = row(messages::OTP_WANTED, 0);
        request.expires_at = request.now + TimeDelta::seconds(120);
        assert_eq!(wait(&request, &away), Some(1));
        request.expires_at = request.now + TimeDelta::seconds(1);
        assert_eq!(after_failure(&request, &away), DeliveryResult::Expired(away.to_string()));
        let gone = DeliveryError::Gone("the receiver answered 410".to_owned());
        assert!(matches!(after_failure(&request, &gone), DeliveryResult::Dead(_)));
    }
}
