//! Proposed thresholds form a valid schedule, keep their promise on the hours they come from, and grow with the wait.

use std::time::Duration;

use chrono::{NaiveDate, NaiveDateTime, TimeDelta};
use model::admission::{
    advise::{AdviceReason, ObservedHour, RefusalTest, judge_thresholds, propose_thresholds, try_on_requests},
    schedule::{ScheduleDay, ThresholdSchedule},
};
use proptest::{prelude::*, test_runner::RngSeed};

fn observed(most: u64) -> impl Strategy<Value = ObservedHour> {
    let day = proptest::sample::select(ScheduleDay::ALL.to_vec());
    (day, 0..24_u32, 0..most, 0..most, proptest::option::of(0..most)).prop_map(
        |(day, hour, found, lost, peak_waiting)| ObservedHour {
            day,
            hour,
            created: found + lost,
            found_driver: found,
            peak_waiting,
        },
    )
}

fn schedule_of(hours: &[ObservedHour], wait: Duration) -> ThresholdSchedule {
    let entries = propose_thresholds(hours, wait).into_iter().map(|span| span.entry).collect();
    ThresholdSchedule::new(entries).unwrap()
}

/// Returns four weeks of hours in which the number of found drivers differs from week to week.
fn weeks(found_at: impl Fn(u64, ScheduleDay, u32) -> u64) -> Vec<ObservedHour> {
    let mut hours = Vec::new();
    for week in 0..4 {
        for day in ScheduleDay::ALL {
            for hour in 0..24 {
                let found = found_at(week, day, hour);
                hours.push(ObservedHour { day, hour, created: found, found_driver: found, peak_waiting: None });
            }
        }
    }
    hours
}

const TEN_MINUTES: Duration = Duration::from_secs(600);

/// Returns requests with these gaps in seconds, starting on a Monday at eight.
fn requests_after(gaps: &[i64]) -> Vec<NaiveDateTime> {
    let mut at = NaiveDate::from_ymd_opt(2019, 1, 7).and_then(|day| day.and_hms_opt(8, 0, 0)).unwrap();
    gaps.iter()
        .map(|gap| {
            at += TimeDelta::seconds(*gap);
            at
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn proposal_is_always_a_valid_schedule(hours in proptest::collection::vec(observed(500), 0..400)) {
        let schedule = schedule_of(&hours, TEN_MINUTES);
        prop_assert!(schedule.entries().iter().all(|entry| entry.max_waiting_orders >= 1));
    }

    #[test]
    fn proposal_holds_in_three_of_four_hours(seed in 6..400_u64) {
        // Every hour has enough drivers to serve at least one order within the wait.
        let hours = weeks(|week, day, hour| 6 + (seed * (7 + week) * (3 + day as u64) * u64::from(1 + hour)) % 300);
        let schedule = schedule_of(&hours, TEN_MINUTES);
        let test = judge_thresholds(&hours, TEN_MINUTES, |day, minute| schedule.threshold_on(day, minute).unwrap());
        prop_assert!(test.in_time * 4 >= test.hours * 3, "{:?}", test);
        prop_assert_eq!(test.in_time + test.too_long + test.untested, test.hours);
    }

    #[test]
    fn higher_threshold_never_refuses_more(gaps in proptest::collection::vec(0..300_i64, 0..200)) {
        let requests = requests_after(&gaps);
        let refused = |threshold: i64| try_on_requests(&requests, TEN_MINUTES, |_, _| threshold).refused;
        let by_threshold: Vec<u64> = (0..=200).map(refused).collect();
        prop_assert!(by_threshold.is_sorted_by(|fewer, more| fewer >= more));
        prop_assert_eq!((by_threshold[0], by_threshold[200]), (requests.len() as u64, 0));
    }

    #[test]
    fn longer_wait_allows_more_orders(hours in proptest::collection::vec(observed(500), 50..400), minutes in 1..60_u64) {
        let (short, long) = (Duration::from_secs(60 * minutes), Duration::from_secs(60 * (minutes + 30)));
        let total = |wait: Duration| -> i64 {
            let spans = propose_thresholds(&hours, wait);
            spans.iter().map(|span| span.entry.max_waiting_orders).max().unwrap_or(0)
        };
        // Joined hours get their lowest threshold, so the total may fall by the quarter up to which hours are joined.
        prop_assert!(total(long) * 5 / 4 + 1 >= total(short));
    }
}

#[test]
fn proposal_is_tested_on_unseen_hours() {
    let rush = |hour: u32| (7..9).contains(&hour);
    let before = weeks(|week, _, hour| if rush(hour) { 240 + 10 * week } else { 60 + week });
    let spans = propose_thresholds(&before, TEN_MINUTES);
    let texts: Vec<_> = spans.iter().map(|span| span.entry.to_string()).collect();
    assert_eq!(
        texts[..3],
        [
            "MON,TUE,WED,THU,FRI 00:00-07:00=10",
            "MON,TUE,WED,THU,FRI 07:00-09:00=41",
            "MON,TUE,WED,THU,FRI 09:00-24:00=10"
        ]
    );
    assert_eq!((spans[1].reason, spans[1].hours_seen), (AdviceReason::Served { per_hour: 250 }, 40));
    // Later, fewer orders found a driver in the rush hour. The proposal is too high there, and only there.
    let schedule = schedule_of(&before, TEN_MINUTES);
    let after = weeks(|_, _, hour| if rush(hour) { 120 } else { 60 });
    let test = judge_thresholds(&after, TEN_MINUTES, |day, minute| schedule.threshold_on(day, minute).unwrap());
    assert_eq!((test.hours, test.too_long, test.in_time), (4 * 7 * 24, 4 * 7 * 2, 4 * 7 * 22));
    // A single threshold for all times promises too much.
    let usual = judge_thresholds(&after, TEN_MINUTES, |_, _| 100);
    assert_eq!(usual.too_long, usual.hours);
}

#[test]
fn good_hour_peak_raises_the_threshold() {
    let mut hours = weeks(|_, _, _| 6);
    for hour in &mut hours {
        hour.peak_waiting = Some(4);
    }
    let spans = propose_thresholds(&hours, TEN_MINUTES);
    assert_eq!((spans.len(), spans[0].reason), (2, AdviceReason::WaitedWell { at_once: 4 }));
    assert_eq!(spans[0].entry.max_waiting_orders, 4);
}

#[test]
fn two_observations_yield_no_proposal() {
    let hours: Vec<_> = weeks(|_, _, _| 60).into_iter().filter(|hour| hour.day == ScheduleDay::Sat).take(48).collect();
    assert_eq!(propose_thresholds(&hours, TEN_MINUTES), []);
}

#[test]
fn requests_are_refused_at_scheduled_threshold() {
    // Four at once, one when the first two have just left, one an hour later, when none may wait.
    let requests = requests_after(&[0, 0, 0, 0, 600, 3_600]);
    let test = try_on_requests(&requests, TEN_MINUTES, |day, minute| {
        assert_eq!(day, ScheduleDay::Mon);
        if minute < 9 * 60 { 2 } else { 0 }
    });
    assert_eq!(test, RefusalTest { requests: 6, refused: 3 });
}
