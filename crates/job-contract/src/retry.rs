//! Backoff with jitter. Pure: the caller brings the randomness.

use std::time::Duration;

/// When a failed job runs again, and when it is given up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryPolicy {
    /// Failed runs after which the job is dead.
    pub max_tries: u32,
    pub initial: Duration,
    pub multiplier: f64,
    pub max: Duration,
    /// Share of the delay that is random, both ways: 0.3 is -30 % to +30 %.
    pub jitter: f64,
}

impl RetryPolicy {
    /// 5 tries: after 1, 2, 4 and 8 s.
    pub const DEFAULT: Self = Self {
        max_tries: 5,
        initial: Duration::from_secs(1),
        multiplier: 2.0,
        max: Duration::from_secs(60),
        jitter: 0.3,
    };

    /// Delay after the `failed`-th failed run (from 1), or `None` when the job is to die.
    ///
    /// `random` lies in 0..1. The cap holds before jitter, so that capped jobs do not run in step.
    pub fn delay_after(&self, failed: u32, random: f64) -> Option<Duration> {
        (failed < self.max_tries).then(|| self.backoff(failed, random))
    }

    /// The delay of step `n` (from 1) regardless of [`max_tries`](Self::max_tries).
    pub fn backoff(&self, n: u32, random: f64) -> Duration {
        let exponent = i32::try_from(n.saturating_sub(1)).unwrap_or(i32::MAX);
        let plain = (self.initial.as_secs_f64() * self.multiplier.powi(exponent)).min(self.max.as_secs_f64());
        add_jitter(Duration::from_secs_f64(plain), self.jitter, random)
    }
}

/// `delay` moved by up to ±`share` of itself; `random` lies in 0..1.
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
