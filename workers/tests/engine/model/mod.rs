//! Random sequences of every script against a reference in plain Rust. After each step the answer is compared, and the
//! whole of Redis, read back, with what the reference says it should hold.
//!
//! * `reference`: the jobs as a map, and what each script does to them.
//! * `steps`: the steps, how they are made up, and how one is taken on both sides.

mod reference;
mod steps;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner, contextualize_config};

use crate::support::Bench;

/// Sequences per run, the same in each; `PROPTEST_CASES` asks for more, `PROPTEST_RNG_SEED` for others.
const CASES: u32 = 200;

#[test]
fn every_script_does_what_the_reference_does() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bench = runtime.block_on(Bench::new());
    let taken = std::cell::Cell::new(0_usize);
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
        runtime.block_on(steps::take_all(&bench, &sequence)).map_err(TestCaseError::fail)
    });
    println!("{cases} sequences, {} steps", taken.get());
    if let Err(failure) = verdict {
        panic!("{failure}");
    }
}
