//! Keys, drivers and users are revoked or disabled in Postgres alone.

use accounts::{
    api_keys::{self, AccountRole},
    key_admin::{self, KeyFilter, KeySelection, NewKey},
    sessions::{self, SignedInPerson},
};
use orders::fleet::{
    driver_admin::{self, DriverRemoval},
    drivers,
};
use test_support::{Api, TestApp, by, create_key, eventually, ride_with_id, secs};

// Fault S9
#[tokio::test]
async fn all_keys_are_listed_however_many() {
    let t = TestApp::start().await;
    t.sql(
        "INSERT INTO api_keys (id, name, sha256, role, driver_id)
         SELECT gen_random_uuid(), 'app ' || n, sha256(n::text::bytea), 'driver', 'D' || n FROM generate_series(1, 2500) n",
    )
    .await;
    let count = async |filter: KeyFilter| key_admin::list_keys(&t.app.core.db, &filter).await.unwrap().len();
    create_key(&t, "shop", AccountRole::Producer, None).await;
    assert_eq!(count(KeyFilter::default()).await, 2501);
    assert_eq!(count(KeyFilter { role: Some(AccountRole::Producer), ..KeyFilter::default() }).await, 1);
    assert_eq!(count(KeyFilter { driver: Some("D7".into()), ..KeyFilter::default() }).await, 1);
    assert_eq!(count(KeyFilter { name: Some("app 24".to_owned()), ..KeyFilter::default() }).await, 111);
    t.sql("UPDATE api_keys SET revoked_at = dispatchq_now() WHERE name = 'app 24'").await;
    assert_eq!(count(KeyFilter::default()).await, 2500);
    assert_eq!(count(KeyFilter { all: true, ..KeyFilter::default() }).await, 2501);
}

// Fault S9
#[tokio::test]
async fn keys_are_revoked_by_driver_and_by_name() {
    let t = TestApp::start().await;
    let db = &t.app.core.db;
    let (_, phone) = create_key(&t, "phone", AccountRole::Driver, Some("D1")).await;
    let (_, tablet) = create_key(&t, "tablet", AccountRole::Driver, Some("D1")).await;
    let (_, other) = create_key(&t, "other", AccountRole::Driver, Some("D2")).await;
    let (_, old) = create_key(&t, "shop", AccountRole::Producer, None).await;
    let (_, new) = key_admin::rotate_key(db, "shop", secs(3600), None).await.unwrap();
    let lives = async |key: &str| api_keys::find_key(db, key).await.unwrap().is_some();
    assert!(lives(&old).await && lives(&new).await);

    let driver = KeySelection::Driver("D1".into());
    assert_eq!(key_admin::list_revocable(db, &driver).await.unwrap().len(), 2);
    assert_eq!(key_admin::revoke_keys(&mut db.acquire().await.unwrap(), &driver).await.unwrap().len(), 2);
    assert!(!lives(&phone).await && !lives(&tablet).await && lives(&other).await);
    let name = KeySelection::Name("shop".to_owned());
    assert_eq!(key_admin::revoke_keys(&mut db.acquire().await.unwrap(), &name).await.unwrap().len(), 2);
    assert!(!lives(&old).await && !lives(&new).await);
}

// Fault S9
#[tokio::test]
async fn a_key_expires() {
    let t = TestApp::start().await;
    let db = &t.app.core.db;
    let new = NewKey {
        name: "guest",
        role: AccountRole::Support,
        driver_id: None,
        expires_in: Some(secs(60)),
        takes_over: false,
        scope: None,
    };
    let (_, guest) = key_admin::create_key(db, &new).await.unwrap();
    let (_, shop) = create_key(&t, "shop", AccountRole::Producer, None).await;
    let (_, next) = key_admin::rotate_key(db, "shop", secs(60), None).await.unwrap();
    let lives = async |key: &str| api_keys::find_key(db, key).await.unwrap().is_some();
    t.advance(secs(59)).await;
    assert!(lives(&guest).await && lives(&shop).await);
    t.advance(secs(1)).await;
    assert!(!lives(&guest).await && !lives(&shop).await, "both have ended");
    assert!(lives(&next).await);
}

// Fault S9
#[tokio::test]
async fn key_use_is_recorded_by_the_minute() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let (id, shop) = create_key(&t, "shop", AccountRole::Producer, None).await;
    let used = async || {
        t.app.accounts.key_use.write_uses(&t.app.core.db).await.unwrap();
        t.count(&format!(
            "SELECT coalesce(extract(epoch FROM dispatchq_now() - last_used_at)::bigint, -1) FROM api_keys WHERE id = '{id}'"
        ))
        .await
    };
    assert_eq!(used().await, -1, "never");
    assert_eq!(api.post("/api/v1/orders", &shop, ride_with_id("ORD-1")).await.status, 201);
    assert_eq!(used().await, 0);
    t.advance(secs(50)).await;
    assert_eq!(api.get("/api/v1/orders/ORD-1", &shop).await.status, 200);
    assert_eq!(used().await, 50, "within the minute nothing is written");
    t.advance(secs(20)).await;
    assert_eq!(api.get("/api/v1/orders/ORD-1", &shop).await.status, 200);
    assert_eq!(used().await, 0);
    let unused = KeyFilter { unused_for: Some(secs(60)), ..KeyFilter::default() };
    assert_eq!(key_admin::list_keys(&t.app.core.db, &unused).await.unwrap().len(), 0);
    t.advance(secs(61)).await;
    assert_eq!(key_admin::list_keys(&t.app.core.db, &unused).await.unwrap().len(), 1);
}

// Fault S9
#[tokio::test]
async fn a_disabled_driver_gets_no_work_and_opens_nothing() {
    let t = TestApp::start().await;
    let db = &t.app.core.db;
    t.drivers(&[("D1", 100.0), ("D2", 200.0)]).await;
    let (_, d1) = create_key(&t, "d1", AccountRole::Driver, Some("D1")).await;
    assert!(drivers::set_disabled(db, &"D1".into(), true).await.unwrap());
    assert!(api_keys::find_key(db, &d1).await.unwrap().is_none());
    // Neither the driver nor an import enables a disabled driver.
    assert!(!drivers::set_available(db, &"D1".into(), true).await.unwrap().unwrap().available);
    t.drivers(&[("D1", 100.0)]).await;
    t.order("ORD-1").await;
    t.run_due().await;
    assert_eq!(t.asked("ORD-1").await, "D2");
    assert!(!drivers::driver_exists(db, &"D1".into()).await.unwrap(), "nor by hand");

    assert!(drivers::set_disabled(db, &"D1".into(), false).await.unwrap());
    assert!(api_keys::find_key(db, &d1).await.unwrap().is_some());
    assert!(drivers::set_available(db, &"D1".into(), true).await.unwrap().unwrap().available);
    assert!(!drivers::set_disabled(db, &"D9".into(), true).await.unwrap());
}

// Fault S9
#[tokio::test]
async fn driver_with_open_order_is_not_removed() {
    let t = TestApp::start().await;
    let db = &t.app.core.db;
    t.drivers(&[("D1", 100.0)]).await;
    let (_, d1) = create_key(&t, "d1", AccountRole::Driver, Some("D1")).await;
    t.order("ORD-1").await;
    t.run_due().await;
    t.accept_offer("ORD-1").await;
    assert_eq!(
        driver_admin::remove_driver(db, &"D1".into(), (&by("operator:ops")).into()).await.unwrap(),
        DriverRemoval::Busy { order: "ORD-1".to_owned() }
    );
    t.carry_out("ORD-1", "D1").await;
    assert_eq!(
        driver_admin::remove_driver(db, &"D1".into(), (&by("operator:ops")).into()).await.unwrap(),
        DriverRemoval::Removed { keys: 1 }
    );
    assert_eq!(
        driver_admin::remove_driver(db, &"D1".into(), (&by("operator:ops")).into()).await.unwrap(),
        DriverRemoval::NoSuchDriver
    );
    assert!(api_keys::find_key(db, &d1).await.unwrap().is_none());
    t.assert_sound().await;
}

// Fault S9
/// Processes trust their cached keys while the revision is unchanged.
#[tokio::test]
async fn ended_key_raises_the_key_revision() {
    let t = TestApp::start().await;
    let (db, keys) = (&t.app.core.db, &t.app.accounts.keys);
    let number = async || t.count("SELECT number FROM key_revision").await;
    let first = number().await;
    t.drivers(&[("D1", 100.0)]).await;
    let (_, d1) = create_key(&t, "d1", AccountRole::Driver, Some("D1")).await;
    keys.check_revision(db).await.unwrap();
    assert!(keys.find_owner(db, &d1).await.unwrap().is_some());
    t.sql("UPDATE api_keys SET last_used_at = dispatchq_now()").await;
    drivers::set_available(db, &"D1".into(), true).await.unwrap();
    t.drivers(&[("D1", 200.0)]).await;
    assert_eq!(number().await, first, "a driver at work raises nothing");

    drivers::set_disabled(db, &"D1".into(), true).await.unwrap();
    let disabled = number().await;
    assert!(disabled > first);
    keys.check_revision(db).await.unwrap();
    eventually("the key is refused", async || keys.find_owner(db, &d1).await.unwrap().is_none()).await;
    key_admin::rotate_key(db, "d1", secs(60), None).await.unwrap();
    let rotated = number().await;
    assert!(rotated > disabled);
    let name = KeySelection::Name("d1".to_owned());
    assert_eq!(key_admin::revoke_keys(&mut db.acquire().await.unwrap(), &name).await.unwrap().len(), 2);
    let revoked = number().await;
    assert!(revoked > rotated);
    driver_admin::remove_driver(db, &"D1".into(), (&by("operator:ops")).into()).await.unwrap();
    assert!(number().await > revoked);
}

#[tokio::test]
async fn person_without_key_has_the_scope_of_the_user() {
    let t = TestApp::start().await;
    let person = SignedInPerson { name: "anna@example.com", role: AccountRole::Viewer, subject: "7" };
    let db = &t.app.core.db;
    let (token, _) = sessions::open_personal_session(db, person, [127, 0, 0, 1].into()).await.unwrap();
    let scope = async || sessions::find_session(db, &token).await.unwrap().unwrap().key.scope;
    assert_eq!(scope().await, None);
    let revision = t.count("SELECT number FROM key_revision").await;
    t.sql(
        "INSERT INTO users (id, name, role, email, scope)
         VALUES ('anna', 'Anna', 'support', 'anna@example.com', '{\"areas\": [\"A\"]}')",
    )
    .await;
    assert_eq!(scope().await.unwrap().areas, Some(vec!["A".into()]));
    assert!(t.count("SELECT number FROM key_revision").await > revision, "caches read the key again");
}
