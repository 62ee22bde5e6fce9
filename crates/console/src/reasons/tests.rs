//! Tests that each reason has its own sentence in each language, with the same ids and times.

use std::collections::BTreeSet;

use jobs::{
    ApplyCallback, CancelBooking, CompensateOrder, DispatchOrder, EscalateAlert, ExpireAttempt, ExpireOrder,
    PollPartner, RefundOrder, RemindDispatchers, SendDetails, SendNotification, StartWave,
};
use model::{binding::BindingConfig, order::OrderStatus};
use queue::Job;

use super::*;
use crate::language::LANGUAGE;

async fn in_indonesian<T>(said: impl FnOnce() -> T) -> T {
    LANGUAGE.scope(Language::Indonesian, async { said() }).await
}

fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_800_000_000, 0).unwrap()
}

/// Returns one example per reason, with words that both sentences must contain.
fn reasons() -> [(OrderReason, &'static [&'static str]); 21] {
    let (partner, choice) = (Some(PartnerName::from("bbd")), Some("the cheapest".to_owned()));
    let job = queue::JobId::parse("dispatch:ORD-1:1").unwrap();
    let held = |cause| OrderReason::Held { cause, reason: "they call back".to_owned() };
    [
        (held(None), &["they call back"]),
        (held(Some(HoldCause::ByHand)), &["they call back"]),
        (held(Some(HoldCause::UnknownPayment)), &["they call back"]),
        (
            OrderReason::Held {
                cause: Some(HoldCause::DeadTimer(job.clone())),
                reason: HoldCause::dead_timer_reason(&job),
            },
            &["dispatch:ORD-1:1"],
        ),
        (
            OrderReason::Asked { attempt_no: 7, drivers: vec!["D1".into(), "D2".into()], since: noon(), until: noon() },
            &["7", "D1, D2", "2027-01-15 08:00:00 UTC"],
        ),
        (
            OrderReason::Scheduled { pickup_at: Some(noon()), at: noon(), is_delayed: false },
            &["2027-01-15 08:00:00 UTC"],
        ),
        (
            OrderReason::Scheduled { pickup_at: Some(noon()), at: noon(), is_delayed: true },
            &["2027-01-15 08:00:00 UTC"],
        ),
        (OrderReason::New { at: noon() }, &["2027-01-15 08:00:00 UTC"]),
        (OrderReason::SearchRestarts { attempts: 4, round: 9, at: noon() }, &["4", "9", "2027-01-15 08:00:00 UTC"]),
        (OrderReason::Answered { attempt_no: 7 }, &["7"]),
        (OrderReason::ToBeBooked { attempt_no: 7, partners: vec!["bbd".into()], at: None }, &["7", "bbd"]),
        (
            OrderReason::BeingBooked { attempt_no: 7, partner: partner.clone(), choice: choice.clone() },
            &["7", "bbd", "the cheapest"],
        ),
        (
            OrderReason::Unanswered {
                attempt_no: 7,
                partner: partner.clone(),
                tries: 3,
                error: Some("timed out".to_owned()),
                choice: choice.clone(),
            },
            &["7", "bbd", "3", "timed out", "the cheapest"],
        ),
        (
            OrderReason::WithoutJobId {
                partner: partner.clone(),
                booking_id: Some("B-1".to_owned()),
                polls: 5,
                next_poll_at: None,
                choice: None,
            },
            &["bbd", "B-1", "5"],
        ),
        (
            OrderReason::AtPartner {
                attempt_no: 7,
                partner,
                job_id: Some("J-1".to_owned()),
                until: Some(noon()),
                choice,
            },
            &["7", "bbd", "J-1", "2027-01-15 08:00:00 UTC", "the cheapest"],
        ),
        (OrderReason::GaveUp { attempts: 4 }, &["4"]),
        (OrderReason::OnTheWay { driver: Some("D1".into()) }, &["D1"]),
        (OrderReason::Aboard { driver: Some("D1".into()) }, &["D1"]),
        (OrderReason::Settling, &[]),
        (
            OrderReason::Ended {
                status: OrderStatus::Completed,
                at: noon(),
                actor: "driver:D1".to_owned(),
                reason: "COMPLETED".to_owned(),
                detail: Some("by phone".to_owned()),
            },
            &["2027-01-15 08:00:00 UTC", "driver:D1", "by phone"],
        ),
        (OrderReason::Untold { status: OrderStatus::Refunded }, &[]),
    ]
}

#[tokio::test]
async fn order_reasons_exist_in_both_languages() {
    for (reason, words) in reasons() {
        let (english, indonesian) = (describe_reason(&reason), in_indonesian(|| describe_reason(&reason)).await);
        assert_ne!(english, indonesian);
        for word in words {
            assert!(english.contains(word) && indonesian.contains(word), "{word}: {english} / {indonesian}");
        }
    }
}

#[tokio::test]
async fn job_actions_exist_in_both_languages() {
    let kinds = [
        DispatchOrder::KIND,
        ExpireAttempt::KIND,
        StartWave::KIND,
        PollPartner::KIND,
        ApplyCallback::KIND,
        ExpireOrder::KIND,
        CompensateOrder::KIND,
        CancelBooking::KIND,
        SendDetails::KIND,
        RefundOrder::KIND,
        SendNotification::KIND,
        EscalateAlert::KIND,
        RemindDispatchers::KIND,
    ];
    let mut said = BTreeSet::new();
    for kind in kinds {
        let job = format!("{kind}:ORD-1:1");
        for text in [describe_job(&job), in_indonesian(|| describe_job(&job)).await] {
            assert!(!text.is_empty() && said.insert(text), "{kind}: {text}");
        }
    }
    assert_eq!(describe_job("something-new:ORD-1"), "");
    for step in [
        "DISPATCH_START",
        "OFFER_TIMEOUT",
        "NEXT_ATTEMPT",
        "NEXT_WAVE",
        "JOB_ID_POLL",
        "LIFETIME_TIMEOUT",
        "ATTEMPT_TIMEOUT",
        "COMPENSATION",
    ] {
        let step = || Code::new("next_step", step).text();
        assert_ne!(in_indonesian(step).await, step());
    }
    assert_eq!(in_indonesian(|| Code::new("next_step", "SOMETHING_NEW").text()).await, "Something new");
}

#[tokio::test]
async fn every_stop_reason_has_its_own_text() {
    let (server, account) = ("S1".parse().unwrap(), "A-1".parse().unwrap());
    let stopped = Binding::new_stopped("B".parse().unwrap(), server, account, BindingConfig::default(), noon());
    let mut said = BTreeSet::new();
    for reason in StopReason::ALL.into_iter().map(Some).chain([None]) {
        let binding = Binding { reason, ..stopped.clone() };
        for why in [describe_binding(&binding, noon()), in_indonesian(|| describe_binding(&binding, noon())).await] {
            assert!(said.insert(why.clone()), "{why}");
        }
    }
}
