//! Orders served by a partner: the installation, the run, and the measurements from the tables.

use std::time::Duration;

use partner_sim::{PartnerSim, PartnerSimOptions};
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{OrdersOptions, OrdersScenario};
use crate::{
    bench::{
        collector::TraceCollector,
        frame::{Bound, Figures},
        machine,
        processor::ProcessorWatch,
        prometheus::RunPrometheus,
        receivers::{ALERTS, MessageReceivers},
        spread::round_to_digits,
    },
    testbed::{
        Testbed, TestbedSettings, figures, partner,
        play::{PlayPlan, play_orders},
        producer::{OrderDraft, OrderProducer, ProducedOrder},
        settings::{ServedBy, free_port, real_policy},
    },
};
use foundation::db::Pool;
use settings::{Config, PartnerConfig};

/// Time that may follow the lifetime, in simulated time: the longest approach and trip, and polls that detect their
/// ends.
const LONGEST_RIDE: Duration = Duration::from_secs((6 + 20 + 14) * 60);
/// Extra time for machines: a lease, a repair, backoff.
const SLACK: Duration = Duration::from_secs(60);
/// Poll interval of a naive integration, in seconds of simulated time.
const NAIVE_INTERVAL_S: f64 = 2.0;
const PICKUP: (f64, f64) = (-6.2088, 106.8456);
/// Payment statuses of the orders, in turn.
const PAYMENTS: [&str; 4] = ["PAID", "UNPAID", "SETTLEMENT", "PENDING"];

/// Returns the orders at a steady pace. Half of them are paid.
pub(super) fn order_creations(options: &OrdersOptions) -> impl Iterator<Item = ProducedOrder> + use<> {
    let pause = options.creation_duration() / options.order_count().max(1);
    (0..options.order_count()).map(move |n| {
        let payment_status = PAYMENTS[n as usize % PAYMENTS.len()];
        OrderDraft::new(partner::SERVICE_TYPE, PICKUP, payment_status).at(pause * n, format!("taxi-{:06}", n + 1))
    })
}

/// Everything that a run needs. Dropping it stops it.
pub(super) struct OrdersStage {
    pub(super) sim: PartnerSim,
    pub(super) desk: MessageReceivers,
    pub(super) collector: Option<TraceCollector>,
    pub(super) testbed: Testbed,
    pub(super) producer: OrderProducer,
    pub(super) prometheus: Option<RunPrometheus>,
}

impl OrdersStage {
    /// Starts the partner, the receiver of alerts, the testbed and, if requested, the collector and Prometheus.
    pub(super) async fn start(options: &OrdersOptions) -> anyhow::Result<Self> {
        let (sim, served) = start_partner(options).await?;
        let desk = MessageReceivers::start_listening().await?;
        let settings = TestbedSettings {
            speed: options.speed,
            workers: options.workers,
            alerts: Some(desk.webhook_target(ALERTS)),
            partner: Some(served),
            durable: true,
            ..TestbedSettings::default()
        };
        let collector = TraceCollector::start(options.trace_sampling).await?;
        let configure = |config: &mut Config| {
            if let Some(collector) = &collector {
                collector.configure(config);
            }
            if options.prometheus {
                config.http.admin_bind = format!("127.0.0.1:{}", free_port());
                // Placeholder; each worker gets its own address.
                config.worker.admin_bind = "127.0.0.1:0".to_owned();
            }
        };
        let testbed = Testbed::start_with(&settings, configure).await?;
        partner::call_back(&sim, testbed.api.base_url())?;
        let producer = OrderProducer::hire(&testbed, "bench").await?.accepting_overload();
        let prometheus = if options.prometheus {
            let mut targets = vec![testbed.app.config.http.admin_bind.clone()];
            targets.extend(testbed.processes.worker_metrics().into_iter().map(|(_, address)| address));
            Some(RunPrometheus::start(targets).await?)
        } else {
            None
        };
        Ok(Self { sim, desk, collector, testbed, producer, prometheus })
    }
}

/// Starts the partner. Returns it with its settings. The partner enforces the rate limit that dispatchq is configured
/// to keep. Its burst is dispatchq's burst plus the requests that dispatchq may have in flight.
async fn start_partner(options: &OrdersOptions) -> anyhow::Result<(PartnerSim, ServedBy)> {
    let limit = options.partner_limit();
    let mut knobs = options.scenario.partner_knobs();
    knobs.rate_limit = Some(limit.into());
    knobs.rate_burst = Some((limit / 10 + PartnerConfig::with_url("").max_concurrent).into());
    let options = PartnerSimOptions { seed: options.seed, speed: options.speed, knobs, ..PartnerSimOptions::default() };
    let sim = partner::start(&options).await?;
    let mut served = partner::served_by(&sim, &options);
    served.config.rate_per_s = limit;
    Ok((sim, served))
}

/// Memory of the largest worker process in MiB: before the first order, at rest, and the maximum.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct WorkerMemory {
    first: f64,
    last: f64,
    max: f64,
}

impl WorkerMemory {
    fn sample_largest(&mut self, testbed: &Testbed) {
        let largest = testbed.processes.worker_pids().filter_map(machine::rss_bytes_of_process).max();
        let Some(mib) = largest.map(machine::bytes_as_mib) else { return };
        if self.max == 0.0 {
            self.first = mib;
        }
        self.last = mib;
        self.max = self.max.max(mib);
    }
}

pub(super) async fn measure_orders(options: &OrdersOptions) -> anyhow::Result<Figures> {
    let OrdersStage { sim, desk, collector, mut testbed, producer, prometheus } = OrdersStage::start(options).await?;
    let plan = PlayPlan {
        producer: &producer,
        count: options.order_count() as usize,
        quiet: options.json,
        partner: Some(&sim),
        patience: (real_policy(partner::SERVICE_TYPE).lifetime + LONGEST_RIDE).div_f64(options.speed) + SLACK,
    };
    let mut memory = WorkerMemory::default();
    memory.sample_largest(&testbed);
    let processor = ProcessorWatch::start(&testbed.pids_by_kind());
    let (begin, mut calls_while_creating) = (Instant::now(), None);
    let (outage, mut is_down) = (options.outage_window(), false);
    let on_look = async |testbed: &mut Testbed, all_created: Option<Instant>| {
        memory.sample_largest(testbed);
        if all_created.is_some() {
            calls_while_creating.get_or_insert_with(|| sim.read_report().counters.requests);
        }
        let Some((from, to)) = outage else { return Ok(false) };
        let down = (from..to).contains(&begin.elapsed());
        if down != is_down {
            sim.change_knobs(|knobs| knobs.down = down)?;
            is_down = down;
        }
        Ok(begin.elapsed() < to)
    };
    let played = play_orders(&mut testbed, plan, order_creations(options), on_look).await;
    let played = testbed.dir.keep_if_failed(played)?;

    let used = processor.finish(&testbed.pids_by_kind());
    let seen_by_prometheus = match &prometheus {
        Some(prometheus) => Some(prometheus.read_seen().await?),
        None => None,
    };
    drop(prometheus);
    let mut ended = testbed.end_processes(played.violations).await;
    let db = &ended.app.core.db;
    let outcomes = figures::count_outcomes(db).await?;
    let orders = outcomes.orders;
    let mut figures = Figures::new(json!({
        "scenario": options.scenario,
        "orders": orders,
        "rate": options.rate,
        "refused": producer.refused_count(),
        "refused_by_code": producer.refusal_counts(),
        "speed": options.speed,
        "workers": options.workers,
        "seed": options.seed,
        "partner_limit_per_s": options.partner_limit(),
        "wall_seconds": round_to_digits(played.wall.as_secs_f64(), 1),
        "created_per_s": per_s(producer.created_count(), played.creating),
        "outcomes": outcomes.by_status,
        "held": outcomes.held,
        "bookings": figures::count_bookings(db).await?,
        "lateness_ms": figures::read_lateness(&ended.app.core.store).await?,
        "repairs": figures::count_repairs(db).await?,
        "worker_rss_mb": memory,
        "cpu_ms_per_order": used.ms_per(options.order_count().into()),
        "traces": collector.as_ref().map(TraceCollector::sent_traces),
        "prometheus": seen_by_prometheus,
    }));
    add_job_ids(&mut figures, db, options, orders).await?;
    let alerts = figures::count_delivered_alerts(db).await?;
    let (delivered, arrived) =
        (alerts.get(ALERTS).copied().unwrap_or_default(), desk.received_ids(ALERTS).len() as u64);
    if arrived != delivered {
        ended.violations.push(format!("{delivered} alerts count as delivered, but {arrived} arrived"));
    }
    figures.set("alerts", alerts);
    figures.set("alert_delay_s", read_alert_delay(db).await?);
    let partner = sim.read_report().counters;
    let known: i64 =
        sqlx::query_scalar("SELECT count(*) FROM bookings WHERE booking_id IS NOT NULL").fetch_one(db).await?;
    if partner.bookings != known.unsigned_abs() {
        ended
            .violations
            .push(format!("the partner made {} bookings, but the tables contain {known}", partner.bookings));
    }
    if partner.rate_limited > 0 {
        ended.violations.push(format!("the partner refused {} calls above its limit", partner.rate_limited));
    }
    figures.set("polls_per_order", round_to_digits(ratio(partner.polls, orders), 2));
    figures.set("partner_calls_per_s", per_s(calls_while_creating.unwrap_or_default(), played.creating));
    figures.set("partner_calls_max_in_a_second", partner.max_in_a_second);
    figures.set("limit_exceeded", partner.rate_limited);
    figures.set("partner", &partner);
    ended.check_history().await?;
    figures.violations = ended.violations;
    figures.keep_logs(&mut ended.dir);
    Ok(figures)
}

/// Arrival of the first job id of each order that got one, and the polls of all attempts that got a job id.
#[derive(Debug, sqlx::FromRow)]
struct JobIds {
    orders: i64,
    via_callback: i64,
    /// Time from the order's creation, in seconds of real time.
    p50_s: Option<f64>,
    p95_s: Option<f64>,
    asked: i64,
    /// Number of polls if every attempt had been polled every 2 s of simulated time.
    naive: i64,
    /// Orders with an alert, or that wait for a person's decision.
    manual: i64,
}

async fn add_job_ids(figures: &mut Figures, db: &Pool, options: &OrdersOptions, orders: u64) -> anyhow::Result<()> {
    let ids: JobIds =
        sqlx::query_as(include_str!("job_ids.sql")).bind(options.speed).bind(NAIVE_INTERVAL_S).fetch_one(db).await?;
    let in_order_time = |wall_s: Option<f64>| wall_s.map(|s| round_to_digits(s * options.speed, 2));
    let share = |part: i64, whole: u64| round_to_digits(ratio(part.unsigned_abs(), whole), 4);
    let (with_id, via_callback) = (share(ids.orders, orders), share(ids.via_callback, ids.orders.unsigned_abs()));
    let manual = share(ids.manual, orders);
    let saved = round_to_digits(1.0 - ratio(ids.asked.unsigned_abs(), ids.naive.unsigned_abs()), 4);
    figures.extend(json!({
        "job_id_rate": with_id,
        "via_callback_rate": via_callback,
        "manual_rate": manual,
        "p50_time_to_job_id_s": in_order_time(ids.p50_s),
        "p95_time_to_job_id_s": in_order_time(ids.p95_s),
        "partner_calls_saved": saved,
    }));
    figures.goal("job_id_rate", with_id, Bound::AtLeast(0.999));
    // The other goals apply only to a healthy partner.
    if options.scenario == OrdersScenario::Normal {
        figures.goal("via_callback_rate", via_callback, Bound::AtLeast(0.9));
        figures.goal("p95_time_to_job_id_s", in_order_time(ids.p95_s).unwrap_or(f64::MAX), Bound::Below(10.0));
        figures.goal("manual_rate", manual, Bound::Below(0.001));
        figures.goal("partner_calls_saved", saved, Bound::AtLeast(0.3));
    }
    Ok(())
}

/// Time from the transition that causes an alert to its arrival, in seconds of real time. `None` without alerts.
#[derive(Debug, Serialize, sqlx::FromRow)]
struct AlertDelay {
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
}

async fn read_alert_delay(db: &Pool) -> Result<AlertDelay, sqlx::Error> {
    sqlx::query_as(
        "-- delay of alerts
         SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY wall_s) AS p50,
                percentile_cont(0.99) WITHIN GROUP (ORDER BY wall_s) AS p99, max(wall_s) AS max
         FROM (SELECT round(extract(epoch FROM delivered_at - created_at), 3)::float8 AS wall_s FROM outbox m
               WHERE state = 'delivered'
                 AND EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = m.order_id AND a.kind = m.kind)) delays",
    )
    .fetch_one(db)
    .await
}

/// Returns a ratio. Zero if the whole is zero.
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

pub(super) fn per_s(count: u64, time: Duration) -> f64 {
    round_to_digits(count as f64 / time.as_secs_f64().max(f64::EPSILON), 1)
}
