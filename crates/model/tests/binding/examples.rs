//! Single promises, step by step.

use chrono::{DateTime, TimeDelta, Utc};
use model::{
    actor::Actor,
    binding::{
        AnswerDecision, Binding, BindingCommand, BindingConflict, BindingPhase, BindingState, CallAction, CallRules,
        ClaimDecision, CommandOutcome, DecisionMoment, FailureReason, HeaderChange, OtpSubmission, ProviderAnswer,
        ProviderCall, StopReason, TimeoutPolicy, TransactionStatus, TrxId, decide_answer, decide_claim, decide_command,
        decide_deadline, decide_otp, derive,
    },
};

use super::world::{RULES, World};

const SUCCESS: ProviderAnswer = ProviderAnswer::Success { provider_ref: None };
const PROCESSING: ProviderAnswer = ProviderAnswer::Processing { provider_ref: None };
const OTP_WANTED: ProviderAnswer = ProviderAnswer::OtpWanted { provider_ref: None };

fn failed(reason: FailureReason) -> ProviderAnswer {
    ProviderAnswer::Failed { reason, provider_ref: None }
}

fn at(now: DateTime<Utc>) -> DecisionMoment {
    DecisionMoment { now, luck: 0.0 }
}

/// A binding as the store would hold it, with a clock.
struct Bench {
    row: Binding,
    now: DateTime<Utc>,
}

impl Bench {
    fn running() -> Self {
        let World { row, now, .. } = World::start(false);
        let mut bench = Self { row, now };
        bench.command(&BindingCommand::Start);
        bench
    }

    fn advance(&mut self, ms: i64) {
        self.now += TimeDelta::milliseconds(ms);
    }

    fn decide(&self, command: &BindingCommand) -> CommandOutcome {
        decide_command(&self.row, command, &Actor::SYSTEM, self.now)
    }

    fn command(&mut self, command: &BindingCommand) {
        let CommandOutcome::Write(change) = self.decide(command) else { panic!("{:?}", self.decide(command)) };
        self.row = self.row.apply(&change);
    }

    fn claim(&mut self) -> ProviderCall {
        match decide_claim(&self.row, RULES, at(self.now)) {
            ClaimDecision::Call(claim) => {
                self.row = self.row.apply(&claim.change);
                claim.call
            }
            other => panic!("{other:?} of {:?}", self.row),
        }
    }

    /// The header's end, if the answer brings it.
    fn answer(&mut self, call: &ProviderCall, answer: &ProviderAnswer) -> Option<(TransactionStatus, Option<String>)> {
        let AnswerDecision::Write(change) = decide_answer(&self.row, call.call_no, answer, at(self.now)) else {
            panic!("stale")
        };
        self.row = self.row.apply(&change);
        match change.header {
            Some(HeaderChange::Move { status, reason, .. }) => Some((status, reason)),
            _ => None,
        }
    }

    /// Claims what is due and answers it.
    fn call(&mut self, answer: &ProviderAnswer) -> Option<(TransactionStatus, Option<String>)> {
        let call = self.claim();
        self.answer(&call, answer)
    }

    fn wait_for_timer(&mut self) -> i64 {
        let due = derive(&self.row, self.now).unwrap().due;
        let waited = (due - self.now).num_milliseconds();
        self.now = self.now.max(due);
        waited
    }

    fn submit(&self, trx: &TrxId) -> CommandOutcome {
        let otp = OtpSubmission { trx_id: trx.clone(), sealed: b"sealed".to_vec(), digest: "d".to_owned() };
        decide_otp(&self.row, &otp, &Actor::SYSTEM, self.now)
    }
}

fn conflict(outcome: CommandOutcome) -> BindingConflict {
    match outcome {
        CommandOutcome::Conflict(conflict) => conflict,
        other => panic!("{other:?}"),
    }
}

fn stop() -> BindingCommand {
    BindingCommand::Stop { reason: StopReason::ManualStop }
}

#[test]
fn after_an_outage_a_binding_runs_once() {
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
fn a_transaction_in_processing_is_asked_about_until_its_time_is_over() {
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
    // The next cycle begins beside it.
    bench.wait_for_timer();
    assert_eq!((bench.claim().cycle, bench.row.cycle), (2, 2));
}

#[test]
fn a_binding_may_stop_when_a_transaction_takes_too_long() {
    let mut bench = Bench::running();
    bench.row.config.on_processing_timeout = TimeoutPolicy::Stop;
    bench.call(&PROCESSING);
    bench.advance(20_000);
    // A job that may not call leaves it, too.
    let change = decide_deadline(&bench.row, at(bench.now)).unwrap();
    bench.row = bench.row.apply(&change);
    assert_eq!((bench.row.state, bench.row.reason), (BindingState::Stopped, Some(StopReason::ProcessingTimeout)));
    assert_eq!(derive(&bench.row, bench.now), None);
}

#[test]
fn too_many_failures_in_a_row_stop_a_binding_and_a_success_forgives_them() {
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
fn no_money_stops_whatever_was_asked_meanwhile() {
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
fn a_stop_waits_for_the_open_call_and_for_no_more() {
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
fn a_lost_start_is_repeated_under_its_key_while_running_and_asked_about_otherwise() {
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
    let ClaimDecision::Write(change) = decide_claim(&bench.row, RULES, at(bench.now)) else { panic!("a call") };
    assert_eq!(change.ending.as_ref().map(|end| end.result), Some("lost"));
    bench.row = bench.row.apply(&change);
    assert_eq!((bench.row.state, bench.row.phase), (BindingState::Stopped, BindingPhase::Processing));
    // It never arrived: the provider knows of nothing.
    let ended = bench.call(&ProviderAnswer::UnknownTransaction);
    assert_eq!(ended, Some((TransactionStatus::Gagal, Some("unknown_at_provider".to_owned()))));
    assert!(bench.row.is_at_rest());
}

#[test]
fn where_repeats_are_not_safe_a_lost_start_is_asked_about_first() {
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
fn calls_that_are_always_lost_leave_a_transaction_in_the_end() {
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
    // 5.5 s each: the one at 22 s is the first after the deadline, and the last.
    assert_eq!((calls, bench.row.phase, bench.row.unresolved), (5, BindingPhase::Idle, 1));
}

#[test]
fn a_server_that_is_away_is_no_failure_of_the_binding() {
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
            ProviderAnswer::Unreachable(_) => assert_eq!(bench.now, call.call_until, "it may still be at it"),
            _ => assert_eq!(waited, 200),
        }
    }
    assert_eq!((bench.row.failures, bench.row.cycle), (0, 1));
    assert_eq!(bench.call(&SUCCESS), Some((TransactionStatus::Sukses, None)));
}

#[test]
fn an_otp_is_stored_once_and_only_while_it_is_wanted() {
    let mut bench = Bench::running();
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
    // Its call may be late: the deadline of the wait is gone.
    bench.advance(15_001);
    let otp = bench.claim();
    assert_eq!((otp.action, otp.key.as_deref()), (CallAction::Otp, Some("B:1:otp:1")));
    assert_eq!(conflict(bench.submit(&call.trx_id)), BindingConflict::OtpStored);
    // A crash repeats the call; it counts as one try.
    bench.wait_for_timer();
    let again = bench.claim();
    assert_eq!((again.action, &again.key, bench.row.otp_tries), (CallAction::Otp, &otp.key, 0));

    bench.answer(&again, &failed(FailureReason::WrongOtp));
    assert_eq!((bench.row.otp_value.as_ref(), bench.row.otp_tries), (None, 1), "erased after use");
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
fn wrong_otps_are_asked_for_again_a_few_times() {
    let mut bench = Bench::running();
    bench.call(&OTP_WANTED);
    let mut keys = Vec::new();
    for _ in 0..3 {
        let CommandOutcome::Write(change) = bench.submit(&TrxId::new(&bench.row.id, 1)) else { panic!("refused") };
        bench.row = bench.row.apply(&change);
        let call = bench.claim();
        keys.extend(call.key.clone());
        bench.answer(&call, &failed(FailureReason::WrongOtp));
    }
    assert_eq!(keys, ["B:1:otp:1", "B:1:otp:2", "B:1:otp:3"]);
    assert_eq!((bench.row.phase, bench.row.failures), (BindingPhase::Idle, 1));
}

#[test]
fn stop_ends_a_wait_for_an_otp_and_pause_leaves_it() {
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
fn each_command_has_its_answer_in_each_state() {
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
fn a_server_is_changed_at_rest_only_and_a_config_is_checked() {
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
