//! Single guarantees, step by step.

use chrono::TimeDelta;
use model::{
    actor::Actor,
    binding::{
        Binding, BindingCommand, BindingConflict, BindingPhase, BindingState, CallAction, CommandOutcome,
        FailureReason, HeaderChange, IntervalFrom, StopReason, TransactionStatus, TrxId, calling_job, decide_command,
        decide_deadline, derive,
    },
};

use super::bench::{Bench, OTP_WANTED, PROCESSING, SUCCESS, at, conflict, failed, stop};

#[test]
fn outage_is_followed_by_one_cycle() {
    let mut bench = Bench::running();
    bench.call(&SUCCESS);
    bench.advance(3_600_000);
    bench.call(&SUCCESS);
    assert_eq!(bench.row.cycle, 2);
    assert_eq!(bench.wait_for_timer(), 300, "the next interval counts from now");
    bench.call(&SUCCESS);
    assert_eq!(bench.row.cycle, 3);
}

#[test]
fn processing_transaction_is_polled_until_its_deadline() {
    let mut bench = Bench::running();
    bench.call(&PROCESSING);
    let mut waits = Vec::new();
    while bench.row.phase == BindingPhase::Processing {
        waits.push(bench.wait_for_timer());
        if let Some((TransactionStatus::Unresolved, reason)) = bench.call(&PROCESSING) {
            assert_eq!(reason.as_deref(), Some("processing_timeout"));
        }
    }
    assert_eq!(waits[..6], [200, 200, 200, 400, 800, 1600]);
    assert_eq!(
        (bench.row.unresolved, bench.row.state, bench.row.phase),
        (1, BindingState::Running, BindingPhase::Idle)
    );
    // The next cycle starts while the old transaction is UNRESOLVED.
    bench.wait_for_timer();
    assert_eq!((bench.claim().cycle, bench.row.cycle), (2, 2));
}

#[test]
fn consecutive_failures_stop_a_binding() {
    let mut bench = Bench::running();
    let locked = failed(FailureReason::Other("account_locked".to_owned()));
    for answer in [&locked, &locked, &locked, &SUCCESS, &locked, &locked, &locked] {
        bench.call(answer);
        assert!(bench.wait_for_timer() >= 300);
    }
    assert_eq!((bench.row.failures, bench.row.state), (3, BindingState::Running));
    let ended = bench.call(&locked);
    assert_eq!(ended, Some((TransactionStatus::Gagal, Some("account_locked".to_owned()))));
    assert_eq!((bench.row.state, bench.row.reason), (BindingState::Stopped, Some(StopReason::TooManyFailures)));
}

#[test]
fn low_balance_stops_despite_other_commands() {
    for command in [None, Some(BindingCommand::Pause), Some(stop())] {
        let mut bench = Bench::running();
        let call = bench.claim();
        if let Some(command) = &command {
            bench.command(command);
        }
        bench.answer(&call, &failed(FailureReason::InsufficientBalance));
        let wanted = (BindingState::Stopped, Some(StopReason::InsufficientBalanceBeforeStart));
        assert_eq!((bench.row.state, bench.row.reason), wanted, "{command:?}");
        assert_eq!(derive(&bench.row, bench.now), None);
        bench.command(&BindingCommand::Start);
        assert_eq!((bench.row.reason, bench.claim().cycle), (None, 2));
    }
}

#[test]
fn otp_is_stored_once_while_wanted() {
    let mut bench = Bench::running();
    // The transaction has enough time for a lost call.
    bench.row.config.processing_timeout_ms = 60_000;
    let call = bench.claim();
    assert_eq!(conflict(bench.submit(&call.trx_id)), BindingConflict::OtpNotWanted(BindingPhase::Calling));
    bench.answer(&call, &OTP_WANTED);
    assert_eq!(derive(&bench.row, bench.now).unwrap().id().as_str(), "otp:B:1");
    let foreign = TrxId::new(&"B2".parse().unwrap(), 1);
    assert_eq!(conflict(bench.submit(&foreign)), BindingConflict::ForeignTransaction(foreign));
    let unborn = TrxId::new(&bench.row.id, 2);
    assert_eq!(conflict(bench.submit(&unborn)), BindingConflict::ForeignTransaction(unborn));

    let CommandOutcome::Write(change) = bench.submit(&call.trx_id) else { panic!("refused") };
    bench.row = bench.row.apply(&change);
    assert_eq!(conflict(bench.submit(&call.trx_id)), BindingConflict::OtpStored);
    // The call may be late: the OTP deadline no longer applies.
    bench.advance(15_001);
    let otp = bench.claim();
    assert_eq!((otp.action, otp.key.as_deref()), (CallAction::Otp, Some("B:1:otp:1")));
    assert_eq!(conflict(bench.submit(&call.trx_id)), BindingConflict::OtpStored);
    // A crash repeats the call. Both count as one try.
    bench.wait_for_timer();
    let again = bench.claim();
    assert_eq!((again.action, &again.key, bench.row.otp_tries), (CallAction::Otp, &otp.key, 0));

    bench.answer(&again, &failed(FailureReason::WrongOtp));
    assert_eq!((bench.row.otp_value.as_ref(), bench.row.otp_tries), (None, 1), "erased after its call");
    bench.advance(15_000);
    assert_eq!(conflict(bench.submit(&call.trx_id)), BindingConflict::OtpOver);
    let change = decide_deadline(&bench.row, at(bench.now)).unwrap();
    let Some(HeaderChange::Move { status, reason, .. }) = &change.header else { panic!("{change:?}") };
    assert_eq!((*status, reason.as_deref()), (TransactionStatus::Gagal, Some("otp_timeout")));
    bench.row = bench.row.apply(&change);
    assert_eq!((bench.row.state, bench.row.phase), (BindingState::Running, BindingPhase::Idle));
    assert_eq!(conflict(bench.submit(&call.trx_id)), BindingConflict::OtpOver, "the transaction has ended");
}

#[test]
fn wrong_otp_is_requested_again_with_limit() {
    let mut bench = Bench::running();
    bench.call(&OTP_WANTED);
    let mut keys = Vec::new();
    for _ in 0..3 {
        bench.take_otp();
        let call = bench.claim();
        keys.extend(call.key.clone());
        bench.answer(&call, &failed(FailureReason::WrongOtp));
    }
    assert_eq!(keys, ["B:1:otp:1", "B:1:otp:2", "B:1:otp:3"]);
    assert_eq!((bench.row.phase, bench.row.failures), (BindingPhase::Idle, 1));
}

#[test]
fn open_call_names_its_job() {
    let name = |row: &Binding, lost| calling_job(row, lost).as_ref().map_or_else(String::new, ToString::to_string);
    let names = |row: &Binding| [false, true].map(|lost| name(row, lost));
    let mut bench = Bench::running();
    assert_eq!(names(&bench.row), ["", ""]);
    let start = bench.claim();
    assert_eq!(names(&bench.row), ["cycle:B:1", "cycle:B:1"]);
    bench.answer(&start, &OTP_WANTED);
    bench.take_otp();
    assert_eq!(bench.claim().action, CallAction::Otp);
    assert_eq!(names(&bench.row), ["otp:B:1", "cycle:B:1"], "the cycle's job repeats the lost call");
    let settles = Binding {
        phase: BindingPhase::Calling,
        call_action: Some(CallAction::Settle),
        trx_id: Some(TrxId::new(&bench.row.id, 1)),
        cycle: 7,
        ..bench.row.clone()
    };
    assert_eq!(names(&settles), ["settle:B:1", "settle:B:1"]);
    assert_eq!(derive(&settles, bench.now).unwrap().id().as_str(), "cycle:B:8", "which waits for the call");
}

#[test]
fn command_results_depend_on_state() {
    let mut bench = Bench::running();
    let running = bench.row.clone();
    bench.command(&BindingCommand::Pause);
    let paused = bench.row.clone();
    bench.command(&stop());
    let stopped = bench.row.clone();
    bench.row = running.clone();
    bench.claim();
    bench.command(&stop());
    let stopping = bench.row.clone();
    let commands =
        [BindingCommand::Start, BindingCommand::Pause, BindingCommand::Resume, stop(), BindingCommand::Delete];
    let said = |row: &Binding| {
        commands.clone().map(|command| match decide_command(row, &command, &Actor::SYSTEM, bench.now) {
            CommandOutcome::Write(change) if change.binding.deleted_at.is_some() => "deleted",
            CommandOutcome::Write(change) => change.binding.state.as_str(),
            CommandOutcome::NoOp(_) => "no-op",
            CommandOutcome::Conflict(_) => "409",
        })
    };
    assert_eq!(said(&stopped), ["RUNNING", "409", "409", "no-op", "deleted"]);
    assert_eq!(said(&running), ["no-op", "PAUSED", "no-op", "STOPPED", "409"]);
    assert_eq!(said(&paused), ["409", "no-op", "RUNNING", "STOPPED", "409"]);
    assert_eq!(said(&stopping), ["409", "409", "409", "no-op", "409"]);
}

#[test]
fn server_changes_only_at_rest() {
    let mut bench = Bench::running();
    let move_away = BindingCommand::Patch { server_id: Some("S2".parse().unwrap()), config: None };
    assert!(matches!(conflict(bench.decide(&move_away)), BindingConflict::NotAtRest { .. }));
    let mut config = bench.row.config.clone();
    config.max_failures = 0;
    let broken = BindingCommand::Patch { server_id: None, config: Some(config.clone()) };
    assert!(matches!(conflict(bench.decide(&broken)), BindingConflict::BadConfig(_)));
    config.max_failures = 7;
    bench.command(&BindingCommand::Patch { server_id: None, config: Some(config.clone()) });
    assert_eq!(bench.row.config, config);
    let same = BindingCommand::Patch { server_id: None, config: Some(config) };
    assert!(matches!(bench.decide(&same), CommandOutcome::NoOp(_)));
    bench.command(&stop());
    bench.command(&move_away);
    assert_eq!(bench.row.server_id.as_str(), "S2");
}

#[test]
fn begin_intervals_keep_a_fixed_rhythm() {
    let mut bench = Bench::running();
    bench.row.config.interval_from = IntervalFrom::Begin;
    let first = bench.now;
    for (n, (late, takes)) in [(0, 250), (40, 100), (299, 1), (5, 200)].into_iter().enumerate() {
        bench.wait_for_timer();
        bench.advance(late);
        let call = bench.claim();
        bench.advance(takes);
        bench.answer(&call, &SUCCESS);
        let beats = i64::try_from(n).unwrap() + 1;
        assert_eq!(bench.row.next_at, Some(first + TimeDelta::milliseconds(300 * beats)), "cycle {beats}");
    }
}

#[test]
fn long_cycle_is_followed_by_one_cycle() {
    let mut bench = Bench::running();
    bench.row.config.interval_from = IntervalFrom::Begin;
    let long = bench.claim();
    bench.advance(2_000);
    bench.answer(&long, &SUCCESS);
    assert_eq!(bench.row.next_at, Some(bench.now), "one cycle replaces the missed ones");
    let due = bench.now;
    let short = bench.claim();
    bench.advance(50);
    bench.answer(&short, &SUCCESS);
    assert_eq!(bench.row.next_at, Some(due + TimeDelta::milliseconds(300)));
}

#[test]
fn outage_runs_one_cycle_then_the_interval() {
    for interval_from in [IntervalFrom::End, IntervalFrom::Begin] {
        let mut bench = Bench::running();
        bench.row.config.interval_from = interval_from;
        bench.call(&SUCCESS);
        bench.advance(3_600_000);
        let begun = bench.now;
        let call = bench.claim();
        bench.advance(50);
        bench.answer(&call, &SUCCESS);
        let from = if interval_from == IntervalFrom::Begin { begun } else { bench.now };
        assert_eq!(bench.row.next_at, Some(from + TimeDelta::milliseconds(300)), "{interval_from:?}");
    }
}

#[test]
fn cooldown_always_counts_from_the_end() {
    let mut bench = Bench::running();
    bench.row.config.interval_from = IntervalFrom::Begin;
    let call = bench.claim();
    bench.advance(200);
    bench.answer(&call, &failed(FailureReason::Other("account_locked".to_owned())));
    assert_eq!(bench.row.next_at, Some(bench.now + TimeDelta::milliseconds(1_000)));
}
