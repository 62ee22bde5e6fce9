//! Backoff with jitter. The functions are pure: the caller passes the random number.

use std::time::Duration;

/// Delays of retries, and the number of tries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Number of failed runs after which the job is dead.
    pub max_tries: u32,
    pub initial: Duration,
    pub multiplier: f64,
    pub max: Duration,
    /// Random share of the delay, in both directions: 0.3 is -30 % to +30 %.
    pub jitter: f64,
}

impl RetryPolicy {
    /// 5 tries: retries after 1, 2, 4 and 8 s.
    pub const DEFAULT: Self = Self {
        max_tries: 5,
        initial: Duration::from_secs(1),
        multiplier: 2.0,
        max: Duration::from_secs(60),
        jitter: 0.3,
    };

    /// Returns the delay after the `failed`-th failed run (from 1), or `None` if the job is dead.
    ///
    /// `random` is in 0..1. The cap applies before the jitter, so that capped jobs do not run at the same time.
    pub fn delay_after(&self, failed: u32, random: f64) -> Option<Duration> {
        (failed < self.max_tries).then(|| self.backoff(failed, random))
    }

    /// Returns the delay of step `n` (from 1), regardless of [`max_tries`](Self::max_tries).
    pub fn backoff(&self, n: u32, random: f64) -> Duration {
        let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
        let plain = (self.initial.as_secs_f64() * self.multiplier.powi(exponent)).min(self.max.as_secs_f64());
        add_jitter(Duration::from_secs_f64(plain), self.jitter, random)
    }
}

/// Returns `delay` changed by up to ±`share` of it; `random` is in 0..1.
pub fn add_jitter(delay: Duration, share: f64, random: f64) -> Duration {
    delay.mul_f64(1.0 + share * (2.0 * random - 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RetryPolicy = RetryPolicy { jitter: 0.0, ..RetryPolicy::DEFAULT };

    #[test]
    fn retry_delays_double_up_to_the_cap() {
        let delays: Vec<_> = (1..=5).map(|n| PLAIN.delay_after(n, 0.5).map(|d| d.as_secs())).collect();
        assert_eq!(delays, [Some(1), Some(2), Some(4), Some(8), None]);
        assert_eq!(PLAIN.backoff(40, 0.5), PLAIN.max);
        assert_eq!(PLAIN.backoff(u32::MAX, 0.5), PLAIN.max);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        let base = Duration::from_secs(10);
        assert_eq!(add_jitter(base, 0.3, 0.0), Duration::from_secs(7));
        assert_eq!(add_jitter(base, 0.3, 0.5), base);
        assert!(add_jitter(base, 0.3, 0.999_999) < Duration::from_secs(13));
    }
}
