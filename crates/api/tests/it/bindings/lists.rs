//! Pages of bindings and transactions.

use serde_json::json;

use super::{BINDINGS, Desk};
use test_support::{Answer, eventually};

fn ids<'a>(page: &'a Answer, list: &str, field: &str) -> Vec<&'a str> {
    page.body[list].as_array().unwrap().iter().map(|row| row[field].as_str().unwrap()).collect()
}

/// Advances time until this many transactions have ended.
async fn end_cycles(desk: &Desk, count: i64) {
    while desk.count("SELECT count(*) FROM transactions WHERE ended_at IS NOT NULL").await < count {
        let due = desk.next_due_ms().await.expect("a job waits");
        desk.move_clock_to(due.max(desk.now_ms())).await;
        desk.run_due().await;
    }
}

#[tokio::test]
async fn bindings_are_listed_page_by_page_and_filtered() {
    let desk = Desk::open().await;
    desk.create_server("S2").await;
    for id in ["B-1", "B-2", "B-3", "B-4", "B-5"] {
        assert_eq!(desk.create(id, json!({})).await.status, 201);
    }
    desk.patch(&format!("{BINDINGS}/B-5"), json!({ "server_id": "S2" })).await;
    for id in ["B-2", "B-3"] {
        desk.verb(id, "start").await;
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = desk.get(&format!("{BINDINGS}?limit=2{cursor}")).await;
        seen.extend(ids(&page, "bindings", "id").into_iter().map(str::to_owned));
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["B-1", "B-2", "B-3", "B-4", "B-5"]);
    for (query, wanted) in [
        ("state=RUNNING", &["B-2", "B-3"][..]),
        ("server_id=S2", &["B-5"]),
        ("account_id=A-B-4", &["B-4"]),
        ("server_id=S1&state=STOPPED&cursor=B-1", &["B-4"]),
        ("state=STOPPING", &[]),
    ] {
        assert_eq!(ids(&desk.get(&format!("{BINDINGS}?{query}")).await, "bindings", "id"), wanted, "{query}");
    }
    for bad in ["limit=0", "limit=501", "limit=x", "state=running", "cursor=a:b", "server=S1"] {
        assert_eq!(desk.get(&format!("{BINDINGS}?{bad}")).await.error(), (422, "INVALID"), "{bad}");
    }
}

/// Simulates the row of a later version that has one more setting.
#[tokio::test]
async fn binding_list_names_an_unreadable_binding() {
    let desk = Desk::open().await;
    for id in ["B-1", "B-2", "B-3"] {
        assert_eq!(desk.create(id, json!({})).await.status, 201);
    }
    desk.sql("UPDATE bindings SET config = config || '{\"of_tomorrow\": 1}' WHERE id = 'B-2'").await;
    let page = desk.get(BINDINGS).await;
    assert_eq!((page.status, ids(&page, "bindings", "id")), (200, vec!["B-1", "B-3"]));
    assert_eq!(ids(&page, "unreadable", "id"), ["B-2"]);
    assert!(ids(&page, "unreadable", "error")[0].contains("of_tomorrow"), "{:?}", page.body);

    let first = desk.get(&format!("{BINDINGS}?limit=2")).await;
    assert_eq!((ids(&first, "bindings", "id"), ids(&first, "unreadable", "id")), (vec!["B-1"], vec!["B-2"]));
    let rest = desk.get(&format!("{BINDINGS}?limit=2&cursor={}", first.body["next_cursor"].as_str().unwrap())).await;
    assert_eq!((ids(&rest, "bindings", "id"), &rest.body["next_cursor"]), (vec!["B-3"], &json!(null)));

    // A plan refuses this binding and includes the others.
    let action = json!({ "filter": {}, "action": "start", "dry_run": true });
    let planned = desk.post(&format!("{BINDINGS}/actions"), action).await;
    assert_eq!(planned.status, 201, "{:?}", planned.body);
    let (total, refused) = (&planned.body["plan"]["total"], &planned.body["plan"]["refused"]);
    assert_eq!((total, refused), (&json!(3), &json!(1)), "{:?}", planned.body);

    desk.sql("UPDATE bindings SET config = config - 'of_tomorrow'").await;
    let page = desk.get(BINDINGS).await;
    assert_eq!((ids(&page, "bindings", "id").len(), ids(&page, "unreadable", "id").len()), (3, 0));
}

#[tokio::test]
async fn transactions_are_listed_newest_first_and_shown_with_their_calls() {
    let desk = Desk::open().await;
    desk.run_binding("B-1", json!({})).await;
    end_cycles(&desk, 5).await;
    desk.provider().change_knobs(|knobs| knobs.failures = "account_locked=1".parse().unwrap()).unwrap();
    end_cycles(&desk, 6).await;
    let transactions = format!("{BINDINGS}/B-1/transactions");
    let first = desk.get(&format!("{transactions}?limit=4")).await;
    assert_eq!(ids(&first, "transactions", "trx_id"), ["B-1.6", "B-1.5", "B-1.4", "B-1.3"]);
    assert_eq!(first.body["next_cursor"], 3);
    let rest = desk.get(&format!("{transactions}?limit=4&cursor=3")).await;
    assert_eq!(ids(&rest, "transactions", "trx_id"), ["B-1.2", "B-1.1"]);
    assert_eq!(rest.body["next_cursor"], json!(null));
    let failed = desk.get(&format!("{transactions}?status=GAGAL")).await;
    assert_eq!(ids(&failed, "transactions", "reason"), ["account_locked"]);
    for bad in ["limit=0", "status=failed", "cursor=x"] {
        assert_eq!(desk.get(&format!("{transactions}?{bad}")).await.error(), (422, "INVALID"), "{bad}");
    }

    let shown = desk.get("/api/v1/transactions/B-1.6").await;
    assert_eq!(shown.body["transaction"]["status"], "GAGAL");
    let calls = shown.body["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1);
    assert_eq!((&calls[0]["action"], &calls[0]["result"]), (&json!("start"), &json!("failed")));
    assert_eq!(calls[0]["http_status"], 200);
    assert!(!shown.body.to_string().contains("provider-sim-key"));
}

// Rule L3: While Postgres is unavailable, requests for a binding are answered from its copy, marked as stale.
#[tokio::test]
async fn binding_is_shown_stale_without_postgres() {
    let mut desk = Desk::open().await;
    desk.run_binding("B-1", json!({})).await;
    let path = format!("{BINDINGS}/B-1");
    let shown = desk.get(&path).await;
    assert_eq!((shown.status, &shown.body["stale"]), (200, &json!(false)));
    eventually("the copy is there", || async { desk.redis::<i64>(&["EXISTS", "wrk:state:B-1"]).await == 1 }).await;
    desk.t.postgres.kill().await;
    let copied = desk.get(&path).await;
    assert_eq!((copied.status, &copied.body["stale"]), (200, &json!(true)), "{copied:?}");
    for field in ["id", "server_id", "account_id", "state", "config", "version"] {
        assert_eq!(copied.body[field], shown.body[field], "{field}");
    }
    let unknown = desk.get(&format!("{BINDINGS}/B-9")).await;
    assert_eq!(unknown.status, 503, "no copy, and no Postgres to say that there is none: {unknown:?}");
}

// Rule L2: The query of docs/requirements/orchestration.md gives the success rate of each binding.
#[tokio::test]
async fn documented_query_gives_rate_per_binding() {
    let desk = Desk::open().await;
    desk.run_binding("B-1", json!({})).await;
    end_cycles(&desk, 2).await;
    let page = include_str!("../../../../../docs/requirements/orchestration.md");
    let query = page.split("```sql\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let query = query.trim().trim_end_matches(';').replace("now()", "dispatchq_now()");
    let rates = desk.texts(&format!("SELECT binding_id || ' ' || success_rate FROM ({query}) r")).await;
    assert_eq!(rates, ["B-1 1"]);
}
