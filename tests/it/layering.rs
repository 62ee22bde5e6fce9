//! The layers of docs/ARCHITECTURE.md: what is pure stays pure, and one place writes orders.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
    files
}

/// The file without its unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

#[test]
fn decisions_do_no_io() {
    let pure = [
        "orders/state.rs",
        "orders/timers.rs",
        "orders/change.rs",
        "orders/actions.rs",
        "dispatch/decide.rs",
        "dispatch/policy.rs",
        "partner/backoff.rs",
        "partner/decide.rs",
        "partner/observation.rs",
        "compensation/decide.rs",
        "notifications/messages.rs",
        "notifications/money.rs",
        "notifications/routes.rs",
        "notifications/text.rs",
        "periodic/schedule.rs",
        "partner_sim/values.rs",
        "partner_sim/fate.rs",
        "partner_sim/faults.rs",
        "partner_sim/ledger.rs",
        "partner_sim/counters.rs",
        "dead_letters/judge.rs",
        "admission/decide.rs",
        "admission/answer.rs",
        "areas/geofence.rs",
        "areas/import.rs",
    ];
    for file in pure {
        let text = code(&root().join("src").join(file));
        for word in ["sqlx", "redis::", "axum", "reqwest", "tokio", ".await", "Utc::now", "SystemTime", "Instant::now"]
        {
            assert!(!text.contains(word), "src/{file} says {word}");
        }
    }
}

#[test]
fn the_engine_knows_no_orders_and_the_contracts_no_servers() {
    for file in rust_files(&root().join("workers/src")) {
        let text = code(&file).to_lowercase();
        for word in ["sqlx", "postgres", "jobs::", "dispatchq::"] {
            assert!(
                !text.lines().any(|l| !l.trim_start().starts_with("//") && l.contains(word)),
                "{} says {word}",
                file.display()
            );
        }
    }
    for file in rust_files(&root().join("jobs/src")) {
        let text = code(&file);
        for word in ["sqlx", "redis", "axum", "reqwest"] {
            assert!(!text.contains(word), "{} says {word}", file.display());
        }
    }
}

#[test]
fn one_place_writes_orders() {
    let mut writers: Vec<_> = rust_files(&root().join("src"))
        .into_iter()
        .filter(|file| {
            let text = code(file);
            text.contains("UPDATE orders ") || text.contains("INSERT INTO orders ")
        })
        .map(|file| file.strip_prefix(root()).unwrap().to_owned())
        .collect();
    writers.sort();
    // The first fills a database of its own.
    assert_eq!(writers, ["src/bench/history/fill.rs", "src/orders/store.rs"].map(PathBuf::from));
}
