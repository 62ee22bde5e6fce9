//! Checks for errors that must never occur: a missing timer, an early attempt, a doubled attempt.

use std::{collections::HashSet, time::Duration};

use foundation::core::Core;
use maintenance::recovery::repair;
use tokio::time::sleep;

/// Pause between two checks. Between a commit and its settle a timer may be missing, so a timer counts as lost only if
/// both checks miss it.
const SECOND_LOOK: Duration = Duration::from_secs(2);
/// Maximum number of findings of each kind that are listed.
const SOME: usize = 5;

pub(super) async fn find_violations(core: &Core) -> anyhow::Result<Vec<String>> {
    let mut violations = Vec::new();
    let lost = list_lost(core).await?;
    if !lost.is_empty() {
        violations.push(format!("{} timers are lost, such as {}", lost.len(), lost[..lost.len().min(SOME)].join(" ")));
    }
    for (what, query) in [("started early", EARLY), ("was made twice", DOUBLED)] {
        let orders: Vec<String> = sqlx::query_scalar(query).fetch_all(&core.db).await?;
        violations.extend(orders.into_iter().take(SOME).map(|order| format!("an attempt of {order} {what}")));
    }
    let held: i64 = sqlx::query_scalar(HELD).fetch_one(&core.db).await?;
    if held > 0 {
        violations.push(format!("{held} orders are held for review"));
    }
    Ok(violations)
}

async fn list_lost(core: &Core) -> anyhow::Result<Vec<String>> {
    let first: HashSet<_> = repair::list_missing(core).await?.into_iter().map(|job| job.id).collect();
    if first.is_empty() {
        return Ok(Vec::new());
    }
    sleep(SECOND_LOOK).await;
    let second = repair::list_missing(core).await?;
    Ok(second.into_iter().filter(|job| first.contains(&job.id)).map(|job| job.id.to_string()).collect())
}

// An order's first attempt is due a day before its lifetime ends.
const EARLY: &str = "-- bench: early attempts
    SELECT DISTINCT e.order_id FROM order_events e JOIN orders o ON o.id = e.order_id
    WHERE e.reason <> 'ORDER_CREATED' AND e.at < o.lifetime_deadline - interval '1 day' LIMIT 100";
const DOUBLED: &str = "-- bench: doubled attempts
    SELECT order_id FROM order_events WHERE reason = 'ATTEMPT_STARTED'
    GROUP BY order_id, attempt_no HAVING count(*) > 1 LIMIT 100";
const HELD: &str = "-- bench: held orders
    SELECT count(*) FROM orders WHERE held_for_review";
