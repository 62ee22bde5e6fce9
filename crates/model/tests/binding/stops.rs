//! Effects of a stop and a pause, step by step.

use chrono::TimeDelta;
use model::binding::{
    BindingCommand, BindingConflict, BindingPhase, BindingState, CallAction, CommandOutcome, HeaderChange,
    ProviderAnswer, StopReason, TransactionStatus, decide_deadline, derive,
};

use super::{
    bench::{Bench, OTP_WANTED, PROCESSING, SUCCESS, at, conflict, stop},
    world::World,
};

#[test]
fn stop_waits_only_for_the_open_call() {
    let mut bench = Bench::running();
    let call = bench.claim();
    bench.command(&stop());
    assert_eq!((bench.row.state, bench.row.phase), (BindingState::Stopping, BindingPhase::Calling));
    assert!(matches!(bench.decide(&stop()), CommandOutcome::NoOp(_)));
    for command in [BindingCommand::Start, BindingCommand::Pause, BindingCommand::Resume] {
        assert_eq!(conflict(bench.decide(&command)), BindingConflict::Stopping);
    }
    assert_eq!(bench.answer(&call, &SUCCESS), Some((TransactionStatus::Sukses, None)));
    assert_eq!((bench.row.state, bench.row.reason), (BindingState::Stopped, Some(StopReason::ManualStop)));
    assert_eq!(derive(&bench.row, bench.now), None);
}

#[test]
fn stop_ends_otp_wait_and_pause_keeps_it() {
    let mut bench = Bench::running();
    bench.call(&OTP_WANTED);
    let deadline = bench.row.otp_deadline;
    bench.command(&BindingCommand::Pause);
    assert_eq!((bench.row.phase, bench.row.otp_deadline), (BindingPhase::WaitingOtp, deadline));
    let CommandOutcome::Write(change) = bench.decide(&stop()) else { panic!("refused") };
    let Some(HeaderChange::Move { status, reason, .. }) = &change.header else { panic!("{change:?}") };
    assert_eq!((*status, reason.as_deref()), (TransactionStatus::Gagal, Some("manual_stop")));
    bench.row = bench.row.apply(&change);
    assert!(bench.row.is_at_rest() && bench.row.state == BindingState::Stopped);
}

#[test]
fn stop_uses_up_a_submitted_otp() {
    // Answered 500 before the stop, answered 500 after it, and lost: the provider may have received each of them.
    for way in 0..3 {
        let mut bench = Bench::running();
        bench.call(&OTP_WANTED);
        bench.take_otp();
        let call = bench.claim();
        let broken = ProviderAnswer::Unavailable("500".to_owned());
        if way == 0 {
            bench.answer(&call, &broken);
        }
        bench.command(&stop());
        if way == 1 {
            bench.answer(&call, &broken);
        }
        bench.wait_for_timer();
        if way == 2 {
            bench.fire_without_call();
        }
        assert_eq!((bench.row.state, bench.row.phase), (BindingState::Stopped, BindingPhase::Processing));
        bench.command(&BindingCommand::Start);
        bench.call(&OTP_WANTED);
        bench.take_otp();
        assert_eq!(bench.claim().key.as_deref(), Some("B:1:otp:2"), "another OTP gets another key: case {way}");
    }
}

#[test]
fn stopped_binding_polls_until_transaction_is_final() {
    let stopped = || {
        let mut bench = Bench::running();
        bench.call(&PROCESSING);
        bench.command(&stop());
        assert_eq!((bench.row.state, bench.row.phase), (BindingState::Stopped, BindingPhase::Processing));
        bench
    };
    let assert_rests = |bench: &Bench, unresolved| {
        let row = &bench.row;
        assert_eq!((row.state, row.phase, row.unresolved), (BindingState::Stopped, BindingPhase::Idle, unresolved));
        assert_eq!((row.reason, row.next_at), (Some(StopReason::ManualStop), None));
        assert_eq!(derive(row, bench.now), None);
    };
    let mut bench = stopped();
    bench.wait_for_timer();
    assert_eq!(bench.call(&SUCCESS), Some((TransactionStatus::Sukses, None)));
    assert_rests(&bench, 0);

    let mut bench = stopped();
    while bench.row.phase == BindingPhase::Processing {
        bench.wait_for_timer();
        let call = bench.claim();
        assert_eq!(call.action, CallAction::Status);
        bench.answer(&call, &PROCESSING);
    }
    assert_eq!(bench.now, World::start(false).now + TimeDelta::milliseconds(20_000));
    assert_rests(&bench, 1);

    // Its last status request is lost.
    let mut bench = stopped();
    bench.advance(20_000);
    bench.claim();
    bench.wait_for_timer();
    bench.fire_without_call();
    assert_rests(&bench, 1);

    // The server's breaker is open.
    let mut bench = stopped();
    bench.advance(20_000);
    let change = decide_deadline(&bench.row, at(bench.now)).unwrap();
    bench.row = bench.row.apply(&change);
    assert_rests(&bench, 1);
}

#[test]
fn pause_keeps_the_transaction_deadline() {
    let mut bench = Bench::running();
    bench.call(&PROCESSING);
    let deadline = bench.row.processing_deadline;
    bench.command(&BindingCommand::Pause);
    assert_eq!((bench.row.state, bench.row.processing_deadline), (BindingState::Paused, deadline));
    bench.advance(20_000);
    assert_eq!(bench.call(&PROCESSING).map(|(status, _)| status), Some(TransactionStatus::Unresolved));
    assert_eq!((bench.row.state, derive(&bench.row, bench.now)), (BindingState::Paused, None));
}
