//! `--scenario fleet`: orders that own drivers serve, at a steady rate and at real speed.
//!
//! Each order is the same. It is created over HTTP with an idempotency key. The first driver lets the offer expire
//! after 2 s. The second driver accepts after 0.2 s, and picks up and completes after half a second each. Drivers wait
//! at a hundred places, so far apart that each order is near only one of them.

use std::time::Duration;

use geo::Point;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::{OrdersOptions, partner::per_s, peer, proof::ProofWatch, recovery::RecoveryWatch, work};
use crate::{
    bench::{
        collector::TraceCollector,
        frame::{Bound, Figures},
        processor::ProcessorWatch,
        spread::round_to_digits,
    },
    testbed::{
        Testbed, TestbedSettings,
        drivers::{self, DriverChoice, DriverReaction, DriverScript, OfferReceiver, SimulatedDriver},
        figures,
        play::{PlayPlan, play_orders},
        producer::{OrderDraft, OrderProducer, ProducedOrder},
        settings::WebhookTarget,
    },
};
use accounts::api_keys;
use settings::Config;

const SERVICE_TYPE: &str = "RIDE";
/// Maximum distance of a driver from an order.
const RADIUS_M: f64 = 2_000.0;
/// Length of a row of places, and distance between places in degrees (5.5 km).
const ROW: u32 = 10;
const DEGREES: f64 = 0.05;
const PLACES: u32 = 100;
/// Drivers per order created per second. An order occupies one driver for 2 s and another for 1.2 s. With twice as many
/// at each place, one is free even if orders arrive unevenly.
const DRIVERS_PER_RATE: u32 = 8;
/// Minimum number of drivers at a place.
const FEWEST: u32 = 4;
/// Lifetime of an offer, answer time of the second driver, and duration of each part of the trip.
const ATTEMPT: Duration = Duration::from_secs(2);
const THINKS: Duration = Duration::from_millis(200);
const DRIVES: Duration = Duration::from_millis(500);
/// Pause after a search without a driver.
const RETRY: Duration = Duration::from_millis(200);
/// Maximum time for the open orders to end after the last creation.
const PATIENCE: Duration = Duration::from_secs(60);
/// Criteria for a rate: the p99 lateness of jobs, and the time from the last creation to the last end.
const HELD_LATENESS_MS: u64 = 100;
const HELD_REST_S: f64 = 10.0;

fn place(n: u32) -> Point {
    let (row, column) = (n % PLACES / ROW, n % ROW);
    Point::new(106.6 + f64::from(column) * DEGREES, -6.5 + f64::from(row) * DEGREES)
}

/// Returns enough drivers for orders at `rate` per second.
fn place_drivers(rate: u32) -> Vec<SimulatedDriver> {
    let count = rate.saturating_mul(DRIVERS_PER_RATE).max(PLACES * FEWEST);
    (0..count)
        .map(|n| SimulatedDriver { id: format!("driver-{n:06}"), key: api_keys::generate_key(), at: place(n) })
        .collect()
}

fn order_creations(rate: u32, orders: u32) -> impl Iterator<Item = ProducedOrder> {
    (0..orders).map(move |n| {
        let (at, pickup) = (Duration::from_secs_f64(f64::from(n) / f64::from(rate)), place(n));
        OrderDraft::new(SERVICE_TYPE, (pickup.y(), pickup.x()), "PAID").at(at, format!("life-{:07}", n + 1))
    })
}

/// Script in which each order's first offer expires and the second is accepted.
#[derive(Debug)]
struct LifeScript;

impl DriverScript for LifeScript {
    fn choose_reaction(&self, _driver: &str, _order: &str, attempt_no: u64) -> DriverChoice {
        if attempt_no == 1 {
            return DriverChoice { reaction: DriverReaction::Ignore, after: Duration::ZERO };
        }
        DriverChoice { reaction: DriverReaction::Accept, after: THINKS }
    }

    fn drive_times(&self, _order: &str) -> Option<(Duration, Duration)> {
        Some((DRIVES, DRIVES))
    }
}

/// Times from the tables: milliseconds from the creation of orders to their first offer, and seconds from the last
/// creation to the end.
#[derive(Debug, Serialize, sqlx::FromRow)]
struct LifeTimes {
    p50: Option<f64>,
    p99: Option<f64>,
    max: Option<f64>,
    #[serde(skip)]
    rest_s: Option<f64>,
    #[serde(skip)]
    offers: i64,
}

pub(super) async fn measure_lives(options: &OrdersOptions) -> anyhow::Result<Figures> {
    let receiver = OfferReceiver::bind_port().await?;
    let settings = TestbedSettings {
        workers: options.workers,
        offers: Some(WebhookTarget { name: "drivers", url: receiver.url() }),
        durable: true,
        counts_work: options.count_work,
        ..TestbedSettings::default()
    };
    let collector = TraceCollector::start(options.trace_sampling).await?;
    let configure = |config: &mut Config| {
        if let Some(collector) = &collector {
            collector.configure(config);
        }
        config.dispatch.attempt = ATTEMPT;
        config.dispatch.retry = vec![RETRY];
        config.dispatch.radius_m = RADIUS_M;
        config.database.pooler = options.pooler;
    };
    let mut testbed = Testbed::start_with(&settings, configure).await?;
    let fleet = place_drivers(options.rate.get());
    drivers::insert_drivers(&testbed.app, &fleet, &[SERVICE_TYPE]).await?;
    let drivers = receiver.start(testbed.api.clone(), Box::new(LifeScript), &fleet);
    let producer = OrderProducer::hire(&testbed, "bench").await?.accepting_overload();

    let processor = ProcessorWatch::start(&testbed.pids_by_kind());
    let plan = PlayPlan {
        producer: &producer,
        count: options.order_count() as usize,
        quiet: options.json,
        partner: None,
        patience: PATIENCE,
    };
    let orders = order_creations(options.rate.get(), options.order_count())
        .map(|order| if options.with_contents { order.with_contents() } else { order });
    let watch = RecoveryWatch::start(&testbed, options);
    let proof = ProofWatch::start(&testbed.app.core.db);
    let mut load_ended = None;
    let on_look = async |testbed: &mut Testbed, all_created: Option<Instant>| {
        if let (Some(at), None) = (all_created, load_ended) {
            load_ended = Some((at, figures::read_lateness(&testbed.app.core.store).await?));
        }
        Ok(false)
    };
    let start = if options.count_work { Some(testbed.postgres.start_count().await?) } else { None };
    let played = play_orders(&mut testbed, plan, orders, on_look).await;
    let played = testbed.dir.keep_if_failed(played)?;
    let used = processor.finish(&testbed.pids_by_kind());
    let work = match &start {
        Some(start) => Some(testbed.postgres.count_work(start).await?),
        None => None,
    };

    let recovery_ms = watch.finish(load_ended.map(|(at, _)| at)).await?;
    let proof = proof.finish(producer.created_count()).await?;
    let answer_times = testbed.api.answer_times();
    let mut ended = testbed.end_processes(played.violations).await;
    let db = &ended.app.core.db;
    let times: LifeTimes = sqlx::query_as(
        "-- times of lives
         SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms) AS p50, percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) AS p99,
                max(ms) AS max, (SELECT count(*) FROM offers) AS offers,
                (SELECT extract(epoch FROM max(closed_at) - max(created_at))::float8 FROM orders) AS rest_s
         FROM (SELECT extract(epoch FROM min(f.offered_at) - o.created_at)::float8 * 1000 AS ms
               FROM orders o JOIN offers f ON f.order_id = o.id GROUP BY o.id) delays",
    )
    .fetch_one(db)
    .await?;
    let lateness = figures::read_lateness(&ended.app.core.store).await?;
    let (outcomes, repairs) = (figures::count_outcomes(db).await?, figures::count_repairs(db).await?);
    ended.check_history().await?;
    let created_per_s = per_s(producer.created_count(), played.creating);
    let is_held = lateness.p99 < HELD_LATENESS_MS
        && times.rest_s.is_some_and(|rest| rest < HELD_REST_S)
        && created_per_s >= f64::from(options.rate.get()) * 0.98
        && ended.violations.is_empty();
    let peer = match &options.peer {
        Some(dir) => Some(peer::measure_peer(dir, options.rate.get()).await?),
        None => None,
    };
    let mut figures = Figures::new(json!({
        "scenario": options.scenario,
        "orders": outcomes.orders,
        "rate": options.rate,
        "refused": producer.refused_count(),
        "refused_by_code": producer.refusal_counts(),
        "refused_share": round_to_digits(producer.refused_count() as f64 / f64::from(options.order_count().max(1)), 4),
        "workers": options.workers,
        "with_contents": options.with_contents,
        "pooler": options.pooler,
        "drivers": fleet.len(),
        "held": is_held,
        "created_per_s": created_per_s,
        "lateness_ms": lateness,
        "lateness_under_load_ms": load_ended.map(|(_, lateness)| lateness),
        "recovery_ms": recovery_ms,
        "rest_s": times.rest_s.map(|s| round_to_digits(s, 2)),
        "offer_delay_ms": times,
        "answer_ms": answer_times,
        "offers": times.offers,
        "outcomes": outcomes.by_status,
        "driver_answers": drivers.answer_counts(),
        "repairs": repairs,
        "cpu_ms_per_life": used.ms_per(producer.created_count()),
        "busiest_process": used.busiest,
        "machine_busy_share": used.busy_share(),
        "proof": proof,
        "peer": peer,
        "traces": collector.as_ref().map(TraceCollector::sent_traces),
    }));
    if let Some(work) = &work {
        figures.extend(work::figures_per_order(work, producer.created_count()));
    }
    figures.goal("lateness_p99_ms", lateness.p99 as f64, Bound::Below(HELD_LATENESS_MS as f64));
    figures.goal("rest_s", times.rest_s.unwrap_or(f64::MAX), Bound::Below(HELD_REST_S));
    figures.violations = ended.violations;
    figures.keep_logs(&mut ended.dir);
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use geo::{Distance, Haversine};

    use super::*;

    #[test]
    fn each_order_is_near_one_place() {
        let nearest = |n: u32| {
            let others = (0..PLACES).filter(|other| *other != n);
            others.map(|other| Haversine.distance(place(n), place(other))).fold(f64::MAX, f64::min)
        };
        assert!((0..PLACES).map(nearest).all(|metres| metres > 2.0 * RADIUS_M));
        let drivers = place_drivers(250);
        let least = (0..PLACES).map(|n| drivers.iter().filter(|driver| driver.at == place(n)).count()).min();
        assert!(least >= Some(drivers.len() / PLACES as usize));
    }
}
