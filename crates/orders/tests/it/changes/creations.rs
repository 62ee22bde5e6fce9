//! A batched INSERT and the SQL function create identical rows, with the messages about them.

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use model::{messages::ProducerEvent, order::OrderStep};
use orders::order_store::{
    create::{CreateVerdict, CreationKey, OrderCreation},
    reports::reports_of,
};
use settings::ProducerConfig;
use test_support::{PATIENCE, TestApp, eventually, id, lasting_transaction};

/// Returns a creation with a distinct value in each column.
fn creation(order: &str, service_type: &str) -> OrderCreation {
    OrderCreation {
        id: id(order),
        write_id: Uuid::now_v7(),
        service_type: service_type.into(),
        pickup_lat: 1.5,
        pickup_lng: 2.5,
        payment_status: "PAID".to_owned(),
        amount_minor: Some(150_000),
        currency: Some("IDR".to_owned()),
        area_id: Some("JKT".into()),
        customer_id: Some("C1".to_owned()),
        actor: "producer:shop".to_owned(),
        lifetime_ms: Some(600_000.0),
        owner: Some("shop".to_owned()),
        key_id: Some(Uuid::nil()),
        language: Some("id".to_owned()),
        channel: Some("WEB".to_owned()),
        loyalty_level: Some("ELITE".to_owned()),
        admission: Some("WOULD_REFUSE".to_owned()),
        met_waiting: Some(7),
        met_threshold: 5,
        max_waiting: None,
        max_scheduled: None,
        hour_from: None,
        pickup_at: None,
        starts_at: None,
        warn_at: None,
        details: Some(json!({ "notes": "Ring twice.", "metadata": { "crm_id": "7" } })),
        key: None,
        reports: Vec::new(),
    }
}

async fn create(t: &TestApp, item: &OrderCreation) -> Result<CreateVerdict, sqlx::Error> {
    t.app.orders.rows.create_order(item.clone()).await
}

/// Returns the creation with only the columns that every order has.
fn without_extras(item: OrderCreation) -> OrderCreation {
    OrderCreation {
        amount_minor: None,
        currency: None,
        customer_id: None,
        details: None,
        lifetime_ms: None,
        owner: None,
        key_id: None,
        language: None,
        channel: None,
        loyalty_level: None,
        admission: None,
        met_waiting: None,
        ..item
    }
}

/// Returns all rows that a creation wrote, without ids and generated numbers.
async fn rows_of(t: &TestApp, order: &str) -> Vec<String> {
    let select = format!(
        "SELECT (r - ARRAY['id', 'order_id', 'seq', 'position', 'write_id', 'creation_id'])::text
         FROM (SELECT 1 AS place, to_jsonb(o) AS r FROM orders o WHERE id = '{order}'
               UNION ALL SELECT 2, to_jsonb(e) FROM order_events e WHERE order_id = '{order}'
               UNION ALL SELECT 3, to_jsonb(f) FROM order_feed f WHERE order_id = '{order}'
               UNION ALL SELECT 4, to_jsonb(w) FROM shadow_refusals w WHERE order_id = '{order}'
               UNION ALL SELECT 5, to_jsonb(u) FROM uncounted_orders u WHERE order_id = '{order}') AS made (place, r)
         ORDER BY place"
    );
    t.texts(&select).await
}

#[tokio::test]
async fn an_order_has_the_same_rows_whichever_statement_creates_it() {
    let t = TestApp::start().await;
    let alters: [fn(OrderCreation) -> OrderCreation; 3] =
        [|item| item, without_extras, |item| OrderCreation { area_id: None, ..without_extras(item) }];
    for (n, alter) in alters.into_iter().enumerate() {
        let (together, alone) = (format!("ORD-{n}-A"), format!("ORD-{n}-B"));
        let item = alter(creation(&together, "RIDE"));
        assert!(matches!(create(&t, &item).await, Ok(CreateVerdict::Created(_))));
        assert!(matches!(create(&t, &item).await, Ok(CreateVerdict::Exists)));
        if item.area_id.is_some() {
            // This creation counts waiting orders, so it calls the function.
            let counted = OrderCreation { max_waiting: Some(100), ..alter(creation(&alone, "RIDE")) };
            assert!(matches!(create(&t, &counted).await, Ok(CreateVerdict::Created(_))));
        } else {
            let in_sql =
                format!("SELECT dispatchq_create_order('{alone}', 'RIDE', 1.5, 2.5, 'PAID', actor => 'producer:shop')");
            t.sql(&in_sql).await;
            // The same creation with the idempotency key of its request.
            let (keyed, api_key, work_id) = (format!("ORD-{n}-C"), Uuid::now_v7(), Uuid::now_v7());
            let key = CreationKey { holder: api_key, key: "k1".to_owned(), request_hash: vec![1, 255], work_id };
            let keyed_item = OrderCreation { key: Some(key), ..alter(creation(&keyed, "RIDE")) };
            assert!(matches!(create(&t, &keyed_item).await, Ok(CreateVerdict::Created(_))));
            assert_eq!(rows_of(&t, &keyed).await, rows_of(&t, &together).await);
            let again = OrderCreation { id: id("ORD-OTHER"), ..keyed_item };
            assert!(matches!(create(&t, &again).await, Ok(CreateVerdict::Exists)), "the key is known");
            let kept = "SELECT concat_ws(' ', key, status, encode(request_hash, 'hex'), body ->> 'order_id')
                        FROM idempotency_keys";
            assert_eq!(t.texts(kept).await, [format!("k1 201 01ff {keyed}")]);
        }
        let rows = rows_of(&t, &together).await;
        assert!(rows.len() >= 3, "{rows:?}");
        assert_eq!(rows, rows_of(&t, &alone).await);
        let known =
            format!("SELECT count(*) FROM orders WHERE id = '{together}' AND creation_id = '{}'", item.write_id);
        assert_eq!(t.count(&known).await, 1, "a lost answer is found by this id");
    }
}

/// Id of the lock that the clock waits for. The number is arbitrary.
const LOCK: i64 = 4713;

#[tokio::test]
async fn order_of_new_service_type_is_complete() {
    let t = TestApp::with(|config| config.database.statement_timeout = PATIENCE).await;
    // Without details the statement has another text, so its cached plan with the clock of this test is not used again.
    let unknown = OrderCreation { details: None, ..creation("ORD-1", "LATE") };
    let unknown = create(&t, &unknown).await.unwrap_err().to_string();
    assert!(unknown.contains("unknown service type LATE"), "{unknown}");

    // The statement has read the service types and waits. Then another session commits a new type. The statement waits
    // without the time limit for locks, because a busy machine may need longer than that to notice that it waits.
    t.sql(&format!(
        "ALTER FUNCTION dispatchq_now() RENAME TO dispatchq_moved_now;
         CREATE FUNCTION dispatchq_now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS $$
         BEGIN
             PERFORM set_config('lock_timeout', '0', true);
             PERFORM pg_advisory_xact_lock_shared({LOCK});
             RETURN dispatchq_moved_now();
         END $$"
    ))
    .await;
    let mut adding = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(LOCK).execute(&mut *adding).await.unwrap();
    let add = "INSERT INTO service_types (service_type, lifetime) VALUES ('LATE', interval '20 minutes')";
    sqlx::query(add).execute(&mut *adding).await.unwrap();
    let item = creation("ORD-1", "LATE");
    let add_meanwhile = async {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND query LIKE '-- create orders%'";
        eventually("the creation waits", || async { t.count(waiting).await == 1 }).await;
        adding.commit().await.unwrap();
    };
    let (created, ()) = tokio::join!(create(&t, &item), add_meanwhile);
    assert!(matches!(created, Ok(CreateVerdict::Created(_))), "{created:?}");
    let told = "SELECT concat_ws(' ', payment_status, area_id, customer_id, owner, language, channel, admission,
                                 lifetime_deadline - created_at, write_id, creation_id) FROM orders";
    let id = item.write_id;
    assert_eq!(t.texts(told).await, [format!("PAID JKT C1 shop id WEB WOULD_REFUSE 00:10:00 {id} {id}")]);
    assert_eq!(t.texts("SELECT actor FROM order_events").await, ["producer:shop"]);
    assert_eq!(t.count("SELECT count(*) FROM uncounted_orders").await, 0);
}

/// Subscribes the producer of these creations to all steps.
async fn with_subscription() -> TestApp {
    let subscription = ProducerConfig {
        url: Some("http://127.0.0.1:1/".to_owned()),
        secret: Some("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3".to_owned()),
        events: OrderStep::ALL.into_iter().map(ProducerEvent::Step).collect(),
        allow_private: true,
        ..ProducerConfig::default()
    };
    TestApp::with(|config| {
        config.producers.insert("shop".to_owned(), subscription);
    })
    .await
}

/// Returns the creation with the messages to its producer.
fn reported(t: &TestApp, item: OrderCreation) -> OrderCreation {
    OrderCreation { reports: reports_of(&item, &t.app.config.notifications), ..item }
}

/// Returns the messages about an order, without ids and generated numbers.
async fn messages_of(t: &TestApp, order: &str) -> Vec<String> {
    let select = format!(
        "SELECT (to_jsonb(m) - ARRAY['id', 'order_id', 'message_id', 'dedupe_key'] #- '{{payload,order_id}}'
                 #- '{{payload,seq}}')::text
         FROM outbox m JOIN order_feed f ON f.order_id = m.order_id AND f.kind = m.kind
             AND f.seq = (m.payload ->> 'seq')::bigint AND f.seq::text = m.dedupe_key
         WHERE m.order_id = '{order}' ORDER BY m.id"
    );
    t.texts(&select).await
}

#[tokio::test]
async fn both_statements_write_the_same_messages() {
    let t = with_subscription().await;
    let at = |text: &str| Some(text.parse().unwrap());
    let scheduled = |order: &str| OrderCreation {
        pickup_at: at("2030-01-01T10:00:00Z"),
        starts_at: at("2030-01-01T09:30:00.120Z"),
        ..creation(order, "RIDE")
    };
    let counted = |item| OrderCreation { max_scheduled: Some(9), hour_from: at("2030-01-01T10:00:00Z"), ..item };
    for (order, item) in [("ORD-A", scheduled("ORD-A")), ("ORD-B", counted(scheduled("ORD-B")))] {
        let created = create(&t, &reported(&t, item)).await.unwrap();
        let CreateVerdict::Created(Some(order_created)) = created else { panic!("{created:?}") };
        assert_eq!(order_created.messages.len(), 2, "{order}");
    }
    let messages = messages_of(&t, "ORD-A").await;
    assert!(messages[0].contains("order.created") && messages[1].contains("order.scheduled"), "{messages:?}");
    assert_eq!(messages, messages_of(&t, "ORD-B").await);
}

#[tokio::test]
async fn repeated_creation_stores_no_second_message() {
    let t = with_subscription().await;
    let (holder, work_id) = (Uuid::now_v7(), Uuid::now_v7());
    let key = CreationKey { holder, key: "k1".to_owned(), request_hash: vec![1], work_id };
    let item = reported(&t, OrderCreation { key: Some(key), area_id: None, ..creation("ORD-1", "RIDE") });
    assert!(matches!(create(&t, &item).await, Ok(CreateVerdict::Created(_))));
    assert!(matches!(create(&t, &item).await, Ok(CreateVerdict::Exists)));
    assert_eq!(t.texts("SELECT kind || ' ' || channel FROM outbox").await, ["order.created producer:shop"]);
    assert_eq!(t.count("SELECT count(*) FROM idempotency_keys").await, 1);
}

#[tokio::test]
async fn times_in_messages_have_the_format_of_the_feed() {
    let t = TestApp::start().await;
    for time in ["2030-01-01T08:00:00Z", "2030-01-01T08:00:00.120Z", "2030-12-31T23:59:59.007Z"] {
        let select = format!("SELECT dispatchq_step_payload('{{}}', 1, 'X', '{time}') ->> 'timestamp'");
        let at: DateTime<Utc> = time.parse().unwrap();
        assert_eq!(json!(t.texts(&select).await), json!([at]));
    }
}
