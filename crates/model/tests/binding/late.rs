//! Lost and overdue calls, step by step.

use model::binding::{
    AnswerDecision, BindingCommand, BindingPhase, BindingState, CallAction, CallRules, ClaimDecision, HeaderChange,
    ProviderAnswer, StopReason, TimeoutPolicy, TransactionStatus, decide_answer, decide_claim, decide_deadline, derive,
};

use super::{
    bench::{Bench, OTP_WANTED, PROCESSING, SUCCESS, at, stop},
    world::RULES,
};

#[test]
fn lost_start_repeats_only_while_running() {
    for (command, action) in [(None, CallAction::Start), (Some(BindingCommand::Pause), CallAction::Status)] {
        let mut bench = Bench::running();
        let lost = bench.claim();
        if let Some(command) = &command {
            bench.command(command);
        }
        assert!(
            matches!(decide_claim(&bench.row, RULES, at(bench.now)), ClaimDecision::NotYet(until) if until == lost.call_until)
        );
        bench.wait_for_timer();
        let again = bench.claim();
        assert_eq!((again.action, again.cycle, again.call_no), (action, 1, 2));
        assert!(again.fence > lost.fence);
        assert!(again.key.is_none() || again.key == lost.key);
        let late = decide_answer(&bench.row, lost.call_no, &SUCCESS, at(bench.now));
        assert_eq!(late, AnswerDecision::Stale);
    }
    let mut bench = Bench::running();
    bench.claim();
    bench.command(&stop());
    bench.wait_for_timer();
    assert_eq!(bench.fire_without_call().ending.map(|end| end.result), Some("lost"));
    assert_eq!((bench.row.state, bench.row.phase), (BindingState::Stopped, BindingPhase::Processing));
    // The call never arrived, so the provider does not know the transaction.
    let ended = bench.call(&ProviderAnswer::UnknownTransaction);
    assert_eq!(ended, Some((TransactionStatus::Gagal, Some("unknown_at_provider".to_owned()))));
    assert!(bench.row.is_at_rest());
}

#[test]
fn unsafe_repeat_queries_a_lost_start() {
    let mut bench = Bench::running();
    bench.claim();
    bench.wait_for_timer();
    let rules = CallRules { repeats_are_safe: false, ..RULES };
    let ClaimDecision::Call(claim) = decide_claim(&bench.row, rules, at(bench.now)) else { panic!("no call") };
    bench.row = bench.row.apply(&claim.change);
    assert_eq!(claim.call.action, CallAction::Status);
    bench.answer(&claim.call, &ProviderAnswer::UnknownTransaction);
    assert_eq!((bench.row.failures, bench.row.phase), (0, BindingPhase::Idle), "it never arrived");
}

#[test]
fn lost_calls_finally_leave_transaction_unresolved() {
    let mut bench = Bench::running();
    bench.claim();
    let mut calls = 1;
    loop {
        bench.wait_for_timer();
        match decide_claim(&bench.row, RULES, at(bench.now)) {
            ClaimDecision::Call(claim) => bench.row = bench.row.apply(&claim.change),
            ClaimDecision::Write(change) => {
                bench.row = bench.row.apply(&change);
                break;
            }
            other => panic!("{other:?}"),
        }
        calls += 1;
    }
    // Each takes 5.5 s. The one at 22 s is the first after the deadline, and the last.
    assert_eq!((calls, bench.row.phase, bench.row.unresolved), (5, BindingPhase::Idle, 1));
}

#[test]
fn unavailable_server_is_not_a_binding_failure() {
    let mut bench = Bench::running();
    for answer in [
        ProviderAnswer::Throttled { retry_in: Some(std::time::Duration::from_secs(4)) },
        ProviderAnswer::Unavailable("500".to_owned()),
        ProviderAnswer::Unreachable("cut".to_owned()),
    ] {
        let call = bench.claim();
        assert_eq!((call.action, call.key.as_deref()), (CallAction::Start, Some("B:1")));
        bench.answer(&call, &answer);
        let waited = bench.wait_for_timer();
        match answer {
            ProviderAnswer::Throttled { .. } => assert_eq!(waited, 4_000),
            ProviderAnswer::Unreachable(_) => assert_eq!(bench.now, call.call_until, "it may still be open"),
            _ => assert_eq!(waited, 200),
        }
    }
    assert_eq!((bench.row.failures, bench.row.cycle), (0, 1));
    assert_eq!(bench.call(&SUCCESS), Some((TransactionStatus::Sukses, None)));
}

#[test]
fn processing_timeout_can_stop_the_binding() {
    let mut bench = Bench::running();
    bench.row.config.on_processing_timeout = TimeoutPolicy::Stop;
    bench.call(&PROCESSING);
    bench.advance(20_000);
    // A job that may not call also leaves the transaction UNRESOLVED.
    let change = decide_deadline(&bench.row, at(bench.now)).unwrap();
    bench.row = bench.row.apply(&change);
    assert_eq!((bench.row.state, bench.row.reason), (BindingState::Stopped, Some(StopReason::ProcessingTimeout)));
    assert_eq!(derive(&bench.row, bench.now), None);
}

#[test]
fn lost_call_ends_at_the_transaction_deadline() {
    let lost = || {
        let mut bench = Bench::running();
        bench.claim();
        bench.wait_for_timer();
        bench
    };
    // The provider is asked again when the server may be called.
    let bench = lost();
    assert_eq!(decide_deadline(&bench.row, at(bench.now)), None);
    for (command, state) in [(None, BindingState::Running), (Some(stop()), BindingState::Stopped)] {
        let mut bench = lost();
        if let Some(command) = &command {
            bench.command(command);
        }
        bench.advance(20_000);
        let change = decide_deadline(&bench.row, at(bench.now)).expect("an overdue lost call ends");
        assert_eq!(change.ending.as_ref().map(|end| end.result), Some("lost"));
        bench.row = bench.row.apply(&change);
        assert_eq!((bench.row.state, bench.row.phase, bench.row.unresolved), (state, BindingPhase::Idle, 1));
        assert_eq!(derive(&bench.row, bench.now).is_some(), state == BindingState::Running);
    }

    // A call that may still be open is never cut short.
    let mut bench = Bench::running();
    bench.call(&PROCESSING);
    bench.advance(19_999);
    bench.claim();
    bench.advance(1);
    assert_eq!(decide_deadline(&bench.row, at(bench.now)), None);
}

#[test]
fn rejected_repeat_asks_the_provider_first() {
    let rejected = ProviderAnswer::Rejected("422".to_owned());
    let mut bench = Bench::running();
    assert_eq!(bench.call(&rejected), Some((TransactionStatus::Gagal, Some("rejected".to_owned()))));

    let mut bench = Bench::running();
    bench.claim();
    bench.wait_for_timer();
    // The lost start may have started the transaction.
    assert_eq!(bench.call(&rejected), None);
    bench.wait_for_timer();
    let ask = bench.claim();
    assert_eq!((ask.action, ask.cycle), (CallAction::Status, 1));
    assert_eq!(bench.answer(&ask, &SUCCESS), Some((TransactionStatus::Sukses, None)));

    // A stop and a start between the loss and the repeat have no effect on this.
    let mut bench = Bench::running();
    bench.claim();
    bench.command(&stop());
    bench.wait_for_timer();
    bench.fire_without_call();
    bench.command(&BindingCommand::Start);
    let again = bench.claim();
    assert_eq!((again.action, bench.answer(&again, &rejected)), (CallAction::Start, None));

    // The provider does not know the transaction. This counts as a normal failure.
    bench.wait_for_timer();
    let ended = bench.call(&ProviderAnswer::UnknownTransaction);
    assert_eq!(ended, Some((TransactionStatus::Gagal, Some("unknown_at_provider".to_owned()))));
    assert_eq!(bench.row.failures, 1);
}

#[test]
fn overdue_transaction_is_queried_not_repeated() {
    for wait in [20_000, 3_600_000] {
        // Unconfirmed and in PROCESSING, then lost: both would be repeated before the deadline.
        let mut bench = Bench::running();
        bench.call(&ProviderAnswer::Unavailable("500".to_owned()));
        bench.advance(wait);
        assert_eq!(bench.claim().action, CallAction::Status);

        let mut bench = Bench::running();
        bench.claim();
        bench.advance(wait);
        let ask = bench.claim();
        assert_eq!(ask.action, CallAction::Status);
        assert_eq!(bench.answer(&ask, &SUCCESS), Some((TransactionStatus::Sukses, None)));
    }
}

#[test]
fn timely_otp_is_sent_once_after_outage() {
    let waits_with_otp = || {
        let mut bench = Bench::running();
        bench.call(&OTP_WANTED);
        bench.take_otp();
        bench
    };
    let mut bench = waits_with_otp();
    bench.advance(3_600_000);
    assert_eq!(bench.call(&SUCCESS), Some((TransactionStatus::Sukses, None)));

    let mut answered = waits_with_otp();
    answered.call(&ProviderAnswer::Unavailable("500".to_owned()));
    assert_eq!(answered.row.phase, BindingPhase::WaitingOtp);
    let mut lost = waits_with_otp();
    lost.claim();
    for mut bench in [answered, lost] {
        bench.advance(3_600_000);
        let ask = bench.claim();
        assert_eq!((ask.action, bench.row.otp_value.as_ref(), bench.row.otp_tries), (CallAction::Status, None, 1));
        bench.answer(&ask, &OTP_WANTED);
        // The next OTP gets a new key, because the provider may have seen the previous one.
        bench.take_otp();
        assert_eq!(bench.claim().key.as_deref(), Some("B:1:otp:2"));
    }
}

#[test]
fn server_pause_never_outlives_the_transaction() {
    let throttled = ProviderAnswer::Throttled { retry_in: Some(std::time::Duration::from_secs(3600)) };
    let mut bench = Bench::running();
    bench.call(&throttled);
    assert_eq!(bench.wait_for_timer(), 20_000, "the transaction's time");
    assert_eq!(bench.call(&throttled).map(|(status, _)| status), Some(TransactionStatus::Unresolved));

    let mut bench = Bench::running();
    bench.call(&OTP_WANTED);
    bench.take_otp();
    bench.call(&throttled);
    assert_eq!((bench.row.phase, bench.wait_for_timer()), (BindingPhase::WaitingOtp, 20_000));
    assert_eq!(bench.call(&throttled).map(|(status, _)| status), Some(TransactionStatus::Unresolved));

    // A call that may still be open is waited for.
    let mut bench = Bench::running();
    bench.call(&PROCESSING);
    bench.advance(19_000);
    let call = bench.claim();
    bench.answer(&call, &ProviderAnswer::Unreachable("cut".to_owned()));
    bench.wait_for_timer();
    assert_eq!(bench.now, call.call_until);
}

#[test]
fn unknown_starts_stop_the_binding() {
    let mut bench = Bench::running();
    for _ in 0..4 {
        bench.wait_for_timer();
        let ended = bench.call(&ProviderAnswer::UnknownTransaction);
        assert_eq!(ended, Some((TransactionStatus::Gagal, Some("unknown_at_provider".to_owned()))));
    }
    assert_eq!((bench.row.state, bench.row.reason), (BindingState::Stopped, Some(StopReason::TooManyFailures)));
}

#[test]
fn last_query_is_derived_from_the_row() {
    for (asked_with, now) in [(100, 60_000), (5_000, 5_000), (60_000, 100)] {
        let mut bench = Bench::running();
        bench.call(&PROCESSING);
        bench.wait_for_timer();
        // The call is lost long before the deadline of the transaction, which is asked about once more.
        bench.claim();
        bench.row.config.call_timeout_ms = asked_with;
        bench.advance(20_000);
        assert_eq!(bench.claim().action, CallAction::Status);
        bench.row.config.call_timeout_ms = now;
        bench.wait_for_timer();
        let Some(HeaderChange::Move { status, .. }) = bench.fire_without_call().header else {
            panic!("{:?}", bench.row)
        };
        assert_eq!(status, TransactionStatus::Unresolved, "asked with {asked_with} ms, then set to {now}");
    }
}
