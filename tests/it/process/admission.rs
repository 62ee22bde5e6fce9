//! A threshold applies while real processes start and stop.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio::task::JoinSet;

use crate::support::{Crowd, Fleet, hire, millis, redis_command, secs};
use accounts::{api_keys::AccountRole, key_admin};
use areas::{
    import,
    table::{
        ChangeAuthor, flag, geofences,
        limits::{self, LimitsChange},
    },
};
use foundation::outbound;
use maintenance::audit;
use model::{
    actor::{Actor, ActorRole},
    admission::limits::AdmissionFlag,
};

const THRESHOLD: i64 = 100;
const WITH_BYPASS: i64 = 120;
const PRODUCERS: u64 = 64;

/// Number of attempted creations: a few thousand, or the number in `TEST_TRIES`.
fn tries() -> u64 {
    std::env::var("TEST_TRIES").map_or(6_000, |tries| tries.parse().expect("TEST_TRIES=number"))
}

const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "test"), reason: Some("test") };

/// Creates one area around every pickup with a low threshold. Each creation records the number of waiting orders.
async fn prepare(fleet: &Fleet) {
    let square = [[106.0, -7.0], [108.0, -7.0], [108.0, -5.0], [106.0, -5.0], [106.0, -7.0]];
    let areas = json!({ "type": "FeatureCollection", "features": [{
        "type": "Feature", "properties": { "area_id": "JKT" },
        "geometry": { "type": "Polygon", "coordinates": [square] } }] });
    geofences::import_areas(&fleet.app.core.db, &import::parse(&areas.to_string()).unwrap(), false, None, AUTHOR)
        .await
        .unwrap();
    let change = LimitsChange {
        service_type: "RIDE".into(),
        max_waiting_orders: Some(THRESHOLD),
        cooldown_period_sec: Some(0),
        low_water_percentage: Some(100),
        ..LimitsChange::default()
    };
    limits::set_limits(&fleet.app.core.db, &"JKT".into(), &change, None, AUTHOR).await.unwrap();
    flag::set_flag(&fleet.app.core.db, &AdmissionFlag { enabled: true, ..AdmissionFlag::default() }, None, AUTHOR)
        .await
        .unwrap();
    for statement in [
        "CREATE TABLE waiting_seen (loyal boolean, n bigint)",
        "CREATE FUNCTION note_waiting() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             INSERT INTO waiting_seen
             VALUES (NEW.customer_id = 'loyal', dispatchq_waiting(NEW.area_id, NEW.service_type));
             RETURN NULL; END $$",
        "CREATE TRIGGER note_waiting AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION note_waiting()",
    ] {
        sqlx::query(AssertSqlSafe(statement)).execute(&fleet.app.core.db).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threshold_holds_through_kill_and_flush() {
    let fleet = Fleet::with_lifetime("20s").await;
    prepare(&fleet).await;
    let _worker = fleet.worker("w1");
    let (_first, first) = fleet.api().await;
    let (mut second, other) = fleet.api().await;
    hire(&fleet.app, 10).await;
    let _crowd = Crowd::start(&fleet.app);
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "shop", AccountRole::Producer, None).await.unwrap();

    let (taken, refused) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tried = Arc::new(AtomicU64::new(0));
    let tries = tries();
    let mut producers = JoinSet::new();
    for producer in 0..PRODUCERS {
        let mut bases = vec![first.clone(), other.clone()];
        let killed = other.clone();
        let (key, tried, taken, refused) = (key.clone(), tried.clone(), taken.clone(), refused.clone());
        producers.spawn(async move {
            let client = outbound::build_client(secs(60)).unwrap();
            while let n = tried.fetch_add(1, Ordering::Relaxed)
                && n < tries
            {
                let mut body = json!({ "service_type": "RIDE", "customer_id": "new",
                                       "pickup": { "latitude": -6.2, "longitude": 106.8 } });
                // Loyal customers arrive later, so that the others use the area alone until then.
                if producer % 4 == 0 && n > tries / 4 {
                    (body["customer_id"], body["loyalty_level"]) = (json!("loyal"), json!("ELITE"));
                }
                let base = usize::try_from(n).unwrap() % bases.len();
                let url = format!("{}/api/v1/orders", bases[base]);
                let asked = async {
                    let answer = client.post(url).bearer_auth(&key).json(&body).send().await?;
                    Ok::<_, reqwest::Error>((answer.status().as_u16(), answer.json::<Value>().await?))
                };
                match asked.await {
                    Ok((201, _)) => _ = taken.fetch_add(1, Ordering::Relaxed),
                    Ok((503, body)) if body["error_code"] == "DISPATCHER_AREA_THRESHOLD_REACHED" => {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                    // 503 answers of an overloaded machine are not counted.
                    Ok((status, body)) => assert_eq!(status, 503, "{body}"),
                    Err(error) => {
                        assert_eq!(bases.remove(base), killed, "only one is killed: {error}");
                    }
                }
            }
        });
    }
    let reaches = async |share: u64| {
        while tried.load(Ordering::Relaxed) < tries * share / 4 {
            tokio::time::sleep(millis(10)).await;
        }
    };
    let trouble = async {
        reaches(2).await;
        second.kill();
        reaches(3).await;
        let _: () = redis_command(&fleet.redis.url(), &["FLUSHALL"]).await;
    };
    tokio::join!(producers.join_all(), trouble);
    let (taken, refused) = (taken.load(Ordering::Relaxed), refused.load(Ordering::Relaxed));
    assert!(taken > 100 && refused > 100, "{taken} taken, {refused} refused");
    let most = fleet.count("SELECT max(n) FROM waiting_seen WHERE NOT loyal").await;
    assert!((THRESHOLD / 2..=THRESHOLD).contains(&most), "{most} waited when one without a bypass was let in");
    let most = fleet.count("SELECT max(n) FROM waiting_seen WHERE loyal").await;
    assert!((THRESHOLD + 1..=WITH_BYPASS).contains(&most), "{most} waited when a loyal one was let in");
    println!("{tries} tried, {most} waited at most, {taken} taken, {refused} refused");
    fleet.at_rest().await;
    assert_eq!(audit::check_history(&fleet.app.maintenance).await.unwrap(), []);
}
