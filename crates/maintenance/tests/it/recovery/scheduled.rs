//! Scheduled orders through 48 hours and two clock changes, while Redis loses its data at random times.

use chrono::{DateTime, TimeDelta, Utc};
use maintenance::recovery::reconciler;
use test_support::{TestApp, secs};

const ORDERS: u64 = 16;
const HOURS: i64 = 48;
/// Flushes of Redis during the 48 hours.
const FLUSHES: u64 = 24;
/// Limit for the lateness of a timer. The test runs each job at its time, so only a lost timer is later.
const LATE_MS: i64 = 1;

/// Random numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

/// Writes the instant as a person in one of these zones would, with the offset of that day.
fn local_text(at: DateTime<Utc>, n: u64) -> String {
    match n % 3 {
        0 => at.with_timezone(&chrono_tz::Europe::Berlin).to_rfc3339(),
        1 => at.with_timezone(&chrono_tz::America::New_York).to_rfc3339(),
        _ => at.with_timezone(&chrono_tz::Asia::Jakarta).to_rfc3339(),
    }
}

/// Returns the lateness in milliseconds of each event with this reason, compared with a time of its order.
async fn lateness(t: &TestApp, reason: &str, due: &str) -> Vec<i64> {
    let query = format!(
        "SELECT (extract(epoch FROM e.at - {due}) * 1000)::bigint
         FROM order_events e JOIN orders o ON o.id = e.order_id WHERE e.reason = '{reason}'"
    );
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_all(&t.app.core.db).await.unwrap()
}

/// Runs 48 hours from `begin`, with one order per pickup and 24 flushes of Redis at random times.
async fn play(begin: &str, seed: u64) {
    // A search that repeats every five minutes would only cost time.
    let t = TestApp::with(|config| config.dispatch.retry = vec![secs(600)]).await;
    let begin: DateTime<Utc> = begin.parse().unwrap();
    t.move_clock_to(begin.timestamp_millis().cast_unsigned()).await;
    let end_ms = (begin + TimeDelta::hours(HOURS)).timestamp_millis().cast_unsigned();
    let mut dice = Dice(seed);
    for n in 0..ORDERS {
        // The last lifetime ends before the test does.
        let pickup = begin + TimeDelta::seconds(i64::try_from(1800 + dice.below(46 * 3600 - 1800)).unwrap());
        let pickup_at = local_text(pickup, n).parse().unwrap();
        t.create(&format!("ORD-{n}"), |new| new.pickup_at = Some(pickup_at)).await.unwrap();
    }
    let mut flushes: Vec<u64> =
        (0..FLUSHES).map(|_| t.now_ms() + dice.below(HOURS.cast_unsigned() * 3_600_000)).collect();
    flushes.sort_unstable();
    for at_ms in flushes {
        t.run_for(std::time::Duration::from_millis(at_ms - t.now_ms())).await;
        t.redis::<()>(&["FLUSHALL"]).await;
        assert!(reconciler::reconcile_once(&t.app.maintenance).await.unwrap().unwrap().rebuild);
    }
    t.run_for(std::time::Duration::from_millis(end_ms - t.now_ms())).await;

    let expected = usize::try_from(ORDERS).unwrap();
    for (reason, due) in [
        ("DISPATCH_STARTED", "o.starts_at"),
        ("NO_DRIVER_BEFORE_PICKUP", "(o.pickup_at - interval '10 minutes')"),
        ("LIFETIME_TIMEOUT", "o.lifetime_deadline"),
    ] {
        let late = lateness(&t, reason, due).await;
        assert_eq!(late.len(), expected, "{reason}: a timer was lost");
        assert!(late.iter().all(|ms| (0..=LATE_MS).contains(ms)), "{reason}: {late:?} ms late");
    }
    assert_eq!(t.count("SELECT count(*) FROM orders WHERE starts_at <> pickup_at - interval '20 minutes'").await, 0);
    t.assert_sound().await;
}

#[tokio::test]
async fn no_start_is_early_or_lost_in_48_hours() {
    // Berlin changes to daylight saving time on 2030-03-31.
    play("2030-03-30T06:00:00Z", 0x5eed).await;
}

#[tokio::test]
async fn no_start_is_early_or_lost_when_the_hour_repeats() {
    // Berlin changes back on 2030-10-27.
    play("2030-10-26T06:00:00Z", 0xfeed).await;
}
