//! What a look of the reconciler does: read rows, derive their timers, put in what Redis lacks. It never removes.

use std::{collections::HashSet, fmt, time::Duration};

use chrono::{DateTime, Utc};
use jobs::OrderId;
use metrics::counter;
use serde::Serialize;
use sqlx::{FromRow, Row, postgres::PgRow};
use workers::{JobId, NewJob, store::RepairVerdict};

use super::pauses;
use crate::{
    actor::Actor,
    app::App,
    compensation, db,
    dead_letters::decide::{self, DeadJobSubject},
    fleet,
    loops::report_progress,
    notifications::messages,
    orders::{BookingState, Change, Decision, HoldCause, Order, OrderStatus, PendingAlert, Snapshot, store, timers},
};

/// Rows read and timers compared at a time.
const PAGE: i64 = 500;
/// Open orders that one statement looks at for overdue ones: no index knows deadlines, because they change at every step.
const STRETCH: i64 = 2000;
/// A timer this long overdue should have fired: it was lost.
const OVERDUE: Duration = Duration::from_secs(3);
/// An order this long past its lifetime is ended here, without a job.
const FAR_OVERDUE: Duration = Duration::from_secs(60);

/// A callback that came while its booking was being written is matched within this time: no transaction lives so long.
const MATCHED_WITHIN: Duration = Duration::from_secs(600);

/// What a run found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// Redis had lost its data or was restarted, so every timer was compared.
    pub rebuild: bool,
    /// Orders and messages looked at.
    pub looked_at: u64,
    /// Timers that were missing.
    pub inserted: u64,
    /// Timers that lay later than their row wants them.
    pub moved: u64,
    /// Orders held for review because one of their timers is dead.
    pub held: u64,
    /// Orders far past their lifetime, ended here.
    pub compensated: u64,
}

impl RepairReport {
    fn found_something(&self) -> bool {
        self.rebuild || self.inserted + self.moved + self.held + self.compensated > 0
    }
}

/// Has Redis lost its data, or lost the last second of it by a restart?
pub async fn needs_rebuild(app: &App) -> anyhow::Result<bool> {
    let run_id = app.store.run_id().await?;
    Ok(app.store.epoch().await?.is_none_or(|epoch| epoch.run_id != run_id))
}

/// Puts every timer back. The epoch is written last, and only if no flush came in between: until then no worker takes.
pub async fn rebuild_timers(app: &App) -> anyhow::Result<RepairReport> {
    tracing::info!("Redis has no data of ours or was restarted: all timers are put back from Postgres.");
    let run_id = app.store.run_id().await?;
    let marker = app.store.begin_rebuild().await?;
    let mut report = repair_timers(app, RepairScope::All).await?;
    report.rebuild = true;
    if app.store.finish_rebuild(&marker, &run_id).await? {
        counter!("dispatchq_redis_epoch_changes_total").increment(1);
        tracing::info!(looked_at = report.looked_at, inserted = report.inserted, "All timers are back.");
    } else {
        tracing::warn!("Redis was flushed while its timers were put back; once more.");
    }
    Ok(report)
}

/// Puts back the timers of rows whose deadline has passed without anything happening.
pub async fn repair_overdue(app: &App) -> anyhow::Result<RepairReport> {
    repair_timers(app, RepairScope::Overdue).await
}

/// What a run would put back, without doing it.
pub async fn list_missing(app: &App) -> anyhow::Result<Vec<NewJob>> {
    let mut missing = Vec::new();
    let mut pages = TimerPages::new(RepairScope::All);
    while let Some(page) = pages.next_page(app).await? {
        let answers = app.store.preview_repair(&page.jobs).await?;
        missing.extend(
            page.jobs.into_iter().zip(answers).filter(|(_, a)| *a == RepairVerdict::Inserted).map(|(job, _)| job),
        );
    }
    Ok(missing)
}

/// Keeps what a run did, if it did anything.
pub async fn record_report(app: &App, report: &RepairReport) -> Result<(), sqlx::Error> {
    if !report.found_something() {
        return Ok(());
    }
    counter!("dispatchq_reconciler_repairs_total").increment(report.inserted + report.moved);
    sqlx::query(
        "-- record reconciliation
         INSERT INTO reconcile_log (at, rebuild, looked_at, inserted, moved, held, compensated)
         VALUES (dispatchq_now(), $1, $2, $3, $4, $5, $6) ON CONFLICT (at) DO NOTHING",
    )
    .bind(report.rebuild)
    .bind(report.looked_at.cast_signed())
    .bind(report.inserted.cast_signed())
    .bind(report.moved.cast_signed())
    .bind(report.held.cast_signed())
    .bind(report.compensated.cast_signed())
    .execute(&app.db)
    .await?;
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RepairScope {
    All,
    Overdue,
}

async fn repair_timers(app: &App, scope: RepairScope) -> anyhow::Result<RepairReport> {
    let mut report = RepairReport::default();
    pauses::mirror_pauses(app).await?;
    enqueue_schedules(app).await?;
    match_late_callbacks(app, scope).await?;
    let mut pages = TimerPages::new(scope);
    loop {
        let Some(page) = pages.next_page(app).await? else { return Ok(report) };
        report.looked_at += page.rows;
        // While Redis is rebuilt, workers take nothing: what a page says stays true.
        let jobs = if scope == RepairScope::All { page.jobs } else { still_lacking(app, &pages, page).await? };
        let answers = app.store.repair(&jobs).await?;
        report_progress();
        for (job, answer) in jobs.iter().zip(answers) {
            match answer {
                RepairVerdict::Inserted => report.inserted += 1,
                RepairVerdict::Moved => report.moved += 1,
                RepairVerdict::Fine => {}
                RepairVerdict::Dead => {
                    report.held += u64::from(log_and_continue(hold_order(app, job).await, &job.id)?);
                    report_progress();
                }
            }
        }
    }
}

/// Returns the jobs of this page that Redis lacks and that their rows want even after Redis was asked. A worker may have
/// done a step between the two reads: its old timer is gone because it is done, and must not be put back.
async fn still_lacking(app: &App, pages: &TimerPages, page: TimerPage) -> anyhow::Result<Vec<NewJob>> {
    let answers = app.store.preview_repair(&page.jobs).await?;
    let lacking: HashSet<JobId> =
        page.jobs.into_iter().zip(answers).filter(|(_, a)| *a != RepairVerdict::Fine).map(|(job, _)| job.id).collect();
    if lacking.is_empty() {
        return Ok(Vec::new());
    }
    let again = pages.read_again(app).await?.map(|page| page.jobs).unwrap_or_default();
    Ok(again.into_iter().filter(|job| lacking.contains(&job.id)).collect())
}

/// One row that cannot be written holds up no other; a database that is away ends the look.
fn log_and_continue<T: Default>(done: anyhow::Result<T>, about: &impl fmt::Display) -> anyhow::Result<T> {
    match done {
        Err(error) if !error.chain().any(|e| e.downcast_ref().is_some_and(ends_the_pass)) => {
            tracing::error!(%about, error = format!("{error:#}"), "The reconciler could not mend this one; it goes on.");
            Ok(T::default())
        }
        done => done,
    }
}

/// Returns whether the next row would fare no better. A row that another session has locked is that row's own trouble.
fn ends_the_pass(error: &sqlx::Error) -> bool {
    const LOCK_NOT_AVAILABLE: &str = "55P03";
    db::is_transient(error)
        && error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code)
            .is_none_or(|code| code != LOCK_NOT_AVAILABLE)
}

/// Gives callbacks of bookings that are known by now to their orders. A callback without our reference that is stored while
/// the answer to its booking is being written sees no booking, and the answer sees no callback.
async fn match_late_callbacks(app: &App, scope: RepairScope) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- match late callbacks
         UPDATE inbox i SET state = 'pending', order_id = b.order_id
         FROM bookings b
         WHERE i.state = 'unmatched' AND b.partner = i.partner AND b.booking_id = i.booking_id
           AND ($1::float8 IS NULL OR i.received_at > (SELECT dispatchq_now()) - $1 * interval '1 second')",
    )
    .bind((scope == RepairScope::Overdue).then_some(MATCHED_WITHIN.as_secs_f64()))
    .execute(&app.db)
    .await?;
    Ok(())
}

/// The next run of each schedule exists. This is how a schedule begins, and no repair.
async fn enqueue_schedules(app: &App) -> anyhow::Result<()> {
    let now = store::database_now(&app.db).await?;
    let next: Vec<NewJob> =
        app.config.schedules.iter().map(|(task, schedule)| schedule.next_job(*task, now)).collect::<Result<_, _>>()?;
    app.store.enqueue(&next).await?;
    Ok(())
}

/// One page of rows, and the jobs they must have.
struct TimerPage {
    rows: u64,
    jobs: Vec<NewJob>,
}

impl TimerPage {
    /// Rows with one job each.
    fn from_jobs(jobs: Vec<NewJob>) -> Self {
        Self { rows: jobs.len() as u64, jobs }
    }
}

/// Walks the sources of timers: open orders, bookings that wait for the partner, callbacks that were not acted on, undelivered
/// messages, and unacknowledged alerts.
struct TimerPages {
    scope: RepairScope,
    cursor: TimerCursor,
    /// Where the latest page began.
    page_began: TimerCursor,
}

/// How far each source was read; `None`: to its end.
#[derive(Clone)]
struct TimerCursor {
    orders_after: Option<String>,
    bookings_after: Option<(String, i32)>,
    callbacks_after: Option<i64>,
    messages_after: Option<i64>,
    alerts_after: i64,
}

impl TimerPages {
    fn new(scope: RepairScope) -> Self {
        let cursor = TimerCursor {
            orders_after: Some(String::new()),
            bookings_after: Some((String::new(), 0)),
            callbacks_after: Some(0),
            messages_after: Some(0),
            alerts_after: 0,
        };
        Self { scope, page_began: cursor.clone(), cursor }
    }

    /// Reads the latest page once more.
    async fn read_again(&self, app: &App) -> Result<Option<TimerPage>, sqlx::Error> {
        let mut again =
            Self { scope: self.scope, cursor: self.page_began.clone(), page_began: self.page_began.clone() };
        again.next_page(app).await
    }

    /// Takes the place in a source, if there is more of it.
    fn take_place<T>(&mut self, source: impl FnOnce(&mut TimerCursor) -> Option<T>) -> Option<T> {
        self.page_began = self.cursor.clone();
        source(&mut self.cursor)
    }

    fn overdue_secs(&self) -> Option<f64> {
        (self.scope == RepairScope::Overdue).then_some(OVERDUE.as_secs_f64())
    }

    async fn next_page(&mut self, app: &App) -> Result<Option<TimerPage>, sqlx::Error> {
        while let Some(after) = self.take_place(|cursor| cursor.orders_after.take()) {
            let rows = sqlx::query(
                "-- orders to reconcile
                 WITH page AS MATERIALIZED (
                     SELECT id, service_type, area_id, customer_id, pickup_lat, pickup_lng, amount_minor, currency,
                            payment_status, status, partner, job_id, driver_id, former_drivers, attempt_no, round,
                            attempt_deadline, next_attempt_at, poll_no, next_poll_at, lifetime_deadline, lifetime_waived,
                            trip_deadline, held_for_review, held_reason, hold_cause, version, created_at, updated_at, closed_at, owner
                     FROM orders WHERE closed_at IS NULL AND id > $1 ORDER BY id LIMIT $3),
                 t AS (SELECT max(id) AS last, dispatchq_now() AS now FROM page)
                 SELECT t.last, t.now, page.* FROM t LEFT JOIN page ON NOT held_for_review
                   AND ($2::float8 IS NULL
                        OR (status = 'COMPENSATING' AND updated_at < t.now - $2 * interval '1 second')
                        OR (status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING')
                            AND least(attempt_deadline, next_attempt_at, next_poll_at,
                                      CASE WHEN NOT lifetime_waived THEN lifetime_deadline END)
                                < t.now - $2 * interval '1 second')
                        OR (status IN ('DRIVER_ASSIGNED', 'PICKED_UP')
                            AND least(next_poll_at, trip_deadline) < t.now - $2 * interval '1 second'))
                 ORDER BY page.id",
            )
            .bind(after)
            .bind(self.overdue_secs())
            .bind(if self.scope == RepairScope::All { PAGE } else { STRETCH })
            .fetch_all(&app.db)
            .await?;
            // One row at least: it says where the next page begins.
            if let Some(row) = rows.first() {
                self.cursor.orders_after = row.try_get("last")?;
            }
            let found = |row: &PgRow| row.try_get::<Option<String>, _>("id").map(|id| id.is_some());
            let mut orders = Vec::new();
            for row in &rows {
                if found(row)? {
                    orders.push(OrderRow::from_row(row)?);
                }
            }
            if !orders.is_empty() {
                return Ok(Some(page_of_orders(&orders)));
            }
        }
        if let Some((order, attempt_no)) = self.take_place(|cursor| cursor.bookings_after.take()) {
            let rows: Vec<BookingRow> = sqlx::query_as(
                "-- bookings to reconcile
                 SELECT order_id, attempt_no, state, next_try_at, dispatchq_now() AS now FROM bookings
                 WHERE state IN ('intent', 'unknown', 'cancel_wanted') AND (order_id, attempt_no) > ($1, $2)
                   AND ($3::float8 IS NULL OR next_try_at < dispatchq_now() - $3 * interval '1 second')
                 ORDER BY order_id, attempt_no LIMIT $4",
            )
            .bind(order)
            .bind(attempt_no)
            .bind(self.overdue_secs())
            .bind(PAGE)
            .fetch_all(&app.db)
            .await?;
            if let Some(last) = rows.last() {
                self.cursor.bookings_after = Some((last.order_id.to_string(), last.attempt_no));
                let timer = |b: &BookingRow| {
                    timers::booking_timer(&b.order_id, b.attempt_no, b.state, b.next_try_at, b.now).job
                };
                return Ok(Some(TimerPage::from_jobs(rows.iter().map(timer).collect())));
            }
        }
        if let Some(after) = self.take_place(|cursor| cursor.callbacks_after.take()) {
            let rows: Vec<CallbackRow> = sqlx::query_as(
                "-- callbacks to reconcile
                 SELECT id, order_id, received_at, dispatchq_now() AS now FROM inbox
                 WHERE state = 'pending' AND id > $1
                   AND ($2::float8 IS NULL OR received_at < dispatchq_now() - $2 * interval '1 second')
                 ORDER BY id LIMIT $3",
            )
            .bind(after)
            .bind(self.overdue_secs())
            .bind(PAGE)
            .fetch_all(&app.db)
            .await?;
            if let Some(last) = rows.last() {
                self.cursor.callbacks_after = Some(last.id);
                let timer = |c: &CallbackRow| timers::callback_timer(&c.order_id, c.id, c.received_at, c.now).job;
                return Ok(Some(TimerPage::from_jobs(rows.iter().map(timer).collect())));
            }
        }
        if let Some(after) = self.take_place(|cursor| cursor.messages_after.take()) {
            let rows: Vec<MessageRow> = sqlx::query_as(
                "-- messages to reconcile
                 SELECT id, order_id, next_attempt_at, dispatchq_now() AS now FROM outbox
                 WHERE state = 'pending' AND id > $1
                   AND ($2::float8 IS NULL OR next_attempt_at < dispatchq_now() - $2 * interval '1 second')
                 ORDER BY id LIMIT $3",
            )
            .bind(after)
            .bind(self.overdue_secs())
            .bind(PAGE)
            .fetch_all(&app.db)
            .await?;
            if let Some(last) = rows.last() {
                self.cursor.messages_after = Some(last.id);
                let timer = |m: &MessageRow| timers::message_timer(&m.order_id, m.id, m.next_attempt_at, m.now).job;
                return Ok(Some(TimerPage::from_jobs(rows.iter().map(timer).collect())));
            }
        }
        self.page_began = self.cursor.clone();
        let rows: Vec<AlertRow> = sqlx::query_as(
            "-- alerts to reconcile
             SELECT id, kind, next_escalation_at, order_id, dispatchq_now() AS now FROM alerts
             WHERE acked_at IS NULL AND next_escalation_at IS NOT NULL AND gave_up_at IS NULL AND id > $1
               AND ($2::float8 IS NULL OR next_escalation_at < dispatchq_now() - $2 * interval '1 second')
             ORDER BY id LIMIT $3",
        )
        .bind(self.cursor.alerts_after)
        .bind(self.overdue_secs())
        .bind(PAGE)
        .fetch_all(&app.db)
        .await?;
        let Some(last) = rows.last() else { return Ok(None) };
        self.cursor.alerts_after = last.alert.id;
        let timer = |a: &AlertRow| timers::alert_timer(&a.order_id, &a.alert, a.now).job;
        Ok(Some(TimerPage::from_jobs(rows.iter().map(timer).collect())))
    }
}

#[derive(FromRow)]
struct AlertRow {
    #[sqlx(flatten)]
    alert: PendingAlert,
    #[sqlx(try_from = "String")]
    order_id: OrderId,
    now: DateTime<Utc>,
}

#[derive(FromRow)]
struct OrderRow {
    #[sqlx(flatten)]
    order: Order,
    now: DateTime<Utc>,
}

#[derive(FromRow)]
struct BookingRow {
    #[sqlx(try_from = "String")]
    order_id: OrderId,
    attempt_no: i32,
    state: BookingState,
    next_try_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

#[derive(FromRow)]
struct CallbackRow {
    id: i64,
    #[sqlx(try_from = "String")]
    order_id: OrderId,
    received_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

#[derive(FromRow)]
struct MessageRow {
    id: i64,
    #[sqlx(try_from = "String")]
    order_id: OrderId,
    next_attempt_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

fn page_of_orders(rows: &[OrderRow]) -> TimerPage {
    let jobs = rows.iter().flat_map(|row| timers::order_timers(&row.order, row.now)).map(|t| t.job);
    TimerPage { rows: rows.len() as u64, jobs: jobs.collect() }
}

fn is_far_overdue(order: &Order, now: DateTime<Utc>) -> bool {
    let long_ago = now - FAR_OVERDUE;
    order.is_past_lifetime(long_ago) || (order.status == OrderStatus::Compensating && order.updated_at < long_ago)
}

/// Ends every order far past its lifetime, from Postgres alone: its job may be lost with Redis. Returns how many.
///
/// Their follow-ups are enqueued if Redis takes them; if not, the reconciler puts them in later.
pub async fn end_far_overdue(app: &App) -> anyhow::Result<u64> {
    let (mut ended, mut after, mut redis_answers) = (0, String::new(), true);
    loop {
        // So many open orders a statement, however few of them are overdue.
        let (last, page): (Option<String>, Vec<String>) = sqlx::query_as(
            "-- orders far past their lifetime
             WITH page AS MATERIALIZED (
                 SELECT id, status, lifetime_waived, lifetime_deadline, updated_at, held_for_review
                 FROM orders WHERE closed_at IS NULL AND id > $1 ORDER BY id LIMIT $3),
             t AS (SELECT max(id) AS last, dispatchq_now() - $2 * interval '1 second' AS long_ago FROM page)
             SELECT t.last, array(
                 SELECT id FROM page
                 WHERE NOT held_for_review
                   AND ((status IN ('PENDING_JOB_ID', 'ASSIGNED', 'DISPATCHING', 'PENDING') AND NOT lifetime_waived
                         AND lifetime_deadline <= t.long_ago)
                        OR (status = 'COMPENSATING' AND updated_at < t.long_ago))
                 ORDER BY id)
             FROM t",
        )
        .bind(&after)
        .bind(FAR_OVERDUE.as_secs_f64())
        .bind(STRETCH)
        .fetch_one(&app.db)
        .await?;
        let Some(last) = last else { return Ok(ended) };
        after = last;
        let mut follow_ups = Vec::new();
        for order in page.iter().filter_map(|id| id.parse::<OrderId>().ok()) {
            if let Some(jobs) = log_and_continue(end_order(app, &order).await, &order)? {
                ended += 1;
                follow_ups.extend(jobs);
            }
            report_progress();
        }
        if redis_answers && let Err(error) = app.store.enqueue(&follow_ups).await {
            tracing::warn!(%error, "Orders past their lifetime are ended; what follows is enqueued when Redis answers.");
            redis_answers = false;
        }
    }
}

/// Ends an order without waiting for its job. Returns the jobs it must have now, or `None` if it needed no end.
async fn end_order(app: &App, id: &OrderId) -> anyhow::Result<Option<Vec<NewJob>>> {
    let ended = store::change_order(app, id, |s| {
        if !is_far_overdue(&s.order, s.now) {
            Decision::Unchanged
        } else if s.order.status == OrderStatus::Compensating {
            compensation::decide::compensate_order(s).into()
        } else {
            fleet::decide::end_lifetime(s).into()
        }
    })
    .await;
    changed_jobs(ended)
}

/// No order waits for a job that will not run: a dead timer puts its order on a person's desk.
async fn hold_order(app: &App, job: &NewJob) -> anyhow::Result<bool> {
    if job.queue == jobs::queues::NOTIFY {
        give_up(app, &job.id).await?;
        return Ok(false);
    }
    let Some(id) = timers::order_of(&job.id) else { return Ok(false) };
    let why = HoldCause::dead_timer_reason(&job.id);
    let held = store::change_order(app, &id, |s: &Snapshot| {
        if s.order.held_for_review || !timers::derive_timers(s).iter().any(|t| *t.id() == job.id) {
            return Decision::Unchanged;
        }
        let mut change = Change::new(s, Actor::RECONCILER);
        change.hold_for_review(s, HoldCause::DeadTimer(job.id.clone()), why.clone());
        change.notify(messages::timer_dead(&change.order, &why, s.now));
        change.into()
    })
    .await;
    let Some(follow_ups) = changed_jobs(held)? else { return Ok(false) };
    app.store.enqueue(&follow_ups).await?;
    Ok(true)
}

/// Records in the row of a message or alert that its job is dead, so that people see it and may have it requeued.
async fn give_up(app: &App, job: &JobId) -> Result<(), sqlx::Error> {
    let (row, id) = match decide::subject_of(job) {
        DeadJobSubject::Message { outbox_id, .. } => (
            sqlx::query(
                "-- give up message
                 UPDATE outbox SET state = 'dead', last_error = 'its job died' WHERE id = $1 AND state = 'pending'",
            ),
            outbox_id,
        ),
        DeadJobSubject::Alert { alert_id, .. } => (
            sqlx::query(
                "-- give up escalation
                 UPDATE alerts SET gave_up_at = dispatchq_now() WHERE id = $1 AND gave_up_at IS NULL",
            ),
            alert_id,
        ),
        DeadJobSubject::Timer(_) | DeadJobSubject::Other => return Ok(()),
    };
    tracing::error!(job.id = %job, "A message cannot be delivered: its job is dead. See: dispatchq dead show {job}");
    row.bind(id).execute(&app.db).await?;
    Ok(())
}

/// Returns the jobs that a change of ours leads to; `None` if it changed nothing.
fn changed_jobs(result: Result<store::ChangeOutcome, store::ChangeError>) -> anyhow::Result<Option<Vec<NewJob>>> {
    match result {
        Ok(store::ChangeOutcome::Yes(after)) => Ok(Some(timers::derive_jobs(&after))),
        Ok(store::ChangeOutcome::No(_)) | Err(store::ChangeError::NotFound | store::ChangeError::Busy) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
