//! What the history says of a run.

use std::collections::BTreeMap;

use serde::Serialize;
use workers::Store;

use crate::testbed::figures::{self, JobLateness, OrderOutcomes};
use foundation::db::Pool;

/// Who asks without thinking asks this often, in seconds of the order's time.
const NAIVE_INTERVAL_S: f64 = 2.0;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct OrderMeasures {
    pub(super) outcomes: OrderOutcomes,
    pub(super) job_ids: JobIds,
    pub(super) questions: JobIdQuestions,
    /// Orders with an alert, or that a person must decide on.
    pub(super) manual: u64,
    pub(super) alerts: BTreeMap<String, u64>,
    pub(super) alert_delay: AlertDelay,
    pub(super) bookings: BTreeMap<String, u64>,
    /// Bookings whose id we know.
    pub(super) bookings_known: u64,
    pub(super) lateness: JobLateness,
    pub(super) repairs: i64,
}

/// The first job id of each order that had one.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub(super) struct JobIds {
    pub(super) orders: i64,
    pub(super) via_callback: i64,
    /// From the order's creation, in seconds of wall time.
    pub(super) p50_s: Option<f64>,
    pub(super) p95_s: Option<f64>,
}

/// Questions for a job id, over all attempts that got one.
#[derive(Debug, Clone, Copy, PartialEq, sqlx::FromRow)]
pub(super) struct JobIdQuestions {
    pub(super) asked: i64,
    /// So many if every attempt had been asked about every 2 s of the order's time.
    pub(super) naive: i64,
}

/// From the transition that causes an alert to its arrival, in seconds of wall time; `None` without alerts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, sqlx::FromRow)]
pub(super) struct AlertDelay {
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
    pub(super) max: Option<f64>,
}

impl OrderMeasures {
    pub(super) async fn read_measures(db: &Pool, store: &Store, speed: f64) -> anyhow::Result<Self> {
        let job_ids = sqlx::query_as(
            "-- first job ids
             SELECT count(*) AS orders, count(*) FILTER (WHERE reason = 'JOB_ID_VIA_CALLBACK') AS via_callback,
                    percentile_cont(0.5) WITHIN GROUP (ORDER BY wall_s) AS p50_s,
                    percentile_cont(0.95) WITHIN GROUP (ORDER BY wall_s) AS p95_s
             FROM (SELECT DISTINCT ON (e.order_id) e.reason, extract(epoch FROM e.at - o.created_at)::float8 AS wall_s
                   FROM order_events e JOIN orders o ON o.id = e.order_id
                   WHERE e.reason IN ('JOB_ID_VIA_CALLBACK', 'JOB_ID_VIA_PROACTIVE')
                   ORDER BY e.order_id, e.seq) first",
        )
        .fetch_one(db)
        .await?;
        let questions = sqlx::query_as(
            "-- questions for job ids
             SELECT coalesce(sum(substring(e.detail FROM 'after ([0-9]+) polls')::bigint), 0)::bigint AS asked,
                    coalesce(sum(greatest(ceil(extract(epoch FROM e.at - b.booked_at)::float8 * $1 / $2), 1)), 0)::bigint
                        AS naive
             FROM order_events e JOIN bookings b USING (order_id, attempt_no)
             WHERE e.reason IN ('JOB_ID_VIA_CALLBACK', 'JOB_ID_VIA_PROACTIVE')",
        )
        .bind(speed)
        .bind(NAIVE_INTERVAL_S)
        .fetch_one(db)
        .await?;
        let manual: i64 = sqlx::query_scalar(
            "-- orders that needed a person
             SELECT count(*) FROM orders o
             WHERE o.held_for_review
                OR EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = o.id)",
        )
        .fetch_one(db)
        .await?;
        let alert_delay = sqlx::query_as(
            "-- delay of alerts
             SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY wall_s) AS p50,
                    percentile_cont(0.99) WITHIN GROUP (ORDER BY wall_s) AS p99, max(wall_s) AS max
             FROM (SELECT extract(epoch FROM delivered_at - created_at)::float8 AS wall_s FROM outbox m
                   WHERE state = 'delivered'
                     AND EXISTS (SELECT 1 FROM alerts a WHERE a.order_id = m.order_id AND a.kind = m.kind)) delays",
        )
        .fetch_one(db)
        .await?;
        let bookings_known: i64 = sqlx::query_scalar(
            "-- bookings known
             SELECT count(*) FROM bookings WHERE booking_id IS NOT NULL",
        )
        .fetch_one(db)
        .await?;
        Ok(Self {
            outcomes: figures::count_outcomes(db).await?,
            job_ids,
            questions,
            manual: manual.unsigned_abs(),
            alerts: figures::count_delivered_alerts(db).await?,
            alert_delay,
            bookings: figures::count_bookings(db).await?,
            bookings_known: bookings_known.unsigned_abs(),
            lateness: figures::read_lateness(store).await?,
            repairs: figures::count_repairs(db).await?,
        })
    }
}
