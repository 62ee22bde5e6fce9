//! Tests of bindings: random sequences of all events, and examples of each guarantee.
//!
//! * `provider`: a provider that follows docs/PROVIDER.md. `world`: the binding with its tables, workers and provider.
//! * `laws`: invariants of every state. `bench`: one binding, advanced step by step.
//! * `examples`: single guarantees. `late`: lost and overdue calls. `stops`: effects of a stop and a pause.
//! * `answers`: provider texts that rows can store.

mod answers;
mod bench;
mod examples;
mod late;
mod laws;
mod provider;
mod stops;
mod world;

use proptest::{prelude::*, test_runner::RngSeed};

use provider::ProviderLuck;
use world::{OtpKind, Step, World};

fn luck() -> impl Strategy<Value = ProviderLuck> {
    prop_oneof![
        8 => Just(ProviderLuck::Success),
        4 => Just(ProviderLuck::Processing),
        4 => Just(ProviderLuck::WantsOtp),
        2 => Just(ProviderLuck::Fails),
        1 => Just(ProviderLuck::NoMoney),
        1 => Just(ProviderLuck::Throttles),
        1 => Just(ProviderLuck::Breaks),
        1 => Just(ProviderLuck::BreaksAfterwards),
        1 => Just(ProviderLuck::TalksNonsense),
        1 => Just(ProviderLuck::Rejects),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..4_usize;
    prop_oneof![
        12 => Just(Step::FireNext),
        3 => Just(Step::FireLost),
        16 => luck().prop_map(Step::Work),
        3 => (0..6_u64).prop_map(Step::FireLate),
        2 => n.clone().prop_map(Step::FireSettle),
        1 => Just(Step::FireDeadline),
        12 => (n.clone(), luck()).prop_map(|(n, luck)| Step::Send(n, luck)),
        12 => n.clone().prop_map(Step::Answer),
        2 => n.clone().prop_map(Step::AnswerTwice),
        2 => n.clone().prop_map(Step::Crash),
        3 => (1..2_000_i64).prop_map(Step::Advance),
        1 => (2_000..200_000_i64).prop_map(Step::Advance),
        6 => Just(Step::Start),
        2 => Just(Step::Pause),
        4 => Just(Step::Resume),
        1 => Just(Step::Stop),
        1 => Just(Step::Delete),
        1 => Just(Step::Patch),
        3 => Just(Step::Otp(OtpKind::Right)),
        2 => Just(Step::Otp(OtpKind::Wrong)),
        1 => Just(Step::Otp(OtpKind::Foreign)),
        1 => Just(Step::Otp(OtpKind::Earlier)),
    ]
}

proptest! {
    // Every run uses the same sequences.
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_sequence_breaks_a_binding(
        steps in prop::collection::vec(step(), 1..120),
        stops_on_timeouts in any::<bool>(),
        last in prop_oneof![
            Just(ProviderLuck::Success),
            Just(ProviderLuck::Processing),
            Just(ProviderLuck::Breaks),
            Just(ProviderLuck::Rejects),
        ],
    ) {
        let mut world = World::start(stops_on_timeouts);
        for step in steps {
            world.take(step);
            world.check();
        }
        world.let_time_pass(last);
        world.check_at_rest();
    }
}

/// Checks that the sequences above reach every kind of state. Otherwise they would prove little.
#[test]
fn sequences_reach_every_kind_of_state() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for _ in 0..200 {
        let steps = prop::collection::vec(step(), 60..120).new_tree(&mut runner).unwrap().current();
        let mut world = World::start(false);
        for step in steps {
            world.take(step);
            *seen.entry(format!("{} {}", world.row.state, world.row.phase)).or_default() += 1;
        }
        for header in world.headers.values() {
            *seen.entry(header.status.to_string()).or_default() += 1;
        }
        *seen.entry("refused at the provider".to_owned()).or_default() += world.provider.late_refused;
        for record in &world.records {
            *seen.entry(record.ending.as_ref().map_or("open", |end| end.result).to_owned()).or_default() += 1;
        }
    }
    for wanted in [
        "RUNNING IDLE",
        "RUNNING CALLING",
        "RUNNING PROCESSING",
        "RUNNING WAITING_OTP",
        "PAUSED IDLE",
        "PAUSED CALLING",
        "PAUSED PROCESSING",
        "PAUSED WAITING_OTP",
        "STOPPED IDLE",
        "STOPPED PROCESSING",
        "STOPPED CALLING",
        "STOPPING CALLING",
        "SUKSES",
        "GAGAL",
        "UNRESOLVED",
        "success",
        "processing",
        "otp_wanted",
        "failed",
        "lost",
        "refused at the provider",
        "throttled",
        "unavailable",
        "unreachable",
        "unreadable",
        "rejected",
        "unknown_transaction",
    ] {
        assert!(seen.get(wanted).is_some_and(|count| *count > 5), "{wanted} is too rare: {seen:?}");
    }
}
