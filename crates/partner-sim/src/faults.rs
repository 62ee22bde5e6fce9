//! Faults of requests. Pure.

use std::time::Instant;

use rand::RngExt;

use super::{knobs::PartnerKnobs, ledger::BookingOperation};
use crate::seeded_rng::ChoiceSeed;

/// Fault of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFault {
    /// Answers 500 without effect.
    Error500,
    /// Answers 503 without effect.
    Error503,
    /// Hangs, then closes the connection without effect.
    Hang,
    /// Resets the connection immediately, without effect.
    Reset,
    /// Takes effect, then closes the connection without an answer.
    LostAnswer,
}

impl RequestFault {
    /// Draws the fault of the `nth` request of this kind for this reference, counted from 1. Other requests do not
    /// influence the result.
    pub(super) fn draw_fault(
        seed: u64,
        reference: &str,
        operation: BookingOperation,
        nth: u32,
        knobs: &PartnerKnobs,
    ) -> Option<Self> {
        let mut point: f64 =
            ChoiceSeed::new(seed, &["fault", operation.name(), reference, &nth.to_string()]).into_rng().random();
        let mix = [
            (knobs.error_500_rate, Self::Error500),
            (knobs.error_503_rate, Self::Error503),
            (knobs.hang_rate, Self::Hang),
            (knobs.reset_rate, Self::Reset),
            (knobs.lost_answer_rate, Self::LostAnswer),
        ];
        let (_, fault) = mix.into_iter().find(|(rate, _)| {
            point -= f64::from(*rate);
            point < 0.0
        })?;
        // A poll has no effect, so a lost answer would lose nothing.
        (fault != Self::LostAnswer || operation != BookingOperation::Poll).then_some(fault)
    }
}

/// Token bucket: `rate` requests per second, `burst` at once.
#[derive(Debug, Default)]
pub(super) struct TokenBucket {
    /// Remaining tokens, and the time at which there were that many.
    level: Option<(f64, Instant)>,
}

impl TokenBucket {
    pub(super) fn try_take(&mut self, rate: f64, burst: f64, now: Instant) -> bool {
        let level = match self.level {
            Some((level, at)) => (level + now.saturating_duration_since(at).as_secs_f64() * rate).min(burst),
            None => burst,
        };
        let admitted = level >= 1.0;
        self.level = Some((if admitted { level - 1.0 } else { level }, now));
        admitted
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn request_faults_follow_the_configured_rates() {
        let knobs = PartnerKnobs {
            error_500_rate: "0.1".parse().unwrap(),
            hang_rate: "0.2".parse().unwrap(),
            lost_answer_rate: "0.3".parse().unwrap(),
            ..PartnerKnobs::default()
        };
        let draw = |operation| {
            (1..=2000).map(|nth| RequestFault::draw_fault(1, "O:1", operation, nth, &knobs)).collect::<Vec<_>>()
        };
        let count = |draws: &[Option<RequestFault>], fault| draws.iter().filter(|d| **d == fault).count();
        let books = draw(BookingOperation::Book);
        assert_eq!(books, draw(BookingOperation::Book));
        assert!((150..250).contains(&count(&books, Some(RequestFault::Error500))));
        assert!((340..460).contains(&count(&books, Some(RequestFault::Hang))));
        assert!((530..670).contains(&count(&books, Some(RequestFault::LostAnswer))));
        assert_eq!(count(&books, Some(RequestFault::Reset)), 0);
        let polls = draw(BookingOperation::Poll);
        assert_ne!(polls, books);
        assert_eq!(count(&polls, Some(RequestFault::LostAnswer)), 0);
    }

    #[test]
    fn bucket_allows_burst_and_refills_at_rate() {
        let (mut bucket, start) = (TokenBucket::default(), Instant::now());
        let mut admitted =
            |after_ms| (0..100).filter(|_| bucket.try_take(10.0, 5.0, start + Duration::from_millis(after_ms))).count();
        assert_eq!([0, 100, 350, 10_000].map(&mut admitted), [5, 1, 2, 5]);
    }

    #[test]
    fn slow_rate_admits_single_requests() {
        // The bucket must hold a whole token; otherwise a limit of one request in two seconds would admit none.
        let (mut bucket, start) = (TokenBucket::default(), Instant::now());
        assert!(bucket.try_take(0.5, 1.0, start));
        assert!(!bucket.try_take(0.5, 1.0, start + Duration::from_secs(1)));
        assert!(bucket.try_take(0.5, 1.0, start + Duration::from_secs(2)));
    }
}
