//! Reads the rows that have timers, page by page.

use std::time::Duration;

use chrono::{DateTime, Utc};
use jobs::OrderId;
use model::{
    binding::BindingTimer,
    decide::timers::{self, OrderTimer},
    ids::PlanId,
    messages::{MessageSubject, SubjectColumns},
    order::{BookingState, OrderDeadlines, PendingAlert},
};
use serde::{Deserialize, Serialize};
use sqlx::{FromRow, Row, postgres::PgRow};
use uuid::Uuid;

use bindings::restore::{self, UnresolvedCursor};
use desk::plans::{self, restore::PlanTimer};
use foundation::core::Core;
use queue::NewJob;

/// Number of rows that are read, and of timers that are compared, at a time.
const PAGE: i64 = 500;
/// Number of orders read at a time when all orders are read, which needs only a few of their columns.
const ORDERS_PAGE: i64 = 5000;
/// Number of open orders that one statement searches for overdue ones. Deadlines have no index, because they change at
/// every step.
pub(super) const STRETCH: i64 = 2000;
/// Number of open orders on one page of a sample.
const SAMPLE: i64 = 1000;
/// Delay after which a timer counts as lost, because it should have fired.
pub(super) const OVERDUE: Duration = Duration::from_secs(3);

/// Timers that a run reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RepairScope {
    /// All timers: Redis has lost its data.
    All,
    /// Timers of rows with a timer that should have fired.
    Overdue,
    /// Timers of rows with a timer that is due within this time.
    DueWithin(Duration),
    /// All timers, in small pages that several calls read.
    Sample,
}

/// A job that a row must have, and its due time from the row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowTimer {
    pub job: NewJob,
    pub due: DateTime<Utc>,
}

impl From<OrderTimer> for RowTimer {
    fn from(OrderTimer { job, due }: OrderTimer) -> Self {
        Self { job, due }
    }
}

impl From<BindingTimer> for RowTimer {
    fn from(BindingTimer { job, due }: BindingTimer) -> Self {
        Self { job, due }
    }
}

impl From<PlanTimer> for RowTimer {
    fn from(PlanTimer { job, due }: PlanTimer) -> Self {
        Self { job, due }
    }
}

/// One page of rows, and the timers that they must have.
pub(crate) struct TimerPage {
    pub rows: u64,
    pub timers: Vec<RowTimer>,
}

impl TimerPage {
    /// Creates a page of rows with one timer each.
    fn from_timers<T: Into<RowTimer>>(timers: impl IntoIterator<Item = T>) -> Self {
        let timers: Vec<RowTimer> = timers.into_iter().map(Into::into).collect();
        Self { rows: timers.len() as u64, timers }
    }

    pub(crate) fn into_jobs(self) -> Vec<NewJob> {
        self.timers.into_iter().map(|timer| timer.job).collect()
    }
}

/// Iteration over the sources of timers: open orders, bookings that wait for the partner, refunds that wait for the
/// payment service, pending callbacks, undelivered messages, bindings, UNRESOLVED transactions, running plans, and
/// unacknowledged alerts.
pub(crate) struct TimerPages {
    scope: RepairScope,
    cursor: TimerCursor,
    /// Position before the latest page.
    page_began: TimerCursor,
}

/// Position in each source; `None`: the source was read to its end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimerCursor {
    orders_after: Option<String>,
    bookings_after: Option<(String, i32)>,
    refunds_after: Option<String>,
    callbacks_after: Option<i64>,
    messages_after: Option<i64>,
    bindings_of_accounts_after: Option<String>,
    unresolved_after: Option<UnresolvedCursor>,
    plans_after: Option<PlanId>,
    alerts_after: i64,
}

impl Default for TimerCursor {
    fn default() -> Self {
        Self {
            orders_after: Some(String::new()),
            bookings_after: Some((String::new(), 0)),
            refunds_after: Some(String::new()),
            callbacks_after: Some(0),
            messages_after: Some(0),
            bindings_of_accounts_after: Some(String::new()),
            unresolved_after: Some((DateTime::UNIX_EPOCH, String::new(), 0)),
            plans_after: Some(PlanId::from_uuid(Uuid::nil())),
            alerts_after: 0,
        }
    }
}

impl TimerPages {
    pub(super) fn new(scope: RepairScope) -> Self {
        Self::from_cursor(scope, TimerCursor::default())
    }

    /// Returns the pages after a position.
    pub(crate) fn from_cursor(scope: RepairScope, cursor: TimerCursor) -> Self {
        Self { scope, page_began: cursor.clone(), cursor }
    }

    /// Returns the position after the latest page.
    pub(crate) fn into_cursor(self) -> TimerCursor {
        self.cursor
    }

    pub(crate) async fn read_again(&self, core: &Core) -> Result<Option<TimerPage>, sqlx::Error> {
        let mut again =
            Self { scope: self.scope, cursor: self.page_began.clone(), page_began: self.page_began.clone() };
        again.next_page(core).await
    }

    /// Takes the position in a source, or returns `None` if the source has ended.
    fn take_place<T>(&mut self, source: impl FnOnce(&mut TimerCursor) -> Option<T>) -> Option<T> {
        self.page_began = self.cursor.clone();
        source(&mut self.cursor)
    }

    /// Returns the minimum seconds since a row's time; a negative value includes future times.
    fn overdue_secs(&self) -> Option<f64> {
        match self.scope {
            RepairScope::All | RepairScope::Sample => None,
            RepairScope::Overdue => Some(OVERDUE.as_secs_f64()),
            RepairScope::DueWithin(time) => Some(-time.as_secs_f64()),
        }
    }

    /// Returns the number of orders that one statement reads.
    fn orders_at_once(&self) -> i64 {
        match self.scope {
            RepairScope::All | RepairScope::DueWithin(_) => ORDERS_PAGE,
            RepairScope::Overdue => STRETCH,
            RepairScope::Sample => SAMPLE,
        }
    }

    pub(crate) async fn next_page(&mut self, core: &Core) -> Result<Option<TimerPage>, sqlx::Error> {
        while let Some(after) = self.take_place(|cursor| cursor.orders_after.take()) {
            let rows = sqlx::query(include_str!("next_page.sql"))
                .bind(after)
                .bind(self.overdue_secs())
                .bind(self.orders_at_once())
                .fetch_all(&core.db)
                .await?;
            // There is at least one row, which has the position of the next page.
            if let Some(row) = rows.first() {
                self.cursor.orders_after = row.try_get("last")?;
            }
            let found = |row: &PgRow| row.try_get::<Option<String>, _>("id").map(|id| id.is_some());
            let mut orders = Vec::new();
            for row in &rows {
                if found(row)? {
                    orders.push(OrderTimerRow::from_row(row)?);
                }
            }
            if !orders.is_empty() {
                return Ok(Some(page_of_orders(&orders)));
            }
        }
        if let Some((order, attempt_no)) = self.take_place(|cursor| cursor.bookings_after.take()) {
            let rows: Vec<BookingTimerRow> = sqlx::query_as(
                "-- bookings to reconcile
                 SELECT order_id, attempt_no, state, next_try_at, dispatchq_now() AS now
                 FROM ((SELECT * FROM bookings
                        WHERE state IN ('intent', 'unknown', 'cancel_wanted') AND (order_id, attempt_no) > ($1, $2)
                          AND ($3::float8 IS NULL OR next_try_at < dispatchq_now() - $3 * interval '1 second')
                        ORDER BY order_id, attempt_no LIMIT $4)
                       UNION ALL
                       (SELECT * FROM bookings
                        WHERE to_tell AND (order_id, attempt_no) > ($1, $2)
                          AND ($3::float8 IS NULL OR next_try_at < dispatchq_now() - $3 * interval '1 second')
                        ORDER BY order_id, attempt_no LIMIT $4)) b
                 ORDER BY order_id, attempt_no LIMIT $4",
            )
            .bind(order)
            .bind(attempt_no)
            .bind(self.overdue_secs())
            .bind(PAGE)
            .fetch_all(&core.db)
            .await?;
            if let Some(last) = rows.last() {
                self.cursor.bookings_after = Some((last.order_id.to_string(), last.attempt_no));
                let timer = |b: &BookingTimerRow| {
                    timers::booking_timer(&b.order_id, b.attempt_no, b.state, b.next_try_at, b.now)
                };
                return Ok(Some(TimerPage::from_timers(rows.iter().map(timer))));
            }
        }
        if let Some(after) = self.take_place(|cursor| cursor.refunds_after.take()) {
            let rows: Vec<RefundTimerRow> = sqlx::query_as(
                "-- refunds to reconcile
                 SELECT r.order_id, r.next_try_at, dispatchq_now() AS now
                 FROM refunds r JOIN orders o ON o.id = r.order_id AND o.status = 'REFUND_PENDING'
                 WHERE r.state IN ('asking', 'accepted') AND r.order_id > $1
                   AND ($2::float8 IS NULL OR r.next_try_at < dispatchq_now() - $2 * interval '1 second')
                 ORDER BY r.order_id LIMIT $3",
            )
            .bind(after)
            .bind(self.overdue_secs())
            .bind(PAGE)
            .fetch_all(&core.db)
            .await?;
            if let Some(last) = rows.last() {
                self.cursor.refunds_after = Some(last.order_id.to_string());
                let timer = |r: &RefundTimerRow| timers::refund_timer(&r.order_id, r.next_try_at, r.now);
                return Ok(Some(TimerPage::from_timers(rows.iter().map(timer))));
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
            .fetch_all(&core.db)
            .await?;
            if let Some(last) = rows.last() {
                self.cursor.callbacks_after = Some(last.id);
                let timer = |c: &CallbackRow| timers::callback_timer(&c.order_id, c.id, c.received_at, c.now);
                return Ok(Some(TimerPage::from_timers(rows.iter().map(timer))));
            }
        }
        if let Some(after) = self.take_place(|cursor| cursor.messages_after.take()) {
            let rows: Vec<MessageRow> = sqlx::query_as(
                "-- messages to reconcile
                 SELECT id, order_id, binding_id, next_attempt_at, dispatchq_now() AS now FROM outbox
                 WHERE state = 'pending' AND id > $1
                   AND ($2::float8 IS NULL OR next_attempt_at < dispatchq_now() - $2 * interval '1 second')
                 ORDER BY id LIMIT $3",
            )
            .bind(after)
            .bind(self.overdue_secs())
            .bind(PAGE)
            .fetch_all(&core.db)
            .await?;
            if let Some(last) = rows.last() {
                self.cursor.messages_after = Some(last.id);
                let timer = |m: &MessageRow| timers::message_timer(m.subject.to_id(), m.id, m.next_attempt_at, m.now);
                return Ok(Some(TimerPage::from_timers(rows.iter().map(timer))));
            }
        }
        if let Some(after) = self.take_place(|cursor| cursor.bindings_of_accounts_after.take())
            && let Some(page) = restore::next_page(core, &after, self.overdue_secs()).await?
        {
            self.cursor.bindings_of_accounts_after = Some(page.last);
            let timers = page.timers.into_iter().map(RowTimer::from).collect();
            return Ok(Some(TimerPage { rows: page.rows, timers }));
        }
        if let Some(after) = self.take_place(|cursor| cursor.unresolved_after.take())
            && let Some((timers, last)) = restore::next_unresolved(&core.db, &after, self.overdue_secs()).await?
        {
            self.cursor.unresolved_after = Some(last);
            return Ok(Some(TimerPage::from_timers(timers)));
        }
        if let Some(after) = self.take_place(|cursor| cursor.plans_after.take())
            && let Some((plans, last)) = plans::restore::next_page(&core.db, after, self.overdue_secs()).await?
        {
            self.cursor.plans_after = Some(last);
            return Ok(Some(TimerPage::from_timers(plans)));
        }
        self.page_began = self.cursor.clone();
        let rows: Vec<AlertTimerRow> = sqlx::query_as(
            "-- alerts to reconcile
             SELECT id, kind, next_escalation_at, order_id, dispatchq_now() AS now FROM alerts
             WHERE acked_at IS NULL AND next_escalation_at IS NOT NULL AND gave_up_at IS NULL AND id > $1
               AND ($2::float8 IS NULL OR next_escalation_at < dispatchq_now() - $2 * interval '1 second')
             ORDER BY id LIMIT $3",
        )
        .bind(self.cursor.alerts_after)
        .bind(self.overdue_secs())
        .bind(PAGE)
        .fetch_all(&core.db)
        .await?;
        let Some(last) = rows.last() else { return Ok(None) };
        self.cursor.alerts_after = last.alert.id;
        let timer = |a: &AlertTimerRow| timers::alert_timer(&a.order_id, &a.alert, a.now);
        Ok(Some(TimerPage::from_timers(rows.iter().map(timer))))
    }
}

#[derive(FromRow)]
struct AlertTimerRow {
    #[sqlx(flatten)]
    alert: PendingAlert,
    #[sqlx(try_from = "String")]
    order_id: OrderId,
    now: DateTime<Utc>,
}

#[derive(FromRow)]
struct OrderTimerRow {
    #[sqlx(flatten)]
    order: OrderDeadlines,
    now: DateTime<Utc>,
}

#[derive(FromRow)]
struct BookingTimerRow {
    #[sqlx(try_from = "String")]
    order_id: OrderId,
    attempt_no: i32,
    state: BookingState,
    next_try_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

#[derive(FromRow)]
struct RefundTimerRow {
    #[sqlx(try_from = "String")]
    order_id: OrderId,
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
    #[sqlx(flatten, try_from = "SubjectColumns")]
    subject: MessageSubject,
    next_attempt_at: DateTime<Utc>,
    now: DateTime<Utc>,
}

fn page_of_orders(rows: &[OrderTimerRow]) -> TimerPage {
    let timers = rows.iter().flat_map(|row| timers::deadline_timers(&row.order, row.now)).map(RowTimer::from);
    TimerPage { rows: rows.len() as u64, timers: timers.collect() }
}
