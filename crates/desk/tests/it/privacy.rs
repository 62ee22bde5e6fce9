//! An erasure removes personal data, and the history stays valid.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use accounts::api_keys::AccountRole;
use desk::privacy::{self, ErasureOutcome, ErasureRecord, ErasureSubject};
use foundation::db;
use maintenance::periodic::cleanup::{self, CleanupMode};
use model::{
    actor::{Actor, ActorRole},
    decide::actions,
};
use orders::fleet::drivers;
use test_support::{Api, TestApp, by, create_key, eventually, lasting_transaction, ride_with_id, secs, workspace};

/// Returns the tables that contain a text, except the record of erasures.
pub(super) async fn tables_with(t: &TestApp, text: &str) -> Vec<String> {
    let tables = t
        .texts(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relkind IN ('r', 'p') AND n.nspname = 'public' AND NOT c.relispartition AND c.relname <> 'erasures'
             ORDER BY 1",
        )
        .await;
    let mut found = Vec::new();
    for table in tables {
        let query = format!("SELECT count(*) FROM \"{table}\" x WHERE strpos(x::text, '{text}') > 0");
        if sqlx::query_scalar::<_, i64>(AssertSqlSafe(query)).fetch_one(&t.app.core.db).await.unwrap() > 0 {
            found.push(table);
        }
    }
    found
}

/// Runs a trip with all possible texts: two drivers get an offer, one declines, and the other carries it out. It is
/// paid and not refunded. Every free text contains MARK.
async fn trip(t: &TestApp, api: &Api, order: &str) {
    let (shop, root) = (t.key(AccountRole::Producer).await, t.key(AccountRole::Admin).await);
    let mut new = ride_with_id(order);
    new["customer_id"] = json!("MARK-CUSTOMER");
    (new["channel"], new["loyalty_level"], new["language"]) = (json!("MARK-WEB"), json!("MARK-GOLD"), json!("id"));
    new["pickup"] = json!({ "latitude": -6.208_812_34, "longitude": 106.845_612_34, "address": "MARK-PICKUP" });
    new["dropoff"] = json!({ "latitude": -6.208_812_34, "longitude": 106.845_612_34, "address": "MARK-TO" });
    new["contact"] = json!({ "name": "MARK-NAME", "phone": "+628123456789", "email": "MARK@example.com" });
    (new["notes"], new["metadata"]) = (json!("MARK-NOTES"), json!({ "MARK-KEY": "MARK-VALUE" }));
    assert_eq!(api.post_once("/api/v1/orders", &shop, "idem-1", new).await.status, 201);
    t.run_due().await;
    let path = |verb: &str| format!("/api/v1/orders/{order}/{verb}");
    let first = t.live_offer(order).await;
    let decline = json!({ "driver_id": first.driver_id, "offer_id": first.id, "reason": "MARK-REASON" });
    assert_eq!(api.post(&path("decline"), &root, decline).await.status, 200);
    t.run_due().await;
    let second = t.live_offer(order).await;
    let accept = json!({ "driver_id": second.driver_id, "offer_id": second.id });
    assert_eq!(api.post(&path("accept"), &t.driver_key(&second.driver_id).await, accept).await.status, 200);
    t.run_due().await;
    t.carry_out(order, &second.driver_id).await;
    t.run_due().await;
    t.sql(
        "INSERT INTO alerts (order_id, kind, dedupe_key, payload, raised_at, acked_at, acked_by, ack_note)
         VALUES ('ORD-1', 'X', 'x', '{\"customer\": \"MARK-CUSTOMER\"}', now(), now(), 'support:eve', 'MARK-NOTE');
         UPDATE outbox SET last_error = 'MARK-ERROR'; INSERT INTO outbox_attempts SELECT id, 90, now(), 'MARK-TRY' FROM outbox;
         INSERT INTO refunds (order_id, amount_minor, currency, state, last_error, created_at, closed_at)
         VALUES ('ORD-1', 1, 'IDR', 'refunded', 'MARK-REFUND', now(), now());
         INSERT INTO shadow_refusals (at, source, order_id, area_id, service_type, threshold, channel, loyalty_level)
         SELECT created_at, 'create', id, '', service_type, 1, channel, loyalty_level FROM orders WHERE id = 'ORD-1';
         INSERT INTO inbox (partner, event_id, order_id, body, state, received_at)
         VALUES ('bbd', 'E', 'ORD-1', '{\"driver_name\": \"MARK-PARTNERS\"}', 'processed', now());
         INSERT INTO saved_filters (person, name, slot, filter)
         VALUES ('anna', 'hers', 1, '{\"customer\": \"MARK-CUSTOMER\"}'), ('anna', 'of MARK-CUSTOMER', 2, '{}');
         INSERT INTO dead_letters (job_id, died_at, queue, error, failed, lost, due_at, envelope, resolved_at, resolved_by,
                                   resolved_how, resolved_why)
         VALUES ('timeout:ORD-1:1', now(), 'q', 'MARK-ERROR', 1, 0, now(), 'MARK-ENVELOPE', now(), 'x', 'discarded', 'MARK-WHY')",
    )
    .await;
}

pub(super) async fn erasure(t: &TestApp, subject: ErasureSubject, id: &str) -> ErasureRecord {
    let now = db::database_now(&t.app.core.db).await.unwrap();
    ErasureRecord::new(subject, id, "a request", &by("cli:eve"), now)
}

// Fault S17
#[tokio::test]
async fn erased_customer_leaves_no_trace() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    trip(&t, &api, "ORD-1").await;
    assert!(tables_with(&t, "MARK").await.len() >= 8, "{:?}", tables_with(&t, "MARK").await);
    let before = t.reasons("ORD-1").await;
    let erasure = erasure(&t, ErasureSubject::Customer, "MARK-CUSTOMER").await;
    assert_eq!(privacy::erase_subject(&t.app.core, &erasure).await.unwrap(), ErasureOutcome::Done { orders: 1 });

    assert_eq!(tables_with(&t, "MARK").await, Vec::<String>::new());
    assert_eq!(tables_with(&t, "-6.2088").await, Vec::<String>::new(), "the place is gone, too");
    assert_eq!(
        t.count("SELECT count(*) FROM orders WHERE language IS NOT NULL").await,
        0,
        "it tells who the customer is"
    );
    assert_eq!(t.count("SELECT count(*) FROM shadow_refusals").await, 1, "what was let in is counted on");
    assert_eq!(t.reasons("ORD-1").await, before, "what happened stays");
    t.assert_sound().await;
    // Repeating the erasure changes nothing.
    assert_eq!(privacy::erase_subject(&t.app.core, &erasure).await.unwrap(), ErasureOutcome::Done { orders: 0 });
    let kept = privacy::list_erasures(&t.app.core).await.unwrap();
    assert_eq!((kept.len(), kept[0].orders, kept[0].actor.as_str()), (1, Some(1), "cli:eve"));
}

// Fault S17
#[tokio::test]
async fn erased_driver_leaves_no_trace() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("MARK-D1", 100.0), ("MARK-D2", 200.0), ("D3", 300.0)]).await;
    trip(&t, &api, "ORD-1").await;
    // A second order that the driver gave back and another driver has.
    t.order("ORD-2").await;
    t.run_due().await;
    let driver = t.accept_offer("ORD-2").await;
    assert_eq!(driver, "MARK-D1");
    let left =
        t.act("ORD-2", |s| actions::cancel_by_driver(s, &"MARK-D1".into(), Some("ask MARK-D1".to_owned()))).await;
    left.unwrap();
    t.run_due().await;
    while t.asked("ORD-2").await != "D3" {
        t.decline_offer("ORD-2").await;
        t.run_due().await;
    }
    t.sql(
        "INSERT INTO staff_actions (actor, action, subject, reason)
         VALUES ('operator:eve', 'DRIVER_DISABLED', 'MARK-D1', 'asked MARK-D1'), ('operator:eve', 'KEY_REVOKED', 'x MARK-D2', NULL)",
    )
    .await;
    for driver in ["MARK-D1", "MARK-D2"] {
        let erasure = erasure(&t, ErasureSubject::Driver, driver).await;
        assert!(
            matches!(
                privacy::erase_subject(&t.app.core, &erasure).await.unwrap(),
                ErasureOutcome::Done { orders: 1.. }
            ),
            "{driver}"
        );
    }
    // The remaining data is about ORD-1's customer, who was not erased.
    assert_eq!(tables_with(&t, "MARK-D").await, Vec::<String>::new());
    t.assert_sound().await;
    assert_eq!(t.asked("ORD-2").await, "D3", "an order goes on");
    let members: Vec<String> = t.redis(&["ZRANGE", "dispatchq:drivers:RIDE", "0", "-1"]).await;
    assert!(members.iter().all(|m| !m.starts_with("MARK")), "{members:?}");
    assert!(!drivers::driver_exists(&t.app.core.db, &"MARK-D1".into()).await.unwrap());
}

/// Counts the steps that name MARK-D1.
const STEPS_LEFT: &str = "SELECT count(*) FROM order_feed WHERE driver_id = 'MARK-D1'";

/// Creates more steps than one statement searches, of an order removed by retention. Half of them name MARK-D1. Locks
/// the last one.
async fn lock_last_step(t: &TestApp) -> sqlx::Transaction<'static, sqlx::Postgres> {
    t.drivers(&[("MARK-D1", 100.0), ("D2", 200.0)]).await;
    t.sql(
        "INSERT INTO order_feed (order_id, kind, status, reason, driver_id, at)
         SELECT 'GONE', 'order.driver_assigned', 'DRIVER_ASSIGNED', 'DRIVER_ASSIGNED',
                CASE WHEN n % 2 = 0 THEN 'MARK-D1' ELSE 'D2' END, dispatchq_now() FROM generate_series(1, 12000) n",
    )
    .await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM order_feed WHERE seq = (SELECT max(seq) FROM order_feed) FOR UPDATE")
        .execute(&mut *lock)
        .await
        .unwrap();
    lock
}

async fn until_the_last_page_waits(t: &TestApp) {
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- erase driver from feed%'";
    eventually("the last page waits for the lock", || async { t.count(waiting).await == 1 }).await;
    assert!((1..6000).contains(&t.count(STEPS_LEFT).await), "pages are committed one by one");
}

// Fault S17
#[tokio::test]
async fn driver_steps_are_erased_in_pages() {
    let t = TestApp::start().await;
    let lock = lock_last_step(&t).await;
    let erasure = erasure(&t, ErasureSubject::Driver, "MARK-D1").await;
    let (app, of_task) = (t.app.clone(), erasure.clone());
    let erasing = tokio::spawn(async move { privacy::erase_subject(&app.core, &of_task).await });
    until_the_last_page_waits(&t).await;
    assert_eq!(t.count("SELECT count(*) FROM drivers WHERE id = 'MARK-D1'").await, 0, "the rest is committed");
    assert_eq!(privacy::list_erasures(&t.app.core).await.unwrap()[0].orders, None, "it is not finished");
    lock.rollback().await.unwrap();
    assert_eq!(erasing.await.unwrap().unwrap(), ErasureOutcome::Done { orders: 0 });
    assert_eq!(tables_with(&t, "MARK").await, Vec::<String>::new());
    let pseudonym = erasure.pseudonym.unwrap();
    assert_eq!(t.count(&format!("SELECT count(*) FROM order_feed WHERE driver_id = '{pseudonym}'")).await, 6000);
    assert_eq!(t.count("SELECT count(*) FROM order_feed WHERE driver_id = 'D2'").await, 6000);
}

// Fault S17
#[tokio::test]
async fn interrupted_erasure_resumes_at_its_place() {
    let t = TestApp::start().await;
    let lock = lock_last_step(&t).await;
    let erasure = erasure(&t, ErasureSubject::Driver, "MARK-D1").await;
    let app = t.app.clone();
    let erasing = tokio::spawn(async move { privacy::erase_subject(&app.core, &erasure).await });
    until_the_last_page_waits(&t).await;
    erasing.abort();
    lock.rollback().await.unwrap();

    // The erasure ends, however many steps exist. This step precedes the saved position, so finding it unchanged proves
    // that no step is read twice.
    t.sql("UPDATE order_feed SET driver_id = 'MARK-D1' WHERE seq = (SELECT min(seq) FROM order_feed)").await;
    t.advance(secs(601)).await;
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(privacy::list_erasures(&t.app.core).await.unwrap()[0].orders, Some(0));
    assert_eq!(t.count(STEPS_LEFT).await, 1);
}

// Fault S17
#[tokio::test]
async fn locked_erasure_does_not_block_others() {
    let t = TestApp::start().await;
    t.order("ORD-1").await;
    t.sql(
        "INSERT INTO rankings (order_id, attempt_no, at, drivers)
         VALUES ('ORD-1', 1, dispatchq_now(), '{MARK-D1}'), ('ORD-1', 2, dispatchq_now(), '{MARK-D2}');
         INSERT INTO erasures (subject, subject_id, pseudonym, reason, actor, erased_at)
         SELECT 'driver', 'MARK-D' || n, 'erased-' || n, 'a request', 'cli:eve', dispatchq_now() + n * interval '1 second'
         FROM generate_series(1, 2) n;
         CREATE FUNCTION say_locked() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN RAISE EXCEPTION 'locked' USING ERRCODE = 'lock_not_available'; END $$;
         CREATE TRIGGER locked BEFORE DELETE ON rankings FOR EACH ROW WHEN (OLD.attempt_no = 1) EXECUTE FUNCTION say_locked()",
    )
    .await;
    t.advance(secs(700)).await;
    let failed = cleanup::run_all(&t.app.maintenance, CleanupMode::Remove).await.unwrap().failed;
    assert!(
        failed.len() == 1 && failed[0].contains("the erasure of a driver") && !failed[0].contains("MARK"),
        "{failed:?}"
    );
    let unfinished = "SELECT subject_id FROM erasures WHERE orders IS NULL";
    assert_eq!(t.texts(unfinished).await, ["MARK-D1"]);
    t.sql("DROP TRIGGER locked ON rankings").await;
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(t.texts(unfinished).await, Vec::<String>::new());
    assert_eq!(tables_with(&t, "MARK").await, Vec::<String>::new());
}

// Fault S17
/// More orders and rankings than one step handles, and a process that dies in between.
#[tokio::test]
async fn an_erasure_that_is_interrupted_is_finished_by_cleanup() {
    let t = TestApp::start().await;
    t.drivers(&[("MARK-D1", 100.0), ("D2", 200.0)]).await;
    t.sql(
        "INSERT INTO orders (id, service_type, pickup_lat, pickup_lng, status, driver_id, former_drivers, lifetime_deadline, created_at,
                             updated_at, closed_at)
         SELECT 'ORD-' || n, 'RIDE', 0, 0, 'COMPLETED', CASE WHEN n % 2 = 0 THEN 'MARK-D1' ELSE 'D2' END,
                CASE WHEN n % 2 = 0 THEN '{}'::text[] ELSE '{MARK-D1}' END, dispatchq_now(), dispatchq_now(), dispatchq_now(), dispatchq_now()
         FROM generate_series(1, 120) n;
         INSERT INTO rankings (order_id, attempt_no, at, drivers)
         SELECT 'ORD-1', n, dispatchq_now(), CASE WHEN n % 2 = 0 THEN '{MARK-D1}' ELSE '{MARK-D10}' END::text[]
         FROM generate_series(1, 2500) n",
    )
    .await;
    let mut lock = lasting_transaction(&t.postgres).await;
    sqlx::query("SELECT 1 FROM rankings WHERE attempt_no = 2500 FOR UPDATE").execute(&mut *lock).await.unwrap();
    let erasure = erasure(&t, ErasureSubject::Driver, "MARK-D1").await;
    let (app, of_task) = (t.app.clone(), erasure.clone());
    let erasing = tokio::spawn(async move { privacy::erase_subject(&app.core, &of_task).await });
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '-- erase driver from rankings%'";
    eventually("the last page waits for the lock", || async { t.count(waiting).await == 1 }).await;
    let named = "SELECT count(*) FROM rankings WHERE 'MARK-D1' = ANY (drivers)";
    assert_eq!(t.count(named).await, 250, "two pages of a thousand rows are committed");
    assert_eq!(t.count("SELECT count(*) FROM drivers WHERE id = 'MARK-D1'").await, 0);
    erasing.abort();
    lock.rollback().await.unwrap();

    // Another process may still run the erasure, so cleanup waits. A dry run changes nothing.
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    t.advance(secs(601)).await;
    cleanup::run(&t.app.maintenance, CleanupMode::DryRun).await.unwrap();
    assert_eq!(privacy::list_erasures(&t.app.core).await.unwrap()[0].orders, None);
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(
        privacy::list_erasures(&t.app.core).await.unwrap()[0].orders,
        Some(120),
        "those before the interruption, too"
    );
    assert_eq!(t.count("SELECT count(*) FROM erasures WHERE progress IS NOT NULL").await, 0);
    assert_eq!(t.count("SELECT count(*) FROM rankings WHERE 'MARK-D10' = ANY (drivers)").await, 1250);
    t.sql("DELETE FROM rankings").await;
    assert_eq!(tables_with(&t, "MARK-D1").await, Vec::<String>::new());
}

// Fault S17
#[tokio::test]
async fn late_erasure_keeps_newer_data() {
    let t = TestApp::start().await;
    t.sql(
        "INSERT INTO orders (id, service_type, customer_id, pickup_lat, pickup_lng, status, lifetime_deadline, created_at, updated_at,
                             closed_at)
         SELECT v.id, 'RIDE', 'C1', 0, 0, 'CANCELLED_BY_USER', t.at, t.at, t.at, t.at
         FROM (VALUES ('OLD', interval '0'), ('NEW', interval '2 hours')) v (id, later)
         CROSS JOIN LATERAL (SELECT dispatchq_now() + v.later AS at) t;
         INSERT INTO erasures (subject, subject_id, pseudonym, reason, actor, erased_at, orders)
         VALUES ('customer', 'C1', NULL, 'a request', 'cli:eve', dispatchq_now() + interval '1 hour', NULL),
                ('driver', 'D1', 'erased-1', 'a request', 'cli:eve', dispatchq_now(), NULL),
                ('driver', 'D1', 'erased-2', 'a request', 'cli:eve', dispatchq_now() + interval '1 second', 0)",
    )
    .await;
    t.advance(secs(3 * 3600)).await;
    // The driver was erased by the second request and then created again.
    t.drivers(&[("D1", 100.0)]).await;
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(t.texts("SELECT id FROM orders WHERE customer_id = 'C1'").await, ["NEW"]);
    assert_eq!(
        privacy::list_erasures(&t.app.core).await.unwrap().last().unwrap().orders,
        Some(1),
        "the customer's is done"
    );
    assert_eq!(t.count("SELECT count(*) FROM drivers").await, 1);
    let known = privacy::find_personal_data(&t.app.core, ErasureSubject::Customer, "C1").await.unwrap();
    assert_eq!(known.orders, ["NEW"]);
}

// Fault S17
#[tokio::test]
async fn what_is_in_use_is_not_erased() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.sql("UPDATE orders SET customer_id = 'C-1'").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    let before = t.dump().await;
    let in_use = ErasureOutcome::InUse(vec!["ORD-1".to_owned()]);
    for (subject, id) in
        [(ErasureSubject::Customer, "C-1"), (ErasureSubject::Order, "ORD-1"), (ErasureSubject::Driver, "D1")]
    {
        let erasure = erasure(&t, subject, id).await;
        assert_eq!(privacy::erase_subject(&t.app.core, &erasure).await.unwrap(), in_use, "{subject:?}");
    }
    assert_eq!(t.dump().await, before);
    assert_eq!(privacy::list_erasures(&t.app.core).await.unwrap(), [], "what was not done is not written down");
}

#[tokio::test]
async fn repeated_erasure_has_the_form_of_the_list() {
    let t = TestApp::start().await;
    let (api, admin) = (Api::start(&t.app).await, t.key(AccountRole::Admin).await);
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let now =
        t.texts("SELECT to_char(dispatchq_now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')").await.remove(0);
    let good = json!({ "subject": "driver", "subject_id": "D1", "pseudonym": "erased-0123456789abcdef", "reason": "request 1",
                       "actor": "admin:root", "erased_at": now, "orders": null });
    for (member, value) in [
        ("pseudonym", json!("D2")),
        ("pseudonym", Value::Null),
        ("pseudonym", json!("erased-0123456789ABCDEF")),
        ("reason", json!("")),
        ("erased_at", json!("2300-01-01T00:00:00Z")),
        ("subject_id", json!("")),
    ] {
        let mut wrong = good.clone();
        wrong[member] = value;
        let answer =
            api.post("/api/v1/admin/erasures/repeat", &admin, json!({ "erasure": wrong, "dry_run": false })).await;
        assert!(answer.status == 422 && answer.text("message").contains(member), "{member}: {answer:?}");
    }
    assert_eq!(t.count("SELECT count(*) FROM erasures").await, 0);
    let done = api.post("/api/v1/admin/erasures/repeat", &admin, json!({ "erasure": good, "dry_run": false })).await;
    assert_eq!(done.status, 200, "{done:?}");
    assert_eq!(t.count("SELECT count(*) FROM drivers WHERE id = 'D2'").await, 1);
}

// Fault S17
#[tokio::test]
async fn a_driver_reads_no_names_of_other_people() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    t.drivers(&[("OTHER-1", 100.0), ("D1", 200.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    let offer = t.live_offer("ORD-1").await;
    assert_eq!(offer.driver_id, "OTHER-1");
    let why = Some("OTHER-1 is ill".to_owned());
    t.act("ORD-1", |s| actions::decline_offer(s, &"OTHER-1".into(), offer.id, why.clone())).await.unwrap();
    let eve = Actor::new(ActorRole::Dispatcher, "OTHER-eve", None);
    t.act("ORD-1", |s| actions::assign_driver(s, &eve, &"D1".into())).await.unwrap();
    let (_, d1) = create_key(&t, "phone", AccountRole::Driver, Some("D1")).await;
    assert_eq!(api.send(Method::POST, "/api/v1/orders/ORD-1/pickup", &d1, "", "{}").await.status, 200);
    for path in ["/api/v1/orders/ORD-1", "/api/v1/orders/ORD-1/timeline"] {
        let seen = api.get(path, &d1).await;
        assert_eq!(seen.status, 200);
        assert!(!seen.body.to_string().contains("OTHER"), "{path}: {}", seen.body);
    }
    let events = api.get("/api/v1/orders/ORD-1/timeline", &d1).await.body["events"].clone();
    let actors: Vec<_> = events.as_array().unwrap().iter().map(|e| e["actor"].as_str().unwrap().to_owned()).collect();
    assert_eq!(actors, ["producer", "system", "driver", "staff", "driver:D1"]);
    let all = api.get("/api/v1/orders/ORD-1/timeline", &t.key(AccountRole::Support).await).await;
    assert!(all.body.to_string().contains("dispatcher:OTHER-eve"), "staff see who it was");
}

// Fault S17
#[tokio::test]
async fn every_table_has_a_line_in_privacy_md() {
    let t = TestApp::start().await;
    let page = std::fs::read_to_string(workspace().join("docs/PRIVACY.md")).unwrap();
    let named: BTreeSet<&str> = page.split('`').skip(1).step_by(2).collect();
    let tables = t
        .texts(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE c.relkind IN ('r', 'p') AND n.nspname = 'public' AND NOT c.relispartition ORDER BY 1",
        )
        .await;
    let missing: Vec<_> = tables.iter().filter(|table| !named.contains(table.as_str())).collect();
    assert!(missing.is_empty(), "docs/PRIVACY.md says nothing of {missing:?}");
}

// Fault S17
#[tokio::test]
async fn the_record_of_erasures_is_not_kept_for_ever() {
    let t = TestApp::start().await;
    t.sql(
        "INSERT INTO erasures (subject, subject_id, reason, actor, erased_at)
         SELECT 'customer', n::text, 'x', 'x', dispatchq_now() - n * interval '300 days' FROM generate_series(0, 2) n",
    )
    .await;
    t.advance(secs(1)).await;
    cleanup::run(&t.app.maintenance, CleanupMode::Remove).await.unwrap();
    assert_eq!(t.count("SELECT count(*) FROM erasures").await, 2);
}
