//! More load never needs fewer replicas, bounds apply, and jobs that wait for a partner add replicas only up to the
//! partner's limits.

use model::scale::{ASSUMED_MEAN_US, CallLimit, QueueLoad, ScaleBound, ScaleLimits, advise_scale};
use proptest::{prelude::*, test_runner::RngSeed};

fn loads() -> impl Strategy<Value = Vec<QueueLoad>> {
    let calls = proptest::option::of(
        (0..2_000_u32, 0..200_u32).prop_map(|(per_s, at_once)| CallLimit::default().with(per_s, at_once)),
    );
    let load = (0..100_000_u64, 0..100_000_u64, 0..50_000_u64, 0..5_000_000_u64, 0..64_u64, calls).prop_map(
        |(due, falling_due, busy_milli, mean_us, places, calls)| QueueLoad {
            queue: "a",
            due,
            falling_due,
            busy_milli,
            mean_us,
            places,
            calls,
        },
    );
    proptest::collection::vec(load, 1..6)
}

fn limits() -> impl Strategy<Value = ScaleLimits> {
    (1..20_u64, 0..200_u64, 10..101_u64, 1..300_u64).prop_map(|(min, more, target_percent, per_worker)| ScaleLimits {
        min,
        max: min + more,
        target_percent,
        per_worker,
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn more_load_never_needs_fewer_replicas(
        less in loads(),
        limits in limits(),
        more in (0..10_000_u64, 0..10_000_u64, 0..10_000_u64, 0..1_000_000_u64),
        which in any::<prop::sample::Index>(),
    ) {
        let mut loads = less.clone();
        let place = which.index(less.len());
        loads[place].due += more.0;
        loads[place].falling_due += more.1;
        loads[place].busy_milli += more.2;
        loads[place].mean_us += more.3;
        let (before, after) = (advise_scale(&less, &limits), advise_scale(&loads, &limits));
        prop_assert!(after.replicas >= before.replicas && after.by_load >= before.by_load, "{before:?} {after:?}");
    }

    #[test]
    fn advice_is_bounded_and_names_the_bound(loads in loads(), limits in limits()) {
        let advice = advise_scale(&loads, &limits);
        prop_assert!(advice.replicas >= limits.min && advice.replicas <= limits.max);
        let bound = match advice.by_load {
            n if n < limits.min => ScaleBound::Min,
            n if n > limits.max => ScaleBound::Max,
            _ => ScaleBound::Load,
        };
        prop_assert_eq!(advice.bound, bound);
        prop_assert!(bound != ScaleBound::Load || advice.replicas == advice.by_load);
    }

    #[test]
    fn partner_limits_cap_their_queue(loads in loads(), limits in limits()) {
        for (need, load) in advise_scale(&loads, &limits).queues.iter().zip(&loads) {
            let Some(calls) = load.calls else { continue };
            prop_assert!(need.load_milli <= calls.at_once * 1_000);
            prop_assert!(need.load_milli <= (calls.per_s * load.mean_us).div_ceil(1_000));
        }
        let closed: Vec<_> =
            loads.into_iter().map(|load| QueueLoad { calls: Some(CallLimit::default()), ..load }).collect();
        prop_assert_eq!(advise_scale(&closed, &limits).by_load, 0);
    }

    #[test]
    fn replicas_are_the_fewest_within_target(loads in loads(), limits in limits()) {
        let advice = advise_scale(&loads, &limits);
        let fits = |replicas: u64| {
            let share = |load_milli: u64, places: u64| load_milli <= replicas * places * limits.target_percent * 10;
            let total = advice.queues.iter().map(|need| need.load_milli).sum();
            let of_each = advice.queues.iter().zip(&loads).all(|(need, load)| share(need.load_milli, load.places));
            of_each && share(total, limits.per_worker)
        };
        prop_assert!(fits(advice.by_load));
        prop_assert!(advice.by_load == 0 || !fits(advice.by_load - 1));
    }
}

#[test]
fn timers_falling_due_raise_the_replicas() {
    let limits = ScaleLimits { min: 1, max: 50, target_percent: 50, per_worker: 32 };
    let quiet = QueueLoad {
        queue: "dispatch-timeout-queue",
        due: 0,
        falling_due: 0,
        busy_milli: 0,
        mean_us: ASSUMED_MEAN_US,
        places: 2,
        calls: None,
    };
    assert_eq!(advise_scale(std::slice::from_ref(&quiet), &limits).replicas, 1, "at least the minimum");
    // 100 jobs per second of 50 ms are five at a time. A replica has two slots, of which one is to be used.
    let busy = QueueLoad { falling_due: 6_000, ..quiet };
    let advice = advise_scale(&[busy], &limits);
    assert_eq!((advice.replicas, advice.bound, advice.queues[0].load_milli), (5, ScaleBound::Load, 5_000));
}
