//! Random sequences of every script, compared with a reference in plain Rust. After each step the test compares the
//! answer, and all of Redis with the reference's expectation.
//!
//! * `reference`: the jobs as a map, and the effect of each script on them.
//! * `slots`: the same for slots and their lines.
//! * `laws`: invariants of slots after every step and of every take, read from Redis alone.
//! * `steps`, `slot_steps`, `rebuild_steps`: the steps, their generators, and their execution on both sides.
//! * `reader`: reads all of Redis in one call.

mod laws;
mod reader;
mod rebuild_steps;
mod reference;
mod slot_steps;
mod slots;
mod steps;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner, contextualize_config};

use self::laws::{HorizonCounts, SlotCounts};
use crate::support::Bench;

/// Sequences per run, the same in each. `PROPTEST_CASES` sets another number, `PROPTEST_RNG_SEED` another seed.
const CASES: u32 = 200;

#[test]
fn scripts_match_the_reference() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = runtime.block_on(Bench::new());
    let (taken, counts) = (std::cell::Cell::new(0_usize), std::cell::Cell::new(SlotCounts::default()));
    let horizons = std::cell::Cell::new(HorizonCounts::default());
    let config = contextualize_config(Config {
        cases: CASES,
        failure_persistence: None,
        max_shrink_iters: 2_000,
        rng_seed: RngSeed::Fixed(1),
        ..Config::default()
    });
    let cases = config.cases;
    let verdict = TestRunner::new(config).run(&steps::sequence(), |sequence| {
        taken.set(taken.get() + sequence.len());
        let (slots, horizon) = runtime.block_on(steps::take_all(&bench, &sequence)).map_err(TestCaseError::fail)?;
        let (mut all_slots, mut all_horizons) = (counts.get(), horizons.get());
        all_slots.add(slots);
        all_horizons.add(horizon);
        counts.set(all_slots);
        horizons.set(all_horizons);
        Ok(())
    });
    let (met, horizon) = (counts.get(), horizons.get());
    println!("{cases} sequences, {} steps; {met:?}; {horizon:?}", taken.get());
    if let Err(failure) = verdict {
        panic!("{failure}");
    }
    let least = [
        met.granted,
        met.sought,
        met.parked_due,
        met.handed,
        met.lapsed,
        met.gave_place_up,
        met.behind_own,
        met.taken,
        met.suspects,
    ];
    let least = least.into_iter().chain([horizon.refused, horizon.leased, horizon.held_back]).min();
    assert!(
        cases < CASES || least >= Some(10),
        "the sequences no longer meet what they are to test: {met:?} {horizon:?}"
    );
}
