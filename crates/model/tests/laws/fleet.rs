//! Invariants of fleet orders under random sequences of requests and timers. No servers: the decisions are pure, and a
//! model applies them as `Orders::change` does.

mod orders;

use std::time::Duration;

use model::policy::Wave;
use orders::{Model, Step};
use proptest::{prelude::*, test_runner::RngSeed};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_usize).prop_map(Step::Fire),
        4 => Just(Step::FireNext),
        3 => (1..200_i64).prop_map(Step::Advance),
        1 => (1_000..2_000_i64).prop_map(Step::Advance),
        3 => any::<u8>().prop_map(Step::Accept),
        3 => any::<u8>().prop_map(Step::Decline),
        1 => any::<u8>().prop_map(Step::Withdraw),
        1 => Just(Step::DriverCancel),
        1 => Just(Step::Release),
        1 => Just(Step::PickUp),
        1 => Just(Step::Complete),
        1 => any::<bool>().prop_map(Step::Cancel),
        1 => (0..4_u8).prop_map(Step::Assign),
        2 => Just(Step::Redispatch),
        2 => Just(Step::Hold),
        1 => Just(Step::HoldByHand),
        2 => Just(Step::Resume),
        2 => (0..4_u8, any::<bool>()).prop_map(|(driver, free)| Step::Free(driver, free)),
    ]
}

/// Returns one to three waves, whose circles grow.
fn waves() -> impl Strategy<Value = Vec<Wave>> {
    let wave = |radius_m| {
        (1..4_u16, 1..60_u64).prop_map(move |(ask, secs)| Wave { ask, radius_m, lasts: Duration::from_secs(secs) })
    };
    prop_oneof![
        wave(5_000.0).prop_map(|only| vec![only]),
        (wave(1_000.0), wave(5_000.0)).prop_map(|(first, second)| vec![first, second]),
        (wave(1_000.0), wave(2_000.0), wave(5_000.0)).prop_map(|(a, b, c)| vec![a, b, c]),
    ]
}

proptest! {
    // Every run uses the same sequences; PROPTEST_RNG_SEED selects others.
    #![proptest_config(ProptestConfig {
        cases: 1_500,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_sequence_of_decisions_breaks_an_order(
        steps in prop::collection::vec(step(), 1..80),
        alert in any::<bool>(),
        keeps_lifetime in any::<bool>(),
        waves in waves(),
        payment in prop::sample::select(vec!["UNPAID", "PENDING", "PAID", "SETTLEMENT", "ODD"]),
    ) {
        let mut model = Model::new(alert, keeps_lifetime, waves, payment);
        for step in steps {
            model.take(step);
            model.check();
        }
        model.let_time_pass();
        model.check_at_rest();
    }
}
