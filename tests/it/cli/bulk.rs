//! Commands on many items: concurrent requests, waits, and behaviour when the reader of the output is gone.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
};

use axum::{
    Json, Router,
    extract::{Request, State},
    http::{StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;

use super::remote::Desk;
use crate::support::{Fleet, Printed, run_binary, secs};

/// Number of bindings that the command line changes concurrently.
const AT_ONCE: usize = 8;

/// An API with answers chosen by the test, and a directory with a key for it.
struct StubApi {
    dir: TempDir,
    url: String,
}

impl StubApi {
    async fn start(router: Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("key");
        fs::write(&key, "dq_0000").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        Self { dir, url }
    }

    async fn run(&self, args: &[&str]) -> Printed {
        let args: Vec<String> =
            ["--api", &self.url, "--key-file", "key"].iter().chain(args).map(ToString::to_string).collect();
        let dir = self.dir.path().to_owned();
        let run = move || run_binary(&dir, &args.iter().map(String::as_str).collect::<Vec<_>>(), &[]);
        tokio::task::spawn_blocking(run).await.unwrap()
    }
}

/// Binding requests, in flight and in total.
#[derive(Default)]
struct Traffic {
    now: usize,
    most: usize,
    total: usize,
}

/// Answers a start when as many requests have arrived as the command line sends concurrently, or after a timeout.
async fn start_together(State(traffic): State<Arc<watch::Sender<Traffic>>>, request: Request) -> Response {
    traffic.send_modify(|t| (t.now, t.most, t.total) = (t.now + 1, t.most.max(t.now + 1), t.total + 1));
    let mut changes = traffic.subscribe();
    let _ = tokio::time::timeout(secs(10), changes.wait_for(|t| t.total >= AT_ONCE)).await;
    traffic.send_modify(|t| t.now -= 1);
    let id = request.uri().path().split('/').nth(4).unwrap().to_owned();
    if id == "B-3" {
        let refusal = json!({ "error_code": "BINDING_NOT_FOUND", "message": "no such binding" });
        return (StatusCode::NOT_FOUND, Json(refusal)).into_response();
    }
    let changed = id != "B-5";
    Json(json!({ "changed": changed, "binding": { "state": "RUNNING" } })).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn named_bindings_change_eight_at_a_time_and_print_in_order() {
    let traffic = Arc::new(watch::Sender::new(Traffic::default()));
    let api = StubApi::start(Router::new().fallback(start_together).with_state(traffic.clone())).await;
    let ids: Vec<String> = (1..=12).rev().map(|n| format!("B-{n}")).collect();
    let args: Vec<&str> = ["binding", "start"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let started = api.run(&args).await;
    let lines: Vec<String> = ids
        .iter()
        .filter(|id| *id != "B-3")
        .map(|id| if id == "B-5" { format!("{id} is RUNNING already.") } else { format!("{id} is now RUNNING.") })
        .collect();
    assert_eq!(started.stdout.lines().collect::<Vec<_>>(), lines, "{started:?}");
    assert_eq!(started.code, Some(1), "one was refused: {started:?}");
    assert!(started.stderr.starts_with("B-3: ") && started.stderr.contains("no such binding"), "{started:?}");
    assert_eq!((traffic.borrow().most, traffic.borrow().total), (AT_ONCE, 12));
}

/// Refuses the first request of each path because of too many requests, and accepts the second.
async fn refuse_first(State(seen): State<Arc<Mutex<HashMap<String, usize>>>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let count = {
        let mut seen = seen.lock();
        let count = seen.entry(path.clone()).or_default();
        *count += 1;
        *count
    };
    if path == "/api/v1/orders" {
        let full = json!({ "error_code": "DISPATCHER_AREA_THRESHOLD_REACHED", "message": "the area is full" });
        return (StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], Json(full)).into_response();
    }
    if count == 1 {
        let refusal = json!({ "error_code": "RATE_LIMITED", "message": "too many requests with this key" });
        return (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")], Json(refusal)).into_response();
    }
    Json(json!({ "changed": true, "binding": { "state": "RUNNING" } })).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn loops_wait_while_the_api_says_too_many_requests() {
    let seen = Arc::new(Mutex::new(HashMap::new()));
    let api = StubApi::start(Router::new().fallback(refuse_first).with_state(seen.clone())).await;
    for (args, report) in [
        (&["dead", "requeue", "a:1", "a:2", "--reason", "x"][..], "2 jobs requeued.\n"),
        (&["outbox", "replay", "7", "8", "--reason", "x"], "2 messages are sent again.\n"),
        (&["binding", "start", "B-1", "B-2"], "B-1 is now RUNNING.\nB-2 is now RUNNING.\n"),
    ] {
        let printed = api.run(args).await;
        assert_eq!((printed.code, printed.stdout.as_str()), (Some(0), report), "{args:?}: {printed:?}");
        assert_eq!(printed.stderr.matches("waiting").count(), 1, "{args:?}: {printed:?}");
    }
    // The command does not wait for a full area.
    let create = api.run(&["order", "create", "--service-type", "RIDE", "--lat", "0", "--lng", "0"]).await;
    assert!(create.code == Some(1) && create.stderr.contains("the area is full"), "{create:?}");
    let seen = seen.lock();
    let counts: HashSet<usize> = seen.iter().filter(|(path, _)| *path != "/api/v1/orders").map(|(_, n)| *n).collect();
    assert_eq!((seen["/api/v1/orders"], counts), (1, HashSet::from([2])), "{seen:?}");
}

/// Does the work of each request in two slices.
async fn answer_in_slices(request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert!(body["cursor"].is_null() || body["cursor"] == "1:2", "{body}");
    let is_last = !body["cursor"].is_null();
    let part = match path.trim_start_matches("/api/v1/admin/") {
        "cleanup" => json!({ "orders": 3, "records": 2, "failed": if is_last { json!([]) } else { json!(["a: b"]) } }),
        "reconciliation" if is_last => json!({ "report": { "looked_at": 9, "inserted": 4 }, "warning": null }),
        "reconciliation" => json!({ "report": null, "warning": null }),
        "shards/drain" => json!({ "was_settled": false, "moved": 5, "dead": 1, "left": 0,
                                  "shards": { "shards": 2, "settled": is_last } }),
        "erasures" if body["dry_run"] == true => {
            return Json(json!({ "known": { "orders": ["A", "B"] } })).into_response();
        }
        "erasures" => json!({ "erased": if is_last { 2 } else { 1 } }),
        "erasures/repeat" => json!({ "orders": if is_last { 8 } else { 7 } }),
        other => panic!("{other}"),
    };
    let mut answer = part;
    answer["next_cursor"] = if is_last { Value::Null } else { json!("1:2") };
    Json(answer).into_response()
}

#[tokio::test(flavor = "multi_thread")]
async fn long_work_continues_until_nothing_is_left() {
    let api = StubApi::start(Router::new().fallback(answer_in_slices)).await;
    let file = api.dir.path().join("erasures.json");
    fs::write(file, json!([erasure("order", "ORD-1")]).to_string()).unwrap();
    for (args, said, progress) in [
        (
            &["cleanup", "run", "--reason", "x"][..],
            &["         6 closed orders\n", "Failed: a: b\n"][..],
            "5 rows removed",
        ),
        (&["reconcile", "run"], &["9 rows checked: 4 timers enqueued again"], "being compared"),
        (&["shards", "drain"], &["10 jobs and 2 dead letters were moved.\n"], "5 jobs moved so far"),
        (
            &["privacy", "erase", "--customer", "C", "--reason", "x", "--yes"],
            &["is erased: 2 orders.\n"],
            "1 orders erased",
        ),
        (&["privacy", "replay", "erasures.json", "--yes"], &["order ORD-1: 8 orders are erased.\n"], "7 orders erased"),
    ] {
        let printed = api.run(args).await;
        for words in said {
            assert!(printed.stdout.contains(words), "{args:?}: {printed:?}");
        }
        assert_eq!(printed.stderr.lines().count(), 1, "{args:?}: {printed:?}");
        assert!(printed.stderr.contains(progress), "{args:?}: {printed:?}");
        let code = i32::from(args[0] == "cleanup");
        assert_eq!(printed.code, Some(code), "a sweep of the cleanup failed: {args:?}: {printed:?}");
    }
}

fn erasure(subject: &str, id: &str) -> Value {
    json!({ "subject": subject, "subject_id": id, "pseudonym": null, "reason": "request 1", "actor": "cli:anna",
            "erased_at": "2026-01-01T00:00:00Z", "orders": null })
}

#[tokio::test]
async fn command_goes_on_when_its_reader_has_gone() {
    let fleet = Fleet::start().await;
    let customers: Vec<Value> = (1..=3).map(|n| erasure("customer", &format!("C-{n}"))).collect();
    fs::write(fleet.dir().join("erasures.json"), Value::Array(customers).to_string()).unwrap();
    let (code, stderr) = run_without_reader(fleet.dir(), &["privacy", "replay", "erasures.json", "--yes"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(fleet.count("SELECT count(*) FROM erasures WHERE orders IS NOT NULL").await, 3);
}

#[tokio::test]
async fn command_fails_when_its_output_cannot_be_written() {
    let fleet = Fleet::start().await;
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut list = Command::new(env!("CARGO_BIN_EXE_dispatchq"));
    list.args(["privacy", "list", "--json"]).current_dir(fleet.dir()).stdin(Stdio::null()).stdout(full);
    let ended = list.output().unwrap();
    let stderr = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("the output is incomplete: No space left"), "{stderr}");
}

/// Runs a command whose standard output has no reader. Returns its exit code and its error output.
fn run_without_reader(dir: &Path, args: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_dispatchq"));
    let ended = command.args(args).current_dir(dir).stdin(Stdio::null()).stdout(writer).output().unwrap();
    (ended.status.code(), String::from_utf8(ended.stderr).unwrap())
}

#[tokio::test]
async fn erasure_in_use_names_the_order_to_end() {
    let desk = Desk::of(Fleet::start().await, &["admin"]).await;
    let create = ["order", "create", "--id", "ORD-1", "--service-type", "RIDE", "--lat", "0", "--lng", "0"];
    assert_eq!(desk.fleet.run(&create).code, Some(0));
    desk.write_input("erasures.json", json!([erasure("order", "ORD-1")]).to_string());
    let replay = ["privacy", "replay", "erasures.json", "--yes"];
    let erase = ["privacy", "erase", "--order", "ORD-1", "--reason", "request 1", "--yes"];
    for args in [&replay[..], &erase] {
        for printed in [desk.fleet.run(args), desk.run("admin", args)] {
            assert_eq!((printed.code, printed.stdout.as_str()), (Some(1), ""), "{args:?}: {printed:?}");
            assert!(printed.stderr.contains("first: dispatchq order explain ORD-1\n"), "{args:?}: {printed:?}");
        }
    }
}

#[tokio::test]
async fn import_errors_name_the_file_and_the_line() {
    let desk = Desk::of(Fleet::start().await, &["admin"]).await;
    fs::create_dir(desk.fleet.dir().join("folder")).unwrap();
    desk.write_input("binary", b"{\n\xff");
    desk.write_input("wrong", "{\"id\": \"D-1\"}\n[]\n");
    desk.write_input("cut", "{\n\"type\":");
    for (args, words) in [
        (["driver", "import", "binary"], &["binary cannot be imported: ", "line 2 "][..]),
        (["user", "import", "binary"], &["binary cannot be imported: ", "line 2 "]),
        (["area", "import", "binary"], &["binary cannot be imported: ", "line 2 "]),
        (["driver", "import", "wrong"], &["wrong: nothing was imported", "\n  line 1: ", "\n  line 2: "]),
        (["user", "import", "wrong"], &["wrong: nothing was imported", "\n  line 1: ", "\n  line 2: "]),
        (["area", "import", "cut"], &["cut cannot be imported: ", "line 2 "]),
        (["driver", "import", "folder"], &["folder cannot be imported: ", "Is a directory"]),
        (["area", "import", "absent"], &["cannot read absent"]),
    ] {
        let mut printed = vec![desk.fleet.run(&args)];
        printed.extend((args[2] != "folder").then(|| desk.run("admin", &args)));
        for printed in printed {
            assert_eq!((printed.code, printed.stdout.as_str()), (Some(1), ""), "{args:?}: {printed:?}");
            for word in words {
                assert!(printed.stderr.contains(word), "{args:?}, {word}: {printed:?}");
            }
        }
    }
}
