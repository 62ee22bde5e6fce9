//! A threshold holds while real processes come and go.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use dispatchq::{
    admission::{
        limits::Flag,
        table::{self, Author, LimitsChange},
    },
    areas::import,
    history, outbound,
    people::api_keys::{self, Role},
};
use serde_json::json;
use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;

use crate::support::{Crowd, Fleet, hire, redis_command, secs};

const THRESHOLD: i64 = 20;
const WITH_BYPASS: i64 = 24;
const AUTHOR: Author<'static> = Author { actor: "operator:test", reason: Some("test") };

/// One area around every pickup, with little room; and each creation notes how many wait when it is done.
async fn prepare(fleet: &Fleet) {
    let square = [[106.0, -7.0], [108.0, -7.0], [108.0, -5.0], [106.0, -5.0], [106.0, -7.0]];
    let areas = json!({ "type": "FeatureCollection", "features": [{
        "type": "Feature", "properties": { "area_id": "JKT" },
        "geometry": { "type": "Polygon", "coordinates": [square] } }] });
    table::import(&fleet.app.db, &import::parse(&areas.to_string()).unwrap(), false, AUTHOR).await.unwrap();
    let change = LimitsChange {
        service_type: "RIDE".to_owned(),
        max_waiting_orders: Some(THRESHOLD),
        cooldown_period_sec: Some(0),
        low_water_percentage: Some(100),
        ..LimitsChange::default()
    };
    table::set_limits(&fleet.app.db, "JKT", &change, None, AUTHOR).await.unwrap();
    table::set_flag(&fleet.app.db, &Flag { enabled: true, ..Flag::default() }, None, AUTHOR).await.unwrap();
    for statement in [
        "CREATE TABLE most_waiting (n bigint)",
        "CREATE FUNCTION note_waiting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO most_waiting VALUES (dispatchq_waiting(NEW.area_id, NEW.service_type)); RETURN NULL; END $$",
        "CREATE TRIGGER note_waiting AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION note_waiting()",
    ] {
        sqlx::query(AssertSqlSafe(statement)).execute(&fleet.app.db).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_threshold_holds_while_a_replica_is_killed_and_redis_is_flushed() {
    let fleet = Fleet::with_lifetime("20s").await;
    prepare(&fleet).await;
    let _worker = fleet.worker("w1");
    let (_first, first) = fleet.api().await;
    let (mut second, other) = fleet.api().await;
    hire(&fleet.app, 10).await;
    let _crowd = Crowd::start(&fleet.app);
    let (_, key) = api_keys::create(&fleet.app.db, "shop", Role::Producer, None).await.unwrap();
    // Rules are read within a second.
    tokio::time::sleep(secs(1)).await;

    let (taken, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut producers = JoinSet::new();
    let end = tokio::time::Instant::now() + secs(8);
    for producer in 0..32 {
        let bases = [first.clone(), other.clone()];
        let (key, taken, refused) = (key.clone(), taken.clone(), refused.clone());
        producers.spawn(async move {
            let client = outbound::client(secs(10)).unwrap();
            for n in 0.. {
                if tokio::time::Instant::now() > end {
                    return;
                }
                let mut body = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
                if producer % 4 == 0 {
                    body["loyalty_level"] = json!("ELITE");
                }
                let url = format!("{}/api/v1/orders", bases[n % 2]);
                match client.post(url).bearer_auth(&key).json(&body).send().await.map(|a| a.status().as_u16()) {
                    Ok(201) => taken.fetch_add(1, Ordering::Relaxed),
                    Ok(503) => refused.fetch_add(1, Ordering::Relaxed),
                    Ok(status) => panic!("answered {status}"),
                    // One of the two is killed.
                    Err(_) => 0,
                };
            }
        });
    }
    let trouble = async {
        tokio::time::sleep(secs(2)).await;
        second.kill();
        tokio::time::sleep(secs(1)).await;
        let _: () = redis_command(&fleet.redis.url(), &["FLUSHALL"]).await;
    };
    tokio::join!(producers.join_all(), trouble);
    let (taken, refused) = (taken.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    assert!(taken > 20 && refused > 20, "{taken} taken, {refused} refused");
    let most = fleet.count("SELECT max(n) FROM most_waiting").await;
    assert!((THRESHOLD..=WITH_BYPASS).contains(&most), "{most} waited at once");
    fleet.at_rest(secs(60)).await;
    assert_eq!(history::check(&fleet.app).await.unwrap(), []);
}
