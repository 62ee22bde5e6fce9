//! Availability checks: a steady load, and 77,000 requests within ten seconds.

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rand::{RngExt, SeedableRng, rngs::StdRng};
use tokio::{task::JoinSet, time::sleep_until};

use super::stage::{AREAS, AdmissionStage, AskedAreas, SERVICE_TYPE, area_point};
use crate::bench::spread::{SamplePercentiles, duration_micros};

/// Connections of the steady load.
const ASKERS: u64 = 32;
/// Connections of the burst.
const POOL: usize = 256;
/// Extra time for a connection that has had no answer yet, so that a slow start is measured too.
const FIRST_ANSWER: Duration = Duration::from_secs(60);
const BURST_TIME: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct SteadyAdvice {
    pub(super) per_s: f64,
    /// Answers that do not match the area's state, errors included.
    pub(super) unexpected: u32,
    pub(super) us: SamplePercentiles,
}

/// Measures the time to find the area of a place, in nanoseconds.
pub(super) fn measure_area_lookup(stage: &AdmissionStage) -> SamplePercentiles {
    let rules = stage.app.areas.rules.get();
    let service_type = SERVICE_TYPE.into();
    let mut rng = StdRng::seed_from_u64(1);
    let took = (0..100_000).map(|_| {
        let place = area_point(rng.random_range(0..AREAS));
        let begun = Instant::now();
        black_box(rules.find_area(place, &service_type));
        i64::try_from(begun.elapsed().as_nanos()).unwrap_or(i64::MAX)
    });
    SamplePercentiles::from_samples(took.collect())
}

/// Checks these areas for this time.
pub(super) async fn measure_steady_advice(
    stage: &Arc<AdmissionStage>,
    areas: AskedAreas,
    time: Duration,
) -> SteadyAdvice {
    let begun = Instant::now();
    let unexpected = Arc::new(AtomicU32::new(0));
    let mut askers = JoinSet::new();
    for asker in 0..ASKERS {
        let (stage, unexpected) = (stage.clone(), unexpected.clone());
        askers.spawn(async move {
            let mut rng = StdRng::seed_from_u64(asker);
            let mut took = Vec::new();
            while begun.elapsed() < time || (took.is_empty() && begun.elapsed() < FIRST_ANSWER) {
                let asked = Instant::now();
                let answer = stage.check_availability(areas.area(rng.random_range(0..AREAS))).await;
                if areas.is_expected(answer) {
                    took.push(duration_micros(asked.elapsed()));
                } else {
                    unexpected.fetch_add(1, Ordering::Relaxed);
                }
            }
            took
        });
    }
    let took: Vec<i64> = askers.join_all().await.into_iter().flatten().collect();
    SteadyAdvice {
        per_s: took.len() as f64 / begun.elapsed().as_secs_f64(),
        unexpected: unexpected.load(Ordering::Relaxed),
        us: SamplePercentiles::from_samples(took),
    }
}

/// Checks full areas in a burst. Each request has a fixed start time, whether or not earlier ones are answered. Returns
/// the number of correct answers and their times.
pub(super) async fn measure_burst_advice(stage: &Arc<AdmissionStage>, requests: u32) -> (usize, SamplePercentiles) {
    let begun = tokio::time::Instant::now() + Duration::from_millis(100);
    let next = Arc::new(AtomicU32::new(0));
    let mut pool = JoinSet::new();
    for _ in 0..POOL {
        let (stage, next) = (stage.clone(), next.clone());
        pool.spawn(async move {
            let mut took = Vec::new();
            while let n = next.fetch_add(1, Ordering::Relaxed)
                && n < requests
            {
                // The measured time starts when the request is due. It includes the wait for a free connection.
                let due = begun + BURST_TIME.mul_f64(f64::from(n) / f64::from(requests));
                sleep_until(due).await;
                if AskedAreas::Full.is_expected(stage.check_availability(AskedAreas::Full.area(n)).await) {
                    took.push(duration_micros(due.elapsed()));
                }
            }
            took
        });
    }
    let took: Vec<i64> = pool.join_all().await.into_iter().flatten().collect();
    (took.len(), SamplePercentiles::from_samples(took))
}
