//! Waves of a service type: how they become a policy, and which are refused.

use super::*;

const TWO: &str = "[[service_types.RIDE.waves]]\nask = 3\nwithin = \"2km\"\nfor = \"20s\"\n\
                   [[service_types.RIDE.waves]]\nask = 10\nwithin = \"5km\"\n";

#[test]
fn waves_replace_number_and_radius() {
    let config = with_file(TWO).unwrap();
    let policy = config.policy_for_type(&"RIDE".into());
    let waves: Vec<_> = policy.waves.iter().map(|wave| (wave.ask, wave.radius_m, wave.lasts.as_secs())).collect();
    assert_eq!(waves, [(3, 2_000.0, 20), (10, 5_000.0, 0)]);
    let plain = config.policy_for_type(&"RENT".into());
    let waves: Vec<_> = plain.waves.iter().map(|wave| (wave.ask, wave.radius_m)).collect();
    assert_eq!(waves, [(1, 5_000.0)], "`ask_at_once` is a single wave");
    let written = toml::to_string(&config).unwrap();
    assert_eq!(with_file(&written).unwrap().policy_for_type(&"RIDE".into()), policy, "{written}");
}

#[test]
fn bad_waves_are_refused() {
    let wave = |within: &str, lasts: &str| {
        let lasts = if lasts.is_empty() { String::new() } else { format!("for = \"{lasts}\"\n") };
        format!("[[service_types.RIDE.waves]]\nask = 1\nwithin = \"{within}\"\n{lasts}")
    };
    let many = wave("1km", "1s").repeat(11);
    for (text, told) in [
        (format!("[service_types.RIDE]\nask_at_once = 2\n{TWO}"), "set either ask_at_once or waves, not both"),
        (format!("[service_types.RIDE]\nradius_m = 8000.0\n{TWO}"), "set either radius_m or waves, not both"),
        (many, "has 11 waves; 10 is the most"),
        (wave("2km", "20s") + &wave("1500m", ""), "wave 2 is within 1500m, and the wave before it within 2km"),
        (wave("1km", "90s") + &wave("2km", "31s"), "`for` adds up to 2m 1s, more than the attempt (2m)"),
        (wave("1km", "") + &wave("2km", ""), "wave 1 needs `for`"),
        (wave("1km", "0s") + &wave("2km", ""), "`for` of wave 1 must be more than 0s"),
        ("[service_types.RIDE]\nwaves = []".to_owned(), "is empty"),
        (wave("2", "20s"), "'2' is not a distance"),
        (wave("0m", "20s"), "within must be 1 to 20100000, not 0"),
    ] {
        let error = error(&text);
        assert!(error.contains(told) && error.contains("service_types.RIDE"), "{told}: {error}");
    }
    let exact = wave("1km", "60s") + &wave("1km", "60s");
    assert!(with_file(&exact).is_ok(), "equal circles and the whole attempt are allowed");
    let short = format!("[service_types.RIDE]\nattempt = \"10s\"\n{TWO}");
    assert!(error(&short).contains("more than the attempt (10s)"));
}
