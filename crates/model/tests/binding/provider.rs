//! A provider that follows docs/PROVIDER.md: it repeats its answer for a key, refuses late calls, and fails in every
//! way.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, Utc};
use model::binding::{CallAction, FailureReason, ProviderAnswer, ProviderCall};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProviderLuck {
    Success,
    Processing,
    WantsOtp,
    Fails,
    NoMoney,
    Throttles,
    /// Answers 500 without an effect.
    Breaks,
    /// Performs the call, then cuts the connection.
    BreaksAfterwards,
    TalksNonsense,
    Rejects,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Done,
    Processing,
    WantsOtp,
    Failed,
    NoMoney,
}

#[derive(Debug, Default)]
pub(crate) struct Provider {
    transactions: BTreeMap<i64, Standing>,
    /// The content of each accepted key.
    contents: BTreeMap<String, Option<Vec<u8>>>,
    otp_answers: BTreeMap<String, Standing>,
    highest_fence: i64,
    pub(crate) late_refused: u32,
}

pub(crate) const RIGHT_OTP: &[u8] = b"sealed:right";

impl Provider {
    pub(crate) fn take_call(&mut self, call: &ProviderCall, luck: ProviderLuck, now: DateTime<Utc>) -> ProviderAnswer {
        if now >= call.call_until || call.fence < self.highest_fence {
            self.late_refused += 1;
            return ProviderAnswer::LateRefused("late".to_owned());
        }
        self.highest_fence = call.fence;
        match luck {
            ProviderLuck::Throttles => {
                let retry_in = (call.fence % 2 == 0).then_some(Duration::from_secs(600));
                return ProviderAnswer::Throttled { retry_in };
            }
            ProviderLuck::Breaks => return ProviderAnswer::Unavailable("500".to_owned()),
            // A rejection does not undo the effect of an earlier call.
            ProviderLuck::Rejects => return ProviderAnswer::Rejected("422".to_owned()),
            _ => {}
        }
        if let Some(key) = &call.key {
            let known = self.contents.entry(key.clone()).or_insert_with(|| call.otp_value.clone());
            assert_eq!(*known, call.otp_value, "the key {key} has different content");
        }
        let answer = match call.action {
            CallAction::Start => {
                let standing = *self.transactions.entry(call.cycle).or_insert_with(|| standing_for(luck));
                Some(standing)
            }
            CallAction::Status | CallAction::Settle => self.transactions.get_mut(&call.cycle).map(|standing| {
                if *standing == Standing::Processing {
                    *standing = standing_for(luck);
                }
                *standing
            }),
            CallAction::Otp => self.take_otp(call, luck),
        };
        match luck {
            ProviderLuck::BreaksAfterwards => ProviderAnswer::Unreachable("cut".to_owned()),
            ProviderLuck::TalksNonsense => ProviderAnswer::Unreadable("<html>".to_owned()),
            _ => answer.map_or(ProviderAnswer::UnknownTransaction, |standing| answer_for(standing, call)),
        }
    }

    /// Returns whether a transaction that failed here may move money at the provider: it is done, or will be.
    pub(crate) fn goes_on_with(&self, cycle: i64) -> bool {
        matches!(self.transactions.get(&cycle), Some(Standing::Done | Standing::Processing))
    }

    fn take_otp(&mut self, call: &ProviderCall, luck: ProviderLuck) -> Option<Standing> {
        let key = call.key.clone().expect("an OTP has a key");
        let standing = self.transactions.get_mut(&call.cycle)?;
        if let Some(known) = self.otp_answers.get(&key) {
            return Some(*known);
        }
        let given = if call.otp_value.as_deref() == Some(RIGHT_OTP) && *standing == Standing::WantsOtp {
            *standing = if luck == ProviderLuck::Processing { Standing::Processing } else { Standing::Done };
            *standing
        } else {
            *standing
        };
        self.otp_answers.insert(key, given);
        Some(given)
    }
}

fn standing_for(luck: ProviderLuck) -> Standing {
    match luck {
        ProviderLuck::Processing | ProviderLuck::TalksNonsense => Standing::Processing,
        ProviderLuck::WantsOtp => Standing::WantsOtp,
        ProviderLuck::Fails => Standing::Failed,
        ProviderLuck::NoMoney => Standing::NoMoney,
        _ => Standing::Done,
    }
}

fn answer_for(standing: Standing, call: &ProviderCall) -> ProviderAnswer {
    let provider_ref = Some(format!("P-{}", call.cycle));
    match standing {
        Standing::Done => ProviderAnswer::Success { provider_ref },
        Standing::Processing => ProviderAnswer::Processing { provider_ref },
        Standing::WantsOtp if call.action == CallAction::Otp => {
            ProviderAnswer::Failed { reason: FailureReason::WrongOtp, provider_ref }
        }
        Standing::WantsOtp => ProviderAnswer::OtpWanted { provider_ref },
        Standing::Failed => {
            ProviderAnswer::Failed { reason: FailureReason::Other("account_locked".to_owned()), provider_ref }
        }
        Standing::NoMoney => ProviderAnswer::Failed { reason: FailureReason::InsufficientBalance, provider_ref },
    }
}
