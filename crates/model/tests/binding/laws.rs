//! Invariants of a binding.

use model::binding::{
    BindingChange, BindingCommand, BindingNotice, BindingPhase, BindingState, CallAction, FailureReason, HeaderChange,
    ProviderAnswer, ProviderCall, StopReason, TransactionStatus, TrxId, derive, settle_timer,
};

use super::world::{RULES, World};

impl World {
    pub(crate) fn check_change(&self, change: &BindingChange) {
        let (before, after) = (&self.row, &change.binding);
        if let Some(HeaderChange::Begin(header)) = &change.header {
            assert_eq!(before.state, BindingState::Running, "a cycle starts only while RUNNING");
            assert_eq!((header.cycle, before.phase), (before.cycle + 1, BindingPhase::Idle), "cycles are gapless");
        }
        self.check_next_cycle(change);
        self.check_alerts(change);
        if before.has_open_call() && change.ending.is_none() {
            let call =
                |b: &model::binding::Binding| (b.phase, b.call_no, b.call_action, b.call_until, b.trx_id.clone());
            assert_eq!(call(before), call(after), "only its end changes an open call");
        }
        if before.state == BindingState::Stopped && after.state != BindingState::Stopped {
            let kinds: Vec<_> = change.events.iter().map(|e| e.kind.as_str()).collect();
            assert!(kinds == ["started"] && change.actor.is_staff(), "only a person starts a binding: {change:?}");
        }
        assert!((0..=1).contains(&(after.call_no - before.call_no)));
        assert_eq!(change.opening.is_some(), after.call_no > before.call_no);
    }

    /// Checks that each transaction that becomes UNRESOLVED notifies a desk, and that its final state settles the
    /// alert.
    fn check_alerts(&self, change: &BindingChange) {
        let leaves = matches!(&change.header, Some(HeaderChange::Move { status: TransactionStatus::Unresolved, .. }));
        let tells = change.notices.iter().any(|notice| matches!(notice, BindingNotice::Unresolved { .. }));
        assert_eq!(leaves, tells, "{change:?}");
        let is_final = matches!(&change.header, Some(HeaderChange::Move { status, .. }) if status.is_final());
        let before = change.header.as_ref().and_then(|header| self.headers.get(&header.cycle()));
        let was_left = before.filter(|header| header.status == TransactionStatus::Unresolved && is_final);
        assert_eq!(change.settled.as_ref(), was_left.map(|header| &header.trx_id), "{change:?}");
    }

    /// Checks that missed cycles are never repeated. After a cycle, at most one is due, now or within an interval. A
    /// cycle that starts counts its interval from less than an interval ago.
    fn check_next_cycle(&self, change: &BindingChange) {
        let (before, after, now) = (&self.row, &change.binding, change.at);
        let millis = |ms: u32| chrono::TimeDelta::milliseconds(ms.into());
        if let Some(HeaderChange::Begin(_)) = &change.header {
            let start = after.interval_start.expect("a started cycle has an interval start");
            let due = before.next_at.expect("it was due");
            assert!(start <= now && (start == due || now - due >= millis(after.config.interval_ms.least)), "{after:?}");
            assert!(start == now || now - start < millis(after.config.interval_ms.least), "{after:?}");
        }
        if let Some(next_at) = after.next_at.filter(|_| after.is_at_rest() && !before.is_between_cycles()) {
            let longest = after.config.interval_ms.most.max(after.config.cooldown_on_error_ms.most);
            assert!(now <= next_at && next_at <= now + millis(longest), "{after:?}");
        }
    }

    pub(crate) fn check_claim(&self, change: &BindingChange, call: &ProviderCall) {
        assert!(self.row.call_until.is_none_or(|until| until <= self.now), "the call before is open");
        let timeout = chrono::TimeDelta::milliseconds(self.row.config.call_timeout_ms.into());
        assert_eq!(call.call_until, self.now + timeout + RULES.margin);
        let opening = change.opening.as_ref().expect("a claim has a record");
        assert_eq!(call.fence, self.row.version + 1, "the fence is the version after the claim");
        assert_eq!((opening.fence, opening.call_no, opening.cycle), (call.fence, call.call_no, call.cycle));
        assert_eq!(call.trx_id, TrxId::new(&self.row.id, call.cycle));
        let wanted = match call.action {
            CallAction::Start => Some(format!("B:{}", call.cycle)),
            CallAction::Otp => Some(format!("B:{}:otp:{}", call.cycle, self.row.otp_tries + 1)),
            CallAction::Status | CallAction::Settle => None,
        };
        assert_eq!(call.key, wanted);
        let runs = self.row.state == BindingState::Running;
        assert!(runs || call.action != CallAction::Start, "{} starts nothing", self.row.state);
        assert_eq!(call.otp_value.is_some(), call.action == CallAction::Otp);
        let is_repeat = match call.action {
            CallAction::Start => change.header.is_none(),
            CallAction::Otp => {
                self.otp_keys.values().any(|key| Some(key) == call.key.as_ref()) || self.row.has_open_call()
            }
            CallAction::Status | CallAction::Settle => false,
        };
        let deadline = self.row.processing_deadline;
        assert!(!is_repeat || deadline.is_some_and(|at| self.now < at), "{} is repeated too late", call.action);
    }

    pub(crate) fn check_answer(&self, call: &ProviderCall, answer: &ProviderAnswer, change: &BindingChange) {
        let after = &change.binding;
        let is_broke = matches!(answer, ProviderAnswer::Failed { reason: FailureReason::InsufficientBalance, .. });
        if is_broke && call.action != CallAction::Settle {
            let wanted = (BindingState::Stopped, Some(StopReason::InsufficientBalanceBeforeStart));
            assert_eq!((after.state, after.reason), wanted, "a low balance stops with exactly this reason");
        } else if after.state == BindingState::Stopped && self.row.state == BindingState::Stopping {
            assert_eq!(after.reason, self.row.reason, "a stop keeps its reason");
        }
        assert_eq!(change.ending.as_ref().map(|end| end.result), Some(answer.label()), "the answer is recorded");
        assert_ne!(after.phase, BindingPhase::Calling);
        let asks_on = after.phase == BindingPhase::Processing || after.otp_value.is_some();
        let latest = after.processing_deadline.max(Some(call.call_until));
        assert!(!asks_on || after.next_at <= latest, "the status request is too late: {after:?}");
    }

    pub(crate) fn check_command(&self, command: &BindingCommand, change: &BindingChange) {
        assert!(change.opening.is_none() && change.ending.is_none(), "{command:?} changes no call");
        let after = change.binding.state;
        match command {
            BindingCommand::Stop { .. } if self.row.has_open_call() => assert_eq!(after, BindingState::Stopping),
            BindingCommand::Stop { .. } => assert_eq!(after, BindingState::Stopped),
            BindingCommand::Delete => {
                assert!(self.row.state == BindingState::Stopped && self.row.is_at_rest() && self.row.unresolved == 0);
            }
            BindingCommand::Patch { .. } if change.binding.server_id != self.row.server_id => {
                assert!(self.row.state == BindingState::Stopped && self.row.is_at_rest());
            }
            _ => {}
        }
        if after == BindingState::Stopped && self.row.phase == BindingPhase::WaitingOtp && change.header.is_some() {
            let Some(HeaderChange::Move { status, reason, .. }) = &change.header else { panic!("{change:?}") };
            assert_eq!((*status, reason.as_deref()), (TransactionStatus::Gagal, Some("manual_stop")));
        }
    }

    pub(crate) fn check(&self) {
        self.check_columns();
        self.check_records();
        self.check_headers();
        self.check_timer();
        let open = self.calls.iter().filter(|call| call.is_open).count();
        assert!(open <= 1, "{open} calls are open");
    }

    /// Checks the CHECK constraints of the tables.
    fn check_columns(&self) {
        let b = &self.row;
        let calling = b.phase == BindingPhase::Calling;
        assert_eq!((b.call_until.is_some(), b.call_action.is_some()), (calling, calling), "{b:?}");
        assert!(b.state != BindingState::Stopping || calling, "{b:?}");
        assert_eq!(b.trx_id.is_none(), b.is_at_rest(), "{b:?}");
        assert_eq!(
            b.reason.is_some(),
            matches!(b.state, BindingState::Stopped | BindingState::Stopping) && b.version > 0 && !self.never_ran(),
            "{b:?}"
        );
        assert_eq!(b.otp_value.is_some(), b.otp_submitted_at.is_some());
        assert!(
            b.otp_value.is_none() || b.phase == BindingPhase::WaitingOtp || b.call_action == Some(CallAction::Otp),
            "{b:?}"
        );
        let waits = b.phase == BindingPhase::WaitingOtp && b.otp_value.is_none();
        assert!(!waits || b.otp_deadline.is_some(), "{b:?}");
        assert!(
            b.phase != BindingPhase::Processing || (b.next_at.is_some() && b.processing_deadline.is_some()),
            "{b:?}"
        );
        let due = b.state == BindingState::Running && b.is_at_rest();
        assert!(!due || b.next_at.is_some(), "{b:?}");
        assert!(b.unresolved >= 0 && b.failures.unsigned_abs() <= b.config.max_failures, "{b:?}");
    }

    fn never_ran(&self) -> bool {
        !self.events.iter().any(|event| event.kind.as_str() == "started")
    }

    /// Checks that each call has a record before it and an end after it, without gaps, and that two are never open.
    fn check_records(&self) {
        assert_eq!(self.records.len(), usize::try_from(self.row.call_no).unwrap());
        let mut fence = 0;
        for (n, record) in self.records.iter().enumerate() {
            let opening = &record.opening;
            assert_eq!(opening.call_no, i64::try_from(n).unwrap() + 1);
            assert!(opening.fence > fence, "fences grow: {:?}", self.records);
            fence = opening.fence;
            let is_last = n + 1 == self.records.len();
            assert_eq!(record.ending.is_none(), is_last && self.row.has_open_call(), "{record:?} {:?}", self.row);
            if let (Some(ending), Some(next)) = (&record.ending, self.records.get(n + 1)) {
                assert!(next.opening.claimed_at >= ending.ended_at, "claims of a binding do not overlap");
            }
        }
    }

    fn check_headers(&self) {
        let cycles: Vec<_> = self.headers.keys().copied().collect();
        let wanted: Vec<_> = (1..=self.row.cycle).collect();
        assert_eq!(cycles, wanted, "each cycle has its header");
        let settles = self.row.call_action == Some(CallAction::Settle);
        for header in self.headers.values() {
            let is_open = header.cycle == self.row.cycle && !self.row.is_at_rest() && !settles;
            let is_over = header.status.is_final() || header.status == TransactionStatus::Unresolved;
            assert_eq!(is_over, !is_open, "{header:?} of {:?}", self.row);
            assert_eq!(header.ended_at.is_some(), header.status.is_final(), "{header:?}");
            assert_eq!(header.settle_at.is_some(), header.status == TransactionStatus::Unresolved, "{header:?}");
            let called = self.records.iter().any(|record| record.opening.cycle == header.cycle);
            assert!(called, "{header:?} has no record");
            let is_done = header.status == TransactionStatus::Gagal && self.provider.goes_on_with(header.cycle);
            assert!(!is_done, "{header:?} is no failure at the provider");
        }
        let unresolved = self.headers.values().filter(|h| h.status == TransactionStatus::Unresolved).count();
        assert_eq!(unresolved, usize::try_from(self.row.unresolved).unwrap());
    }

    fn check_timer(&self) {
        let b = &self.row;
        let timer = derive(b, self.now);
        let rests = b.is_at_rest() && matches!(b.state, BindingState::Stopped | BindingState::Paused);
        assert_eq!(timer.is_none(), rests, "{b:?}");
        let Some(timer) = timer else { return };
        let (kind, due) = match b.phase {
            BindingPhase::WaitingOtp if b.otp_value.is_some() => ("otp", b.next_at),
            BindingPhase::WaitingOtp => ("otp", b.otp_deadline),
            BindingPhase::Calling => ("cycle", b.call_until),
            BindingPhase::Idle | BindingPhase::Processing => ("cycle", b.next_at),
        };
        assert_eq!((timer.id().kind(), Some(timer.due)), (kind, due));
        assert_eq!(timer.is_due(self.now), timer.job.delay.is_zero());
    }

    /// Checks the final state: nothing is open and nothing is due.
    pub(crate) fn check_at_rest(&self) {
        self.check();
        let b = &self.row;
        assert!(b.state == BindingState::Stopped && b.is_at_rest() && b.otp_value.is_none(), "{b:?}");
        assert!(self.headers.values().all(|h| h.status.is_final() && settle_timer(h, self.now).is_none()));
        assert!(self.records.iter().all(|record| record.ending.is_some()));
    }
}
