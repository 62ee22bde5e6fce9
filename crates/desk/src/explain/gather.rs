//! Reads an order from Postgres and Redis for an explanation.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    decide::timers::{self, OrderTimer},
    ids::{LatLng, PartnerName},
    order::{BookingState, Snapshot},
    view::OrderView,
};

use super::{JobStanding, LatestRanking, NextJob, OpenPartner, OrderExplanation, OrderSurroundings, words};
use crate::capability::Desk;
use foundation::{core::Core, error::ServiceError, worker_drains::Unserved};
use orders::{details::load_details, order_store::load, query};
use queue::store::{JobDetail, JobState, WorkerEntry};

/// Maximum number of latest searches that are shown.
const MOST_RANKINGS: i64 = 10;

#[derive(Default)]
struct RedisView {
    standings: Vec<JobStanding>,
    paused: Vec<String>,
    unserved: Vec<(String, Unserved)>,
    partners_open: Vec<OpenPartner>,
}

/// Explains an order. Returns `None` if it does not exist.
pub async fn explain_order(desk: &Desk, id: &OrderId) -> Result<Option<OrderExplanation>, ServiceError> {
    match explain_order_even_without_redis(desk, id).await? {
        Some((_, Some(redis_error))) => Err(redis_error),
        found => Ok(found.map(|(explanation, _)| explanation)),
    }
}

/// Same as [`explain_order`], but works without Redis: the jobs then have the state [`JobStanding::Unknown`]. Also
/// returns the Redis error.
pub async fn explain_order_even_without_redis(
    desk: &Desk,
    id: &OrderId,
) -> Result<Option<(OrderExplanation, Option<ServiceError>)>, ServiceError> {
    let Some(snapshot) = load::load_order(&desk.core.db, id).await? else { return Ok(None) };
    let timeline = query::load_timeline_of(&desk.core.db, &snapshot.order).await?;
    let mut rankings = list_rankings(&desk.core, id).await?.into_iter();
    let offers = query::list_offers(&desk.core.db, id).await?;
    let details = load_details(&desk.core.db, &snapshot.order).await?;
    let timers = timers::derive_timers(&snapshot);
    let partners: Vec<_> =
        desk.config.partners_of_order(&snapshot.order).into_iter().map(|listed| listed.name).collect();
    let (redis, redis_error) = match look_into_redis(desk, &snapshot, &timers, &partners).await {
        Ok(view) => (view, None),
        Err(error) => (RedisView::default(), Some(error)),
    };
    let mut standings = redis.standings.into_iter();
    let next = timers.iter().map(|timer| NextJob {
        job: timer.id().to_string(),
        queue: timer.job.queue.to_owned(),
        does: words::describe_job(timer.id().kind()),
        at: timer.due,
        state: standings.next().unwrap_or(JobStanding::Unknown),
    });
    let mut next: Vec<NextJob> = next.collect();
    next.sort_by_key(|job| job.at);
    let RedisView { paused, unserved, partners_open, .. } = redis;
    let about = OrderSurroundings { snapshot, timeline, next, paused, unserved, partners, partners_open };
    let reason = words::explain_status(&about);
    let explanation = OrderExplanation {
        has_contact: details.contact.is_some(),
        order: OrderView::from(&about.snapshot).with_details(details),
        why: reason.to_string(),
        reason,
        to_do: words::advise_operator(&about),
        next: about.next,
        offers,
        ranking: rankings.next(),
        earlier_rankings: rankings.collect(),
        pickup: LatLng::new(about.snapshot.order.pickup_lat, about.snapshot.order.pickup_lng),
        bookings: about.snapshot.bookings,
        timeline: about.timeline,
        now: about.snapshot.now,
    };
    Ok(Some((explanation, redis_error)))
}

/// Reads from Redis the state of each of these timers in their order, the workers that serve them, and the partners
/// with an open breaker.
async fn look_into_redis(
    desk: &Desk,
    snapshot: &Snapshot,
    timers: &[OrderTimer],
    partners: &[PartnerName],
) -> Result<RedisView, ServiceError> {
    let workers = desk.core.store.list_workers().await?;
    let mut standings = Vec::new();
    for timer in timers {
        let found = desk.core.queue().find_job(timer.id(), &[timer.job.queue]).await?;
        standings.push(found.map_or(JobStanding::Missing, |job| job_standing(job, &workers)));
    }
    let queues = jobs::queues::ALL.into_iter().filter(|queue| timers.iter().any(|timer| timer.job.queue == *queue));
    let queues: Vec<&str> = queues.collect();
    let stats = desk.core.queue().queue_stats(&queues).await?;
    let paused = stats.into_iter().filter(|s| s.paused).map(|s| s.queue).collect();
    let unserved = |queue: &str| Unserved::find(&workers, queue).map(|cause| (queue.to_owned(), cause));
    let unserved = queues.into_iter().filter_map(unserved).collect();
    let partners_open = open_partners(desk, snapshot, partners).await?;
    Ok(RedisView { standings, paused, unserved, partners_open })
}

/// Returns the partners that the order's next step needs and whose breaker is open.
async fn open_partners(desk: &Desk, s: &Snapshot, listed: &[PartnerName]) -> Result<Vec<OpenPartner>, ServiceError> {
    if s.order.partner.is_none() {
        return Ok(Vec::new());
    }
    let asked = s.bookings.iter().filter(|b| b.state.is_live() || b.state == BookingState::CancelWanted);
    let mut names: BTreeSet<&PartnerName> = asked.map(|b| &b.partner).collect();
    if s.live_booking().is_none() && s.order.status.is_searching() {
        names.extend(listed);
    }
    let mut open = Vec::new();
    let configured: Vec<_> = names.into_iter().filter_map(|name| desk.partners.registry.get(name)).collect();
    for partner in configured {
        let breaker = partner.breaker_state(&desk.core.store).await?;
        if breaker.is_open() {
            let open_secs = breaker.open_for.as_secs().max(1);
            open.push(OpenPartner { name: partner.name.clone(), open_secs, why: breaker.why });
        }
    }
    Ok(open)
}

/// Returns the ranking of each attempt, newest first.
async fn list_rankings(core: &Core, id: &OrderId) -> Result<Vec<LatestRanking>, sqlx::Error> {
    sqlx::query_as(
        "-- latest rankings
         SELECT r.attempt_no, r.at,
                (SELECT json_build_object(
                     'ranked', coalesce(json_agg(json_build_object(
                         'driver_id', d.driver_id, 'distance_m', d.distance_m, 'idle_min', d.idle_min,
                         'live_offers', d.live_offers, 'score', d.score) ORDER BY d.place)
                         FILTER (WHERE d.place <= cardinality(r.scores)), '[]'),
                     'excluded', coalesce(json_agg(json_build_object(
                         'driver_id', d.driver_id, 'distance_m', d.distance_m,
                         'why', r.excluded_why[d.place - cardinality(r.scores)],
                         'missing', coalesce(string_to_array(r.missing[d.place - cardinality(r.scores)], ','), '{}'))
                         ORDER BY d.place)
                         FILTER (WHERE d.place > cardinality(r.scores)), '[]'))
                 FROM unnest(r.drivers, r.distances_m, r.idle_min, r.live_offers, r.scores)
                      WITH ORDINALITY AS d (driver_id, distance_m, idle_min, live_offers, score, place)) AS candidates
         FROM rankings r WHERE r.order_id = $1 ORDER BY r.attempt_no DESC LIMIT $2",
    )
    .bind(id.as_str())
    .bind(MOST_RANKINGS)
    .fetch_all(&core.db)
    .await
}

fn job_standing(job: JobDetail, workers: &[WorkerEntry]) -> JobStanding {
    match job.state {
        JobState::Due | JobState::Suspect => JobStanding::Waiting { due: time_of_ms(job.at_ms) },
        JobState::Parked => JobStanding::Parked { since: time_of_ms(job.at_ms) },
        JobState::Leased => JobStanding::Running {
            worker: job.token.as_deref().and_then(|token| find_holder(token, workers)),
            lease_ends: time_of_ms(job.at_ms),
        },
        JobState::Dead => JobStanding::Dead { error: job.dead.map(|dead| dead.error).unwrap_or_default() },
    }
}

/// The token has the form `boot:sequence`.
fn find_holder(token: &str, workers: &[WorkerEntry]) -> Option<String> {
    let (boot, _) = token.rsplit_once(':')?;
    workers.iter().find(|w| w.boot == boot).map(|w| format!("{} ({} pid {})", w.replica, w.info.host, w.info.pid))
}

fn time_of_ms(ms: u64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms.cast_signed()).unwrap_or_default()
}
