//! Checks the layers of docs/ARCHITECTURE.md: with Cargo for dependencies between crates, and in the source for
//! everything else. Design: docs/design/builds-and-dependencies.md.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files_in(dir: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_in(&path, endings));
        } else if path.extension().is_some_and(|e| endings.iter().any(|ending| e == *ending)) {
            files.push(path);
        }
    }
    files
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    files_in(dir, &["rs"])
}

/// Returns the file without its unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

/// Returns the packages with which a package is built, including itself.
fn built_with(package: &str, more: &[&str]) -> BTreeSet<String> {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{lib}",
            "-p",
            package,
        ])
        .args(more)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    String::from_utf8(tree.stdout).unwrap().lines().map(|line| line.replace(" (*)", "").trim().to_owned()).collect()
}

#[track_caller]
fn assert_without(package: &str, more: &[&str], others: &[&str]) {
    let found = built_with(package, more);
    assert!(found.contains(&package.replace('-', "_")), "{found:?}");
    let unwanted: Vec<_> = others.iter().filter(|other| found.contains(**other)).collect();
    assert!(unwanted.is_empty(), "{package} is built with {unwanted:?}");
}

#[test]
fn the_model_is_built_without_servers_and_runtimes() {
    let outside = ["tokio", "redis", "axum", "reqwest", "hyper", "rustls", "queue", "foundation"];
    assert_without("model", &[], &outside);
}

#[test]
fn a_producer_links_neither_engine_nor_services() {
    assert_without("jobs", &[], &["queue", "redis", "tokio", "model", "foundation"]);
    assert_without("job-contract", &[], &["jobs", "queue", "redis", "tokio"]);
    assert_without("dispatchq-client", &[], &["jobs", "queue", "redis", "model", "foundation", "sqlx", "axum"]);
}

/// Crates above `foundation` and `settings` that each capability may use.
const CAPABILITIES: [(&str, &[&str]); 12] = [
    ("foundation", &[]),
    ("settings", &[]),
    ("accounts", &["settings"]),
    ("areas", &["settings"]),
    ("notify", &["settings"]),
    ("orders", &["settings", "accounts", "areas", "notify"]),
    ("partner", &["settings", "accounts", "areas", "notify", "orders"]),
    ("bindings", &["settings", "accounts", "notify"]),
    ("desk", &["settings", "accounts", "areas", "notify", "orders", "partner", "bindings"]),
    ("maintenance", &["settings", "accounts", "areas", "notify", "orders", "partner", "bindings", "desk"]),
    ("app", &["settings", "accounts", "areas", "notify", "orders", "partner", "bindings", "desk", "maintenance"]),
    (
        "workers",
        &["settings", "accounts", "areas", "notify", "orders", "partner", "bindings", "desk", "maintenance", "app"],
    ),
];

#[test]
fn each_capability_knows_only_those_below_it() {
    for (package, below) in CAPABILITIES {
        let others: Vec<_> = CAPABILITIES
            .iter()
            .map(|(other, _)| *other)
            .chain(["api", "staff_console", "lab", "partner_sim", "provider_sim", "servers", "axum", "clap"])
            .filter(|other| !["foundation", package].contains(other) && !below.contains(other))
            .collect();
        assert_without(package, &[], &others);
    }
}

#[test]
fn interfaces_and_simulators_know_no_processors() {
    assert_without("queue", &[], &["jobs", "model", "foundation", "sqlx", "servers"]);
    assert_without("api", &[], &["workers", "staff_console", "lab", "partner_sim", "servers", "clap"]);
    assert_without("staff-console", &[], &["workers", "lab", "partner_sim", "provider_sim", "servers", "clap"]);
    assert_without("partner-sim", &[], &["foundation", "model", "queue", "sqlx", "redis"]);
    assert_without("provider-sim", &[], &["foundation", "model", "queue", "sqlx", "redis"]);
    assert_without("servers", &[], &["foundation", "model", "queue", "sqlx", "redis"]);
}

#[test]
fn an_image_holds_no_laboratory() {
    let laboratory = ["lab", "partner_sim", "provider_sim", "servers", "csv"];
    assert_without("dispatchq", &["--no-default-features"], &laboratory);
    let usual = built_with("dispatchq", &[]);
    assert!(laboratory.iter().all(|package| usual.contains(*package)), "does this test still read {usual:?}?");
}

/// The shared test harness links the whole product. The product never links the harness.
#[test]
fn no_crate_is_built_with_test_support() {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut checked = 0;
    for folder in crates.chain([root(), root().join("workers"), root().join("jobs")]) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let package = manifest.split_once("name = \"").unwrap().1.split('"').next().unwrap();
        if package != "test-support" {
            assert!(!built_with(package, &[]).contains("test_support"), "{package} is built with test-support");
            checked += 1;
        }
    }
    assert!(checked > 20, "does this test still find crates?");
}

/// In a crate with `doctest = false`, examples never run.
#[test]
fn examples_are_where_they_are_run() {
    const NO_RUST: [&str; 4] = ["json", "sh", "text", "toml"];
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut without_examples = 0;
    for folder in crates.chain([root(), root().join("workers")]) {
        if !fs::read_to_string(folder.join("Cargo.toml")).unwrap().contains("doctest = false") {
            continue;
        }
        without_examples += 1;
        for file in rust_files(&folder.join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let lines = text.lines().map(str::trim_start);
            let fences = lines.filter_map(|line| line.strip_prefix("//! ```").or_else(|| line.strip_prefix("/// ```")));
            // Every second fence closes a block.
            for language in fences.step_by(2) {
                assert!(NO_RUST.contains(&language), "{} has an example that is not run", file.display());
            }
        }
    }
    assert!(without_examples > 5, "does this test still find crates?");
}

#[test]
fn decisions_read_no_clock() {
    let files = ["desk/src/dead_letters/requeue_policy.rs", "settings/src/schedule.rs", "desk/src/tick_schedule.rs"];
    let mut pure: Vec<PathBuf> = files.map(|file| root().join("crates").join(file)).into();
    pure.extend(
        ["values", "fate", "faults", "ledger", "counters", "callbacks"]
            .map(|file| root().join(format!("crates/partner-sim/src/{file}.rs"))),
    );
    pure.extend(
        ["judge", "knobs", "fate", "ledger"].map(|file| root().join(format!("crates/provider-sim/src/{file}.rs"))),
    );
    pure.extend(rust_files(&root().join("crates/model/src")));
    pure.extend(rust_files(&root().join("crates/areas/src/import")));
    for file in pure {
        let text = code(&file);
        for word in
            ["sqlx::query", "tokio", ".await", "Utc::now", "SystemTime", "Instant::now", "rand::random", "rand::rng("]
        {
            assert!(!text.contains(word), "{} says {word}", file.display());
        }
    }
}

#[test]
fn the_console_writes_no_sql() {
    let files = rust_files(&root().join("crates/console/src"));
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        assert!(!code(&file).contains("sqlx::query"), "{} has a statement of its own", file.display());
    }
}

#[test]
fn one_place_writes_orders() {
    let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
    // Benchmarks and tests fill their own databases.
    let product = crates.filter(|folder| !folder.ends_with("lab") && !folder.ends_with("test-support"));
    let mut writers: Vec<_> = product
        .map(|folder| folder.join("src"))
        .chain(["jobs/src", "src", "workers/src"].map(|folder| root().join(folder)))
        .flat_map(|folder| files_in(&folder, &["rs", "sql"]))
        .filter(|file| {
            let text = code(file);
            text.contains("UPDATE orders ") || text.contains("INSERT INTO orders ")
        })
        .map(|file| file.strip_prefix(root()).unwrap().to_owned())
        .collect();
    writers.sort();
    // The first statement is the test clock of `dispatchq dev`. The third one invalidates concurrent decisions.
    assert_eq!(
        writers,
        [
            "crates/orders/src/move_times.sql",
            "crates/orders/src/order_store/insert.sql",
            "crates/orders/src/order_store/offers.rs",
            "crates/orders/src/order_store/statement.rs"
        ]
        .map(PathBuf::from)
    );
}
