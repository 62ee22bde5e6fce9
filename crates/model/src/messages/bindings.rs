//! Messages about bindings: a provider requests an OTP, or a transaction is UNRESOLVED. They never contain an OTP.

use chrono::{DateTime, Utc};

use super::{
    body::{MessageBody, MessageEvent, OtpWantedBody, UnresolvedBody},
    message::{Message, MessageAudience},
};
use crate::binding::{Binding, BindingChange, BindingNotice};

/// Returns the messages about a change of a binding. They are written in the same transaction as the change, so they
/// are sent only if the change takes effect.
pub fn binding_messages(change: &BindingChange) -> impl Iterator<Item = Message> {
    change.notices.iter().map(move |notice| message_for_notice(&change.binding, notice, change.at))
}

fn message_for_notice(row: &Binding, notice: &BindingNotice, now: DateTime<Utc>) -> Message {
    let (binding_id, server_id, account_id) = (row.id.clone(), row.server_id.clone(), row.account_id.clone());
    match notice {
        BindingNotice::OtpWanted { trx_id, ask, deadline } => {
            let body = OtpWantedBody {
                event: MessageEvent::OtpWanted,
                binding_id,
                server_id,
                account_id,
                trx_id: trx_id.clone(),
                ask: *ask,
                deadline: *deadline,
                timestamp: now,
            };
            let (audience, key) = (MessageAudience::OtpDesk, format!("{trx_id}:{ask}"));
            // An OTP submitted after the deadline is refused.
            Message { expires_at: *deadline, ..Message::new(MessageBody::OtpWanted(body), audience, key, now) }
        }
        BindingNotice::Unresolved { trx_id, deadline } => {
            let body = UnresolvedBody {
                event: MessageEvent::TransactionUnresolved,
                binding_id,
                server_id,
                account_id,
                trx_id: trx_id.clone(),
                deadline: *deadline,
                timestamp: now,
            };
            let (audience, key) = (MessageAudience::UnresolvedDesk, trx_id.to_string());
            Message::new(MessageBody::TransactionUnresolved(body), audience, key, now)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chrono::TimeDelta;
    use serde_json::json;

    use super::*;
    use crate::{
        actor::Actor,
        binding::{
            AnswerDecision, BindingCommand, BindingConfig, CallRules, ClaimDecision, CommandOutcome, DecisionMoment,
            FailureReason, OtpSubmission, ProviderAnswer, decide_answer, decide_claim, decide_command, decide_deadline,
            decide_otp,
        },
        messages::{OTP_WANTED, TRANSACTION_UNRESOLVED, text},
    };

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn now() -> DateTime<Utc> {
        "2027-01-15T08:00:00Z".parse().unwrap()
    }

    fn moment(now: DateTime<Utc>) -> DecisionMoment {
        DecisionMoment { now, luck: 0.5 }
    }

    fn written(outcome: CommandOutcome) -> BindingChange {
        match outcome {
            CommandOutcome::Write(change) => *change,
            other => panic!("{other:?}"),
        }
    }

    fn started() -> Binding {
        let (server, account) = ("S1".parse().unwrap(), "A-1".parse().unwrap());
        let row = Binding::new_stopped("B-7".parse().unwrap(), server, account, BindingConfig::default(), now());
        row.apply(&written(decide_command(&row, &BindingCommand::Start, &Actor::SYSTEM, now())))
    }

    /// Claims the due call, and returns the change that its answer causes.
    fn answered(row: &mut Binding, answer: &ProviderAnswer) -> BindingChange {
        let rules = CallRules { margin: TimeDelta::zero(), repeats_are_safe: true, otp_is_readable: true };
        let ClaimDecision::Call(claim) = decide_claim(row, rules, moment(now())) else { panic!("no call of {row:?}") };
        *row = row.apply(&claim.change);
        assert_eq!(binding_messages(&claim.change).count(), 0, "a claim sends no message");
        let decided = decide_answer(row, claim.call.call_no, answer, moment(now()));
        let AnswerDecision::Write(change) = decided else { panic!("{decided:?}") };
        *row = row.apply(&change);
        *change
    }

    fn told(change: &BindingChange) -> Message {
        let mut messages: Vec<_> = binding_messages(change).collect();
        assert_eq!(messages.len(), 1, "{change:?}");
        let message = messages.remove(0);
        assert_eq!(message.to_stored().read_body(), message.body, "it is read as it was written");
        assert_eq!((message.body.subject_id(), message.body.told_at()), ("B-7".into(), Some(now())));
        assert_eq!(message.is_alert(), message.kind() == TRANSACTION_UNRESOLVED, "an OTP request is not an alert");
        message
    }

    #[test]
    fn each_otp_request_sends_one_message() {
        let mut row = started();
        let first = told(&answered(&mut row, &ProviderAnswer::OtpWanted { provider_ref: None }));
        let deadline = row.otp_deadline.unwrap();
        assert_eq!((first.kind(), first.dedupe_key.as_str(), first.expires_at), (OTP_WANTED, "B-7.1:1", deadline));
        assert_eq!(
            first.body.to_payload(),
            json!({
                "event": "binding.otp_wanted", "binding_id": "B-7", "server_id": "S1", "account_id": "A-1",
                "trx_id": "B-7.1", "ask": 1, "deadline": deadline, "timestamp": "2027-01-15T08:00:00Z",
            })
        );
        let otp = OtpSubmission { trx_id: "B-7.1".parse().unwrap(), sealed: vec![1], digest: "d".to_owned() };
        let stored = written(decide_otp(&row, &otp, &Actor::SYSTEM, now()));
        assert_eq!(binding_messages(&stored).count(), 0);
        row = row.apply(&stored);
        let wrong = ProviderAnswer::Failed { reason: FailureReason::WrongOtp, provider_ref: None };
        let second = told(&answered(&mut row, &wrong));
        assert_eq!((second.kind(), second.dedupe_key.as_str()), (OTP_WANTED, "B-7.1:2"));
    }

    #[test]
    fn unresolved_message_names_the_deadline() {
        let mut row = started();
        let begun = answered(&mut row, &ProviderAnswer::Processing { provider_ref: None });
        assert_eq!(binding_messages(&begun).count(), 0);
        row.processing_deadline = Some(now());
        let left = told(&decide_deadline(&row, moment(now())).unwrap());
        assert_eq!((left.kind(), left.dedupe_key.as_str()), (TRANSACTION_UNRESOLVED, "B-7.1"));
        assert_eq!(
            left.body.to_payload(),
            json!({
                "event": "binding.transaction_unresolved", "binding_id": "B-7", "server_id": "S1", "account_id": "A-1",
                "trx_id": "B-7.1", "deadline": "2027-01-15T08:00:00Z", "timestamp": "2027-01-15T08:00:00Z",
            })
        );
    }

    #[test]
    fn binding_message_names_binding_and_action() {
        let mut row = started();
        let asked = told(&answered(&mut row, &ProviderAnswer::OtpWanted { provider_ref: None }));
        let shown = text::render_message(&asked.to_stored(), DAY);
        assert_eq!(shown.subject, "OTP Wanted: B-7");
        for line in ["Account ID: A-1\n", "Transaction ID: B-7.1\n", "Deadline: 2027-01-15T08:02:00Z\n", "Submit it"] {
            assert!(shown.body.contains(line), "{}", shown.body);
        }
        assert!(!shown.body.contains("SLA"), "no SLA besides the deadline: {}", shown.body);
    }
}
