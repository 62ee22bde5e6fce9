//! The audit trail: actions of staff on all subjects, newest first.
//!
//! Each table stores the author, time and reason of its changes. The trail reads one page of each table by index and
//! merges them. It has no table of its own, so it cannot miss a change. The client address of a change comes from the
//! recorded requests of the same key.

use std::{
    fmt,
    str::FromStr,
    sync::{Arc, LazyLock},
};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use foundation::db::Pool;

/// Default length of the period that is read.
pub const USUAL_SPAN: TimeDelta = TimeDelta::days(7);
/// Maximum length of the period. The history of orders is partitioned by day, and the query reads each partition.
pub const LONGEST_SPAN: TimeDelta = TimeDelta::days(93);

/// Kind of subject of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum TrailSource {
    Order,
    Binding,
    /// Changes of areas, thresholds, overrides and the admission flag.
    Area,
    Alert,
    Plan,
    DeadJob,
    /// Changes of queues, drivers, keys, users and sessions.
    System,
    Erasure,
}

impl TrailSource {
    pub const ALL: [Self; 8] =
        [Self::Order, Self::Binding, Self::Area, Self::Alert, Self::Plan, Self::DeadJob, Self::System, Self::Erasure];

    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the source with this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|source| source.as_str() == word)
    }
}

/// Filter for changes; absent fields match all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrailFilter {
    pub source: Option<TrailSource>,
    /// A name, or role and name: `anna`, `support:anna`.
    pub who: Option<String>,
    /// Id of the changed subject.
    pub subject: Option<String>,
}

/// Period of time; its end is excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrailSpan {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSpan {
    #[error("from must be before to")]
    Reversed,
    #[error("the period is longer than 93 days; give from and to")]
    TooLong,
}

impl TrailSpan {
    /// Returns the period between two times. The default is the last 7 days before `now`.
    pub fn new(
        from: Option<DateTime<Utc>>,
        to: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Result<Self, InvalidSpan> {
        // Includes changes made while the page is loading.
        let to = to.unwrap_or(now + TimeDelta::minutes(1));
        let from = from.unwrap_or(to - USUAL_SPAN);
        if from >= to {
            Err(InvalidSpan::Reversed)
        } else if to - from > LONGEST_SPAN {
            Err(InvalidSpan::TooLong)
        } else {
            Ok(Self { from, to })
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct TrailEntry {
    pub at: DateTime<Utc>,
    /// Kind of the subject.
    pub source: String,
    /// Role and name.
    pub actor: String,
    /// `None`: the command line, or a change made by a plan.
    pub key_id: Option<Uuid>,
    pub action: String,
    /// Id or name of the changed subject.
    pub subject: String,
    pub reason: Option<String>,
    /// Values before the change. `None`: the subject did not exist, or the change stores no values.
    pub old: Option<Value>,
    /// Values after the change. `None`: the subject no longer exists, or the change stores no values.
    pub new: Option<Value>,
    /// Client address of the request; `None`: the change was not made over HTTP.
    pub address: Option<String>,
    /// Method and route.
    pub request: Option<String>,
    /// Distinguishes changes with the same time.
    #[serde(skip)]
    place: String,
}

/// Position in the trail, after this change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrailPlace {
    at: DateTime<Utc>,
    place: String,
}

impl From<&TrailEntry> for TrailPlace {
    fn from(entry: &TrailEntry) -> Self {
        Self { at: entry.at, place: entry.place.clone() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of the audit trail: use the one from the previous page")]
pub struct InvalidTrailPlace;

impl fmt::Display for TrailPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.timestamp_millis(), self.place)
    }
}

impl FromStr for TrailPlace {
    type Err = InvalidTrailPlace;

    fn from_str(text: &str) -> Result<Self, InvalidTrailPlace> {
        let (ms, place) = text.split_once('.').ok_or(InvalidTrailPlace)?;
        let is_place = !place.is_empty() && place.len() <= 300 && place.bytes().all(|b| b.is_ascii_graphic());
        let ms: i64 = ms.parse().map_err(|_| InvalidTrailPlace)?;
        let at = DateTime::from_timestamp_millis(ms).filter(|at| at.timestamp() >= 0 && is_place);
        Ok(Self { at: at.ok_or(InvalidTrailPlace)?, place: place.to_owned() })
    }
}

/// A table of the trail, with its rows as `at`, `id`, `actor`, `key_id`, `action`, `subject`, `reason`, `old`, `new`.
/// `{staff}` restricts the preceding actor to staff; it has the same text as the conditions of the indexes.
struct TrailTable {
    source: TrailSource,
    rows: &'static str,
}

const TABLES: [TrailTable; 11] = [
    TrailTable {
        source: TrailSource::Order,
        rows: "SELECT at, lpad(seq::text, 19, '0') AS id, actor, key_id, reason AS action, order_id AS subject,
                      detail AS reason, {order_values}
               FROM order_events WHERE split_part(actor, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::Order,
        rows: "SELECT at, lpad(seq::text, 19, '0') AS id, actor, key_id, reason AS action, order_id AS subject,
                      detail AS reason, {order_values}
               FROM order_events_kept WHERE split_part(actor, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::Binding,
        // The detail of an OTP event is its digest.
        rows: "SELECT at, lpad(seq::text, 19, '0') AS id, actor, key_id, upper(kind) AS action, binding_id AS subject,
                      coalesce(given_reason, CASE WHEN kind <> 'otp_submitted' THEN coalesce(detail, reason) END) AS reason,
                      old_value AS old, new_value AS new
               FROM binding_events WHERE split_part(actor, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::Area,
        rows: "SELECT at, lpad(id::text, 19, '0') AS id, actor, key_id, upper(replace(what, ' ', '_')) AS action,
                      coalesce(area_id, 'all areas') AS subject, reason,
                      before - 'geometry' AS old, after - 'geometry' AS new
               FROM admission_audit WHERE split_part(actor, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::System,
        rows: "SELECT at, lpad(id::text, 19, '0') AS id, actor, key_id, action, subject, reason,
                      old_value AS old, new_value AS new
               FROM staff_actions WHERE split_part(actor, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::Alert,
        rows: "SELECT acked_at AS at, lpad(id::text, 19, '0') AS id, acked_by AS actor, acked_key_id AS key_id,
                      'ACKNOWLEDGED_' || kind AS action, coalesce(binding_id, order_id) AS subject, ack_note AS reason,
                      jsonb_build_object('acknowledged', false) AS old, jsonb_build_object('acknowledged', true) AS new
               FROM alerts WHERE acked_at IS NOT NULL AND split_part(acked_by, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::Plan,
        rows: "SELECT created_at AS at, id::text || '-1' AS id, created_by AS actor, created_key AS key_id,
                      'PLAN_MADE' AS action, id::text AS subject, reason, NULL::jsonb AS old,
                      jsonb_build_object('state', 'PLANNED', 'action', action, 'filter', filter, 'total', total) AS new
               FROM plans WHERE split_part(created_by, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::Plan,
        rows: "SELECT started_at AS at, id::text || '-2' AS id, run_by AS actor, run_key AS key_id, 'PLAN_RUN' AS action,
                      id::text AS subject, reason,
                      jsonb_build_object('state', 'PLANNED') AS old, jsonb_build_object('state', 'RUNNING') AS new
               FROM plans WHERE started_at IS NOT NULL AND split_part(run_by, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::Plan,
        rows: "SELECT ended_at AS at, id::text || '-3' AS id, cancelled_by AS actor, cancelled_key AS key_id,
                      'PLAN_CANCELLED' AS action, id::text AS subject, reason,
                      jsonb_build_object('state', CASE WHEN started_at IS NULL THEN 'PLANNED' ELSE 'RUNNING' END) AS old,
                      jsonb_build_object('state', 'CANCELLED') AS new
               FROM plans WHERE cancelled_by IS NOT NULL AND split_part(cancelled_by, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::DeadJob,
        rows: "SELECT resolved_at AS at, job_id || '@' || (extract(epoch FROM died_at) * 1000)::bigint::text AS id,
                      resolved_by AS actor, NULL::uuid AS key_id, upper(resolved_how) AS action, job_id AS subject,
                      resolved_why AS reason, jsonb_build_object('state', 'DEAD') AS old,
                      jsonb_build_object('state', upper(resolved_how)) AS new
               FROM dead_letters WHERE resolved_at IS NOT NULL AND split_part(resolved_by, ':', 1) {staff}",
    },
    TrailTable {
        source: TrailSource::Erasure,
        rows: "SELECT erased_at AS at, lpad(id::text, 19, '0') AS id, actor, NULL::uuid AS key_id,
                      'ERASED_' || upper(subject) AS action, subject_id AS subject, reason,
                      jsonb_build_object('erased', false) AS old, jsonb_build_object('erased', true) AS new
               FROM erasures WHERE split_part(actor, ':', 1) {staff}",
    },
];

/// Values before and after an event of an order. A hold and a requeue do not change the status.
const ORDER_VALUES: &str = "
    CASE WHEN from_status IS NOT NULL THEN jsonb_strip_nulls(jsonb_build_object('status', from_status,
        'held_for_review', CASE reason WHEN 'HELD_FOR_REVIEW' THEN false WHEN 'RESUMED_BY_HAND' THEN true END,
        'job', CASE reason WHEN 'REQUEUED_BY_HAND' THEN 'DEAD' END)) END AS old,
    jsonb_strip_nulls(jsonb_build_object('status', to_status,
        'held_for_review', CASE reason WHEN 'HELD_FOR_REVIEW' THEN true WHEN 'RESUMED_BY_HAND' THEN false END,
        'job', CASE reason WHEN 'REQUEUED_BY_HAND' THEN 'REQUEUED' END)) AS new";

const STAFF: &str = "IN ('dispatcher', 'support', 'operator', 'admin', 'cli')";

/// Statement of the trail. `$1` and `$2` are the period. With a cursor, `$2` is the cursor's time and `$3` its place.
/// The other parameters are source, actor, subject and limit.
static STATEMENT: LazyLock<Arc<str>> = LazyLock::new(|| {
    let pages = TABLES.map(|TrailTable { source, rows }| {
        let (source, rows) = (source.as_str(), rows.replace("{staff}", STAFF).replace("{order_values}", ORDER_VALUES));
        format!(
            "(SELECT r.at, '{source}' AS source, ('{source}:' || r.id) COLLATE \"C\" AS place, r.actor, r.key_id, r.action,
                     r.subject, r.reason, r.old, r.new
              FROM ({rows}) r
              WHERE ($4::text IS NULL OR $4 = '{source}') AND r.at >= $1 AND r.at <= $2
                AND (r.at < $2 OR ('{source}:' || r.id) COLLATE \"C\" < $3)
                AND ($5::text IS NULL OR r.actor = $5 OR substr(r.actor, strpos(r.actor, ':') + 1) = $5)
                AND ($6::text IS NULL OR r.subject = $6)
              ORDER BY 1 DESC, 3 DESC LIMIT $7)"
        )
    });
    let pages = pages.join(" UNION ALL ");
    let statement = format!(
        "-- audit trail
         SELECT t.at, t.source, t.place, t.actor, t.key_id, t.action, t.subject, t.reason, t.old, t.new, q.address, q.request
         FROM (SELECT * FROM ({pages}) u ORDER BY at DESC, place DESC LIMIT $7) t
              LEFT JOIN LATERAL (
                  SELECT host(s.address) AS address, s.request FROM staff_requests s
                  WHERE s.key_id = t.key_id AND s.at <= t.at AND s.at > t.at - interval '90 seconds'
                  ORDER BY s.at DESC, s.id DESC LIMIT 1) q ON true
         ORDER BY t.at DESC, t.place DESC"
    );
    statement.into()
});

/// Returns the statement of [`list_trail`], for tests of its query plan.
pub fn trail_statement() -> &'static str {
    &STATEMENT
}

/// Lists actions of staff in a period, newest first, after `after`. A change is attributed to a request that its key
/// sent in the 90 seconds before the change, because a request never runs longer.
pub async fn list_trail(
    db: &Pool,
    filter: &TrailFilter,
    span: TrailSpan,
    after: Option<&TrailPlace>,
    limit: u32,
) -> Result<Vec<TrailEntry>, sqlx::Error> {
    let (until, place) = match after {
        Some(after) if after.at < span.to => (after.at, after.place.as_str()),
        _ => (span.to, ""),
    };
    sqlx::query_as(AssertSqlSafe(STATEMENT.clone()))
        // A generic plan would lock every partition of the history.
        .persistent(false)
        .bind(span.from)
        .bind(until)
        .bind(place)
        .bind(filter.source.map(TrailSource::as_str))
        .bind(&filter.who)
        .bind(&filter.subject)
        .bind(i64::from(limit))
        .fetch_all(db)
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(ms).unwrap()
    }

    #[test]
    fn trail_place_round_trips_as_text() {
        let place =
            TrailPlace { at: at(1_767_945_600_123), place: "dead_job:dispatch:ORD-1:1@1767945600000".to_owned() };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in ["", "1", "1.", "x.order:1", "-1.order:1", "1.order: 1", "99999999999999999999.order:1"] {
            assert_eq!(text.parse::<TrailPlace>(), Err(InvalidTrailPlace), "{text}");
        }
    }

    #[test]
    fn span_length_is_bounded() {
        let now = at(1_767_945_600_000);
        let usual = TrailSpan::new(None, None, now).unwrap();
        assert!(usual.from < now && usual.to > now && usual.to - usual.from == USUAL_SPAN);
        assert_eq!(TrailSpan::new(Some(now), Some(now), now), Err(InvalidSpan::Reversed));
        assert_eq!(TrailSpan::new(Some(at(0)), None, now), Err(InvalidSpan::TooLong));
    }
}
