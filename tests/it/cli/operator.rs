//! The commands as operators and their scripts use them.

use serde_json::Value;

use crate::support::dead_letters::{bury_due, dead_ids, job};
use crate::support::{Fleet, Printed, hire, lasting_transaction, secs};
use desk::dead_letters::walk;
use maintenance::recovery::reconciler;
use queue::NewJob;

/// Number of jobs that fills more than two pages of the queue engine.
const MANY: usize = 1_200;

fn json(fleet: &Fleet, args: &[&str], code: i32) -> Value {
    let printed = fleet.run(args);
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(code), ""), "{args:?}: {}", printed.stdout);
    serde_json::from_str(&printed.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}: {}", printed.stdout))
}

/// Asserts that a command failed and printed these words on stderr only.
fn assert_fails(printed: &Printed, code: i32, words: &[&str]) {
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(code), ""), "{printed:?}");
    for word in words {
        assert!(printed.stderr.contains(word), "no '{word}' in: {}", printed.stderr);
    }
    assert!(!printed.stderr.contains("panicked"), "{}", printed.stderr);
}

/// Creates orders in SQL, each with its timers.
async fn orders(fleet: &Fleet, prefix: &str, count: usize) {
    // A psql session has no statement timeout.
    let each = format!("dispatchq_create_order('{prefix}-' || n, 'RIDE', -6.2, 106.8)");
    fleet.postgres.run_statement(&format!("SELECT {each} FROM generate_series(1, {count}) n")).await.unwrap();
    reconciler::reconcile_in_full(&fleet.app.maintenance).await.unwrap().unwrap();
}

/// Replaces times by `TIME` and durations by `SOME TIME`.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| chrono::DateTime::parse_from_rfc3339(word.trim_end_matches(':')).is_ok();
    let lines = text.lines().map(|line| {
        let mut line =
            line.split(' ').map(|word| if is_time(word) { "TIME" } else { word }).collect::<Vec<_>>().join(" ");
        if let (Some(from), Some(to)) = (line.find("TIME ("), line.find(" ago)")) {
            line.replace_range(from + 6..to, "SOME TIME");
        }
        if let Some((before, _)) = line.split_once("its lifetime ends in ") {
            line = format!("{before}its lifetime ends in SOME TIME");
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn a_thousand_dead_jobs_are_paged_looked_at_and_requeued() {
    let fleet = Fleet::start().await;
    orders(&fleet, "ORD", MANY).await;
    assert_eq!(bury_due(&fleet.app, "the routing service answered 503").await, MANY);
    let old = NewJob {
        queue: jobs::queues::PERIODIC,
        id: job("tick:cleanup:60"),
        delay: secs(0),
        payload: None,
        slots: None,
    };
    fleet.app.core.store.enqueue(&[old]).await.unwrap();
    bury_due(&fleet.app, "something else").await;

    // Reads page after page, each with the command that the previous page printed.
    let (mut seen, mut pages) = (Vec::new(), 0);
    let mut args = vec![
        "dead".to_owned(),
        "list".into(),
        "--limit".into(),
        "500".into(),
        "--error".into(),
        "routing service".into(),
    ];
    loop {
        let printed = fleet.run(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(printed.code, Some(0), "{printed:?}");
        seen.extend(
            printed
                .stdout
                .lines()
                .filter_map(|l| l.trim().split(' ').next())
                .filter(|w| w.contains(':'))
                .map(str::to_owned),
        );
        pages += 1;
        let Some((_, command)) = printed.stdout.split_once("More: dispatchq ") else { break };
        args = command
            .trim()
            .replace("'routing service'", "routing+service")
            .split(' ')
            .map(|w| w.replace('+', " "))
            .collect();
    }
    seen.retain(|word| word != "More:");
    assert_eq!((seen.len(), pages), (MANY, 3));
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), MANY);

    let first = json(&fleet, &["dead", "list", "--limit", "1", "--json"], 0);
    assert_eq!(first["jobs"][0]["error"], "the routing service answered 503");
    let next = first["next"].as_str().unwrap();
    assert!(next.parse::<walk::DeadListPlace>().is_ok(), "{next}");

    // Bulk action: dry run first, refused without confirmation, then executed.
    let which = ["--error", "routing service"];
    let dry = json(&fleet, &[&["dead", "requeue", "--dry-run", "--json"][..], &which].concat(), 0);
    assert_eq!((&dry["selected"], &dry["requeued"]), (&Value::from(MANY), &Value::from(MANY)));
    let unconfirmed = fleet.run(&[&["dead", "requeue"][..], &which].concat());
    assert_fails(&unconfirmed, 1, &["1200 jobs", "--dry-run", "--yes"]);
    assert_eq!(dead_ids(&fleet.app).await.len(), MANY + 1, "so far nothing has changed");

    let args = [&["dead", "requeue", "--yes", "--reason", "it is back"][..], &which].concat();
    let printed = fleet.run(&args);
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(0), "1200 jobs requeued.\n"), "{printed:?}");
    assert_eq!(dead_ids(&fleet.app).await, ["tick:cleanup:60"]);
    let told = "SELECT count(*) FROM order_events WHERE reason = 'REQUEUED_BY_HAND' AND detail LIKE '%: it is back'";
    assert_eq!(fleet.count(told).await, i64::try_from(MANY).unwrap());
    let kept = "SELECT count(*) FROM dead_letters WHERE resolved_how = 'requeued' AND resolved_why = 'it is back'";
    assert_eq!(fleet.count(kept).await, i64::try_from(MANY).unwrap());
    assert_eq!(fleet.run(&args).stdout, "No such dead jobs.\n");

    let discard = ["dead", "discard", "--all", "--yes", "--json"];
    assert_eq!(json(&fleet, &discard, 0)["discarded"], 1);
    assert_eq!(json(&fleet, &discard, 0)["selected"], 0);
    assert_eq!(fleet.run(&["dead", "list"]).stdout, "No dead jobs.\n");
}

#[tokio::test]
async fn next_requeue_finishes_a_killed_one() {
    let fleet = Fleet::start().await;
    orders(&fleet, "ORD", MANY).await;
    assert_eq!(bury_due(&fleet.app, "broken").await, MANY);
    // All orders are under review.
    sqlx::query("UPDATE orders SET next_attempt_at = next_attempt_at - interval '1 minute'")
        .execute(&fleet.app.core.db)
        .await
        .unwrap();
    let held = reconciler::reconcile_once(&fleet.app.maintenance).await.unwrap().unwrap().held;
    assert_eq!(held, MANY as u64);
    let requeued = "SELECT count(*) FROM order_events WHERE reason = 'REQUEUED_BY_HAND'";
    // The command blocks on an order that is locked, and is killed there at the latest.
    let mut lock = lasting_transaction(&fleet.postgres).await;
    sqlx::query("SELECT id FROM orders WHERE id = 'ORD-600' FOR UPDATE").execute(&mut *lock).await.unwrap();
    let mut killed = fleet.spawn("requeue", &["dead", "requeue", "--all", "--yes"]);
    fleet.reach(50, requeued).await;
    killed.kill();
    drop(lock);
    let left = dead_ids(&fleet.app).await.len();
    assert!((1..MANY).contains(&left), "killed in the middle: {left}");

    let printed = fleet.run(&["dead", "requeue", "--all", "--yes"]);
    assert_eq!((printed.code, printed.stdout), (Some(0), format!("{left} jobs requeued.\n")));
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE held_for_review").await, 0);
    assert_eq!(fleet.count("SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL").await, 0);
    let stats = fleet.app.core.store.queue_stats(&[jobs::queues::DISPATCH]).await.unwrap().remove(0);
    assert_eq!((stats.due, stats.dead), (MANY as u64, 0), "every order goes on");
}

#[tokio::test]
async fn a_worker_copies_restores_and_lets_held_orders_go_on() {
    let fleet = Fleet::start().await;
    hire(&fleet.app, 3).await;
    orders(&fleet, "ORD", 3).await;
    bury_due(&fleet.app, "broken").await;
    let _worker = fleet.worker("w1");
    fleet.reach(3, "SELECT count(*) FROM dead_letters WHERE resolved_at IS NULL").await;
    fleet.reach(3, "SELECT count(*) FROM orders WHERE held_for_review").await;
    crate::support::redis_command::<()>(&fleet.redis.url(), &["FLUSHALL"]).await;
    crate::support::eventually("the dead are back", || async {
        fleet.app.core.store.epoch().await.unwrap().is_some() && dead_ids(&fleet.app).await.len() == 3
    })
    .await;
    assert_eq!(fleet.run(&["dead", "requeue", "--all", "--yes"]).stdout, "3 jobs requeued.\n");
    fleet.reach(3, "SELECT count(DISTINCT order_id) FROM offers").await;
    assert_eq!(fleet.count("SELECT count(*) FROM orders WHERE held_for_review").await, 0);
}

#[tokio::test]
async fn a_dead_letter_explains_itself() {
    let fleet = Fleet::start().await;
    orders(&fleet, "ORD", 2).await;
    bury_due(&fleet.app, "no route to host").await;
    let show = |id: &str| fleet.run(&["dead", "show", id]);
    let mut shown = without_times(&show("dispatch:ORD-1:1").stdout);
    // The second time the job is under review and has a history.
    let requeue = ["dead", "requeue", "dispatch:ORD-1:1", "--reason", "try again"];
    assert_eq!(fleet.run(&requeue).stdout, "1 job requeued.\n");
    assert_fails(&show("dispatch:ORD-1:1"), 1, &["no longer dead", "requeued by cli:", "try again"]);
    bury_due(&fleet.app, "no route to host, again").await;
    sqlx::query("UPDATE orders SET next_attempt_at = next_attempt_at - interval '1 minute'")
        .execute(&fleet.app.core.db)
        .await
        .unwrap();
    assert_eq!(reconciler::reconcile_once(&fleet.app.maintenance).await.unwrap().unwrap().held, 2);
    for (text, what) in [("dispatch:ORD-1:1", "under review"), ("dispatch:ORD-2:1", "closed")] {
        if what == "closed" {
            fleet.run(&["order", "cancel", "ORD-2"]);
        }
        shown += &format!("\n\n{}", without_times(&show(text).stdout));
    }
    let user = dispatchq_user();
    insta::assert_snapshot!("dead_show", shown.replace(&user, "cli:USER"));

    let shown = json(&fleet, &["dead", "show", "dispatch:ORD-2:1", "--json"], 0);
    assert_eq!(
        (&shown["can_requeue"], &shown["order"]["status"]),
        (&Value::from(false), &Value::from("CANCELLED_BY_USER"))
    );
    let dry = json(&fleet, &["dead", "requeue", "--all", "--dry-run", "--json"], 0);
    assert_eq!((&dry["jobs"], &dry["requeued"]), (&Value::from(vec!["dispatch:ORD-1:1"]), &Value::from(1)));
    assert_eq!(dry["refused"][0]["why"]["code"], "ORDER_CLOSED", "{dry}");
    let dry = fleet.run(&["dead", "requeue", "--all", "--dry-run"]).stdout;
    assert!(dry.starts_with("1 job would be requeued:\n  dispatch:ORD-1:1\n1 job left as it is:\n"), "{dry}");
    let left = fleet.run(&["dead", "requeue", "dispatch:ORD-2:1", "dispatch:ORD-1:1", "tick:none:1"]);
    assert_eq!(left.code, Some(1));
    insta::assert_snapshot!("dead_requeue_partly", left.stdout);
    let refused = json(&fleet, &["dead", "requeue", "--all", "--yes", "--json"], 1);
    assert_eq!(
        (&refused["requeued"], &refused["refused"][0]["why"]["code"]),
        (&Value::from(0), &Value::from("ORDER_CLOSED"))
    );
}

/// Returns the name under which the history records the user of these tests.
fn dispatchq_user() -> String {
    std::env::var("USER")
        .ok()
        .filter(|u| !u.is_empty())
        .map_or_else(|| "cli:unknown".to_owned(), |user| format!("cli:{user}"))
}

#[tokio::test]
async fn job_commands_report_why_they_refuse() {
    let fleet = Fleet::start().await;
    orders(&fleet, "ORD", 1).await;
    let cancelled = fleet.run(&["job", "cancel", "dispatch:ORD-1:1"]);
    assert_fails(&cancelled, 1, &["the reconciler would restore the job", "dispatchq order cancel ORD-1"]);
    assert_eq!(json(&fleet, &["job", "cancel", "lifetime:ORD-1", "--json"], 1)["result"], "WOULD_BE_PUT_BACK");
    let late = ["job", "reschedule", "lifetime:ORD-1", "--in", "2h", "--json"];
    assert_eq!(json(&fleet, &late, 1)["result"], "WOULD_BE_MOVED_BACK");
    let past = ["job", "reschedule", "lifetime:ORD-1", "--at", "2020-01-01T00:00:00+07:00"];
    assert_fails(&fleet.run(&past), 1, &["2019-12-31T17:00:00.000Z has passed", "run-now"]);
    let moved = json(&fleet, &["job", "reschedule", "dispatch:ORD-1:1", "--in", "30s", "--json"], 0);
    assert_eq!((&moved["result"], &moved["not_before"]), (&Value::from("MOVED"), &Value::Null));
    assert_eq!(fleet.run(&["job", "run-now", "dispatch:ORD-1:1"]).stdout, "dispatch:ORD-1:1 is due now.\n");
    let early = fleet.run(&["job", "run-now", "lifetime:ORD-1"]);
    assert_eq!(early.stdout, "lifetime:ORD-1 is due now.\n");
    assert!(early.stderr.contains("it waits again"), "{early:?}");

    fleet.run(&["order", "cancel", "ORD-1"]);
    // The job was removed with its order. It is enqueued again here, as if that removal had been lost.
    let queue = jobs::queues::LIFETIME_CANCEL;
    let left = NewJob { queue, id: job("lifetime:ORD-1"), delay: secs(1_800), payload: None, slots: None };
    fleet.app.core.store.enqueue(&[left]).await.unwrap();
    assert_eq!(fleet.run(&["job", "cancel", "lifetime:ORD-1"]).stdout, "lifetime:ORD-1 is cancelled.\n");
    for command in [&["job", "cancel"][..], &["job", "run-now"], &["job", "reschedule", "--in", "1s"]] {
        let absent = fleet.run(&[command, &["lifetime:ORD-1"]].concat());
        assert_fails(&absent, 1, &["no job lifetime:ORD-1", "dispatchq job list"]);
    }
    orders(&fleet, "DEAD", 1).await;
    bury_due(&fleet.app, "broken").await;
    assert_fails(
        &fleet.run(&["job", "cancel", "dispatch:DEAD-1:1"]),
        1,
        &["dead", "dispatchq dead show dispatch:DEAD-1:1"],
    );
}

#[tokio::test]
async fn wrong_usage_is_said_so() {
    let fleet = Fleet::start().await;
    for (args, words) in [
        (&["job", "show", "nonsense"][..], &["nonsense", "kind:key"][..]),
        (&["job", "cancel", "timeout:ORD 1"], &["no job id"]),
        (&["job", "reschedule", "lifetime:ORD-1"], &["--in", "--at"]),
        (
            &["job", "reschedule", "lifetime:ORD-1", "--in", "1s", "--at", "2030-01-01T00:00:00Z"],
            &["cannot be used with"],
        ),
        (&["job", "reschedule", "lifetime:ORD-1", "--in", "soon"], &["soon"]),
        (&["job", "reschedule", "lifetime:ORD-1", "--at", "tomorrow"], &["tomorrow", "2030-01-01T08:00:00Z"]),
        (&["dead", "list", "--queue", "mail-queue"], &["mail-queue", "notify-queue"]),
        (&["dead", "list", "--cursor", "17"], &["not a cursor"]),
        (&["dead", "list", "--cursor", "mail-queue:17:a:b"], &["not a cursor"]),
        (&["dead", "list", "--limit", "0"], &["1..=1000"]),
        (&["dead", "list", "--older-than", "old"], &["old"]),
        (&["dead", "show", "nonsense"], &["no job id"]),
        (&["dead", "requeue"], &["--all", "--queue", "ID"]),
        (&["dead", "requeue", "--yes"], &["--all"]),
        (&["dead", "requeue", "--all", "--queue", "notify-queue"], &["cannot be used with"]),
        (&["dead", "requeue", "a:b", "--error", "x"], &["cannot be used with"]),
        (&["dead", "discard", "a:b", "--reason", ""], &["1 to 500 characters"]),
        (&["dead", "discard", "a:b", "--reason", "two\nlines"], &["one line"]),
        (&["completions", "tcsh"], &["bash", "zsh"]),
    ] {
        assert_fails(&fleet.run(args), 2, words);
    }
    fleet.run(&["reconcile", "run"]);
    assert_fails(&fleet.run(&["dead", "show", "tick:none:1"]), 1, &["not dead", "dispatchq job show tick:none:1"]);
    let absent = fleet.run(&["dead", "discard", "tick:none:1"]);
    assert_eq!(absent.code, Some(1));
    assert!(absent.stdout.contains("tick:none:1: it is not dead"), "{absent:?}");
}

#[test]
fn completions_need_no_installation() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let nowhere = [("DISPATCHQ_REDIS__URL", "redis://127.0.0.1:1")];
        let printed = crate::support::run_binary(dir.path(), &["completions", shell], &nowhere);
        assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{shell}");
        for word in ["dispatchq", "requeue", "older-than"] {
            assert!(printed.stdout.contains(word), "{shell} does not know {word}");
        }
    }
}

#[test]
fn manual_pages_need_no_installation() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = [("DISPATCHQ_REDIS__URL", "redis://127.0.0.1:1")];
    let written = crate::support::run_binary(dir.path(), &["man", "."], &nowhere);
    assert_eq!((written.code, written.stdout.as_str(), written.stderr.as_str()), (Some(0), "", ""));
    for (page, word) in [("dispatchq", "reconcile"), ("dispatchq-dead-requeue", "older"), ("dispatchq-serve", "config")]
    {
        let text = std::fs::read_to_string(dir.path().join(format!("{page}.1"))).unwrap();
        assert!(text.contains(word), "{page}.1 does not contain {word}");
    }
    assert_fails(&crate::support::run_binary(dir.path(), &["man", "absent"], &nowhere), 1, &["absent"]);
}
