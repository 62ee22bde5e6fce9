//! The supply log: drivers and their offers in each minute, by place, without ids. Design: docs/design/supply-log.md.
//!
//! One statement counts and writes a minute, so a process that dies leaves a whole minute or nothing. The row in
//! `supply_minutes` prevents a second count. A run that starts more than 30 seconds after the end of its minute writes
//! nothing, because the drivers may have moved.

use chrono::{DateTime, Utc};
use foundation::error::ServiceError;
use serde::Serialize;

use crate::capability::Maintenance;

/// Result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, sqlx::FromRow)]
pub struct SupplyReport {
    /// Start of the minute; `None`: the run was too early or too late, or the minute was already counted.
    pub minute: Option<DateTime<Utc>>,
    pub rows: i64,
}

/// Counts the last whole minute before a slot of the schedule, in seconds since 1970.
pub async fn run(maintenance: &Maintenance, slot: i64) -> Result<SupplyReport, ServiceError> {
    let counted = sqlx::query_as(include_str!("supply/count_minute.sql"))
        .bind(minute_before(slot))
        .fetch_optional(&maintenance.core.db)
        .await?;
    Ok(counted.unwrap_or_default())
}

/// Returns the start of the last whole minute before this time in seconds since 1970.
fn minute_before(slot: i64) -> DateTime<Utc> {
    DateTime::from_timestamp((slot.div_euclid(60) - 1) * 60, 0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_counts_the_minute_before_it() {
        for slot in ["2026-03-01T10:05:00Z", "2026-03-01T10:05:30Z", "2026-03-01T10:05:59Z"] {
            let at: DateTime<Utc> = slot.parse().unwrap();
            assert_eq!(minute_before(at.timestamp()).to_rfc3339(), "2026-03-01T10:04:00+00:00", "{slot}");
        }
    }
}
