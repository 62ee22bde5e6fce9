//! A repeated request has the effect and the answer of the first.

use serde_json::json;
use uuid::Uuid;

use accounts::api_keys::AccountRole;
use foundation::idempotency_rows::{IdempotencyStore, NewClaim};
use model::id_prefix::IdPrefix;
use settings::Config;
use test_support::{Answer, Api, TestApp, eventually, lasting_transaction, millis, ride, secs};

const ORDERS: &str = "/api/v1/orders";

struct Shop {
    t: TestApp,
    api: Api,
    key: String,
}

impl Shop {
    async fn open() -> Self {
        let t = TestApp::start().await;
        let (api, key) = (Api::start(&t.app).await, t.key(AccountRole::Producer).await);
        Self { t, api, key }
    }

    async fn create(&self, idempotency_key: &str) -> Answer {
        self.api.post_once(ORDERS, &self.key, idempotency_key, ride()).await
    }

    async fn orders(&self) -> i64 {
        self.t.count("SELECT count(*) FROM orders").await
    }

    /// Simulates a process that died before it stored the answer.
    async fn lose_answer(&self) {
        self.t.sql("UPDATE idempotency_keys SET status = NULL, body = NULL").await;
    }
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_answer() {
    let shop = Shop::open().await;
    let first = shop.create("k1").await;
    assert_eq!((first.status, first.replayed), (201, false));
    shop.t.advance(secs(60)).await;
    let again = shop.create("k1").await;
    assert_eq!(again, Answer { replayed: true, ..first });
    assert_eq!(shop.create("k2").await.status, 201);
    assert_eq!(shop.orders().await, 2);
}

/// The stored answer is rendered from the order, which has changed since.
#[tokio::test]
async fn kept_answer_equals_the_given_answer() {
    let shop = Shop::open().await;
    let full = json!({
        "order_id": "SHOP-7", "service_type": "RIDE", "payment_status": "SETTLEMENT", "amount_minor": 150_000,
        "pickup": { "latitude": -6.2088, "longitude": 106.8456 }, "currency": "IDR", "customer_id": "CUS-1",
        "language": "id", "channel": "WEB", "loyalty_level": "ELITE",
    });
    for (n, order) in [ride(), full].into_iter().enumerate() {
        // Whole seconds and milliseconds have different formats.
        for ms in [0, 70, 7] {
            shop.t.advance(millis(ms)).await;
            let (mut order, key) = (order.clone(), format!("k{n}-{ms}"));
            if order.get("order_id").is_some() {
                order["order_id"] = json!(format!("SHOP-{ms}"));
            }
            let create = || shop.api.post_once(ORDERS, &shop.key, &key, order.clone());
            let first = create().await;
            assert_eq!((first.status, first.replayed), (201, false));
            shop.t.cancel(first.text("order_id")).await.unwrap();
            assert_eq!(create().await, Answer { replayed: true, ..first });
        }
    }
    let commits = "SELECT count(*) FROM order_feed f JOIN idempotency_keys k
                       ON k.body ->> 'order_id' = f.order_id AND k.xmin = f.xmin WHERE f.kind = 'order.created'";
    assert_eq!(shop.t.count(commits).await, 6, "each with its order");
    shop.t.assert_sound().await;
}

/// Two sessions claim one key concurrently. Only one order is created.
#[tokio::test]
async fn concurrent_use_of_one_key_waits() {
    let shop = Shop::open().await;
    let first = shop.create("k1").await;
    let mut other = lasting_transaction(&shop.t.postgres).await;
    sqlx::query("UPDATE idempotency_keys SET key = 'k2'").execute(&mut *other).await.unwrap();
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- create orders%'";
    let keeping = async {
        eventually("the creation waits for the key", || async { shop.t.count(waiting).await == 1 }).await;
        other.commit().await.unwrap();
    };
    let (again, ()) = tokio::join!(shop.create("k2"), keeping);
    assert_eq!(again, Answer { replayed: true, ..first });
    assert_eq!(shop.orders().await, 1);
    shop.t.assert_sound().await;
}

#[tokio::test]
async fn a_key_belongs_to_one_request_of_one_caller() {
    let shop = Shop::open().await;
    shop.create("k1").await;
    let mut other = ride();
    other["amount_minor"] = json!(5);
    let reused = shop.api.post_once(ORDERS, &shop.key, "k1", other).await;
    assert_eq!(reused.error(), (422, "IDEMPOTENCY_KEY_REUSED"));
    let path = "/api/v1/orders/ORD-1/cancel";
    assert_eq!(shop.api.post_once(path, &shop.key, "k1", json!({})).await.error(), (422, "IDEMPOTENCY_KEY_REUSED"));

    let stranger = shop.t.key_named("stranger", AccountRole::Producer, None).await;
    assert_eq!(shop.api.post_once(ORDERS, &stranger, "k1", ride()).await.status, 201);
    assert_eq!(shop.orders().await, 2);
    let long = "k".repeat(256);
    assert_eq!(shop.create(&long).await.error(), (422, "INVALID"));
}

// Rule F12: An Idempotency-Key belongs to the producer's name, so a request that is repeated after a key rotation gets
// the first answer.
#[tokio::test]
async fn repeat_with_a_rotated_key_creates_no_second_order() {
    let shop = Shop::open().await;
    let first = shop.create("basket-7").await;
    let rotated = shop.t.key(AccountRole::Producer).await;
    let again = shop.api.post_once(ORDERS, &rotated, "basket-7", ride()).await;
    assert_eq!(again, Answer { replayed: true, ..first.clone() });
    assert_eq!(shop.create("basket-7").await, again, "the old key in its overlap");
    // The same for an order with an area, which is claimed and answered separately.
    let mut in_area = ride();
    in_area["area_id"] = json!("JKT");
    let located = shop.api.post_once(ORDERS, &rotated, "basket-8", in_area.clone()).await;
    assert_eq!(located.status, 201, "{located:?}");
    let third = shop.t.key(AccountRole::Producer).await;
    assert_eq!(shop.api.post_once(ORDERS, &third, "basket-8", in_area).await, Answer { replayed: true, ..located });
    let cancel = format!("/api/v1/orders/{}/cancel", first.text("order_id"));
    assert_eq!(
        shop.api.post_once(&cancel, &third, "basket-7", json!({})).await.error(),
        (422, "IDEMPOTENCY_KEY_REUSED")
    );
    assert_eq!(shop.orders().await, 2);

    let of_other_role = shop.t.key_named("test-admin", AccountRole::Admin, None).await;
    assert_eq!(shop.api.post_once(ORDERS, &of_other_role, "basket-7", ride()).await.status, 201, "another holder");
}

// Rule F12: A driver's Idempotency-Keys belong to the driver, whichever of the driver's API keys a request uses.
#[tokio::test]
async fn holder_of_keys_is_the_name_or_the_driver() {
    let t = TestApp::start().await;
    let holders = async |names: &str| {
        t.count(&format!("SELECT count(DISTINCT holder_id) FROM api_keys WHERE name IN ({names})")).await
    };
    t.key_named("phone", AccountRole::Driver, Some("D1")).await;
    t.key_named("tablet", AccountRole::Driver, Some("D1")).await;
    t.key_named("other", AccountRole::Driver, Some("D2")).await;
    assert_eq!((holders("'phone', 'tablet'").await, holders("'phone', 'tablet', 'other'").await), (1, 2));
    t.key(AccountRole::Producer).await;
    t.sql("UPDATE api_keys SET revoked_at = dispatchq_now() WHERE name = 'test'").await;
    t.key_named("TEST", AccountRole::Producer, None).await;
    t.key_named("test", AccountRole::Producer, None).await;
    assert_eq!(holders("'test', 'TEST'").await, 1);
}

#[tokio::test]
async fn while_the_first_request_runs_the_second_waits() {
    let shop = Shop::open().await;
    shop.create("k1").await;
    shop.lose_answer().await;
    assert_eq!(shop.create("k1").await.error(), (409, "IDEMPOTENCY_KEY_IN_USE"));
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn of_many_at_once_one_creates() {
    let shop = Shop::open().await;
    let answers =
        tokio::join!(shop.create("k"), shop.create("k"), shop.create("k"), shop.create("k"), shop.create("k"));
    let answers: [Answer; 5] = answers.into();
    let fresh = answers.iter().filter(|a| a.status == 201 && !a.replayed).count();
    assert_eq!(fresh, 1, "{answers:?}");
    assert!(answers.iter().all(|a| a.status == 201 || a.error() == (409, "IDEMPOTENCY_KEY_IN_USE")), "{answers:?}");
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn a_request_whose_process_died_is_done_once() {
    let shop = Shop::open().await;
    let first = shop.create("k1").await;
    shop.lose_answer().await;
    shop.t.advance(secs(61)).await;
    let again = shop.create("k1").await;
    assert_eq!((again.status, again.text("order_id")), (201, first.text("order_id")));
    assert_eq!(shop.orders().await, 1);
    shop.t.run_due().await;
    shop.t.assert_sound().await;
}

#[tokio::test]
async fn request_with_order_id_survives_crash_once() {
    let shop = Shop::open().await;
    let mut named = ride();
    named["order_id"] = json!("SHOP-7");
    let create = || shop.api.post_once(ORDERS, &shop.key, "k1", named.clone());
    assert_eq!(create().await.status, 201);
    shop.lose_answer().await;
    shop.t.advance(secs(61)).await;
    let again = create().await;
    assert_eq!((again.status, &again.body["order_id"]), (201, &json!("SHOP-7")), "{again:?}");
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn an_order_of_the_same_name_is_not_made_twice() {
    let shop = Shop::open().await;
    let mut named = ride();
    named["order_id"] = json!("SHOP-7");
    assert_eq!(shop.api.post(ORDERS, &shop.key, named.clone()).await.status, 201);
    assert_eq!(shop.api.post(ORDERS, &shop.key, named.clone()).await.error(), (409, "ORDER_EXISTS"));
    assert_eq!(shop.api.post_once(ORDERS, &shop.key, "k1", named).await.error(), (409, "ORDER_EXISTS"));
    assert_eq!(shop.orders().await, 1);
}

#[tokio::test]
async fn a_key_is_free_again_after_a_day() {
    let shop = Shop::open().await;
    let yesterday = shop.create("k1").await;
    shop.t.advance(secs(24 * 3600 - 1)).await;
    assert!(shop.create("k1").await.replayed);
    shop.t.advance(secs(2)).await;
    let mut other = ride();
    other["payment_status"] = json!("PAID");
    let today = shop.api.post_once(ORDERS, &shop.key, "k1", other).await;
    assert_eq!((today.status, today.replayed), (201, false));
    assert_ne!(today.text("order_id"), yesterday.text("order_id"));
    assert_eq!(today.text("payment_status"), "PAID");
    assert_eq!(shop.orders().await, 2);
}

#[tokio::test]
async fn a_refused_request_may_be_corrected_under_its_key() {
    let shop = Shop::open().await;
    let mut wrong = ride();
    wrong["service_type"] = json!("TELEPORT");
    let refused = shop.api.post_once(ORDERS, &shop.key, "k1", wrong).await;
    assert_eq!(refused.error(), (422, "INVALID"));
    assert_eq!(shop.create("k1").await.status, 201);
}

#[tokio::test]
async fn a_repeated_cancel_gets_the_same_answer() {
    let shop = Shop::open().await;
    shop.t.order("ORD-1").await;
    let cancel = || shop.api.post_once("/api/v1/orders/ORD-1/cancel", &shop.key, "c1", json!({ "reason": "late" }));
    let first = cancel().await;
    assert_eq!((first.status, first.text("status")), (200, "CANCELLED_BY_USER"));
    assert_eq!(cancel().await, Answer { replayed: true, ..first });
    shop.t.assert_sound().await;
}

#[tokio::test]
async fn request_with_lost_answer_is_resumed_once() {
    let shop = Shop::open().await;
    // The order is committed, and then storing the answer fails.
    shop.t.sql("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$").await;
    shop.t.sql("CREATE TRIGGER refuse BEFORE UPDATE ON idempotency_keys FOR EACH ROW WHEN (NEW.status > 0) EXECUTE FUNCTION refuse()").await;
    // A request with an area is claimed, executed and answered in separate statements.
    let mut in_area = ride();
    in_area["area_id"] = json!("JKT");
    let create = || shop.api.post_once(ORDERS, &shop.key, "k1", in_area.clone());
    let first = create().await;
    assert_eq!(first.status, 201);
    shop.t.sql("DROP TRIGGER refuse ON idempotency_keys").await;
    assert_eq!(shop.orders().await, 1);
    let again = create().await;
    assert_eq!(again.status, 201);
    assert_eq!(shop.orders().await, 1);
    assert_eq!(again.text("order_id"), first.text("order_id"));
}

/// Simulates the time limit: the key is claimed after the request was cancelled.
#[tokio::test]
async fn abandoned_request_releases_its_idempotency_key() {
    let t = TestApp::start().await;
    let rows = IdempotencyStore::new(&t.app.core.db, &IdPrefix::default());
    let api_key = Uuid::now_v7();
    let claim = || NewClaim {
        holder: api_key,
        key: "k1".to_owned(),
        request_hash: b"the same".to_vec(),
        work_id: Uuid::now_v7(),
    };
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::raw_sql("LOCK TABLE idempotency_keys IN SHARE ROW EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let first = claim();
    let work_id = first.work_id;
    let waiting = tokio::spawn({
        let rows = rows.clone();
        async move { rows.claim_key(first).await }
    });
    let claiming = "SELECT count(*) FROM pg_stat_activity
                    WHERE wait_event_type = 'Lock' AND query LIKE '-- claim idempotency key%'";
    eventually("the key is being claimed", || async { t.count(claiming).await == 1 }).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    lock.rollback().await.unwrap();
    let claimed = "SELECT count(*) FROM idempotency_keys";
    eventually("the key is claimed all the same", || async { t.count(claimed).await == 1 }).await;
    let lapsed = "SELECT count(*) FROM idempotency_keys WHERE created_at < dispatchq_now() - interval '1 minute'";
    eventually("it is released", || async { t.count(lapsed).await == 1 }).await;

    // The retry continues with the same work and keeps its key until it is done.
    let retry = rows.claim_key(claim()).await.unwrap().expect("the key is free");
    assert_eq!(retry.work_id, work_id);
    assert!(rows.claim_key(claim()).await.unwrap().is_none());
    rows.keep_answer(retry, 201, json!({ "done": true })).await.unwrap();
    assert_eq!(
        t.texts("SELECT concat_ws(' ', status, body::text) FROM idempotency_keys").await,
        ["201 {\"done\": true}"]
    );
}

fn set_prefix(config: &mut Config, prefix: &str) {
    config.ids.prefix = prefix.parse().unwrap();
}

#[tokio::test]
async fn generated_order_id_has_the_prefix() {
    let t = TestApp::with(|config| set_prefix(config, "jkt")).await;
    let (api, key) = (Api::start(&t.app).await, t.key(AccountRole::Producer).await);
    let mut in_area = ride();
    in_area["area_id"] = json!("JKT");
    for answer in [
        api.post(ORDERS, &key, ride()).await,
        api.post_once(ORDERS, &key, "k1", ride()).await,
        api.post_once(ORDERS, &key, "k2", in_area).await,
    ] {
        assert!(answer.text("order_id").starts_with("jkt-ORD-"), "{answer:?}");
    }
    let mut named = ride();
    named["order_id"] = json!("SHOP-7");
    assert_eq!(api.post(ORDERS, &key, named).await.text("order_id"), "SHOP-7");
}

#[tokio::test]
async fn orders_are_found_after_a_prefix_change() {
    let shop = Shop::open().await;
    let first = shop.create("k1").await;
    let api = Api::start(&shop.t.reconfigured(|config| set_prefix(config, "jkt"))).await;
    let order = format!("{ORDERS}/{}", first.text("order_id"));
    assert_eq!(api.post_once(ORDERS, &shop.key, "k1", ride()).await, Answer { replayed: true, ..first });
    assert_eq!(api.get(&order, &shop.key).await.status, 200);
    assert_eq!(api.post(&format!("{order}/cancel"), &shop.key, json!({})).await.status, 200);
    shop.t.assert_sound().await;
}

/// The process dies before it stores the answer, and the setting changes before the producer repeats the request.
#[tokio::test]
async fn repeat_after_a_prefix_change_creates_no_second_order() {
    let shop = Shop::open().await;
    let mut in_area = ride();
    in_area["area_id"] = json!("JKT");
    let first = shop.api.post_once(ORDERS, &shop.key, "k1", in_area.clone()).await;
    for prefix in ["jkt", "sub"] {
        shop.lose_answer().await;
        shop.t.advance(secs(61)).await;
        let api = Api::start(&shop.t.reconfigured(|config| set_prefix(config, prefix))).await;
        let again = api.post_once(ORDERS, &shop.key, "k1", in_area.clone()).await;
        assert_eq!((again.status, again.text("order_id")), (201, first.text("order_id")));
        assert_eq!(shop.orders().await, 1);
    }
}
