//! One call of a provider: claimed in the row, made while slots are held, and its answer written.
//!
//! The process may die at any point. Before the claim nothing has happened. After it the row says until when the call may be
//! open; the next run goes on from there, under the same key. A write whose answer is lost is looked up.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use metrics::histogram;
use model::{
    actor::Actor,
    binding::{
        AnswerDecision, Binding, BindingChange, CallAction, CallClaim, ClaimDecision, ProviderAnswer, ProviderCall,
        change::DecisionMoment, decide_answer,
    },
};

use super::{
    follow,
    owner::new_owner,
    registry::{HeartbeatPayload, RedisWorkerRegistry, WorkerRegistry},
    slots::QUICK_CLAIM,
    span,
};
use crate::{
    capability::Bindings,
    otp_seal::PlainOtp,
    provider_client::{CallDeadline, EndedCall},
    store::{
        BatchError,
        load::LoadedBinding,
        servers::{self, ServerStanding},
        transactions::{self, EndedCallRecord},
        write::{BindingWrite, WriteVerdict},
    },
};
use foundation::{core::Core, crash};
use queue::{JobId, SlotGrant};

/// Between two tries to write an answer while Postgres does not take it.
const WRITE_PAUSE: Duration = Duration::from_millis(250);

/// What came of a call.
#[derive(Debug)]
pub enum CallEnd {
    /// The answer is written, or another run has given the call up for lost: the row as it now is.
    Recorded(Box<RecordedCall>),
    /// The row is gone.
    Overtaken,
}

/// A call whose end is written.
#[derive(Debug)]
pub struct RecordedCall {
    /// The change that ended it; `None`: another run has.
    pub change: Option<BindingChange>,
    pub after: Binding,
    /// The ids of what the change tells people.
    pub messages: Vec<i64>,
}

/// A call that was made, before its answer is written.
#[derive(Debug)]
pub struct MadeCall {
    claimed: Binding,
    call: ProviderCall,
    ended: EndedCall,
    begun_at: DateTime<Utc>,
}

/// What came of a claim and its call.
#[derive(Debug)]
pub enum CallAttempt {
    Made(Box<MadeCall>),
    Conflict,
    Overtaken,
}

/// Postgres' time by now, in whole milliseconds as rows keep it, and a share of chance.
pub fn moment_of(core: &Core, loaded: &LoadedBinding) -> DecisionMoment {
    DecisionMoment { now: loaded.current_time().trunc_subsecs(3), luck: core.rng.next_unit() }
}

/// Claims the call that `decide` wants now, and makes it. The slots are held from before the claim until the call has ended.
pub async fn attempt_call(
    bindings: &Bindings,
    loaded: &LoadedBinding,
    server: &ServerStanding,
    otp: Option<&PlainOtp>,
    (job, grant): (&JobId, &SlotGrant),
    decide: impl Fn(DecisionMoment) -> ClaimDecision,
) -> Result<CallAttempt, BatchError> {
    let before = &loaded.binding;
    let ClaimDecision::Call(claim) = decide(moment_of(&bindings.core, loaded)) else {
        return Ok(CallAttempt::Overtaken);
    };
    let CallClaim { change, call } = *claim;
    crash::reach_point("call", "claims");
    let (owner, decided) = (new_owner(bindings), Instant::now());
    if !write_claim(bindings, &change, &call, &owner).await? {
        return Ok(CallAttempt::Conflict);
    }
    histogram!("dispatchq_binding_claim_seconds").record(decided.elapsed());
    crash::reach_point("call", "claimed");
    span::record_call(before, &call);
    let claimed = before.apply(&change);
    follow::announce_change(bindings, before, &change, &claimed, &owner);
    beat(bindings, loaded, &claimed).await;
    let slot_loss = find_slot_loss(&bindings.core, job, grant).await;
    let begun_at = loaded.current_time();
    let ended = match slot_loss {
        Some(why) => EndedCall::not_sent(&call, why),
        None => {
            let deadline = find_deadline(bindings, loaded, &call, grant);
            bindings.providers.make_call(&server.provider, &server.base_url, &call, otp, deadline).await
        }
    };
    Ok(CallAttempt::Made(Box::new(MadeCall { claimed, call, ended, begun_at })))
}

/// Returns why the slots may be those of another call by now. A claim that was quick is known to every rebuild that could give them away.
async fn find_slot_loss(core: &Core, job: &JobId, grant: &SlotGrant) -> Option<&'static str> {
    if grant.asked_at().elapsed() <= QUICK_CLAIM {
        return None;
    }
    match core.store.holds_slots(job, grant).await {
        Ok(true) => None,
        Ok(false) => Some("Redis has lost its slots"),
        Err(error) => {
            tracing::warn!(%error, "Redis does not say whether the slots of a call count still; the call is not made.");
            Some("Redis does not say whether its slots count still")
        }
    }
}

/// The caller gives up, and the provider is told to end the call, a margin before the row and the slots let another in.
fn find_deadline(bindings: &Bindings, loaded: &LoadedBinding, call: &ProviderCall, grant: &SlotGrant) -> CallDeadline {
    let margin = bindings.config.bindings.call_margin;
    let until = call.call_until - TimeDelta::from_std(margin).unwrap_or_default();
    let (by_row, by_slots) = (loaded.instant_of(until), grant.ends_by() - margin);
    if by_row <= by_slots {
        return CallDeadline { instant: by_row, until };
    }
    let earlier = TimeDelta::from_std(by_row - by_slots).unwrap_or_default();
    CallDeadline { instant: by_slots, until: until - earlier }
}

/// Returns whether the claim is written. Where the answer was lost, the record of the call says so.
async fn write_claim(
    bindings: &Bindings,
    change: &BindingChange,
    call: &ProviderCall,
    owner: &Arc<str>,
) -> Result<bool, BatchError> {
    let write = BindingWrite { change: change.clone(), owner: owner.clone(), call: None };
    match bindings.rows.write_binding(write).await {
        Ok(verdict) => Ok(matches!(verdict, WriteVerdict::Written { .. })),
        Err(error) if error.is_outcome_unknown() => {
            Ok(transactions::was_claim_written(&bindings.core.db, &call.trx_id, call.call_no, owner).await?)
        }
        Err(error) => Err(error),
    }
}

impl MadeCall {
    /// Writes the answer. While Postgres does not take it, again and again until the call counts as lost anyway.
    pub async fn record_answer(
        self,
        bindings: &Bindings,
        loaded: &LoadedBinding,
        server: &ServerStanding,
    ) -> Result<CallEnd, BatchError> {
        crash::reach_point("call", "answered");
        span::record_result(self.ended.answer.label());
        note_server_health(bindings, server, &self.ended).await;
        let Self { claimed, call, ended, begun_at } = self;
        let mut row = claimed;
        loop {
            let moment = moment_of(&bindings.core, loaded);
            let change = match decide_answer(&row, call.call_no, &ended.answer, moment) {
                AnswerDecision::Write(change) => *change,
                AnswerDecision::Stale => {
                    let recorded = RecordedCall { change: None, after: row, messages: Vec::new() };
                    return Ok(CallEnd::Recorded(Box::new(recorded)));
                }
            };
            let record = EndedCallRecord { record: ended.record.clone(), begun_at };
            let owner = new_owner(bindings);
            let write = BindingWrite { change: change.clone(), owner: owner.clone(), call: Some(record.clone()) };
            match bindings.rows.write_binding(write).await {
                Ok(WriteVerdict::Written { messages }) => {
                    crash::reach_point("call", "recorded");
                    let after = row.apply(&change);
                    follow::announce_change(bindings, &row, &change, &after, &owner);
                    beat(bindings, loaded, &after).await;
                    follow::count_call(
                        call.server_id.as_str(),
                        call.action.as_str(),
                        ended.answer.label(),
                        Some(&record),
                    );
                    log_call(&ended);
                    return Ok(CallEnd::Recorded(Box::new(RecordedCall { change: Some(change), after, messages })));
                }
                Ok(WriteVerdict::Conflict) => {}
                Err(error) if moment.now < call.call_until => {
                    tracing::warn!(%error, "An answer of a provider could not be written; again in a moment.");
                    tokio::time::sleep(WRITE_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
            row = match bindings.rows.load_binding(&call.binding_id).await {
                Ok(Some(now)) => now.binding,
                Ok(None) => return Ok(CallEnd::Overtaken),
                Err(_) if loaded.current_time() < call.call_until => row,
                Err(error) => return Err(error),
            };
        }
    }
}

/// Shows observers that a worker is at work on the binding.
async fn beat(bindings: &Bindings, loaded: &LoadedBinding, binding: &Binding) {
    let registry = RedisWorkerRegistry::new(bindings.clone(), Actor::SYSTEM);
    let payload = HeartbeatPayload { at: loaded.current_time() };
    if let Err(error) = registry.heartbeat(&binding.id, &payload).await {
        tracing::debug!(%error, "A heartbeat could not be written.");
    }
}

/// The breaker of the server: failures count, and a success forgets those before it. It is a hint: an error is logged.
async fn note_server_health(bindings: &Bindings, server: &ServerStanding, ended: &EndedCall) {
    // What was not sent says nothing of the server.
    if ended.record.sent_after.is_none() {
        return;
    }
    let asked = match &ended.answer {
        ProviderAnswer::Throttled { retry_in } => retry_in.and_then(|pause| TimeDelta::from_std(pause).ok()),
        _ => None,
    };
    let noted = if ended.answer.blames_server() {
        servers::count_failure(&bindings.core.db, &server.id, &bindings.config.bindings.breaker, asked).await.map(
            |paused| {
                if let Some(until) = paused.filter(|_| server.paused_until.is_none()) {
                    tracing::warn!(%until, "A provider's server fails; it is left alone for a while.");
                }
            },
        )
    } else if server.failures > 0 || server.paused_until.is_some() {
        servers::forget_failures(&bindings.core.db, &server.id).await
    } else {
        Ok(())
    };
    if let Err(error) = noted {
        tracing::debug!(%error, "How a server fares could not be written.");
    }
}

fn log_call(ended: &EndedCall) {
    let latency_ms = ended.record.latency.map(|latency| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX));
    tracing::debug!(latency_ms, "A provider's call has ended.");
}

/// Returns whether the call begins a cycle.
pub fn begins_cycle(before: &Binding, call: &ProviderCall) -> bool {
    call.action == CallAction::Start && call.cycle > before.cycle
}
