//! /metrics: counters of this process, and gauges of the whole installation that are read at each scrape.
//!
//! Every process exports the same gauges, so alert rules take their maximum. A value that cannot be read is NaN, on
//! which no rule fires. `dispatchq_dependency_up` shows the cause.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use areas::capability::Areas;
use axum::{extract::State, http::header::CONTENT_TYPE, response::IntoResponse};
use chrono::TimeDelta;
use foundation::core::Core;
use metrics::{counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusHandle;
use model::admission::decide::AreaRefusal;
use parking_lot::Mutex;

use super::{
    binding_gauges,
    health::ProcessKind,
    scrape::{SCRAPE_TIMEOUT, as_gauge, with_timeout},
};
use accounts::users;
use app::App;
use areas::label;
use desk::reports::{
    area_status::{self, AreaStatus},
    census::{self, OrderCensus},
    recent_census,
};
use foundation::db::{self, history_days};
use maintenance::{
    proof::{status, violations},
    recovery::shards,
};
use model::{ids::ServiceType, order::OrderStatus};
use queue::store::StoreError;
use settings::ScheduledTask;

/// Timeout for reading the clocks. A slower answer is too inaccurate.
const CLOCK_TIMEOUT: Duration = Duration::from_millis(500);
/// Media type with version. Versions of Prometheus interpret text without a version differently.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(super) async fn render_metrics(
    State(app): State<App>,
    handle: PrometheusHandle,
    process: ProcessKind,
) -> impl IntoResponse {
    metrics_process::Collector::default().collect();
    let redis_up = with_timeout(app.core.store.ping());
    let (redis_up, postgres_up) = tokio::join!(redis_up, app.core.readiness.is_writable());
    for (dependency, up) in [("redis", redis_up.is_some()), ("postgres", postgres_up)] {
        gauge!("dispatchq_dependency_up", "dependency" => dependency).set(f64::from(u8::from(up)));
    }
    if process == ProcessKind::Serve {
        gauge!("dispatchq_degraded").set(f64::from(u8::from(postgres_up && redis_up.is_none())));
    }
    for (name, idle) in app.core.loops.idle_times() {
        gauge!("dispatchq_loop_idle_seconds", "loop" => name).set(idle.as_secs_f64());
    }
    tokio::join!(
        set_queue_gauges(&app.core),
        set_shard_gauges(&app.core),
        set_worker_gauges(&app.core),
        set_breaker_gauges(&app),
        set_clock_gauges(&app.core),
        open_orders(&app),
        set_refund_gauges(&app.core),
        set_outbox_gauges(&app.core),
        set_feed_gauge(&app.core),
        set_alert_gauges(&app.core),
        set_route_gauges(&app),
        binding_gauges::set_binding_gauges(&app.core),
        history_days(&app.core),
        set_proof_metrics(&app)
    );
    ([(CONTENT_TYPE, FORMAT)], handle.render())
}

async fn set_queue_gauges(core: &Core) {
    let stats = with_timeout(core.queue().queue_stats(&jobs::queues::ALL)).await.unwrap_or_default();
    for queue in jobs::queues::ALL {
        let s = stats.iter().find(|s| s.queue == queue);
        let set = |name: &'static str, value: Option<u64>| gauge!(name, "queue" => queue).set(as_gauge(value));
        set("dispatchq_queue_depth", s.map(|s| s.due + s.scheduled));
        set("dispatchq_queue_due", s.map(|s| s.due));
        set("dispatchq_queue_suspects", s.map(|s| s.suspects));
        set("dispatchq_queue_leased", s.map(|s| s.leased));
        set("dispatchq_queue_dead", s.map(|s| s.dead));
        set("dispatchq_due_next_minute", s.map(|s| s.next_minute));
        let oldest = s.map_or(f64::NAN, |s| Duration::from_millis(s.oldest_due_ms.unwrap_or(0)).as_secs_f64());
        gauge!("dispatchq_queue_oldest_due_seconds", "queue" => queue).set(oldest);
    }
}

/// Sets the gauges per shard. An installation with one shard has none of them.
async fn set_shard_gauges(core: &Core) {
    /// Number of shards that were exported before. Closed shards remain exported.
    static SHOWN: AtomicUsize = AtomicUsize::new(1);
    let shown = SHOWN.fetch_max(core.queue().stores().len(), Ordering::Relaxed).max(core.queue().stores().len());
    if shown == 1 {
        return;
    }
    describe_gauge!("dispatchq_shard_up", "1 while this shard answers");
    describe_gauge!("dispatchq_shard_due", "Jobs of this shard that are due");
    describe_gauge!("dispatchq_shard_leased", "Jobs of this shard that are running");
    describe_gauge!("dispatchq_shard_dead", "Dead jobs of this shard");
    let each = shards::list_standings(core).await;
    for shard in 0..shown {
        let one = each.iter().find(|one| usize::from(one.shard) == shard);
        let set = |name: &'static str, value: Option<u64>| {
            gauge!(name, "shard" => shard.to_string()).set(as_gauge(value));
        };
        set("dispatchq_shard_up", one.map(|one| u64::from(one.error.is_none())));
        set("dispatchq_shard_due", one.and_then(|one| one.due));
        set("dispatchq_shard_leased", one.and_then(|one| one.leased));
        set("dispatchq_shard_dead", one.and_then(|one| one.dead));
    }
}

/// Sets the difference of both clocks. The clocks are read at the same time, so the error is at most the slower round
/// trip.
async fn set_clock_gauges(core: &Core) {
    let both = async { tokio::join!(core.store.now_ms(), db::database_now(&core.db)) };
    let ahead = match tokio::time::timeout(CLOCK_TIMEOUT, both).await {
        Ok((Ok(redis_ms), Ok(postgres))) => {
            TimeDelta::milliseconds(redis_ms.cast_signed() - postgres.timestamp_millis()).as_seconds_f64()
        }
        _ => f64::NAN,
    };
    gauge!("dispatchq_redis_clock_ahead_seconds").set(ahead);
}

async fn set_worker_gauges(core: &Core) {
    let seen = with_timeout(core.store.list_workers()).await;
    let live = seen.map(|seen| seen.iter().filter(|w| w.is_live()).count() as u64);
    gauge!("dispatchq_workers").set(as_gauge(live));
}

async fn set_breaker_gauges(app: &App) {
    let look = async {
        let mut held_back = Vec::new();
        for partner in app.partners.registry.iter() {
            let breaker = partner.breaker_state(&app.core.store).await?;
            held_back.push(u64::from(breaker.is_open() || breaker.is_half_open()));
        }
        Ok::<_, StoreError>(held_back)
    };
    let held_back = with_timeout(look).await.unwrap_or_default();
    for (n, partner) in app.partners.registry.iter().enumerate() {
        gauge!("dispatchq_partner_breaker_open", "partner" => partner.name.to_string())
            .set(as_gauge(held_back.get(n).copied()));
    }
}

async fn open_orders(app: &App) {
    let census = match tokio::time::timeout(SCRAPE_TIMEOUT, recent_census::count_orders(&app.core.db)).await {
        Ok(counted) => counted.ok(),
        Err(_) => recent_census::latest_count(),
    };
    let count = |pick: fn(&OrderCensus) -> u64| as_gauge(census.as_deref().map(pick));
    gauge!("dispatchq_orders_held").set(count(|c| c.held));
    gauge!("dispatchq_orders_retrying").set(count(|c| c.retrying));
    gauge!("dispatchq_job_id_retrievals_active").set(count(|c| c.retrievals));
    for status in OrderStatus::ALL.into_iter().filter(|status| !status.is_closed()) {
        let counted = census.as_deref().map(|c| c.by_status.get(&status).copied().unwrap_or_default());
        gauge!("dispatchq_orders_open", "status" => status.as_str()).set(as_gauge(counted));
    }
    if let Some(census) = census {
        set_area_gauges(&app.areas, area_status::notable_areas(&app.desk, &census).await);
    }
}

/// Label sets that were exported before: areas with service types, areas alone, and refusing areas. They remain
/// exported when their value is zero.
static SHOWN: Mutex<Shown> = Mutex::new((BTreeSet::new(), BTreeSet::new(), BTreeSet::new()));
type Shown = (BTreeSet<(String, ServiceType)>, BTreeSet<String>, BTreeSet<(String, ServiceType, AreaRefusal)>);

/// Sets the gauges of areas. The utilisation of an area is that of its fullest service type. Areas with the same label
/// are summed.
fn set_area_gauges(areas: &Areas, status: Vec<AreaStatus>) {
    let mut known = SHOWN.lock();
    let (shown, full_once, refused_once) = &mut *known;
    // Areas with the same label count as refusing if one of them refuses.
    let mut refusing: BTreeMap<(String, ServiceType, AreaRefusal), bool> =
        refused_once.iter().map(|key| (key.clone(), false)).collect();
    let mut waiting: BTreeMap<(String, ServiceType), u64> = shown.iter().map(|key| (key.clone(), 0)).collect();
    let mut fullest: BTreeMap<String, f64> = full_once.iter().map(|area| (area.clone(), 0.0)).collect();
    let rules = areas.rules.get();
    gauge!("dispatchq_areas_unreadable").set(as_gauge(Some(rules.unreadable.len() as u64)));
    for row in status {
        let area = label::label_of(Some(&row.area_id));
        if let Some(cause) = row.refuses {
            refusing.insert((area.clone(), row.service_type.clone(), cause), true);
        }
        // An area that a producer names but no dispatcher defined has no threshold.
        if rules.geofence.get(&row.area_id).is_some() {
            let most = fullest.entry(area.clone()).or_default();
            *most = most.max(row.utilization);
        }
        *waiting.entry((area, row.service_type)).or_default() += row.waiting.unsigned_abs();
    }
    for ((area, service_type), count) in waiting {
        let labels = [("area_id", area.clone()), ("service_type", service_type.to_string())];
        gauge!("dispatcher_waiting_orders_total", &labels).set(as_gauge(Some(count)));
        shown.insert((area, service_type));
    }
    for (key, refuses) in refusing {
        let (area, service_type, cause) = &key;
        let labels = [
            ("area_id", area.clone()),
            ("service_type", service_type.to_string()),
            ("cause", cause.as_str().to_lowercase()),
        ];
        gauge!("dispatchq_area_refuses", &labels).set(f64::from(u8::from(refuses)));
        refused_once.insert(key);
    }
    for (area, utilization) in fullest {
        full_once.insert(area.clone());
        gauge!("dispatcher_threshold_utilization_ratio", "area_id" => area).set(utilization);
    }
}

async fn set_refund_gauges(core: &Core) {
    let due = with_timeout(census::refunds_to_begin(&core.db)).await;
    gauge!("dispatchq_manual_refund_queue").set(as_gauge(due.map(|(count, _)| count)));
    let age = due.map(|(_, oldest)| oldest.map_or(0.0, TimeDelta::as_seconds_f64));
    gauge!("dispatchq_manual_refund_oldest_seconds").set(age.unwrap_or(f64::NAN));
}

async fn set_outbox_gauges(core: &Core) {
    let oldest = sqlx::query_scalar::<_, f64>(
        "-- oldest undelivered message
         SELECT coalesce(extract(epoch FROM (SELECT dispatchq_now()) - min(created_at)), 0)::float8
         FROM (SELECT created_at FROM outbox WHERE state = 'pending' ORDER BY id LIMIT 100) oldest",
    )
    .fetch_one(&core.db);
    gauge!("dispatchq_outbox_oldest_seconds").set(with_timeout(oldest).await.unwrap_or(f64::NAN));
}

/// Sets how long events are held back. A transaction that stays open hides the events of all later transactions from
/// readers of the stream.
async fn set_feed_gauge(core: &Core) {
    let held = sqlx::query_scalar::<_, f64>(
        "-- steps held back
         SELECT coalesce(extract(epoch FROM (SELECT dispatchq_now()) - min(at)), 0)::float8
         FROM order_feed WHERE position >= dispatchq_feed_horizon()",
    )
    .fetch_one(&core.db);
    gauge!("dispatchq_feed_held_seconds").set(with_timeout(held).await.unwrap_or(f64::NAN));
}

async fn set_alert_gauges(core: &Core) {
    let open = sqlx::query_as::<_, (i64, i64)>(
        "-- count open alerts
         SELECT count(*), count(*) FILTER (WHERE gave_up_at IS NOT NULL) FROM alerts WHERE acked_at IS NULL",
    )
    .fetch_one(&core.db);
    let open = with_timeout(open).await;
    gauge!("dispatchq_alerts_open").set(as_gauge(open.map(|(all, _)| all.cast_unsigned())));
    gauge!("dispatchq_alerts_given_up").set(as_gauge(open.map(|(_, given_up)| given_up.cast_unsigned())));
}

/// Sets whether alert routes end only in the log. Dispatchers have their own channels; the route is for installations
/// without them.
async fn set_route_gauges(app: &App) {
    let dispatchers = with_timeout(users::dispatcher_channels(&app.core.db)).await;
    for (route, channels) in app.config.alert_routes() {
        let is_log = match &dispatchers {
            None if route == "dispatchers" => None,
            Some(own) if route == "dispatchers" && !own.is_empty() => Some(app.config.ends_in_log(own)),
            _ => Some(app.config.ends_in_log(channels)),
        };
        gauge!("dispatchq_alert_route_log_only", "alert_route" => route).set(as_gauge(is_log.map(u64::from)));
    }
}

async fn history_days(core: &Core) {
    let days = with_timeout(history_days::count_ahead(&core.db)).await;
    gauge!("dispatchq_history_days_ahead").set(as_gauge(days));
}

/// Sets how far the history is proven, and the violations so far. Without the periodic proof, the lag is unknown.
async fn set_proof_metrics(app: &App) {
    let db = &app.core.db;
    let is_running = app.config.schedules.contains_key(&ScheduledTask::Proof);
    let (status, counted) =
        tokio::join!(with_timeout(status::read_status(db)), with_timeout(violations::count_by_invariant(db)));
    let status = status.filter(|_| is_running);
    gauge!("dispatchq_proof_lag_events").set(as_gauge(status.as_ref().map(|s| s.lag_events.unsigned_abs())));
    gauge!("dispatchq_proof_lag_seconds").set(status.map_or(f64::NAN, |s| s.lag_seconds));
    for (invariant, count) in counted.unwrap_or_default() {
        counter!("dispatchq_proof_violations_total", "invariant" => invariant).absolute(count);
    }
}
