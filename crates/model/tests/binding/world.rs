//! Model of a binding with its tables, its workers and its provider. Processes die and freeze between any two steps.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use model::{
    actor::{Actor, ActorRole},
    binding::{
        AnswerDecision, Binding, BindingChange, BindingCommand, BindingConfig, BindingEvent, BindingId, CallClaim,
        CallEnding, CallOpening, CallRules, ClaimDecision, CommandOutcome, DecisionMoment, IntervalFrom, OtpSubmission,
        ProviderAnswer, ProviderCall, TimeoutPolicy, TransactionHeader, TrxId, decide_answer, decide_claim,
        decide_command, decide_deadline, decide_otp, decide_settle, derive, settle_timer,
    },
};

use super::provider::{Provider, ProviderLuck, RIGHT_OTP};

pub(crate) const RULES: CallRules =
    CallRules { margin: TimeDelta::milliseconds(500), repeats_are_safe: true, otp_is_readable: true };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OtpKind {
    Right,
    Wrong,
    /// An OTP for another binding.
    Foreign,
    /// An OTP for an earlier cycle.
    Earlier,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The derived job fires when it is due, or now if it is overdue. During an open call it fires early.
    FireNext,
    /// The derived job fires after the open call is lost.
    FireLost,
    /// A worker claims, calls and writes the answer.
    Work(ProviderLuck),
    /// A job of another cycle fires: an old or a duplicate one.
    FireLate(u64),
    FireSettle(usize),
    /// A job that may not call checks the deadlines.
    FireDeadline,
    /// A claimed call reaches the provider.
    Send(usize, ProviderLuck),
    /// The answer reaches the worker.
    Answer(usize),
    /// The answer reaches the worker, which writes it twice.
    AnswerTwice(usize),
    /// The worker that made a claim dies.
    Crash(usize),
    Advance(i64),
    Start,
    Pause,
    Resume,
    Stop,
    Delete,
    Patch,
    Otp(OtpKind),
}

/// A claim in the memory of one worker.
#[derive(Debug)]
pub(crate) struct WorkerCall {
    pub(crate) call: ProviderCall,
    /// The provider's answer, after the provider got the call.
    pub(crate) answer: Option<ProviderAnswer>,
    /// Whether the provider accepted the call and has not ended it.
    pub(crate) is_open: bool,
}

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) opening: CallOpening,
    pub(crate) ending: Option<CallEnding>,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) row: Binding,
    pub(crate) headers: BTreeMap<i64, TransactionHeader>,
    pub(crate) records: Vec<Record>,
    pub(crate) events: Vec<BindingEvent>,
    pub(crate) calls: Vec<WorkerCall>,
    pub(crate) provider: Provider,
    /// Key under which each stored OTP was sent.
    pub(crate) otp_keys: BTreeMap<Vec<u8>, String>,
    pub(crate) now: DateTime<Utc>,
    otps: u32,
}

fn person() -> Actor {
    Actor::new(ActorRole::Operator, "anna", None)
}

impl World {
    pub(crate) fn start(stops_on_timeouts: bool) -> Self {
        let now = DateTime::from_timestamp_millis(1_800_000_000_000).unwrap();
        // Half of the sequences count intervals from the start of a cycle, half from its end.
        let interval_from = if stops_on_timeouts { IntervalFrom::Begin } else { IntervalFrom::End };
        let policy = if stops_on_timeouts { TimeoutPolicy::Stop } else { TimeoutPolicy::Continue };
        let config = BindingConfig {
            interval_from,
            processing_timeout_ms: 20_000,
            otp_timeout_ms: 15_000,
            max_failures: 4,
            on_otp_timeout: policy,
            on_processing_timeout: policy,
            ..BindingConfig::default()
        };
        let id: BindingId = "B".parse().unwrap();
        let row = Binding::new_stopped(id, "S1".parse().unwrap(), "A1".parse().unwrap(), config, now);
        Self {
            row,
            headers: BTreeMap::new(),
            records: Vec::new(),
            events: Vec::new(),
            calls: Vec::new(),
            provider: Provider::default(),
            otp_keys: BTreeMap::new(),
            now,
            otps: 0,
        }
    }

    fn moment(&self) -> DecisionMoment {
        DecisionMoment { now: self.now, luck: 0.5 }
    }

    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::FireNext => self.fire_next(),
            Step::FireLost => {
                if let Some(until) = self.row.call_until {
                    self.move_to(until);
                    self.fire();
                }
            }
            Step::Work(luck) => {
                self.fire_next();
                let last = self.calls.len().wrapping_sub(1);
                if self.calls.get(last).is_some_and(|call| call.answer.is_none()) {
                    let unsent = self.calls.iter().filter(|call| call.answer.is_none()).count() - 1;
                    self.send(unsent, luck);
                    let answered = self.calls.iter().filter(|call| call.answer.is_some()).count() - 1;
                    self.answer(answered, 1);
                }
            }
            Step::FireLate(cycle) => {
                // Like a handler: a job with a different id is superseded.
                let id = format!("cycle:B:{cycle}");
                if derive(&self.row, self.now).is_some_and(|timer| timer.id().as_str() == id) {
                    self.fire();
                }
            }
            Step::FireSettle(n) => {
                let open: Vec<_> =
                    self.headers.values().filter(|h| settle_timer(h, self.now).is_some()).cloned().collect();
                if let Some(header) = open.get(n) {
                    let decision = decide_settle(&self.row, header, RULES, self.now);
                    self.follow_claim(decision);
                }
            }
            Step::FireDeadline => {
                if let Some(change) = decide_deadline(&self.row, self.moment()) {
                    self.apply(change);
                }
            }
            Step::Send(n, luck) => self.send(n, luck),
            Step::Answer(n) => self.answer(n, 1),
            Step::AnswerTwice(n) => self.answer(n, 2),
            Step::Crash(n) => {
                if !self.calls.is_empty() {
                    // The connection of the call closes too.
                    self.calls.remove(n % self.calls.len());
                }
            }
            Step::Advance(ms) => self.move_to(self.now + TimeDelta::milliseconds(ms)),
            Step::Start => self.command(&BindingCommand::Start),
            Step::Pause => self.command(&BindingCommand::Pause),
            Step::Resume => self.command(&BindingCommand::Resume),
            Step::Stop => self.command(&BindingCommand::Stop { reason: model::binding::StopReason::ManualStop }),
            // Limited, because most sequences would end here.
            Step::Delete if self.now.timestamp_millis() % 7 != 0 => {}
            Step::Delete => self.command(&BindingCommand::Delete),
            Step::Patch => {
                let config = BindingConfig { otp_attempts: 2, ..self.row.config.clone() };
                self.command(&BindingCommand::Patch { server_id: Some("S2".parse().unwrap()), config: Some(config) });
            }
            Step::Otp(kind) => self.submit_otp(kind),
        }
    }

    /// Moves time forward, never back. The provider ends every call by its `Call-Until`.
    fn move_to(&mut self, at: DateTime<Utc>) {
        self.now = self.now.max(at);
        for call in self.calls.iter_mut().filter(|c| c.is_open && c.call.call_until <= self.now) {
            call.is_open = false;
            call.answer = Some(ProviderAnswer::Unreachable("cut".to_owned()));
        }
    }

    fn fire_next(&mut self) {
        if let Some(timer) = derive(&self.row, self.now) {
            if !self.row.has_open_call() {
                self.move_to(timer.due);
            }
            self.fire();
        }
    }

    fn fire(&mut self) {
        let decision = decide_claim(&self.row, RULES, self.moment());
        self.follow_claim(decision);
    }

    fn follow_claim(&mut self, decision: ClaimDecision) {
        match decision {
            ClaimDecision::Call(claim) => {
                let CallClaim { change, call } = *claim;
                self.check_claim(&change, &call);
                self.apply(change);
                self.calls.push(WorkerCall { call, answer: None, is_open: false });
            }
            ClaimDecision::Write(change) => self.apply(*change),
            ClaimDecision::NotYet(at) => assert!(at > self.now, "the next time is in the future"),
            ClaimDecision::Nothing => {}
        }
    }

    fn send(&mut self, n: usize, luck: ProviderLuck) {
        let unsent = self.calls.iter().filter(|c| c.answer.is_none()).count().max(1);
        let Some(waiting) = self.calls.iter_mut().filter(|c| c.answer.is_none()).nth(n % unsent) else { return };
        let refused = self.provider.late_refused;
        let answer = self.provider.take_call(&waiting.call, luck, self.now);
        waiting.is_open = self.provider.late_refused == refused;
        waiting.answer = Some(answer);
        if waiting.is_open
            && let (Some(otp), Some(key)) = (&waiting.call.otp_value, &waiting.call.key)
        {
            let first = self.otp_keys.entry(otp.clone()).or_insert_with(|| key.clone());
            assert_eq!(first, key, "an OTP is used once");
        }
        let open = self.calls.iter().filter(|c| c.is_open).count();
        assert!(open <= 1, "{open} calls are open at the provider");
    }

    fn answer(&mut self, n: usize, times: u32) {
        let answered: Vec<_> = (0..self.calls.len()).filter(|at| self.calls[*at].answer.is_some()).collect();
        let Some(at) = answered.get(n % answered.len().max(1)).copied() else { return };
        let WorkerCall { call, answer, .. } = self.calls.remove(at);
        let answer = answer.expect("it has an answer");
        for time in 0..times {
            match decide_answer(&self.row, call.call_no, &answer, self.moment()) {
                AnswerDecision::Write(change) => {
                    assert_eq!(time, 0, "an answer is written once");
                    self.check_answer(&call, &answer, &change);
                    self.apply(*change);
                }
                AnswerDecision::Stale => {
                    let record = &self.records[usize::try_from(call.call_no).unwrap() - 1];
                    assert!(record.ending.is_some(), "call {} has no end: {:?}", call.call_no, self.row);
                }
            }
        }
    }

    pub(crate) fn command(&mut self, command: &BindingCommand) {
        match decide_command(&self.row, command, &person(), self.now) {
            CommandOutcome::Write(change) => {
                self.check_command(command, &change);
                self.apply(*change);
            }
            CommandOutcome::NoOp(said) => assert!(!said.is_empty()),
            CommandOutcome::Conflict(conflict) => assert!(!conflict.to_string().is_empty()),
        }
    }

    fn submit_otp(&mut self, kind: OtpKind) {
        self.otps += 1;
        let open = self.row.trx_id.clone().unwrap_or_else(|| TrxId::new(&self.row.id, self.row.cycle.max(1)));
        let trx_id = match kind {
            OtpKind::Right | OtpKind::Wrong => open,
            OtpKind::Foreign => TrxId::new(&"B2".parse().unwrap(), self.row.cycle.max(1)),
            OtpKind::Earlier => TrxId::new(&self.row.id, self.row.cycle - 1),
        };
        let sealed =
            if kind == OtpKind::Right { RIGHT_OTP.to_vec() } else { format!("wrong {}", self.otps).into_bytes() };
        if kind == OtpKind::Right {
            // The same digits may be right for another transaction. They count as a different OTP.
            self.otp_keys.remove(RIGHT_OTP);
        }
        let otp = OtpSubmission { trx_id, sealed, digest: format!("hmac-{}", self.otps) };
        match decide_otp(&self.row, &otp, &person(), self.now) {
            CommandOutcome::Write(change) => {
                assert!(matches!(kind, OtpKind::Right | OtpKind::Wrong), "{kind:?} was stored");
                assert!(self.row.otp_value.is_none(), "a second OTP was stored");
                assert!(self.row.otp_deadline.is_some_and(|deadline| self.now < deadline), "it came too late");
                self.apply(*change);
            }
            CommandOutcome::NoOp(said) => panic!("an OTP is stored or refused: {said}"),
            CommandOutcome::Conflict(conflict) => assert!(!conflict.to_string().is_empty()),
        }
    }

    /// Applies a change with the same functions as the store.
    fn apply(&mut self, change: BindingChange) {
        assert_eq!((change.version, change.at), (self.row.version, self.now));
        self.check_change(&change);
        if let Some(ending) = change.ending.clone() {
            let record = &mut self.records[usize::try_from(ending.call_no).unwrap() - 1];
            assert_eq!((record.opening.cycle, &record.ending), (ending.cycle, &None), "a record ends once");
            record.ending = Some(ending);
        }
        if let Some(header) = &change.header {
            let after = header.apply_to(self.headers.get(&header.cycle()), change.at);
            let after = after.unwrap_or_else(|| panic!("{header:?} changes nothing of {:?}", self.headers));
            self.headers.insert(header.cycle(), after);
        }
        self.records.extend(change.opening.clone().map(|opening| Record { opening, ending: None }));
        self.row = self.row.apply(&change);
        self.events.extend(change.events);
    }

    /// Stops the binding. The provider leaves everything open until the binding is IDLE, then answers until all is
    /// final.
    pub(crate) fn let_time_pass(&mut self, luck: ProviderLuck) {
        self.take(Step::Resume);
        self.take(Step::Stop);
        for _ in 0..500 {
            self.check();
            let luck = if self.row.is_between_cycles() { ProviderLuck::Success } else { luck };
            while !self.calls.is_empty() {
                self.take(Step::Send(0, luck));
                self.check();
                self.take(Step::Answer(0));
                self.check();
            }
            let binding = derive(&self.row, self.now).map(|timer| timer.due);
            let settle = self.headers.values().filter_map(|h| settle_timer(h, self.now)).map(|timer| timer.due).min();
            match (binding, settle) {
                (None, None) => return,
                (Some(due), settle) if settle.is_none_or(|at| due <= at.max(self.now)) => {
                    self.move_to(due);
                    self.fire();
                }
                (_, settle) => {
                    self.move_to(settle.unwrap_or(self.now));
                    self.take(Step::FireSettle(0));
                    self.move_to(self.now + TimeDelta::seconds(1));
                }
            }
        }
        panic!("the model never becomes idle: {:?} {:?}", self.row, self.headers);
    }
}
