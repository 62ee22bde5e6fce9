//! The supply log: counts of a known fleet, and minutes that are counted twice, late or not at all.
//!
//! * `random_fleets`: no row of a cell is about fewer than three drivers, and each driver is in one row.

mod random_fleets;

use jobs::PeriodicTick;
use maintenance::periodic::supply::{self, SupplyReport};
use queue::Outcome;
use settings::{ScheduledTask, TaskSchedule};
use test_support::{TestApp, secs};
use workers::tick;

/// Three drivers in the geohash-6 cell qqguxm, and three in qqguxq north of it.
const FLEET: [(&str, f64); 6] = [("A1", 0.0), ("A2", 50.0), ("A3", 100.0), ("B1", 600.0), ("B2", 650.0), ("B3", 700.0)];

/// Rows of a service type with the columns that are not zero.
const ROWS: &str = "
    SELECT to_char(minute AT TIME ZONE 'UTC', 'MI ') || cell
           || (SELECT string_agg(' ' || key || ' ' || value, '' ORDER BY key COLLATE \"C\")
               FROM jsonb_each_text(to_jsonb(s)) WHERE value ~ '^[1-9][0-9]*$')
    FROM audit_supply s WHERE service_type = 'RIDE' ORDER BY minute, cell";

async fn with_schedule() -> TestApp {
    TestApp::with(|config| {
        config.schedules = [(ScheduledTask::Supply, TaskSchedule::Every(secs(60)))].into();
    })
    .await
}

/// Moves the clock to the end of the minute and returns its slot.
async fn end_minute(t: &TestApp) -> i64 {
    let slot = (t.now_ms() / 60_000 + 1) * 60;
    t.move_clock_to(slot * 1000).await;
    slot.cast_signed()
}

async fn count(t: &TestApp, slot: i64) -> SupplyReport {
    supply::run(&t.app.maintenance, slot).await.unwrap()
}

#[tokio::test]
async fn ten_minutes_of_a_fleet_are_counted() {
    let t = with_schedule().await;
    t.drivers(&FLEET).await;
    for minute in 0..10 {
        // The previous minute is counted ten seconds after its end.
        t.run_for(secs(20)).await;
        match minute {
            1 => drop(t.sql("UPDATE drivers SET available = false WHERE id = 'A3'").await),
            2 => {
                t.order("TAKEN").await;
                t.run_due().await;
                assert_eq!(t.accept_offer("TAKEN").await.as_str(), "A1");
            }
            3 => {
                t.order("REFUSED").await;
                t.run_due().await;
                assert_eq!(t.decline_offer("REFUSED").await.as_str(), "A2");
                t.run_due().await;
                assert_eq!(t.asked("REFUSED").await.as_str(), "B1");
            }
            5 => assert_eq!(t.asked("REFUSED").await.as_str(), "B2"),
            6 => {
                t.cancel("REFUSED").await.unwrap();
                t.sql("UPDATE drivers SET lat = -6.2088 + 900 / 111195.0 WHERE id = 'B3'").await;
            }
            7 => drop(t.sql("UPDATE drivers SET disabled_at = dispatchq_now() WHERE id = 'A3'").await),
            8 => t.carry_out("TAKEN", "A1").await,
            9 => drop(t.sql("DELETE FROM drivers WHERE id LIKE 'B%'").await),
            _ => {}
        }
        t.run_for(secs(40)).await;
    }
    t.run_for(secs(20)).await;
    let expected = [
        "00 qqguxm free 3",
        "00 qqguxq free 3",
        "01 qqguxm free 2 off_duty 1",
        "01 qqguxq free 3",
        "02 qqguxm accepted_500m 1 busy 1 free 1 made_500m 1 off_duty 1",
        "02 qqguxq free 3",
        "03 qqguxm busy 1 declined_500m 1 free 1 made_500m 1 off_duty 1",
        "03 qqguxq free 3 made_1km 1",
        "04 qqguxm busy 1 free 1 off_duty 1",
        "04 qqguxq free 3",
        "05 qqguxm busy 1 free 1 off_duty 1",
        "05 qqguxq free 3 made_1km 1 unanswered_1km 1",
        // One of the three in qqguxq left it, so the row of qqgux has them all.
        "06 qqgux free 3",
        "06 qqguxm busy 1 free 1 off_duty 1",
        "07 qqgux busy 1 free 4",
        "08 qqgux free 5",
        "09  free 2",
    ];
    assert_eq!(t.texts(ROWS).await, expected);
}

#[tokio::test]
async fn minute_is_written_once_by_two_runs() {
    let t = TestApp::start().await;
    t.drivers(&FLEET).await;
    let slot = end_minute(&t).await;
    let (first, second) = tokio::join!(count(&t, slot), count(&t, slot));
    assert_eq!(first.rows + second.rows, 4, "{first:?} {second:?}");
    assert!(first == SupplyReport::default() || second == SupplyReport::default(), "{first:?} {second:?}");

    let before = t.texts(ROWS).await;
    t.sql("UPDATE drivers SET lat = 10").await;
    assert_eq!(count(&t, slot).await, SupplyReport::default());
    assert_eq!(t.texts(ROWS).await, before);
}

#[tokio::test]
async fn late_run_leaves_its_minute_out() {
    let t = TestApp::start().await;
    t.drivers(&FLEET).await;
    let slot = end_minute(&t).await;
    t.advance(secs(30)).await;
    assert_eq!(count(&t, slot).await, SupplyReport::default());
    assert_eq!(t.count("SELECT count(*) FROM supply_minutes").await, 0);
}

#[tokio::test]
async fn early_run_leaves_the_minute_to_a_later_one() {
    let t = TestApp::start().await;
    t.drivers(&FLEET).await;
    let unfinished = (t.now_ms() / 1000).cast_signed() + 60;
    t.advance(secs(59)).await;
    assert_eq!(count(&t, unfinished).await, SupplyReport::default());
    assert_eq!(count(&t, end_minute(&t).await).await.rows, 4);
}

#[tokio::test]
async fn repeated_tick_after_a_crash_changes_nothing() {
    let t = with_schedule().await;
    t.drivers(&FLEET).await;
    let slot = end_minute(&t).await;
    // The process dies after the count and before it records the result of the run.
    assert_eq!(count(&t, slot).await.rows, 4);
    t.sql("UPDATE drivers SET lat = 10").await;
    let before = t.texts(ROWS).await;
    let job = PeriodicTick { schedule: "supply".to_owned(), slot };
    let outcome = tick::perform_tick(t.app.maintenance.clone(), job).await;
    let Outcome::Done { then, .. } = outcome else { panic!("{outcome:?}") };
    assert_eq!(then.len(), 1, "the next run");
    assert_eq!(t.texts(ROWS).await, before);
    assert_eq!(t.count("SELECT count(*) FROM schedule_runs WHERE finished_at IS NOT NULL").await, 1);
}
