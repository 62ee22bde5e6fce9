//! One call to a provider: the claim in the row, the call itself while slots are held, and the write of its answer.
//!
//! The process may die at any point. Before the claim, nothing has happened. After it, the row contains the time until
//! which the call may be open. The next run continues from there with the same idempotency key. If the response to a
//! write is lost, the row is read again to find out whether the write succeeded.

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

/// Pause between two attempts to write an answer while Postgres rejects it.
const WRITE_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub enum CallEnd {
    /// The answer was written, or another run has declared the call lost. Contains the present row.
    Recorded(Box<RecordedCall>),
    /// The row no longer exists.
    Overtaken,
}

/// A call whose end has been written.
#[derive(Debug)]
pub struct RecordedCall {
    /// Change that ended the call; `None`: another run ended it.
    pub change: Option<BindingChange>,
    pub after: Binding,
    /// Ids of the messages that the change created.
    pub messages: Vec<i64>,
}

/// A call that was made and whose answer has not been written yet.
#[derive(Debug)]
pub struct MadeCall {
    claimed: Binding,
    call: ProviderCall,
    ended: EndedCall,
    begun_at: DateTime<Utc>,
}

/// Result of a claim and its call.
#[derive(Debug)]
pub enum CallAttempt {
    Made(Box<MadeCall>),
    Conflict,
    Overtaken,
}

/// Returns the current time of Postgres in whole milliseconds, as rows store it, and a random number.
pub fn moment_of(core: &Core, loaded: &LoadedBinding) -> DecisionMoment {
    DecisionMoment { now: loaded.current_time().trunc_subsecs(3), luck: core.rng.next_unit() }
}

/// Claims the call that `decide` returns, and makes it. The slots are held from before the claim until the end of the
/// call.
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

/// Returns why the slots may belong to another call now. After a quick claim there is no check: every rebuild that
/// could give the slots away already sees the claim.
async fn find_slot_loss(core: &Core, job: &JobId, grant: &SlotGrant) -> Option<&'static str> {
    if grant.asked_at().elapsed() <= QUICK_CLAIM {
        return None;
    }
    match core.store.holds_slots(job, grant).await {
        Ok(true) => None,
        Ok(false) => Some("Redis has lost its slots"),
        Err(error) => {
            tracing::warn!(%error, "The slots of a call could not be checked in Redis; the call is not sent.");
            Some("its slots could not be checked in Redis")
        }
    }
}

/// Returns the deadline for the caller and the provider. It is slightly earlier than the time from which the row and
/// the slots admit another call.
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

/// Writes the claim and returns whether it was written. If the response was lost, the record of the call shows the
/// result.
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
    /// Writes the answer. While Postgres rejects the write, the function retries until the call counts as lost.
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
                    tracing::warn!(%error, "A provider's answer could not be written; retrying.");
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

/// Writes a heartbeat, which shows observers that a worker is handling the binding.
async fn beat(bindings: &Bindings, loaded: &LoadedBinding, binding: &Binding) {
    let registry = RedisWorkerRegistry::new(bindings.clone(), Actor::SYSTEM);
    let payload = HeartbeatPayload { at: loaded.current_time() };
    if let Err(error) = registry.heartbeat(&binding.id, &payload).await {
        tracing::debug!(%error, "A heartbeat could not be written.");
    }
}

/// Updates the server's breaker: a failure increases its count, a success resets it. The breaker is a hint, so an error
/// is only logged.
async fn note_server_health(bindings: &Bindings, server: &ServerStanding, ended: &EndedCall) {
    // A call that was not sent shows nothing about the server.
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
                    tracing::warn!(%until, "A provider's server fails repeatedly; its calls are paused.");
                }
            },
        )
    } else if server.failures > 0 || server.paused_until.is_some() {
        servers::forget_failures(&bindings.core.db, &server.id).await
    } else {
        Ok(())
    };
    if let Err(error) = noted {
        tracing::debug!(%error, "The state of a server could not be written.");
    }
}

fn log_call(ended: &EndedCall) {
    let latency_ms = ended.record.latency.map(|latency| u64::try_from(latency.as_millis()).unwrap_or(u64::MAX));
    tracing::debug!(latency_ms, "A provider's call has ended.");
}

pub fn begins_cycle(before: &Binding, call: &ProviderCall) -> bool {
    call.action == CallAction::Start && call.cycle > before.cycle
}
