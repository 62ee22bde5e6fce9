//! Requirement: docs/requirements/job-id-retrieval.md.
//!
//! `refund:{order}`: asks the payment service to refund a payment, after support has started the refund. Design:
//! docs/design/payments.md.
//!
//! The transaction that sets the order to REFUND_PENDING also writes the row in `refunds`, which contains the time of
//! the next request. All requests for an order have the same key, so a repeated request pays only once. The service's
//! signed callback ends the refund; if the callback is lost, the next request gets the result. If the service refuses,
//! a person must handle the refund.

use std::time::Duration;

use jobs::{OrderId, RefundOrder};
use model::{decide::money, order::Snapshot};

use foundation::db::Pool;
use orders::{
    capability::Orders,
    payments::{PaymentService, RefundAnswer, RefundCallError, RefundRequest, RefundStatus},
    seen::Basis,
    step::{self, Step},
};
use queue::{Job, Outcome, RetryPolicy};

/// Delays of 1, 2, 4 ... up to 600 s, with an unlimited number of tries.
const BACKOFF: RetryPolicy = RetryPolicy {
    max_tries: u32::MAX,
    initial: Duration::from_secs(1),
    multiplier: 2.0,
    max: Duration::from_secs(600),
    jitter: 0.3,
};

/// Pause while the payment service for a started refund is not configured.
const NOT_CONFIGURED_PAUSE: Duration = Duration::from_secs(30);

/// Columns of `refunds` that the job needs.
#[derive(Debug, sqlx::FromRow)]
struct RefundToAsk {
    amount_minor: i64,
    currency: String,
    tries: i32,
}

pub async fn perform_refund(orders: Orders, job: RefundOrder) -> Outcome {
    let (orders, job) = (&orders, &job);
    let ask = |s| async move { ask_and_learn(orders, job, &s).await.map(Step::Finish) };
    step::run_step(orders, &job.order, &job.id(), ask).await
}

async fn ask_and_learn(orders: &Orders, job: &RefundOrder, s: &Snapshot) -> Result<Outcome, sqlx::Error> {
    let order = &s.order.id;
    let Some(payments) = &orders.payments else {
        tracing::error!(
            order.id = %order,
            "A refund waits for a payment service that is not configured; set [payments] url."
        );
        return Ok(Outcome::Snooze { delay: NOT_CONFIGURED_PAUSE });
    };
    let Some(row) = load_refund(&orders.core.db, order).await? else { return Ok(Outcome::done()) };
    let request = RefundRequest { order, amount_minor: row.amount_minor, currency: &row.currency };
    match payments.ask_for_refund(request).await {
        Ok(answer) => take_answer(orders, payments, job, &answer).await,
        Err(error @ RefundCallError::Refused(_)) => {
            let why = error.to_string();
            let refuse = |s: &Snapshot| money::refuse_refund(s, &why, None);
            Ok(step::record_answer(orders, order, Basis::Fresh, &job.id(), refuse).await)
        }
        Err(RefundCallError::Transient(error)) => {
            let pause = BACKOFF.backoff(row.tries.unsigned_abs().saturating_add(1), orders.core.rng.next_unit());
            tracing::warn!(order.id = %order, tries = row.tries, error, "Cannot request a refund yet; the job retries.");
            record_failure(&orders.core.db, order, &error, pause).await?;
            Ok(Outcome::Snooze { delay: pause })
        }
    }
}

async fn take_answer(
    orders: &Orders,
    payments: &PaymentService,
    job: &RefundOrder,
    answer: &RefundAnswer,
) -> Result<Outcome, sqlx::Error> {
    Ok(match answer.status {
        RefundStatus::Pending => {
            record_accepted(&orders.core.db, &job.order, &answer.refund_id, payments.ask_again).await?;
            Outcome::Snooze { delay: payments.ask_again }
        }
        RefundStatus::Refunded => {
            let refund_id = &answer.refund_id;
            step::record_answer(orders, &job.order, Basis::Fresh, &job.id(), |s| money::complete_refund(s, refund_id))
                .await
        }
        RefundStatus::Failed => {
            let why = answer.reason.as_deref().unwrap_or("it failed");
            let refund_id = Some(answer.refund_id.as_str());
            step::record_answer(orders, &job.order, Basis::Fresh, &job.id(), |s| {
                money::refuse_refund(s, why, refund_id)
            })
            .await
        }
    })
}

async fn load_refund(db: &Pool, order: &OrderId) -> Result<Option<RefundToAsk>, sqlx::Error> {
    sqlx::query_as(
        "-- load refund
         SELECT amount_minor, currency, tries FROM refunds WHERE order_id = $1 AND state IN ('asking', 'accepted')",
    )
    .bind(order.as_str())
    .fetch_optional(db)
    .await
}

/// Records that the service has accepted the refund, and sets the time of the next request to `pause` from now.
async fn record_accepted(db: &Pool, order: &OrderId, refund_id: &str, pause: Duration) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- refund accepted
         UPDATE refunds SET state = 'accepted', refund_id = coalesce(refund_id, $2), tries = 0, last_error = NULL,
                next_try_at = dispatchq_now() + $3 * interval '1 second'
         WHERE order_id = $1 AND state IN ('asking', 'accepted')",
    )
    .bind(order.as_str())
    .bind(refund_id)
    .bind(pause.as_secs_f64())
    .execute(db)
    .await
    .map(drop)
}

/// Records a failed request, and sets the time of the next one to `pause` from now.
async fn record_failure(db: &Pool, order: &OrderId, error: &str, pause: Duration) -> Result<(), sqlx::Error> {
    sqlx::query(
        "-- refund missed
         UPDATE refunds SET tries = tries + 1, last_error = $2, next_try_at = dispatchq_now() + $3 * interval '1 second'
         WHERE order_id = $1 AND state IN ('asking', 'accepted')",
    )
    .bind(order.as_str())
    .bind(error)
    .bind(pause.as_secs_f64())
    .execute(db)
    .await
    .map(drop)
}
