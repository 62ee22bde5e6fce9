//! Who enqueues: so many jobs per second, in small calls, each due at a random moment.

use std::time::{Duration, Instant};

use tokio::time::sleep_until;
use workers::{NewJob, RedisConfig, Store};

use crate::bench::timers::bench_timer;

const EVERY: Duration = Duration::from_millis(20);
const SHORTEST: Duration = Duration::from_secs(1);
/// A call that is given up and repeated could enqueue jobs that have run meanwhile, and they would count as run twice.
const ENQUEUE_TIMEOUT: Duration = Duration::from_secs(60);

/// Enqueues timers 0, 1, 2 and so on for so long; answers how many. Delays lie between 1 s and `spread`. One that cannot
/// keep up catches up with a second's jobs per call, after its time too.
pub(super) async fn enqueue_timers(
    redis_url: String,
    rate: u32,
    spread: Duration,
    time: Duration,
) -> anyhow::Result<u32> {
    let store = Store::with_config(RedisConfig { response_timeout: ENQUEUE_TIMEOUT, ..RedisConfig::new(redis_url) })?;
    let begun = Instant::now();
    let mut enqueued = 0_u32;
    for call in 1.. {
        sleep_until((begun + EVERY * call).into()).await;
        let elapsed = begun.elapsed();
        let wanted = due_by(elapsed.min(time), rate);
        let jobs: Vec<NewJob> = (enqueued..wanted.min(enqueued.saturating_add(rate)))
            .map(|number| NewJob::after(&bench_timer(number), random_delay(spread)))
            .collect();
        store.enqueue(&jobs).await?;
        enqueued += u32::try_from(jobs.len())?;
        if elapsed >= time && enqueued == wanted {
            break;
        }
    }
    Ok(enqueued)
}

/// How many are to be enqueued after this time.
fn due_by(elapsed: Duration, rate: u32) -> u32 {
    u32::try_from(elapsed.as_millis() * u128::from(rate) / 1000).unwrap_or(u32::MAX)
}

fn random_delay(spread: Duration) -> Duration {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(rand::random_range(micros(SHORTEST)..=micros(spread.max(SHORTEST))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept_over_time() {
        assert_eq!(due_by(Duration::from_millis(20), 5_000), 100);
        assert_eq!(due_by(Duration::from_secs(1800), 5_000), 9_000_000);
    }

    #[test]
    fn delays_lie_between_a_second_and_the_spread() {
        for _ in 0..1_000 {
            let delay = random_delay(Duration::from_secs(3));
            assert!((1.0..=3.0).contains(&delay.as_secs_f64()), "{delay:?}");
        }
        assert_eq!(random_delay(SHORTEST), SHORTEST);
    }
}
