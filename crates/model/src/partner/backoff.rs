//! Pauses between requests to a partner. Pure: the caller supplies the random number.
//!
//! Source: the job id retrieval design. 5 s for the callback, then 2 s doubled up to 60 s, each with 30 % jitter.

use std::time::Duration;

use job_contract::RetryPolicy;
use jobs::OrderId;
use sha2::{Digest, Sha256};

use super::PollConfig;

/// Returns the pause after poll number `polls` (from 1); `random` is in 0..1.
pub fn poll_pause(config: &PollConfig, polls: i32, random: f64) -> Duration {
    retry_policy(config).backoff(polls.unsigned_abs(), random)
}

/// Returns the pause after `tries` (from 1) failed requests to book or to cancel. It is at most a minute, so that the
/// job does not count as lost.
pub fn retry_pause(config: &PollConfig, tries: i32, random: f64) -> Duration {
    RetryPolicy { max: config.max.min(Duration::from_secs(40)), ..retry_policy(config) }
        .backoff(tries.unsigned_abs(), random)
}

fn retry_policy(config: &PollConfig) -> RetryPolicy {
    RetryPolicy {
        max_tries: u32::MAX,
        initial: config.initial,
        multiplier: config.multiplier,
        max: config.max,
        jitter: config.jitter,
    }
}

/// Returns whether the order is among the `percent` whose job id is polled. The choice is stable: a higher percentage
/// only adds orders.
pub fn is_polled(order: &OrderId, percent: u8) -> bool {
    let hash = Sha256::digest(order.as_str());
    u16::from_be_bytes([hash[0], hash[1]]) % 100 < u16::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn poll_pauses_match_the_design() {
        let config = PollConfig { jitter: 0.0, ..PollConfig::default() };
        let pauses: Vec<_> = (1..=7).map(|n| poll_pause(&config, n, 0.5).as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60]);
    }

    #[test]
    fn order_is_polled_34_times_without_jitter() {
        let config = PollConfig { jitter: 0.0, ..PollConfig::default() };
        let mut asked_at = config.first;
        let mut polls = 0;
        while asked_at < config.budget {
            polls += 1;
            asked_at += poll_pause(&config, polls, 0.5);
        }
        assert_eq!(polls, 34);
    }

    #[test]
    fn jitter_is_30_percent_both_ways() {
        let config = PollConfig::default();
        assert_eq!(poll_pause(&config, 2, 0.0), Duration::from_millis(2800));
        assert!(poll_pause(&config, 2, 0.999) < Duration::from_millis(5200));
    }

    #[test]
    fn polled_share_grows_with_the_percentage() {
        let orders: Vec<OrderId> = (0..10_000).map(|n| format!("ORD-{n}").parse().unwrap()).collect();
        let polled = |percent| orders.iter().filter(|o| is_polled(o, percent)).collect::<Vec<_>>();
        assert_eq!((polled(0).len(), polled(100).len()), (0, 10_000));
        assert!((900..1100).contains(&polled(10).len()), "{}", polled(10).len());
        assert!(polled(10).iter().all(|o| is_polled(o, 50)));
    }
}
