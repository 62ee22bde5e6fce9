//! The system on the page Now: jobs, workers, and calls to partners and providers' servers.

use app::App;
use desk::reports::glance::ServerGlance;
use queue::StoreError;

use super::now_figures::{flag_of, tone};
use crate::{
    catalogue::{Words, fill, tr},
    shown::{describe_ms, describe_span, group_digits},
};

/// Age of the oldest due job above which the queues need attention, in milliseconds.
const LATE_MS: u64 = 5_000;

/// A row of the table.
pub(super) struct SystemRow {
    pub(super) label: Words,
    pub(super) value: String,
    pub(super) under: String,
    /// "", "warn" or "bad".
    pub(super) tone: &'static str,
    pub(super) path: &'static str,
}

impl SystemRow {
    pub(super) fn flag(&self) -> &'static str {
        flag_of(self.tone)
    }
}

/// State of the engine, from Redis.
pub(super) struct EngineRows {
    pub(super) due: u64,
    pub(super) dead: u64,
    pub(super) workers: u64,
    pub(super) oldest_due_ms: u64,
    /// The 99th percentile and the median of the job delay.
    pub(super) delay_ms: (u64, u64),
    pub(super) rows: Vec<SystemRow>,
}

pub(super) async fn read_engine(app: &App) -> Result<EngineRows, StoreError> {
    let queues = app.core.queue().queue_stats(&jobs::queues::ALL).await?;
    let workers = app.core.store.list_workers().await?;
    let lateness = app.core.store.read_lateness().await?;
    let sum = |pick: fn(&queue::store::QueueStats) -> u64| queues.iter().map(pick).sum::<u64>();
    let oldest_ms = queues.iter().filter_map(|queue| queue.oldest_due_ms).max();
    let is_paused = queues.iter().any(|queue| queue.paused);
    let (due, dead) = (sum(|queue| queue.due), sum(|queue| queue.dead));
    let later = group_digits(sum(|queue| queue.scheduled));
    let in_hand = group_digits(workers.iter().map(|worker| worker.info.in_hand as u64).sum());
    let mut rows = vec![
        SystemRow {
            label: tr("now.due_jobs"),
            value: group_digits(due),
            under: match oldest_ms {
                Some(ms) => fill!("now.oldest_due", age = describe_ms(ms)),
                None => fill!("now.scheduled", later),
            },
            tone: tone(false, oldest_ms.is_some_and(|ms| ms > LATE_MS) || is_paused),
            path: "/queues",
        },
        SystemRow {
            label: tr("common.dead_jobs"),
            value: group_digits(dead),
            under: if dead == 0 { tr("now.none").into() } else { tr("now.waiting_decision").into() },
            tone: tone(false, dead > 0),
            path: "/dead",
        },
        SystemRow {
            label: tr("common.workers"),
            value: group_digits(workers.len() as u64),
            under: fill!("now.running_jobs", in_hand),
            // Also while every worker is drained.
            tone: tone(workers.iter().all(|worker| worker.info.drain_ms.is_some()), false),
            path: "/workers",
        },
    ];
    rows.extend(partners_row(app).await?);
    Ok(EngineRows {
        due,
        dead,
        workers: workers.len() as u64,
        oldest_due_ms: oldest_ms.unwrap_or_default(),
        delay_ms: (lateness.p99_ms, lateness.p50_ms),
        rows,
    })
}

/// Returns the row about calls to providers' servers; `None` if there are no servers.
pub(super) fn servers_row(servers: &ServerGlance) -> Option<SystemRow> {
    let ServerGlance { now, enabled, left_alone, longest, until } = servers;
    let under = match longest.as_deref().zip(*until) {
        Some((id, until)) => fill!("now.servers_paused_another", enabled, id, span = describe_span(until - now)),
        None => fill!("now.all_servers_called", enabled),
    };
    (*enabled > 0).then(|| SystemRow {
        label: tr("now.paused_servers"),
        value: group_digits(left_alone.unsigned_abs()),
        under,
        tone: tone(left_alone == enabled, *left_alone > 0),
        path: "/bindings",
    })
}

/// Returns the row about calls to partners; `None` if there are no partners.
async fn partners_row(app: &App) -> Result<Option<SystemRow>, StoreError> {
    let (mut all, mut left_alone) = (0_u64, 0_u64);
    let mut longest = None;
    for partner in app.partners.registry.iter() {
        all += 1;
        let state = partner.breaker_state(&app.core.store).await?;
        if state.is_open() {
            left_alone += 1;
            longest = longest.max(Some((state.open_for, &partner.name, state.why)));
        }
    }
    let under = match longest {
        Some((open_for, name, why)) => {
            let span = describe_ms(u64::try_from(open_for.as_millis()).unwrap_or(u64::MAX));
            fill!("now.partners_paused_another", all, name, span, why)
        }
        None => fill!("now.all_partners_called", all),
    };
    Ok((all > 0).then(|| SystemRow {
        label: tr("now.paused_partners"),
        value: group_digits(left_alone),
        under,
        tone: tone(left_alone == all, left_alone > 0),
        path: "/partners",
    }))
}
