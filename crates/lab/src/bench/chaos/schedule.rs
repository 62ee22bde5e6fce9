//! Plan of faults. Pure: the same seed gives the same plan.

use std::time::Duration;

use rand::{RngExt, seq::SliceRandom};

use super::{ChaosOptions, fault::ChaosFault};
use partner_sim::seeded_rng::ChoiceSeed;

/// Time that orders are created before the first fault.
const WARM_UP: Duration = Duration::from_secs(4);
/// Time after each fault. It is long enough to judge lateness from 10 s on, and shorter in a short run.
const RECOVERY: Duration = Duration::from_secs(21);
const SHORT_RECOVERY: Duration = Duration::from_secs(4);

/// A planned fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PlannedFault {
    pub(super) fault: ChaosFault,
    /// Time since the first order.
    pub(super) at: Duration,
    pub(super) lasts: Duration,
    /// Time between its end and the next fault.
    pub(super) recovery: Duration,
    /// Random number for other choices, such as the affected process.
    pub(super) dice: u64,
}

/// Plans the faults of a run. Each round contains all of them in a new order.
pub(super) fn plan_faults(options: &ChaosOptions) -> Vec<PlannedFault> {
    let end = Duration::from_secs_f64(options.minutes * 60.0);
    let recovery = if options.leaves_time_to_recover() { RECOVERY } else { SHORT_RECOVERY };
    let mut rng = ChoiceSeed::new(options.seed, &["schedule"]).into_rng();
    let mut planned = Vec::new();
    let mut at = WARM_UP;
    loop {
        let mut round = options.faults_of_round();
        round.shuffle(&mut rng);
        for fault in round {
            let (shortest, longest) = fault.duration_bounds();
            let lasts = shortest + (longest - shortest).mul_f64(rng.random());
            let dice = rng.random();
            if at + lasts + recovery > end && !planned.is_empty() {
                return planned;
            }
            planned.push(PlannedFault { fault, at, lasts, recovery, dice });
            at += lasts + recovery;
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::{super::FaultChoice, *};

    fn options(minutes: f64, seed: u64) -> ChaosOptions {
        let faults = vec![FaultChoice::All];
        let rate = 20.try_into().unwrap();
        ChaosOptions { minutes, rate, producers: None, speed: 60.0, seed, faults, pooler: false, json: false }
    }

    #[test]
    fn same_seed_plans_the_same_faults() {
        let planned = plan_faults(&options(8.0, 7));
        assert_eq!(planned, plan_faults(&options(8.0, 7)));
        assert_ne!(planned, plan_faults(&options(8.0, 8)));
        assert!(planned.len() >= ChaosFault::value_variants().len(), "{}", planned.len());
        assert!(planned.windows(2).all(|two| two[0].at + two[0].lasts + two[0].recovery == two[1].at));
        let last = planned.last().unwrap();
        assert!(last.at + last.lasts + last.recovery <= Duration::from_secs(480));
    }
}
