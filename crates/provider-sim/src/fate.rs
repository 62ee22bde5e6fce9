//! Fates of transactions and faults of calls. Pure: drawn from the seed and their subject.

use std::time::Duration;

use partner_sim::seeded_rng::ChoiceSeed;
use rand::RngExt;

use super::knobs::ProviderKnobs;

/// Fate of a transaction whose account can pay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TransactionFate {
    Succeeds,
    SucceedsAfter(Duration),
    WantsOtp,
    Fails(String),
}

impl TransactionFate {
    pub(super) fn draw_fate(seed: u64, trx_id: &str, knobs: &ProviderKnobs) -> Self {
        let mut rng = ChoiceSeed::new(seed, &["fate", trx_id]).into_rng();
        let mut point: f64 = rng.random();
        let duration = knobs.processing_duration.draw_duration(&mut rng);
        let mut falls_within = |share: f64| {
            point -= share;
            point < 0.0
        };
        if falls_within(knobs.processing_rate.into()) {
            return Self::SucceedsAfter(duration);
        }
        if falls_within(knobs.otp_rate.into()) {
            return Self::WantsOtp;
        }
        let failure = knobs.failures.shares().find(|(_, share)| falls_within(*share));
        failure.map_or(Self::Succeeds, |(reason, _)| Self::Fails(reason.to_owned()))
    }
}

/// Fault of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallFault {
    Error429,
    Error500,
    Hang,
    LostAnswer,
    NonJson,
    Oversized,
    UnknownStatus,
}

impl CallFault {
    const ALL: [Self; 7] = [
        Self::Error429,
        Self::Error500,
        Self::Hang,
        Self::LostAnswer,
        Self::NonJson,
        Self::Oversized,
        Self::UnknownStatus,
    ];

    /// Draws the fault of a call. `fence` identifies the call within its binding, so other calls do not influence it.
    pub(super) fn draw_fault(seed: u64, trx_id: &str, fence: i64, knobs: &ProviderKnobs) -> Option<Self> {
        let mut point: f64 = ChoiceSeed::new(seed, &["fault", trx_id, &fence.to_string()]).into_rng().random();
        let mut mix = knobs.fault_rates().into_iter().zip(Self::ALL);
        let (_, fault) = mix.find(|(rate, _)| {
            point -= f64::from(*rate);
            point < 0.0
        })?;
        Some(fault)
    }

    /// Returns whether the call takes effect despite the fault.
    pub(super) fn takes_effect(self) -> bool {
        !matches!(self, Self::Error429 | Self::Error500 | Self::Hang)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_fates_follow_the_configured_rates() {
        let knobs = ProviderKnobs {
            processing_rate: "0.2".parse().unwrap(),
            otp_rate: "0.1".parse().unwrap(),
            failures: "account_locked=0.05".parse().unwrap(),
            ..ProviderKnobs::default()
        };
        let draws: Vec<_> = (0..4000).map(|n| TransactionFate::draw_fate(1, &format!("B.{n}"), &knobs)).collect();
        let count = |is: fn(&TransactionFate) -> bool| draws.iter().filter(|fate| is(fate)).count();
        assert!((700..900).contains(&count(|fate| matches!(fate, TransactionFate::SucceedsAfter(_)))));
        assert!((330..470).contains(&count(|fate| *fate == TransactionFate::WantsOtp)));
        assert!((150..250).contains(&count(|fate| matches!(fate, TransactionFate::Fails(_)))));
        assert_eq!(draws[7], TransactionFate::draw_fate(1, "B.7", &knobs));
    }

    #[test]
    fn faults_are_drawn_for_each_call() {
        let knobs = ProviderKnobs { hang_rate: "0.5".parse().unwrap(), ..ProviderKnobs::default() };
        let hangs = (0..2000).filter(|fence| CallFault::draw_fault(1, "B.1", *fence, &knobs) == Some(CallFault::Hang));
        assert!((900..1100).contains(&hangs.count()));
        assert!(!CallFault::Hang.takes_effect() && CallFault::LostAnswer.takes_effect());
    }
}
