//! Costly or broken shapes, conditional changes by version, and long histories.

use std::{collections::BTreeSet, sync::Arc};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use accounts::api_keys::AccountRole;
use areas::{
    import,
    table::{
        ChangeAuthor, geofences,
        limits::{self, LimitsChange},
    },
};
use model::{
    actor::{Actor, ActorRole},
    ids::LatLng,
};
use test_support::{Api, TestApp, http_client, secs};

const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "test"), reason: Some("test") };
const BASE: &str = "/api/v1/admin/dispatcher";

/// Returns one area that is `width` hundredths of a degree wide.
fn area(id: &str, width: u32) -> String {
    let (n, s, w, e) = (-6.1, -6.3, 106.7, 106.7 + f64::from(width) / 100.0);
    let ring = json!([[w, s], [e, s], [e, n], [w, n], [w, s]]);
    let geometry = json!({ "type": "Polygon", "coordinates": [ring] });
    let feature = json!({ "type": "Feature", "properties": { "area_id": id }, "geometry": geometry });
    json!({ "type": "FeatureCollection", "features": [feature] }).to_string()
}

async fn import(t: &TestApp, id: &str, width: u32) {
    let areas = import::parse(&area(id, width)).unwrap();
    geofences::import_areas(&t.app.core.db, &areas, false, None, AUTHOR).await.unwrap();
}

async fn refresh(t: &TestApp) -> bool {
    t.app.areas.reload_if_changed().await.unwrap()
}

// Fault S5
#[tokio::test]
async fn broken_area_in_postgres_is_skipped() {
    let t = TestApp::start().await;
    import(&t, "JKT", 30).await;
    for (id, geometry) in [
        ("FAR", r#"{"type": "Polygon", "coordinates": [[[0, 0], [500, 0], [1, 1], [0, 0]]]}"#),
        ("POINT", r#"{"type": "Point", "coordinates": [0, 0]}"#),
        ("WORD", r#""here""#),
    ] {
        t.sql(&format!("INSERT INTO areas (id, name, geometry) VALUES ('{id}', '{id}', '{geometry}')")).await;
    }
    // Each process reads the rules like this when it starts.
    assert!(refresh(&t).await);
    let rules = t.app.areas.rules.get();
    assert_eq!(rules.unreadable, ["FAR", "POINT", "WORD"]);
    assert_eq!(rules.find_area(LatLng::new(-6.2, 106.8), &"RIDE".into()).map(|area| area.id.as_str()), Some("JKT"));
}

// Fault S5
#[tokio::test]
async fn a_change_of_limits_reads_no_shape_again() {
    let t = TestApp::start().await;
    import(&t, "JKT", 30).await;
    refresh(&t).await;
    let before = t.app.areas.rules.get().geofence.clone();
    let change = LimitsChange { service_type: "RIDE".into(), max_waiting_orders: Some(7), ..LimitsChange::default() };
    limits::set_limits(&t.app.core.db, &"JKT".into(), &change, None, AUTHOR).await.unwrap();
    assert!(refresh(&t).await, "the limits are read");
    let rules = t.app.areas.rules.get();
    assert_eq!(rules.limits_for(&"JKT".into(), &"RIDE".into()).max_waiting, 7);
    assert!(Arc::ptr_eq(&before, &rules.geofence), "the shapes are not");
    import(&t, "JKT", 40).await;
    assert!(refresh(&t).await);
    assert!(!Arc::ptr_eq(&before, &t.app.areas.rules.get().geofence), "an area that changes is read");
}

// Fault S14
#[tokio::test]
async fn forbidden_import_is_refused_before_its_body() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Producer).await;
    let mut stream = TcpStream::connect(api.url("").strip_prefix("http://").unwrap()).await.unwrap();
    // 16 MB are announced and never sent. A server that waits for them answers 408 after 30 s.
    let head = format!(
        "PUT {BASE}/areas HTTP/1.1\r\nHost: dispatchq\r\nAuthorization: Bearer {key}\r\nContent-Length: 16000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = [0; 12];
    tokio::time::timeout(secs(60), stream.read_exact(&mut said)).await.unwrap().unwrap();
    assert_eq!(&said, b"HTTP/1.1 403");
}

// Fault S14
#[tokio::test]
async fn area_history_is_paged_without_shapes() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Operator).await;
    for width in 1..=5 {
        import(&t, "JKT", width).await;
    }
    import(&t, "BGR", 1).await;
    let mut entries: Vec<Value> = Vec::new();
    let mut path = format!("{BASE}/areas/JKT/changes?limit=2");
    loop {
        let page = api.get(&path, &key).await;
        assert_eq!(page.status, 200);
        assert!(!page.body.to_string().contains("coordinates"), "{page:?}");
        entries.extend(page.body["changes"].as_array().unwrap().iter().cloned());
        let Some(next) = page.body["next"].as_i64() else { break };
        path = format!("{BASE}/areas/JKT/changes?limit=2&before={next}");
    }
    let ids: BTreeSet<i64> = entries.iter().map(|entry| entry["id"].as_i64().unwrap()).collect();
    assert_eq!((entries.len(), ids.len()), (5, 5));
    // Entries are sorted with the newest first: the state before one change is the state after the previous change.
    for pair in entries.windows(2) {
        let (before, after) = (&pair[0]["before"]["geometry_sha256"], &pair[1]["after"]["geometry_sha256"]);
        assert!(before.as_str().is_some_and(|hash| hash.len() == 64) && before == after, "{pair:?}");
        assert_ne!(before, &pair[0]["after"]["geometry_sha256"]);
    }
    for wrong in ["limit=0", "limit=201", "before=x", "page=2"] {
        let answer = api.get(&format!("{BASE}/areas/JKT/changes?{wrong}"), &key).await;
        assert_eq!(answer.error(), (422, "INVALID"), "{wrong}");
    }
}

// Fault S20a
#[tokio::test]
async fn area_changes_respect_if_match() {
    let t = TestApp::start().await;
    let api = Api::start(&t.app).await;
    let key = t.key(AccountRole::Operator).await;
    import(&t, "JKT", 30).await;
    let client = http_client();
    let send = async |method: Method, path: &str, version: &str, body: String| {
        let request = client.request(method, api.url(&format!("{BASE}{path}"))).bearer_auth(&key);
        let request = request.header("if-match", version).header("content-type", "application/json").body(body);
        request.send().await.unwrap().status().as_u16()
    };
    let version = async |path: &str| {
        let answer = client.get(api.url(&format!("{BASE}{path}"))).bearer_auth(&key).send().await.unwrap();
        answer.headers()["etag"].to_str().unwrap().to_owned()
    };
    let force = || json!({ "status": "FORCE_BUSY", "reason": "flood" }).to_string();
    let dump = async || t.texts("SELECT a::text FROM areas a UNION ALL SELECT o::text FROM area_overrides o").await;

    // A change with an outdated version is refused.
    let (all, one) = (version("/areas").await, version("/areas/JKT").await);
    import(&t, "JKT", 31).await;
    let before = dump().await;
    assert_eq!(send(Method::PUT, "/areas", &all, area("JKT", 32)).await, 412);
    assert_eq!(send(Method::DELETE, "/areas/JKT", &one, String::new()).await, 412);
    assert_eq!(send(Method::POST, "/areas/JKT/override", "\"77\"", force()).await, 412);
    for (method, path) in
        [(Method::PUT, "/areas"), (Method::DELETE, "/areas/JKT"), (Method::POST, "/areas/JKT/override")]
    {
        assert_eq!(send(method.clone(), path, "soon", force()).await, 422, "{method} {path}");
    }
    assert_eq!(dump().await, before);

    // A change with the current version succeeds.
    assert_eq!(send(Method::PUT, "/areas", &version("/areas").await, area("JKT", 33)).await, 200);
    let seen = api.get(&format!("{BASE}/areas/JKT"), &key).await.body["override_version"].clone();
    assert_eq!(send(Method::POST, "/areas/JKT/override", &format!("\"{seen}\""), force()).await, 200);
    assert_eq!(send(Method::POST, "/areas/JKT/override", &format!("\"{seen}\""), force()).await, 412, "once");
    assert_eq!(send(Method::DELETE, "/areas/JKT", &version("/areas/JKT").await, String::new()).await, 200);
}
