//! The simulated provider: its judge, ledger and knobs, behind one lock that is never held across an await.

use std::{fmt, sync::Arc, time::Instant};

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;

use super::{
    fate::TransactionFate,
    judge::{CallJudge, CallParty, ToldLimits},
    knobs::ProviderKnobs,
    ledger::{KeyVerdict, StandingWords, StartRequest, TransactionLedger},
    options::ProviderSimOptions,
};

/// Calls with faults, by fault.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FaultCounters {
    pub throttled: u64,
    pub errors_500: u64,
    pub hangs: u64,
    pub lost_answers: u64,
    pub non_json: u64,
    pub oversized: u64,
    pub unknown_status: u64,
    /// Calls with a wrong key, or with the right one while keys are refused, answered 401.
    pub unauthorized: u64,
    /// Calls answered 503.
    pub unavailable: u64,
    /// Calls that were cut because they were not finished by `Call-Until`.
    pub cut_by_call_until: u64,
}

#[derive(Debug, Default)]
pub(super) struct ProviderState {
    pub(super) knobs: Arc<ProviderKnobs>,
    pub(super) judge: CallJudge,
    pub(super) ledger: TransactionLedger,
    pub(super) faults: FaultCounters,
}

pub(super) struct ProviderCore {
    pub(super) seed: u64,
    pub(super) api_key: String,
    state: Mutex<ProviderState>,
}

impl fmt::Debug for ProviderCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderCore").field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// A received and validated call.
#[derive(Debug)]
pub(super) struct ReceivedCall {
    pub(super) party: CallParty,
    pub(super) trx_id: String,
    pub(super) cycle: i64,
    pub(super) key: String,
    pub(super) fingerprint: u64,
    pub(super) otp: Option<String>,
}

/// Result of a call without a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallEffect {
    Standing(StandingWords),
    UnknownTransaction,
    KeyReused,
}

impl ProviderCore {
    pub(super) fn new(options: &ProviderSimOptions) -> Result<Self, String> {
        options.knobs.check_values()?;
        let state = ProviderState { knobs: Arc::new(options.knobs.clone()), ..ProviderState::default() };
        Ok(Self { seed: options.seed, api_key: options.api_key.clone(), state: Mutex::new(state) })
    }

    pub(super) fn lock_state(&self) -> MutexGuard<'_, ProviderState> {
        self.state.lock()
    }

    pub(super) fn current_knobs(&self) -> Arc<ProviderKnobs> {
        self.lock_state().knobs.clone()
    }

    /// Changes knobs for later decisions. Transactions keep their fate.
    pub(super) fn change_knobs(
        &self,
        change: impl FnOnce(&ProviderKnobs) -> Result<ProviderKnobs, String>,
    ) -> Result<(), String> {
        let mut state = self.lock_state();
        let knobs = change(&state.knobs)?;
        state.knobs = Arc::new(knobs);
        Ok(())
    }

    /// Opens a call, unless it is late. Dropping the guard closes it.
    pub(super) fn take_call(self: &Arc<Self>, party: &CallParty, is_past: bool) -> Option<OpenCall> {
        let state = &mut *self.lock_state();
        if state.judge.refuses_late(party, is_past) {
            return None;
        }
        let limits = ToldLimits { in_all: state.knobs.max_open, per_server: state.knobs.max_open_per_server };
        state.judge.open_call(party, limits);
        Some(OpenCall { core: self.clone(), party: party.clone() })
    }

    pub(super) fn begin_transaction(&self, call: &ReceivedCall) -> CallEffect {
        let (now, state) = (Instant::now(), &mut *self.lock_state());
        let knobs = state.knobs.clone();
        let fate = TransactionFate::draw_fate(self.seed, &call.trx_id, &knobs);
        let verdict = state.ledger.start_transaction(&call.as_request(), knobs.balance, fate, knobs.otp_lifetime, now);
        match verdict {
            KeyVerdict::New => state.judge.record_start(&call.party.binding, call.cycle),
            KeyVerdict::Again(_) => state.judge.record_repeat(true),
            KeyVerdict::Differs => {
                state.judge.record_repeat(false);
                return CallEffect::KeyReused;
            }
        }
        read_effect(state, call, now)
    }

    pub(super) fn read_transaction(&self, call: &ReceivedCall) -> CallEffect {
        read_effect(&mut self.lock_state(), call, Instant::now())
    }

    pub(super) fn try_otp(&self, call: &ReceivedCall) -> CallEffect {
        let state = &mut *self.lock_state();
        let is_right = call.otp.as_deref() == Some(state.knobs.otp_code.as_str());
        match state.ledger.try_otp(&call.as_request(), is_right, Instant::now()) {
            None => CallEffect::UnknownTransaction,
            Some((KeyVerdict::Differs, _)) => {
                state.judge.record_repeat(false);
                CallEffect::KeyReused
            }
            Some((verdict, words)) => {
                if matches!(verdict, KeyVerdict::Again(_)) {
                    state.judge.record_repeat(true);
                }
                CallEffect::Standing(words)
            }
        }
    }
}

fn read_effect(state: &mut ProviderState, call: &ReceivedCall, now: Instant) -> CallEffect {
    let words = state.ledger.read_standing(&call.trx_id, &call.party.account, now);
    words.map_or(CallEffect::UnknownTransaction, CallEffect::Standing)
}

impl ReceivedCall {
    fn as_request(&self) -> StartRequest<'_> {
        StartRequest {
            trx_id: &self.trx_id,
            account: &self.party.account,
            key: &self.key,
            fingerprint: self.fingerprint,
        }
    }
}

/// A call from its receipt to its answer, or to the end of its connection.
#[derive(Debug)]
pub(super) struct OpenCall {
    core: Arc<ProviderCore>,
    party: CallParty,
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.core.lock_state().judge.close_call(&self.party);
    }
}
