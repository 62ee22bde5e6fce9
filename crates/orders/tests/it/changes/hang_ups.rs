//! Clients that hang up. Answered changes of other clients are kept, and no connection stays inside a transaction.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use chrono::Utc;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, postgres::PgPoolOptions};
use standardwebhooks::Webhook;
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::Mutex, task::JoinSet};

use accounts::api_keys::AccountRole;
use foundation::{db, outbound};
use test_support::{Api, TestApp, eventually, lasting_transaction, millis, secs};

const SECRET: &str = "whsec_ZGlzcGF0Y2hxIHBhcnRuZXIgc2ltdWxhdG9y";

/// Returns an HTTP request as bytes on the wire.
fn request(path: &str, headers: &str, body: &Value) -> String {
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nHost: dispatchq\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
}

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

fn address(api: &Api) -> String {
    api.url("").trim_start_matches("http://").to_owned()
}

/// Drops a `begin()` between its BEGIN and the answer. Returns whether it was dropped in time.
async fn drop_halfway<T>(begin: impl Future<Output = T>) -> bool {
    let mut begin = pin!(begin);
    poll_fn(|context| Poll::Ready(begin.as_mut().poll(context).is_pending())).await
}

/// Returns the number of committed rows after twenty dropped `begin()` calls on one connection.
async fn count_kept(t: &TestApp, begin: impl AsyncFn() -> bool, insert: impl AsyncFn(i32)) -> i64 {
    t.sql("CREATE TABLE probe (n integer)").await;
    let mut dropped = 0;
    while dropped < 20 {
        if begin().await {
            dropped += 1;
            insert(dropped).await;
        }
    }
    // Another session sees only committed rows.
    t.count("SELECT count(*) FROM probe").await
}

const INSERT_PROBE: &str = "INSERT INTO probe VALUES ($1)";

// Fault F1
#[tokio::test]
async fn a_begin_dropped_halfway_leaves_no_transaction_behind() {
    let t = TestApp::start().await;
    let mut config = t.app.config.database.clone();
    config.max_connections = 1;
    let ours = db::connect_pool(&config).await.unwrap();
    let begin = async || {
        let mut connection = ours.acquire().await.unwrap();
        drop_halfway(connection.begin()).await
    };
    let insert = async |n| {
        sqlx::query(INSERT_PROBE).bind(n).execute(&ours).await.unwrap();
    };
    assert_eq!(count_kept(&t, begin, insert).await, 20);
    assert_no_open_transaction(&t).await;

    // The same on one connection, which runs another statement before it returns to the pool.
    let mut connection = ours.acquire().await.unwrap();
    while !drop_halfway(connection.begin()).await {}
    sqlx::query(INSERT_PROBE).bind(21).execute(&mut connection).await.unwrap();
    assert_eq!(t.count("SELECT count(*) FROM probe").await, 21);

    // A plain sqlx pool shows the failure that the application's pool prevents.
    t.sql("DROP TABLE probe").await;
    let plain = PgPoolOptions::new().max_connections(1).connect(&t.postgres.url()).await.unwrap();
    let begin = async || {
        let mut connection = plain.acquire().await.unwrap();
        drop_halfway(connection.begin()).await
    };
    let insert = async |n| {
        sqlx::query(INSERT_PROBE).bind(n).execute(&plain).await.unwrap();
    };
    assert!(
        count_kept(&t, begin, insert).await < 20,
        "sqlx ends such transactions by itself now: so need db::pool not"
    );
}

// Fault F1
/// A job that is aborted at its deadline drops its transaction: the statement continues, but the transaction must not
/// be committed.
#[tokio::test]
async fn a_transaction_dropped_inside_a_statement_leaves_nothing_behind() {
    let t = TestApp::start().await;
    let mut config = t.app.config.database.clone();
    config.max_connections = 1;
    let pool = db::connect_pool(&config).await.unwrap();
    sqlx::query("CREATE TABLE probe (n integer)").execute(&pool).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO probe VALUES (1)").execute(&mut *tx).await.unwrap();
    let slow = sqlx::query("SELECT pg_sleep(2)").execute(&mut *tx);
    assert!(tokio::time::timeout(millis(20), slow).await.is_err());
    drop(tx);
    sqlx::query("INSERT INTO probe VALUES (2)").execute(&pool).await.unwrap();
    assert_eq!(t.count("SELECT sum(n) FROM probe").await, 2);
    assert_no_open_transaction(&t).await;
}

async fn assert_no_open_transaction(t: &TestApp) {
    let open = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'dispatchq' AND pid <> pg_backend_pid()
                AND state LIKE 'idle in transaction%'";
    eventually("no transaction stands open", || async { t.count(open).await == 0 }).await;
}

// Fault F1
// F19b: the answer is kept for a repeated request.
#[tokio::test]
async fn cancel_finishes_after_its_client_hangs_up() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    t.order_of("ORD-1", "RIDE", "PAID").await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM orders FOR UPDATE").execute(&mut *lock).await.unwrap();

    let mut client = TcpStream::connect(address(&api)).await.unwrap();
    let headers = bearer(&key) + "Idempotency-Key: once\r\n";
    let cancel = request("/api/v1/orders/ORD-1/cancel", &headers, &json!({}));
    client.write_all(cancel.as_bytes()).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("the cancel waits for the row", || async { t.count(waiting).await == 1 }).await;
    drop(client);
    // One runtime serves requests in turn. After these answers, the server has noticed that the client hung up.
    for _ in 0..20 {
        assert_eq!(api.get("/healthz", "").await.status, 200);
    }
    lock.rollback().await.unwrap();
    let again = async || api.post_once("/api/v1/orders/ORD-1/cancel", &key, "once", json!({})).await;
    eventually("the answer is kept", || async { again().await.status == 200 }).await;
    assert!(again().await.replayed, "it was done a second time");
    assert_eq!(t.reasons("ORD-1").await, ["ORDER_CREATED", "CANCELLED_BY_USER"]);
}

/// Requests that several clients share.
struct Wave {
    address: String,
    /// Requests whose client hangs up.
    cut: Mutex<Vec<String>>,
    /// Requests whose client waits, with the row that must exist after the answer.
    ordinary: Mutex<Vec<(String, Value, String)>>,
    answered: Mutex<Vec<String>>,
    cut_off: AtomicUsize,
}

/// Creates `count` orders whose ids have this prefix.
async fn seed(t: &TestApp, prefix: &str, count: usize, payment: &str) {
    t.sql(&format!(
        "SELECT dispatchq_create_order('{prefix}-' || n, 'RIDE', -6.2088, 106.8456, '{payment}', 100, 'IDR', NULL, NULL, 'producer:test', NULL)
         FROM generate_series(1, {count}) n"
    ))
    .await;
}

// Fault F1
/// 2,000 requests whose client hangs up 0 to 8 ms after sending, together with 1,000 ordinary requests.
#[tokio::test]
async fn no_answered_change_is_lost_beside_clients_that_hang_up() {
    const CUT: usize = 400;
    const ORDINARY: usize = 500;
    let t = TestApp::with(|config| {
        let partner = json!({ "url": "http://127.0.0.1:9", "api_key": "k", "callback_secret": SECRET });
        config.partners.insert("bbd".into(), serde_json::from_value(partner).unwrap());
    })
    .await;
    let api = Api::start(&t.app).await;
    let producer = t.key(AccountRole::Producer).await;
    let admin = t.key(AccountRole::Admin).await;
    // Creates offers to answer, and then orders that are not dispatched during the test.
    let drivers: Vec<String> = (0..CUT).map(|n| format!("D{n}")).collect();
    t.drivers(&drivers.iter().map(|d| (d.as_str(), 100.0)).collect::<Vec<_>>()).await;
    seed(&t, "ACC", CUT, "UNPAID").await;
    maintenance::recovery::reconciler::reconcile_in_full(&t.app.maintenance).await.unwrap();
    t.run_due().await;
    seed(&t, "CUT-PAY", CUT, "UNPAID").await;
    seed(&t, "CUT-CANCEL", CUT, "PAID").await;
    seed(&t, "CANCEL", ORDINARY, "PAID").await;

    let new = |id: &str| {
        json!({ "order_id": id, "service_type": "RIDE", "payment_status": "PAID",
                "pickup": { "latitude": -6.2, "longitude": 106.8 } })
    };
    let offers: Vec<(String, String, String)> =
        sqlx::query_as("SELECT order_id, driver_id, id::text FROM offers WHERE state = 'offered'")
            .fetch_all(&t.app.core.db)
            .await
            .unwrap();
    assert_eq!(offers.len(), CUT);
    let mut cut = Vec::new();
    for (n, (order, driver, offer)) in offers.into_iter().enumerate() {
        let n = n + 1;
        cut.push(request("/api/v1/orders", &bearer(&producer), &new(&format!("CUT-{n}"))));
        let paid = json!({ "event_id": format!("E{n}"), "payment_status": "PAID" });
        cut.push(request(&format!("/api/v1/orders/CUT-PAY-{n}/payment"), &bearer(&producer), &paid));
        cut.push(request(&format!("/api/v1/orders/CUT-CANCEL-{n}/cancel"), &bearer(&producer), &json!({})));
        let answer = json!({ "driver_id": driver, "offer_id": offer });
        cut.push(request(&format!("/api/v1/orders/{order}/accept"), &bearer(&admin), &answer));
        let callback = json!({ "event_id": format!("C{n}"), "type": "job.created", "booking_id": format!("B{n}"),
                               "reference": format!("X-{n}:1"), "job_id": format!("J{n}"), "occurred_at": Utc::now() });
        let (now, id) = (Utc::now().timestamp(), format!("m{n}"));
        let signature = Webhook::new(SECRET).unwrap().sign(&id, now, callback.to_string().as_bytes()).unwrap();
        let signed = format!("webhook-id: {id}\r\nwebhook-timestamp: {now}\r\nwebhook-signature: {signature}\r\n");
        cut.push(request("/api/v1/callbacks/bbd", &signed, &callback));
    }
    let mut ordinary = Vec::new();
    for n in 1..=ORDINARY {
        let id = format!("NEW-{n}");
        ordinary.push(("/api/v1/orders".to_owned(), new(&id), format!("{id} DISPATCHING")));
        let cancelled = format!("CANCEL-{n} CANCELLED_BY_USER");
        ordinary.push((format!("/api/v1/orders/CANCEL-{n}/cancel"), json!({}), cancelled));
    }
    let total = cut.len();
    let wave = Arc::new(Wave {
        address: address(&api),
        cut: Mutex::new(cut),
        ordinary: Mutex::new(ordinary),
        answered: Mutex::default(),
        cut_off: AtomicUsize::new(0),
    });
    let mut clients = JoinSet::new();
    for n in 0..16_u64 {
        clients.spawn(hang_up_and_ask(wave.clone(), producer.clone(), n));
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    assert!(wave.cut_off.load(Ordering::Relaxed) > total - 32, "not all requests were cut short");
    let answered = wave.answered.lock().await.clone();
    assert_eq!(answered.len(), 2 * ORDINARY, "every ordinary request was answered 200 or 201");

    assert_no_open_transaction(&t).await;
    // Another session sees only committed rows.
    let mut other = PgConnection::connect(&t.postgres.url()).await.unwrap();
    let rows: Vec<String> =
        sqlx::query_scalar("SELECT id || ' ' || status FROM orders").fetch_all(&mut other).await.unwrap();
    let rows: std::collections::HashSet<String> = rows.into_iter().collect();
    let lost: Vec<_> = answered.iter().filter(|row| !rows.contains(*row)).collect();
    assert_eq!(lost, Vec::<&String>::new(), "answered, and not in the table");
    let log = std::fs::read_to_string(t.postgres.dir().join("server.log")).unwrap();
    assert_eq!(
        log.matches("already a transaction in progress").count(),
        0,
        "connections came back inside a transaction"
    );
}

/// Repeatedly sends two requests, hangs up on each 0 to 8 ms later, then sends one request and waits for its answer.
/// The server can therefore keep up with the load.
async fn hang_up_and_ask(wave: Arc<Wave>, key: String, seed: u64) {
    let client = outbound::build_client(secs(30)).unwrap();
    let mut pause = seed;
    loop {
        for _ in 0..2 {
            let Some(request) = wave.cut.lock().await.pop() else { break };
            let mut connection = TcpStream::connect(&wave.address).await.unwrap();
            connection.write_all(request.as_bytes()).await.unwrap();
            pause = (pause * 5 + 3) % 9;
            tokio::time::sleep(millis(pause)).await;
            drop(connection);
            wave.cut_off.fetch_add(1, Ordering::Relaxed);
        }
        let Some((path, body, row)) = wave.ordinary.lock().await.pop() else { return };
        let url = format!("http://{}{path}", wave.address);
        // Idempotency keys contain no spaces.
        let idempotency_key = row.replace(' ', "-");
        // An overloaded database answers 503, and the request is retried.
        loop {
            let request = client.post(&url).bearer_auth(&key).header("idempotency-key", &idempotency_key);
            let sent = request.json(&body).send().await;
            let status = sent.unwrap().status().as_u16();
            if status == 200 || status == 201 {
                wave.answered.lock().await.push(row);
                break;
            }
            assert!([409, 503].contains(&status), "{path} was answered {status}");
            tokio::time::sleep(millis(50)).await;
        }
    }
}
