//! Lists of orders and refunds for staff.

use serde_json::json;

use super::{ORDERS, because, order_ids};
use accounts::api_keys::AccountRole;
use orders::search::{self, OrderSearch};
use test_support::{Answer, Api, TestApp, lasting_transaction, secs};

struct Desk {
    t: TestApp,
    api: Api,
    viewer: String,
}

impl Desk {
    async fn open() -> Self {
        let t = TestApp::start().await;
        let (api, viewer) = (Api::start(&t.app).await, t.key(AccountRole::Viewer).await);
        Self { t, api, viewer }
    }

    async fn create(&self, order: &str, payment: &str, area: &str, customer: &str) {
        self.t.advance(secs(1)).await;
        let created = format!(
            "SELECT dispatchq_create_order('{order}', 'RIDE', -6.2088, 106.8456, '{payment}', 100, 'IDR', '{area}', '{customer}')"
        );
        self.t.sql(&created).await;
    }

    async fn list(&self, query: &str) -> Answer {
        let answer = self.api.get(&format!("{ORDERS}?{query}"), &self.viewer).await;
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        answer
    }

    #[track_caller]
    fn found(&self, answer: &Answer, expected: &[&str]) {
        assert_eq!(order_ids(answer), expected, "{answer:?}");
    }
}

#[tokio::test]
async fn orders_are_found_by_field_or_id() {
    let desk = Desk::open().await;
    desk.t.drivers(&[("D1", 100.0)]).await;
    for (order, area, customer) in
        [("A-1", "NORTH", "C-1"), ("A-2", "SOUTH", "C-1"), ("A-3", "SOUTH", "C-2"), ("A-4", "SOUTH", "C-2")]
    {
        desk.create(order, "UNPAID", area, customer).await;
    }
    desk.t.cancel("A-4").await.unwrap();
    let dispatcher = desk.t.key(AccountRole::Dispatcher).await;
    let assign = json!({ "driver_id": "D1", "reason": "asked by phone" });
    assert_eq!(desk.api.post(&format!("{ORDERS}/A-1/assign"), &dispatcher, assign).await.status, 200);
    assert_eq!(desk.api.post(&format!("{ORDERS}/A-3/hold"), &dispatcher, because("a call")).await.status, 200);

    let open = desk.list("").await;
    desk.found(&open, &["A-3", "A-2", "A-1"]);
    assert_eq!((&open.body["closed"], &open.body["next_cursor"]), (&json!("none"), &json!(null)));
    assert!(open.text("note").starts_with("open orders only"));
    for (query, expected) in [
        ("status=DRIVER_ASSIGNED", ["A-1"].as_slice()),
        ("area=SOUTH", &["A-3", "A-2"]),
        ("area=SOUTH&held=false", &["A-2"]),
        ("held=true", &["A-3"]),
        ("service_type=RENT", &[]),
        ("driver=D1", &["A-1"]),
        ("customer=C-2", &["A-4", "A-3"]),
        ("customer=C-2&status=CANCELLED_BY_USER", &["A-4"]),
        ("q=A-4", &["A-4"]),
        ("q=C-1", &["A-2", "A-1"]),
        ("q=D1", &["A-1"]),
        ("q=C-2&held=true", &["A-3"]),
        ("q=nothing", &[]),
        ("status=CANCELLED_BY_USER", &["A-4"]),
        ("from=2030-01-01T08:00:00Z&to=2030-01-01T08:00:03Z", &["A-2", "A-1"]),
    ] {
        desk.found(&desk.list(query).await, expected);
    }
    assert_eq!(desk.list("q=C-2").await.body["closed"], "all");

    // Orders that closed yesterday are found with an explicit time or an id.
    desk.t.advance(secs(25 * 3600)).await;
    let closed = desk.list("status=CANCELLED_BY_USER").await;
    desk.found(&closed, &[]);
    assert_eq!(closed.text("note"), "orders of the last 24 hours; request others with from and to, at most 31 days");
    assert_eq!(closed.text("created_from"), "2030-01-01T09:00:04Z");
    desk.found(&desk.list("status=CANCELLED_BY_USER&from=2030-01-01T00:00:00Z").await, &["A-4"]);
    desk.found(&desk.list("customer=C-2&status=CANCELLED_BY_USER").await, &["A-4"]);
    desk.found(&desk.list("area=NORTH").await, &["A-1"]);
}

#[tokio::test]
async fn closed_orders_are_listed_by_id_or_month() {
    let desk = Desk::open().await;
    desk.create("E-1", "UNPAID", "NORTH", "C-1").await;
    desk.t.cancel("E-1").await.unwrap();
    desk.t.advance(secs(40 * 86_400)).await;
    for query in [
        "from=2030-01-01T00:00:00Z",
        "from=2030-01-01T00:00:00Z&to=2030-02-01T00:00:01Z",
        "status=CANCELLED_BY_USER&from=1970-01-01T00:00:00Z&to=2030-02-01T00:00:00Z",
    ] {
        let refused = desk.api.get(&format!("{ORDERS}?{query}"), &desk.viewer).await;
        assert_eq!(refused.error(), (422, "INVALID"), "{query}: {refused:?}");
        assert!(refused.text("message").contains("at most 31 days"), "{refused:?}");
    }
    for query in [
        "from=2030-01-01T00:00:00Z&to=2030-02-01T00:00:00Z",
        "to=2030-01-02T00:00:00Z",
        "customer=C-1",
        "customer=C-1&from=2029-01-01T00:00:00Z",
        "q=E-1&from=2029-01-01T00:00:00Z",
    ] {
        desk.found(&desk.list(query).await, &["E-1"]);
    }
}

/// The only connection for order changes is in use. A list that needed it would have to wait.
#[tokio::test]
async fn order_list_is_bounded_and_uses_own_connections() {
    let t = TestApp::with(|config| config.database.max_connections = 1).await;
    let api = Api::start(&t.app).await;
    let dispatcher = t.key(AccountRole::Dispatcher).await;
    t.order("F-1").await;
    let in_use = t.app.core.db.acquire().await.unwrap();
    let found = search::search_orders(&t.app.orders, &OrderSearch::default(), None, 10).await.unwrap();
    assert_eq!(found.orders.len(), 1);
    drop(in_use);
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::raw_sql("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE").execute(&mut *lock).await.unwrap();
    let slow = api.get(ORDERS, &dispatcher).await;
    assert_eq!(slow.error(), (422, "INVALID"), "{slow:?}");
    assert!(slow.text("message").contains("within 2 s"), "{slow:?}");
    lock.rollback().await.unwrap();
    assert_eq!(order_ids(&api.get(ORDERS, &dispatcher).await), ["F-1"]);
}

#[tokio::test]
async fn a_list_goes_on_where_the_page_before_ended() {
    let desk = Desk::open().await;
    for order in ["B-1", "B-2", "B-3"] {
        desk.create(order, "UNPAID", "NORTH", "C-1").await;
    }
    for filter in ["", "customer=C-1&", "q=C-1&", "from=2030-01-01T00:00:00Z&"] {
        let first = desk.list(&format!("{filter}limit=2")).await;
        desk.found(&first, &["B-3", "B-2"]);
        // A new order does not shift the next page.
        let next = format!("{filter}limit=2&cursor={}", first.text("next_cursor"));
        let rest = desk.list(&next).await;
        desk.found(&rest, &["B-1"]);
        assert_eq!(rest.body["next_cursor"], json!(null), "{filter}");
    }
    for query in [
        "limit=0",
        "limit=501",
        "cursor=x",
        "cursor=1.a:b",
        "status=ODD",
        "from=yesterday",
        "held=maybe",
        "q=",
        "colour=red",
        "from=-9999-01-01T00:00:00Z",
    ] {
        let answer = desk.api.get(&format!("{ORDERS}?{query}"), &desk.viewer).await;
        assert_eq!(answer.error(), (422, "INVALID"), "{query}: {answer:?}");
    }
}

// Rule U16: Completed refunds have a separate list, under the word that the console shows.
#[tokio::test]
async fn refunds_are_listed_until_the_money_is_back() {
    let desk = Desk::open().await;
    for (order, payment) in [("R-1", "PAID"), ("R-2", "UNPAID"), ("R-3", "SETTLEMENT")] {
        desk.create(order, payment, "NORTH", "C-1").await;
        desk.t.cancel(order).await.unwrap();
    }
    let refunds = async |query: &str| -> Vec<String> {
        let answer = desk.api.get(&format!("/api/v1/refunds?{query}"), &desk.viewer).await;
        let rows = answer.body["refunds"].as_array().unwrap_or_else(|| panic!("no refunds: {answer:?}"));
        rows.iter().map(|row| format!("{} {}", row["order_id"], row["state"]).replace('"', "")).collect()
    };
    assert_eq!(refunds("").await, ["R-1 owed", "R-3 owed"]);
    let support = desk.t.key(AccountRole::Support).await;
    let step = async |order: &str, action: &str| {
        let path = format!("{ORDERS}/{order}/refund");
        assert_eq!(desk.api.post(&path, &support, json!({ "action": action })).await.status, 200);
    };
    step("R-3", "start").await;
    assert_eq!(refunds("").await, ["R-1 owed", "R-3 started"]);
    assert_eq!(refunds("state=owed").await, ["R-1 owed"]);
    assert_eq!(refunds("state=started").await, ["R-3 started"]);
    let page = desk.api.get("/api/v1/refunds?limit=1", &desk.viewer).await;
    assert_eq!(refunds(&format!("limit=1&cursor={}", page.text("next_cursor"))).await, ["R-3 started"]);
    desk.t.advance(secs(60)).await;
    let row = desk.api.get("/api/v1/refunds", &desk.viewer).await.body["refunds"][0].clone();
    assert_eq!((&row["amount_minor"], &row["waits_sec"]), (&json!(100), &json!(62)));
    step("R-3", "done").await;
    assert_eq!(refunds("").await, ["R-1 owed"]);
    step("R-1", "start").await;
    step("R-1", "done").await;
    assert_eq!(refunds("").await, Vec::<String>::new());
    assert_eq!(refunds("state=completed").await, ["R-3 completed", "R-1 completed"]);
    let page = desk.api.get("/api/v1/refunds?state=completed&limit=1", &desk.viewer).await;
    let next = format!("state=completed&limit=1&cursor={}", page.text("next_cursor"));
    assert_eq!(refunds(&next).await, ["R-1 completed"]);
    assert_eq!(desk.api.get("/api/v1/refunds?state=done", &desk.viewer).await.error(), (422, "INVALID"));
}
