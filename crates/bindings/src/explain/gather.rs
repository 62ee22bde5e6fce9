//! Reads a binding from Postgres and Redis for an explanation. The row and its records give the state; Redis gives the
//! position of the job. If Redis is unavailable, the rest of the explanation is still complete.

use chrono::{DateTime, Utc};
use jobs::{BindingId, SettleTransaction, queues};
use model::binding::{Binding, BindingEventKind, BindingTimer, CallAction, TrxId, derive};

use super::{BindingExplanation, JobPlace, NextStep, OpenClaim, ServerSituation, SlotUse, SlotsOfJob, words};
use crate::{
    capability::Bindings,
    error::BindingError,
    list,
    store::{load::LoadedBinding, servers},
};
use foundation::{core::Core, error::ServiceError, worker_drains::Unserved};
use queue::{
    Job, JobId,
    store::{JobDetail, JobState},
};

const SHOWN_EVENTS: i64 = 5;
/// Maximum number of slot holders that are searched.
const MOST_HOLDERS: usize = 1000;

#[derive(Debug, Default)]
struct RedisView {
    place: Option<JobPlace>,
    slots: Vec<SlotsOfJob>,
    server_slots: Option<SlotUse>,
    all_calls: Option<SlotUse>,
    paused: bool,
    unserved: Option<Unserved>,
}

/// Explains a binding from Postgres and Redis.
pub async fn explain_binding(bindings: &Bindings, id: &BindingId) -> Result<BindingExplanation, BindingError> {
    let loaded = bindings.rows.load_binding(id).await?.ok_or_else(|| BindingError::NotFound(id.clone()))?;
    let mut events = list::list_events(&bindings.core, id, SHOWN_EVENTS).await?;
    for event in &mut events {
        // The detail of this event is the digest of the OTP.
        if event.kind == BindingEventKind::OtpSubmitted.as_str() {
            event.detail = None;
        }
    }
    let claim = find_claim(&bindings.core, &loaded.binding).await?;
    let max_concurrent =
        servers::find_server(&bindings.core.db, &loaded.server.id).await?.map(|server| server.max_concurrent);
    let timer = derive(&loaded.binding, loaded.now);
    let (redis, redis_error) =
        match look_into_redis(&bindings.core, &loaded, timer.as_ref().map(BindingTimer::id)).await {
            Ok(seen) => (seen, None),
            Err(error) => (RedisView::default(), Some(error.to_string())),
        };
    let next = timer.map(|timer| NextStep {
        job: timer.id().to_string(),
        does: words::describe_next(&loaded.binding),
        at: timer.due,
        place: redis.place,
    });
    let server = ServerSituation {
        id: loaded.server.id.to_string(),
        provider: loaded.server.provider.to_string(),
        enabled: loaded.server.enabled,
        is_configured: bindings.providers.knows_provider(&loaded.server.provider),
        address_problem: address_problem(bindings, &loaded.server),
        max_concurrent,
        failures: loaded.server.failures,
        paused_until: loaded.server.pause_end(loaded.now),
        slots: redis.server_slots,
    };
    let about = words::BindingSurroundings {
        binding: &loaded.binding,
        now: loaded.now,
        next: next.as_ref(),
        server: &server,
        queue_is_paused: redis.paused,
        unserved: redis.unserved,
    };
    Ok(BindingExplanation {
        why: words::explain_state(&about),
        to_do: words::advise_operator(&about),
        next,
        claim,
        slots: redis.slots,
        server,
        all_calls: redis.all_calls,
        events,
        redis_error,
        binding: loaded.binding,
    })
}

/// Returns the reason why the configuration does not allow calls to a known provider at this address.
fn address_problem(bindings: &Bindings, server: &servers::ServerStanding) -> Option<String> {
    let is_known = bindings.providers.knows_provider(&server.provider);
    bindings
        .providers
        .check_address(&server.provider, &server.base_url)
        .err()
        .filter(|_| is_known)
        .map(|e| e.to_string())
}

/// Returns the claim of the open call.
async fn find_claim(core: &Core, binding: &Binding) -> Result<Option<OpenClaim>, sqlx::Error> {
    let trx_id = binding.trx_id.clone().filter(|_| binding.has_open_call());
    let Some((_, cycle)) = trx_id.as_ref().and_then(TrxId::parts) else { return Ok(None) };
    let claim: Option<OpenClaim> = sqlx::query_as(
        "-- claim of the open call
         SELECT call_no, action, owner, at AS claimed_at, call_until FROM transaction_snapshots
         WHERE binding_id = $1 AND cycle = $2 AND call_no = $3 AND part = 'claim'",
    )
    .bind(binding.id.as_str())
    .bind(cycle)
    .bind(binding.call_no)
    .fetch_optional(&core.db)
    .await?;
    Ok(claim.map(|claim| OpenClaim { trx_id, ..claim }))
}

async fn look_into_redis(core: &Core, loaded: &LoadedBinding, job: Option<&JobId>) -> Result<RedisView, ServiceError> {
    let binding = &loaded.binding;
    let stats = core.store.slot_stats(&[binding.server_id.as_str()]).await?;
    let of_server = stats.groups.first();
    let holders = core.store.list_slot_holders(0, MOST_HOLDERS).await?;
    let own = holders.into_iter().filter(|holder| holder.own == binding.id.as_str());
    let queue = core.store.queue_stats(&[queues::BINDING]).await?;
    let workers = core.store.list_workers().await?;
    let place = match asked_job(binding, job) {
        None => None,
        Some(job) => Some(match core.store.find_job(&job, &[queues::BINDING]).await? {
            None => JobPlace::Missing,
            Some(found) => {
                let holder = found.token.as_deref().and_then(|token| token.rsplit_once(':'));
                let worker = holder.and_then(|(boot, _)| workers.iter().find(|worker| worker.boot == boot));
                place_of(found, worker.map(|w| format!("{} ({} pid {})", w.replica, w.info.host, w.info.pid)))
            }
        }),
    };
    Ok(RedisView {
        place,
        slots: own.map(|h| SlotsOfJob { job: h.id, until: time_of_ms(h.ends_ms), reserved: h.reserved }).collect(),
        server_slots: of_server.map(|group| SlotUse {
            in_use: u64::from(group.in_use),
            limit: group.limit,
            waiting: group.waiting,
        }),
        all_calls: Some(SlotUse { in_use: stats.in_use, limit: stats.limit, waiting: stats.parked }),
        paused: queue.first().is_some_and(|queue| queue.paused),
        unserved: Unserved::find(&workers, queues::BINDING),
    })
}

/// Returns the job whose position is shown. While an UNRESOLVED transaction is being settled, this is its `settle` job.
fn asked_job(binding: &Binding, own: Option<&JobId>) -> Option<JobId> {
    let settles = binding.trx_id.as_ref().filter(|_| binding.call_action == Some(CallAction::Settle));
    match settles.and_then(TrxId::parts) {
        Some((id, cycle)) => Some(SettleTransaction { binding: id, cycle: cycle.unsigned_abs() }.id()),
        None => own.cloned(),
    }
}

fn place_of(job: JobDetail, worker: Option<String>) -> JobPlace {
    let at = time_of_ms(job.at_ms);
    match job.state {
        JobState::Due | JobState::Suspect => JobPlace::Waiting { due: at },
        JobState::Parked => match job.parked {
            Some(place) => JobPlace::Parked {
                since: time_of_ms(place.since_ms),
                before: place.before,
                first_before: place.first_before,
                behind: place.behind_own.and(place.own_held_by),
            },
            None => JobPlace::Parked { since: at, before: 0, first_before: Vec::new(), behind: None },
        },
        JobState::Leased => JobPlace::Running { worker, lease_ends: at },
        JobState::Dead => JobPlace::Dead { error: job.dead.map(|dead| dead.error).unwrap_or_default() },
    }
}

fn time_of_ms(ms: u64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms.cast_signed()).unwrap_or_default()
}
