//! The examples of the crate, each with a Redis of its own. Cargo builds them together with the tests.

use std::{env, process::Stdio};

use servers::RedisServer;
use tokio::process::Command;

use crate::support::secs;

/// Runs an example to its end and returns the lines that it printed.
async fn run_example(name: &str) -> Vec<String> {
    let redis = RedisServer::start().await.unwrap();
    let tests = env::current_exe().unwrap();
    let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    let mut command = Command::new(&program);
    command.arg(redis.url()).stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(secs(60), command.output()).await.unwrap();
    let output = ended.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let printed = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {printed}{errors}");
    printed.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn delayed_tasks_run_in_order_of_their_delays() {
    let lines = run_example("delayed").await;
    let customers: Vec<&str> = lines.iter().map(|line| line.split([' ', ',']).nth(2).unwrap()).collect();
    assert_eq!(customers, ["1", "2", "3"], "{lines:?}");
}

#[tokio::test]
async fn failed_tasks_are_retried_and_then_dead() {
    let mut lines = run_example("retries").await;
    let mut dead: Vec<String> = lines.extract_if(.., |line| line.starts_with("dead")).collect();
    lines.sort();
    let tries = [("-10", 1), ("10", 1), ("10", 2), ("10", 3), ("1000", 1), ("500", 1), ("500", 2)];
    assert_eq!(lines, tries.map(|(amount, attempt)| format!("pays {amount}, try {attempt}")));
    dead.sort();
    assert_eq!(dead[0], "dead: b: AbortError: there is nothing to pay");
    assert_eq!(dead[1], "dead: c: failed 2 tries; last: the bank refuses");
    assert!(dead[2].starts_with("dead: d: ") && dead[2].contains("the amount is too large"), "{dead:?}");
    assert_eq!(dead.len(), 3);
}

#[tokio::test]
async fn results_reach_their_caller() {
    let lines = run_example("results").await;
    let wanted = [
        "task 3 is Pending with [42,7]",
        "task 1 is Done: Ok(7)",
        "task 2 is Failed: Err(\"AbortError: division by zero\")",
        "task 3 is Done: Ok(6)",
        "1 dead task deleted",
    ];
    assert_eq!(lines, wanted);
}

/// The example of README.md is the one that is tested here.
#[test]
fn readme_shows_the_delayed_example() {
    let (readme, example) = (include_str!("../../README.md"), include_str!("../../examples/delayed.rs"));
    let (_, code) = example.split_once("\n\n").unwrap();
    assert!(
        readme.contains(&format!("```rust,no_run\n{code}```")),
        "README.md shows other code than examples/delayed.rs"
    );
    assert!(code.lines().count() <= 30);
}
