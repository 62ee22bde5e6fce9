//! Time limits of alerts, counted in business hours of a desk.

use std::time::Duration;

use chrono::{DateTime, Utc};
use model::messages::{AlertTelling, BusinessHours, ChannelRoutes, DISPATCH_FAILED, MANUAL_REFUND_REQUIRED};
use proptest::{prelude::*, test_runner::RngSeed};
use serde_json::json;

fn hours(n: u64) -> Duration {
    Duration::from_secs(n * 3600)
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn desk(time_zone: &str, weekdays: &[&str], opens: &str, closes: &str, holidays: &[&str]) -> BusinessHours {
    let desk = json!({ "time_zone": time_zone, "weekdays": weekdays, "opens": opens, "closes": closes,
                       "holidays": holidays });
    serde_json::from_value(desk).unwrap()
}

const WEEK: [&str; 5] = ["Mon", "Tue", "Wed", "Thu", "Fri"];

#[test]
fn business_hours_count_only_open_time() {
    let jakarta = desk("Asia/Jakarta", &WEEK, "08:00", "17:00", &["2026-01-05"]);
    // Friday 16:00 in Jakarta, one hour before the weekend. Monday is a holiday.
    assert_eq!(jakarta.add_open_time(at("2026-01-02T09:00:00Z"), hours(1)), at("2026-01-02T10:00:00Z"));
    assert_eq!(jakarta.add_open_time(at("2026-01-02T09:00:00Z"), hours(4)), at("2026-01-06T04:00:00Z"));
    // The night does not count.
    assert_eq!(jakarta.add_open_time(at("2026-01-06T20:00:00Z"), hours(9)), at("2026-01-07T10:00:00Z"));
    let always = desk("UTC", &["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], "00:00", "24:00", &[]);
    assert_eq!(always.add_open_time(at("2026-01-02T09:00:00Z"), hours(100)), at("2026-01-06T13:00:00Z"));
}

#[test]
fn business_hours_follow_clock_changes() {
    // Clocks went from 2:00 to 3:00 on 8 March 2026, and from 2:00 back to 1:00 on 1 November.
    let night = desk("America/New_York", &["Sun"], "01:00", "04:00", &[]);
    assert_eq!(night.add_open_time(at("2026-03-08T06:00:00Z"), hours(2)), at("2026-03-08T08:00:00Z"));
    assert_eq!(night.add_open_time(at("2026-03-08T06:00:00Z"), hours(3)), at("2026-03-15T06:00:00Z"));
    assert_eq!(night.add_open_time(at("2026-11-01T05:00:00Z"), hours(4)), at("2026-11-01T09:00:00Z"));
    let skipped = desk("America/New_York", &["Sun"], "02:30", "04:00", &[]);
    assert_eq!(skipped.add_open_time(at("2026-03-08T00:00:00Z"), hours(0)), at("2026-03-08T07:30:00Z"));
}

#[test]
fn sla_warning_precedes_the_escalation() {
    let raised = at("2026-01-02T09:00:00Z");
    let mut routes = ChannelRoutes::default();
    let first = routes.first_telling(MANUAL_REFUND_REQUIRED, raised).unwrap();
    assert_eq!(first, raised + hours(20));
    let sla_ends_at = raised + hours(24);
    assert_eq!(routes.next_telling(MANUAL_REFUND_REQUIRED, raised, 0, first), AlertTelling::Warning { sla_ends_at });
    let escalation = AlertTelling::Again { number: 1, next: Some(sla_ends_at + hours(4)) };
    assert_eq!(routes.next_telling(MANUAL_REFUND_REQUIRED, raised, 0, sla_ends_at), escalation);
    assert_eq!(routes.first_telling(DISPATCH_FAILED, raised), Some(raised + Duration::from_secs(300)));

    routes.sla_warning = hours(24);
    assert_eq!(routes.first_telling(MANUAL_REFUND_REQUIRED, raised), Some(sla_ends_at), "no time for a warning");
    routes.sla_warning = hours(0);
    assert_eq!(routes.first_telling(MANUAL_REFUND_REQUIRED, raised), Some(sla_ends_at));
    routes.escalate.times = 0;
    assert_eq!(routes.first_telling(MANUAL_REFUND_REQUIRED, raised), None);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    /// Adding two spans equals adding their sum, and the result is never before the start.
    #[test]
    fn open_time_is_additive(start in 0i64..400_000_000, first in 1u64..400_000, second in 1u64..400_000) {
        let berlin = desk("Europe/Berlin", &WEEK, "08:30", "16:00", &["2020-12-25"]);
        let from = DateTime::from_timestamp(1_577_836_800 + start, 0).unwrap();
        let (first, second) = (Duration::from_secs(first), Duration::from_secs(second));
        let reached = berlin.add_open_time(from, first);
        prop_assert!(reached >= from + first);
        prop_assert_eq!(berlin.add_open_time(reached, second), berlin.add_open_time(from, first + second));
    }
}
