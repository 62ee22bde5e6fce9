//! Producers read the steps of their orders as a stream that skips no step and waits for the next one.

use serde_json::{Value, json};

use accounts::api_keys::AccountRole;
use maintenance::periodic::cleanup::{self, CleanupMode};
use test_support::{Answer, Api, TestApp, eventually, lasting_transaction, ride, secs};

/// Starts the API and creates the keys of two producers.
async fn with_producers(t: &TestApp) -> (Api, String, String) {
    let shop = t.key_named("shop", AccountRole::Producer, None).await;
    let other = t.key_named("other", AccountRole::Producer, None).await;
    (Api::start(&t.app).await, shop, other)
}

async fn create(api: &Api, key: &str, order: &str) {
    let mut new = ride();
    new["order_id"] = json!(order);
    assert_eq!(api.post("/api/v1/orders", key, new).await.status, 201);
}

async fn read(api: &Api, key: &str, query: &str) -> Answer {
    api.get(&format!("/api/v1/events?{query}"), key).await
}

/// Returns the order and type of each event in an answer.
fn steps(answer: &Answer) -> Vec<String> {
    let step =
        |event: &Value| format!("{} {}", event["data"]["order_id"].as_str().unwrap(), event["type"].as_str().unwrap());
    answer.body["events"].as_array().unwrap_or_else(|| panic!("{answer:?}")).iter().map(step).collect()
}

#[tokio::test]
async fn producer_pages_through_steps_of_own_orders() {
    let t = TestApp::start().await;
    let (api, shop, other) = with_producers(&t).await;
    for (key, order) in [(&shop, "ORD-1"), (&other, "ORD-2"), (&shop, "ORD-3")] {
        create(&api, key, order).await;
        t.cancel(order).await.unwrap();
    }
    t.drivers(&[("D1", 100.0)]).await;
    let own = ["ORD-1 order.created", "ORD-1 order.cancelled", "ORD-3 order.created", "ORD-3 order.cancelled"];
    let (mut read_so_far, mut query) = (Vec::new(), "limit=1".to_owned());
    loop {
        let page = read(&api, &shop, &query).await;
        if steps(&page).is_empty() {
            break;
        }
        read_so_far.extend(steps(&page));
        query = format!("limit=1&after={}", page.text("next"));
    }
    assert_eq!(read_so_far, own);
    assert_eq!(steps(&read(&api, &other, "").await), ["ORD-2 order.created", "ORD-2 order.cancelled"]);
    for role in [AccountRole::Support, AccountRole::Admin] {
        assert_eq!(steps(&read(&api, &t.key(role).await, "").await).len(), 6, "{role:?}");
    }
    assert_eq!(read(&api, &t.driver_key("D1").await, "").await.error(), (403, "FORBIDDEN"));
    let shared = Api::start(&t.reconfigured(|config| config.http.producers_share_orders = true)).await;
    assert_eq!(steps(&read(&shared, &other, "").await).len(), 6);
    for query in
        ["limit=0", "limit=1001", "wait=51", "after=1", "after=-1-1", "after=18446744073709551615-1", "limit=x"]
    {
        assert_eq!(read(&api, &shop, query).await.error(), (422, "INVALID"), "{query}");
    }

    t.advance(secs(401 * 86_400)).await;
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(steps(&read(&api, &shop, "").await), Vec::<String>::new());
}

/// A step whose transaction takes its number first and commits last.
#[tokio::test]
async fn a_cursor_skips_no_step_that_is_committed_late() {
    let t = TestApp::start().await;
    let (api, shop, _) = with_producers(&t).await;
    create(&api, &shop, "BEFORE").await;
    let mut late = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT dispatchq_create_order('LATE', 'RIDE', -6.2088, 106.8456, owner => 'shop')")
        .execute(&mut *late)
        .await
        .unwrap();
    create(&api, &shop, "EARLY").await;
    assert_eq!(t.texts("SELECT order_id FROM order_feed ORDER BY seq").await, ["BEFORE", "EARLY"], "they can be seen");

    let first = read(&api, &shop, "").await;
    assert_eq!(steps(&first), ["BEFORE order.created"], "a step before the other may still come");
    let second = read(&api, &shop, &format!("after={}", first.text("next"))).await;
    assert_eq!(steps(&second), Vec::<String>::new());
    late.commit().await.unwrap();
    let third = read(&api, &shop, &format!("after={}", second.text("next"))).await;
    assert_eq!(steps(&third), ["LATE order.created", "EARLY order.created"]);
    let seq = |n: usize| third.body["events"][n]["data"]["seq"].as_i64().unwrap();
    assert!(seq(0) < seq(1), "a cursor of numbers would have passed the first");
    let last = read(&api, &shop, &format!("after={}", third.text("next"))).await;
    assert_eq!(steps(&last), Vec::<String>::new());
}

/// Positions for an engine without transaction ids: times, and a lag that is longer than any transaction.
const POSITIONS_BY_TIME: &str = "
    CREATE OR REPLACE FUNCTION dispatchq_feed_position() RETURNS bigint LANGUAGE sql VOLATILE
        AS $$ SELECT (extract(epoch FROM dispatchq_now()) * 1000000)::bigint $$;
    CREATE OR REPLACE FUNCTION dispatchq_feed_horizon() RETURNS bigint LANGUAGE sql VOLATILE
        AS $$ SELECT (extract(epoch FROM dispatchq_now()) * 1000000)::bigint - 10000000 $$";

#[tokio::test]
async fn positions_by_time_skip_no_late_step() {
    let t = TestApp::start().await;
    t.sql(POSITIONS_BY_TIME).await;
    let (api, shop, _) = with_producers(&t).await;
    create(&api, &shop, "BEFORE").await;
    t.advance(secs(11)).await;
    let mut late = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT dispatchq_create_order('LATE', 'RIDE', -6.2088, 106.8456, owner => 'shop')")
        .execute(&mut *late)
        .await
        .unwrap();
    t.advance(secs(1)).await;
    create(&api, &shop, "EARLY").await;
    let first = read(&api, &shop, "").await;
    assert_eq!(steps(&first), ["BEFORE order.created"]);
    late.commit().await.unwrap();
    t.advance(secs(8)).await;
    let second = read(&api, &shop, &format!("after={}", first.text("next"))).await;
    assert_eq!(steps(&second), Vec::<String>::new(), "the lag of both has not passed");
    t.advance(secs(2)).await;
    let third = read(&api, &shop, &format!("after={}", second.text("next"))).await;
    assert_eq!(steps(&third), ["LATE order.created"]);
    t.advance(secs(1)).await;
    let last = read(&api, &shop, &format!("after={}", third.text("next"))).await;
    assert_eq!(steps(&last), ["EARLY order.created"]);
}

#[tokio::test]
async fn a_request_that_waits_is_answered_with_the_next_step() {
    let t = TestApp::start().await;
    let (api, shop, other) = with_producers(&t).await;
    create(&api, &shop, "BEFORE").await;
    let next = read(&api, &shop, "").await.text("next").to_owned();
    let query = format!("wait=25&after={next}");
    let waiting = read(&api, &shop, &query);
    let making = async {
        eventually("a request waits", || async { t.app.core.loops.count_turns("feed board") > 0 }).await;
        create(&api, &other, "OTHER").await;
        create(&api, &shop, "NEXT").await;
    };
    let (answer, ()) = tokio::join!(waiting, making);
    assert_eq!(steps(&answer), ["NEXT order.created"]);
}

// Rule F24: A request that waits checks its key again before it is answered.
#[tokio::test]
async fn revoked_key_gets_no_event_it_waited_for() {
    let t = TestApp::start().await;
    let (api, shop, _) = with_producers(&t).await;
    t.drivers(&[("D1", 100.0)]).await;
    let driver = t.driver_key("D1").await;
    let waiting = read(&api, &shop, "wait=25");
    let offers = api.get("/api/v1/drivers/D1/offers?wait_sec=25", &driver);
    let making = async {
        eventually("both requests wait", || async {
            t.app.core.loops.count_turns("feed board") > 0 && t.app.core.loops.count_turns("offer board") > 0
        })
        .await;
        t.sql("UPDATE api_keys SET revoked_at = dispatchq_now()").await;
        t.sql("SELECT dispatchq_create_order('NEXT', 'RIDE', -6.2088, 106.8456, owner => 'shop')").await;
        t.app.orders.offers.close();
    };
    let (answer, offers, ()) = tokio::join!(waiting, offers, making);
    assert_eq!(answer.error(), (401, "UNAUTHENTICATED"), "{answer:?}");
    assert_eq!(offers.error(), (401, "UNAUTHENTICATED"), "{offers:?}");
}
