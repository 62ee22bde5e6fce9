//! Thresholds by time of day: each instant has at most one, including days with clock changes.

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc};
use chrono_tz::{TZ_VARIANTS, Tz};
use model::admission::schedule::{
    AreaTimeZone, LocalSchedule, MinuteOfDay, ScheduleDay, ScheduledThreshold, ThresholdSchedule,
};
use proptest::{prelude::*, test_runner::RngSeed};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn local(zone: &str, schedule: &str) -> LocalSchedule {
    LocalSchedule { zone: zone.parse().unwrap(), schedule: schedule.parse().unwrap() }
}

fn entry() -> impl Strategy<Value = ScheduledThreshold> {
    let days = proptest::sample::subsequence(ScheduleDay::ALL.to_vec(), 0..=7);
    (days, 0..1440_u32, 0..=1440_u32, 0..500_i64).prop_map(|(days, from, to, max_waiting_orders)| ScheduledThreshold {
        days,
        from: MinuteOfDay::new(from).unwrap(),
        to: MinuteOfDay::new(to).unwrap(),
        max_waiting_orders,
    })
}

/// Generates instants of forty years, around clock changes and elsewhere.
fn instant() -> impl Strategy<Value = DateTime<Utc>> {
    (0..40 * 366 * 24 * 60_i64).prop_map(|minutes| at("2000-01-01T00:00:00Z") + TimeDelta::minutes(minutes))
}

fn zone() -> impl Strategy<Value = Tz> {
    proptest::sample::select(TZ_VARIANTS.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn threshold_follows_the_local_wall_clock(entry in entry(), now in instant(), zone in zone()) {
        let Ok(schedule) = ThresholdSchedule::new(vec![entry.clone()]) else { return Ok(()) };
        let there = now.with_timezone(&zone);
        let minute = MinuteOfDay::new(there.hour() * 60 + there.minute()).unwrap();
        let begins = |day: ScheduleDay| entry.days.is_empty() || entry.days.contains(&day);
        let (today, yesterday) = (there.weekday(), there.weekday().pred());
        let holds = if entry.from < entry.to {
            begins(today.into()) && (entry.from..entry.to).contains(&minute)
        } else {
            (begins(today.into()) && minute >= entry.from) || (begins(yesterday.into()) && minute < entry.to)
        };
        let found = LocalSchedule { zone: zone.name().parse().unwrap(), schedule }.threshold_at(now);
        prop_assert_eq!(found, holds.then_some(entry.max_waiting_orders));
    }

    #[test]
    fn valid_schedule_has_no_overlapping_entries(
        entries in proptest::collection::vec(entry(), 0..5), minute in 0..7 * 1440_u32,
    ) {
        let Ok(schedule) = ThresholdSchedule::new(entries.clone()) else { return Ok(()) };
        let day = ScheduleDay::ALL[(minute / 1440) as usize];
        let alone = |entry: ScheduledThreshold| ThresholdSchedule::new(vec![entry]).unwrap();
        let holding: Vec<i64> =
            entries.into_iter().filter_map(|entry| alone(entry).threshold_on(day, minute % 1440)).collect();
        prop_assert!(holding.len() <= 1);
        prop_assert_eq!(schedule.threshold_on(day, minute % 1440), holding.first().copied());
    }

    #[test]
    fn schedule_parses_back_from_its_text(entries in proptest::collection::vec(entry(), 0..4)) {
        let Ok(schedule) = ThresholdSchedule::new(entries) else { return Ok(()) };
        prop_assert_eq!(schedule.to_string().parse::<ThresholdSchedule>().unwrap(), schedule);
    }

    #[test]
    fn whole_week_entry_covers_every_instant(now in instant(), zone in zone()) {
        let zone = zone.name();
        prop_assert_eq!(local(zone, "00:00-24:00=7").threshold_at(now), Some(7));
    }
}

#[test]
fn threshold_follows_the_area_time_zone() {
    let jakarta = local("Asia/Jakarta", "MON-FRI 07:00-09:30=60; SAT,SUN 10:00-22:00=80");
    // Seven in the morning on a Friday in Jakarta is midnight in London.
    assert_eq!(jakarta.threshold_at(at("2026-01-08T23:59:59Z")), None);
    assert_eq!(jakarta.threshold_at(at("2026-01-09T00:00:00Z")), Some(60));
    assert_eq!(jakarta.threshold_at(at("2026-01-09T02:29:59Z")), Some(60));
    assert_eq!(jakarta.threshold_at(at("2026-01-09T02:30:00Z")), None);
    assert_eq!(jakarta.threshold_at(at("2026-01-10T03:00:00Z")), Some(80));
    let jayapura = local("Asia/Jayapura", "MON-FRI 07:00-09:30=60");
    assert_eq!(jayapura.threshold_at(at("2026-01-08T22:00:00Z")), Some(60), "two hours earlier");
}

#[test]
fn overnight_entry_belongs_to_its_first_day() {
    let night = local("UTC", "FRI 22:00-02:00=30");
    assert_eq!(night.threshold_at(at("2026-01-09T01:00:00Z")), None, "Friday, early");
    assert_eq!(night.threshold_at(at("2026-01-09T22:00:00Z")), Some(30));
    assert_eq!(night.threshold_at(at("2026-01-10T01:59:00Z")), Some(30), "Saturday, early");
    assert_eq!(night.threshold_at(at("2026-01-10T02:00:00Z")), None);
    assert_eq!(local("UTC", "SUN 23:00-01:00=5").threshold_at(at("2026-01-12T00:30:00Z")), Some(5), "into Monday");
}

#[test]
fn skipped_times_have_no_threshold() {
    // In Berlin the clocks skip 02:00 to 03:00 on 29 March 2026.
    let berlin = local("Europe/Berlin", "SUN 02:00-03:00=10; SUN 03:00-04:00=20");
    assert_eq!(berlin.threshold_at(at("2026-03-29T00:59:00Z")), None);
    assert_eq!(berlin.threshold_at(at("2026-03-29T01:00:00Z")), Some(20));
    let minutes = |n: i64| at("2026-03-28T12:00:00Z") + TimeDelta::minutes(n);
    assert!((0..24 * 60).all(|n| berlin.threshold_at(minutes(n)) != Some(10)));
}

#[test]
fn repeated_times_have_a_threshold_twice() {
    // In Berlin the clocks repeat 02:00 to 03:00 on 25 October 2026.
    let berlin = local("Europe/Berlin", "SUN 02:00-03:00=10");
    let minutes = |n: i64| at("2026-10-24T12:00:00Z") + TimeDelta::minutes(n);
    let held = (0..24 * 60).filter(|n| berlin.threshold_at(minutes(*n)) == Some(10)).count();
    assert_eq!(held, 120);
}

#[test]
fn invalid_schedule_is_refused_with_reason() {
    for (text, said) in [
        ("MON 07:00-09:00=60; MON 08:00-10:00=50", "overlap"),
        ("SUN 23:00-02:00=1; MON 01:00-03:00=2", "overlap"),
        ("07:00-07:00=1", "both 07:00"),
        ("24:00-01:00=1", "before 24:00"),
        ("07:00-25:00=1", "'25:00'"),
        ("7:00-08:00=1", "'7:00'"),
        ("MOON 07:00-08:00=1", "'MOON' is not a day"),
        ("07:00-08:00=-1", "0 to 1000000"),
        ("07:00-08:00", "not an entry such as"),
    ] {
        let error = text.parse::<ThresholdSchedule>().unwrap_err().to_string();
        assert!(error.contains(said), "{text}: {error}");
    }
    assert!("Asia/Batavia".parse::<AreaTimeZone>().is_err());
    assert_eq!("fri-mon,WED 07:00-08:00=1".parse::<ThresholdSchedule>().unwrap().entries()[0].days.len(), 5);
}
