//! Hundreds of wrong keys, and keys that exceed their request limit.

use std::sync::Arc;

use reqwest::header::RETRY_AFTER;
use serde_json::json;
use tokio::task::JoinSet;

use accounts::api_keys::{self, AccountRole};
use test_support::{Api, TestApp, eventually, lasting_transaction, millis, secs};

const AN_ORDER: &str = "/api/v1/orders/ORD-1";

/// Returns the number of active statements that look up keys.
async fn lookups(t: &TestApp) -> i64 {
    t.count("SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE '-- find api key%'").await
}

// Fault S1
#[tokio::test]
async fn hundreds_of_wrong_keys_take_one_connection_to_postgres() {
    let t = TestApp::with(|c| c.http.failures_per_min_per_address = 0).await;
    let api = Arc::new(Api::start(&t.app).await);
    t.order("ORD-1").await;
    let good = t.key(AccountRole::Producer).await;
    assert_eq!(api.get(AN_ORDER, &good).await.status, 200);

    // A lock blocks key look-ups while 300 requests with wrong keys arrive.
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let mut wrong = JoinSet::new();
    for _ in 0..300 {
        let api = api.clone();
        wrong.spawn(async move { api.get(AN_ORDER, &api_keys::generate_key()).await });
    }
    eventually("a look-up hangs", async || lookups(&t).await > 0).await;
    // One connection holds the lock and one looks up keys. All others are free.
    let mut held = Vec::new();
    for _ in 0..t.app.config.database.max_connections / 2 - 2 {
        held.push(t.app.core.db.acquire().await.unwrap());
    }
    assert_eq!(held.len(), 6);
    drop(held);
    assert!(lookups(&t).await <= 1);
    lock.rollback().await.unwrap();
    for answer in wrong.join_all().await {
        // Requests that waited too long for the lock get 503.
        assert!([(401, "UNAUTHENTICATED"), (503, "UNAVAILABLE")].contains(&answer.error()), "{answer:?}");
    }
    assert_eq!(api.get(AN_ORDER, &good).await.status, 200);
}

// Fault S1
#[tokio::test]
async fn malformed_keys_are_never_looked_up() {
    let t = TestApp::start().await;
    let (db, keys) = (&t.app.core.db, &t.app.accounts.keys);
    let good = t.key(AccountRole::Producer).await;
    let wrong = api_keys::generate_key();
    sqlx::query("ALTER VIEW valid_api_keys RENAME TO hidden").execute(db).await.unwrap();
    for text in ["", "dq_", "dq_unknown", &good[3..], &good.to_uppercase(), &format!("{good}0"), "dq_\u{e9}"] {
        assert!(keys.find_owner(db, text).await.unwrap().is_none(), "'{text}' needs no look-up");
    }
    assert!(keys.find_owner(db, &wrong).await.is_err(), "the view is away");
    sqlx::query("ALTER VIEW hidden RENAME TO valid_api_keys").execute(db).await.unwrap();
    assert!(keys.find_owner(db, &wrong).await.unwrap().is_none());
    assert!(keys.find_owner(db, &good).await.unwrap().is_some());
    sqlx::query("ALTER VIEW valid_api_keys RENAME TO hidden").execute(db).await.unwrap();
    assert!(keys.find_owner(db, &wrong).await.unwrap().is_none(), "it is remembered");
}

// Fault S1
#[tokio::test]
async fn wrong_keys_limit_no_valid_key() {
    let t = TestApp::with(|c| c.http.failures_per_min_per_address = 5).await;
    let api = Api::start(&t.app).await;
    t.order("ORD-1").await;
    let (good, late) = (t.key(AccountRole::Producer).await, t.key(AccountRole::Producer).await);
    assert_eq!(api.get(AN_ORDER, &good).await.status, 200);
    for _ in 0..5 {
        assert_eq!(api.get(AN_ORDER, &api_keys::generate_key()).await.error(), (401, "UNAUTHENTICATED"));
    }
    for key in ["", "dq_1", &api_keys::generate_key()] {
        let answer = api.send_raw(AN_ORDER, key).await;
        assert_eq!(answer.status(), 429);
        let wait: u64 = answer.headers()[RETRY_AFTER].to_str().unwrap().parse().unwrap();
        assert!((1..=13).contains(&wait), "{wait} s");
        assert!(answer.text().await.unwrap().contains("RATE_LIMITED"));
    }
    let forged = api.post("/api/v1/callbacks/nowhere", "", json!({})).await;
    assert_eq!(forged.error(), (429, "RATE_LIMITED"), "a wrong signature counts as well");
    assert_eq!(api.get(AN_ORDER, &good).await.status, 200);
    assert_eq!(api.get(AN_ORDER, &late).await.status, 200, "a key that was never seen before, too");
    assert_eq!(api.get("/healthz", "").await.status, 200);
}

// Fault S1
#[tokio::test]
async fn request_limit_is_per_key() {
    let t = TestApp::with(|c| c.http.requests_per_s_per_key = 1).await;
    let api = Arc::new(Api::start(&t.app).await);
    t.order("ORD-1").await;
    let (greedy, other) = (t.key(AccountRole::Producer).await, t.key(AccountRole::Producer).await);
    let mut asking = JoinSet::new();
    for _ in 0..20 {
        let (api, key) = (api.clone(), greedy.clone());
        asking.spawn(async move { api.send_raw(AN_ORDER, &key).await });
    }
    let answers = asking.join_all().await;
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status() == 429).collect();
    assert!(!refused.is_empty() && answers.iter().any(|answer| answer.status() == 200), "{answers:?}");
    assert!(refused.iter().all(|answer| answer.headers()[RETRY_AFTER] == "1"));
    assert_eq!(api.get(AN_ORDER, &other).await.status, 200);
}

// Fault S20c
#[tokio::test]
async fn a_revoked_key_ends_soon_also_while_postgres_hangs() {
    let t = TestApp::start().await;
    let key = t.key(AccountRole::Producer).await;
    let (db, keys) = (&t.app.core.db, &t.app.accounts.keys);
    assert!(keys.find_owner(db, &key).await.unwrap().is_some());
    // The lock blocks the look-up, so Postgres cannot report whether the key was revoked.
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let ends = async {
        while keys.find_owner(db, &key).await.is_ok() {
            tokio::time::sleep(millis(50)).await;
        }
    };
    // A cached key must expire in less than a minute.
    tokio::time::timeout(secs(45), ends).await.expect("the key is believed no longer");
    lock.rollback().await.unwrap();
    eventually("the key is known again", async || keys.find_owner(db, &key).await.is_ok()).await;
}

// Fault S1
#[tokio::test]
async fn used_key_is_refreshed_in_the_background() {
    let t = TestApp::start().await;
    let key = t.key(AccountRole::Producer).await;
    let (db, keys) = (&t.app.core.db, &t.app.accounts.keys);
    assert!(keys.find_owner(db, &key).await.unwrap().is_some());
    let row = t.texts("SELECT id::text FROM api_keys").await.remove(0).parse().unwrap();
    assert!(api_keys::revoke_key(db, row).await.unwrap());
    // No request waits for Postgres, but the revocation is still noticed.
    eventually("the key ends", async || keys.find_owner(db, &key).await.unwrap().is_none()).await;
}
