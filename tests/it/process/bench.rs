//! The benchmarks, small: all their parts work together. Speed is not judged here.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::run_binary;

#[test]
fn a_small_soak_loses_nothing_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "soak", "--minutes", "0.05", "--rate", "200", "--spread", "2", "--json"];
    let printed = run_binary(dir.path(), &args, &[]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let soak: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!((soak["enqueued"].as_u64(), soak["done"].as_u64()), (Some(600), Some(600)), "{soak}");
    for fault in ["lost", "early", "doubled"] {
        assert_eq!(soak[fault], 0, "{soak}");
    }
    assert!(soak["lateness_ms"]["max"].as_f64() >= soak["lateness_ms"]["p50"].as_f64(), "{soak}");
    for memory in ["worker_rss_bytes", "redis_rss_bytes"] {
        for moment in ["first", "last", "max"] {
            assert!(soak[memory][moment].as_u64() > Some(1 << 20), "{memory} {moment}: {soak}");
        }
    }
    assert!(printed.stderr.starts_with("minute  lateness"), "{printed:?}");
    assert_eq!(run_binary(dir.path(), &["bench", "soak", "--minutes", "0"], &[]).code, Some(2));
}

#[test]
fn a_small_ladder_has_all_rungs_and_leaves_no_job() {
    let dir = tempfile::tempdir().unwrap();
    let printed = run_binary(dir.path(), &["bench", "ladder", "--jobs", "2000", "--rounds", "1", "--json"], &[]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let seen: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!((&seen["jobs"], &seen["rounds"], &seen["left"]), (&2000.into(), &1.into(), &0.into()), "{seen}");
    let rungs = seen["rungs"].as_object().unwrap();
    let names = ["arguments", "call", "engine", "least_work", "store"];
    assert_eq!(rungs.keys().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(names));
    for (name, rung) in rungs {
        assert!(rung["process"]["per_s"].as_f64() > Some(0.0), "{name}: {seen}");
        assert!(rung["process"]["redis_us"].as_f64() >= Some(0.0), "{name}: {seen}");
        assert!(rung["process"]["jobs_per_call"].as_f64() >= Some(1.0), "{name}: {seen}");
        assert_eq!(rung["insert"].is_null(), name == "engine", "{name}: {seen}");
    }
    // Batches of 500, into the queue and out of it.
    for rung in ["call", "arguments", "least_work"] {
        for phase in ["insert", "process"] {
            assert_eq!(rungs[rung][phase]["jobs_per_call"].as_f64(), Some(500.0), "{rung} {phase}: {seen}");
        }
    }
    assert!(seen["distance_us"].is_number(), "{seen}");
    assert_eq!(run_binary(dir.path(), &["bench", "ladder", "--jobs", "0"], &[]).code, Some(2));
}

#[test]
fn a_small_race_for_each_order_has_one_winner_whatever_decides() {
    let dir = tempfile::tempdir().unwrap();
    let printed = run_binary(dir.path(), &["bench", "accept", "--orders", "10", "--drivers", "8", "--json"], &[]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let seen: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!((&seen["orders"], &seen["wins"], &seen["double"]), (&10.into(), &10.into(), &0.into()), "{seen}");
    assert_eq!(seen["violations"], serde_json::json!([]));
    for way in ["/peers/row_locks", "/peers/optimistic", "/faults/redis_stopped", "/faults/redis_flushed"] {
        let told = seen.pointer(way).unwrap_or_else(|| panic!("{way}: {seen}"));
        assert_eq!((&told["orders"], &told["double"]), (&told["wins"], &0.into()), "{way}: {seen}");
        assert!(told["loser_ms"]["p99"].as_f64() > Some(0.0), "{way}: {seen}");
    }
    assert!(seen["sql_updates_per_order"].as_f64() >= Some(1.0), "{seen}");
    assert!(seen["loser_head_to_answer_ms"]["p50"].as_f64() > Some(0.0), "{seen}");
    assert!(seen["loser_head_to_answer_ms"]["p50"].as_f64() <= seen["loser_ms"]["max"].as_f64(), "{seen}");
    let goals = seen["goals"].as_object().unwrap();
    assert_eq!(goals.len(), 5, "{seen}");
    assert!(goals.values().all(|goal| goal["met"].is_boolean()), "{seen}");
    assert_eq!(run_binary(dir.path(), &["bench", "accept", "--drivers", "1"], &[]).code, Some(2));
}

#[test]
fn a_small_town_is_searched_by_redis_and_by_postgres() {
    let dir = tempfile::tempdir().unwrap();
    let printed = run_binary(dir.path(), &["bench", "nearby", "--drivers", "500", "--searches", "50", "--json"], &[]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let seen: Value = serde_json::from_str(&printed.stdout).unwrap();
    for figure in ["search_ms", "search_by_postgres_ms", "move_ms"] {
        assert!(seen[figure]["max"].as_f64() > Some(0.0), "{figure}: {seen}");
    }
    assert!(seen["rebuild_ms"].as_f64() > Some(0.0), "{seen}");
}

#[test]
fn a_small_rebuild_puts_every_timer_back_and_says_how_soon() {
    let dir = tempfile::tempdir().unwrap();
    let printed = run_binary(dir.path(), &["bench", "rebuild", "--orders", "2000", "--json"], &[]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let seen: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!((&seen["orders"], &seen["violations"]), (&2000.into(), &serde_json::json!([])), "{seen}");
    // Two of each order, but for those that workers have put in before.
    assert!(seen["timers"].as_i64() >= Some(3000), "{seen}");
    for figure in ["rebuild_s", "first_taken_s", "timers_per_s", "look_s", "scrape_ms", "serve_mib", "worker_mib"] {
        assert!(seen[figure].as_f64() > Some(0.0), "{figure}: {seen}");
    }
    assert!(seen["first_horizon_s"].as_f64() <= seen["rebuild_s"].as_f64(), "{seen}");
    assert!(seen["reconciler_mib"].as_f64().is_some(), "{seen}");
    assert_eq!(run_binary(dir.path(), &["bench", "rebuild", "--orders", "0"], &[]).code, Some(2));
}

#[test]
fn a_small_console_answers_every_page_beside_viewers_and_dispatch() {
    let dir = tempfile::tempdir().unwrap();
    let filled = ["--open", "300", "--closed", "2000", "--dead", "40"];
    let measured = ["--viewers", "3", "--seconds", "2", "--rate", "5", "--visits", "3"];
    let args = [["bench", "console", "--json"].as_slice(), &filled, &measured].concat();
    let printed = run_binary(dir.path(), &args, &[]);
    let seen: Value = serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    assert_eq!(seen["violations"], serde_json::json!([]), "{}", printed.stderr);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert_eq!(
        [&seen["open"], &seen["closed"], &seen["dead"], &seen["viewers"]],
        [&Value::from(300), &2000.into(), &40.into(), &3.into()],
        "{seen}"
    );
    let pages = seen["pages"].as_array().unwrap();
    // Of the menu, of filters, of samples, and of the first row of a list.
    for name in ["Now", "Sessions", "Orders: PENDING", "Order: closed", "Bindings: the first"] {
        assert!(pages.iter().any(|page| page["page"] == name), "{name}: {seen:#}");
    }
    for page in pages {
        assert!((Some(1)..=Some(8)).contains(&page["statements"].as_i64()), "{page}");
        assert!(page["p50_ms"].as_f64() > Some(0.0) && page["max_ms"].as_f64() >= page["p99_ms"].as_f64(), "{page}");
    }
    for phase in ["without", "with"] {
        assert!(seen["lateness_ms"][phase]["p99"].as_f64() >= seen["lateness_ms"][phase]["p50"].as_f64(), "{seen}");
    }
    let goals = seen["goals"].as_object().unwrap();
    assert!(goals.len() == 2 && goals.values().all(|goal| goal["met"].is_boolean()), "{seen}");
    assert_eq!(run_binary(dir.path(), &["bench", "console", "--viewers", "0"], &[]).code, Some(2));
}

// Rule L10: Advice and burst are measured with every asked area full; each answer names areas nearby.
#[test]
fn a_small_crowd_is_told_of_its_room_and_never_overfills_an_area() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["bench", "admission", "--seconds", "1", "--creations", "1500", "--burst", "500", "--json"];
    let printed = run_binary(dir.path(), &args, &[]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let seen: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!((&seen["overshoot"], &seen["burst"]["answered"]), (&0.into(), &500.into()), "{seen}");
    let most = &seen["creations"]["most_waiting"];
    assert!((Some(80)..=Some(100)).contains(&most["without_bypass"].as_i64()), "{seen}");
    assert!((Some(101)..=Some(120)).contains(&most["with_bypass"].as_i64()), "{seen}");
    assert!(seen["checks_per_s"].as_f64() > Some(0.0) && seen["p99_ms"].as_f64() >= seen["p50_ms"].as_f64(), "{seen}");
    assert_eq!((&seen["unexpected"], &seen["with_room"]["unexpected"]), (&0.into(), &0.into()), "{seen}");
}

#[test]
fn a_small_scarcity_gives_each_free_driver_an_order_that_waited() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = ["--orders", "80", "--drivers", "4", "--seconds", "5", "--trip", "1", "--workers", "1"];
    let printed = run_binary(dir.path(), &[["bench", "scarcity", "--json"].as_slice(), sizes.as_slice()].concat(), &[]);
    let seen: Value = serde_json::from_str(&printed.stdout).unwrap_or_else(|error| panic!("{error}: {printed:?}"));
    assert_eq!((&seen["orders"], &seen["drivers"]), (&80.into(), &4.into()), "{seen}");
    assert!(seen["waiting"].as_i64() > Some(0) && seen["trips"].as_i64() > Some(0), "{seen}");
    for figure in ["searches_per_order_min", "statements_per_order_min", "rows_per_order_min"] {
        assert!(seen[figure].as_f64() > Some(0.0), "{figure}: {seen}");
    }
    assert!(seen["offer_wait_ms"]["p99"].as_f64() >= seen["offer_wait_ms"]["p50"].as_f64(), "{seen}");
    // On a busy machine a driver may wait longer than is meant.
    let violations = seen["violations"].as_array().unwrap();
    let is_about_speed = |violation: &Value| violation.as_str().unwrap().starts_with("the next offer came after");
    assert!(violations.iter().all(is_about_speed), "{seen}");
    assert_eq!(printed.code, Some(i32::from(!violations.is_empty())), "{printed:?}");
}
