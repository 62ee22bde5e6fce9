//! What drivers do: each order's first offer lapses, the second is accepted. Pure.

use std::time::Duration;

use crate::testbed::drivers::{DriverChoice, DriverReaction, DriverScript};

/// How long an offer stands.
pub(super) const ATTEMPT: Duration = Duration::from_secs(2);
/// How long the second driver thinks.
const THINKS: Duration = Duration::from_millis(200);
/// To the pickup, and from there to the end.
const DRIVES: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct LifeScript;

impl DriverScript for LifeScript {
    fn choose_reaction(&self, _driver: &str, _order: &str, attempt_no: u64) -> DriverChoice {
        if attempt_no == 1 {
            return DriverChoice { reaction: DriverReaction::Ignore, after: Duration::ZERO };
        }
        DriverChoice { reaction: DriverReaction::Accept, after: THINKS }
    }

    fn drive_times(&self, _order: &str) -> Option<(Duration, Duration)> {
        Some((DRIVES, DRIVES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_offer_lapses_and_the_second_is_accepted() {
        let reactions = [1, 2].map(|attempt| LifeScript.choose_reaction("D", "O", attempt).reaction);
        assert_eq!(reactions, [DriverReaction::Ignore, DriverReaction::Accept]);
    }
}
