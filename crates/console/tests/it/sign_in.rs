//! Many wrong keys on the sign-in page.

use tokio::task::JoinSet;

use super::{Browser, place};
use accounts::api_keys::{self, AccountRole};
use test_support::{Api, TestApp};

const WRONG: usize = 5_000;
const AT_ONCE: usize = 50;
/// Maximum wrong keys per minute and address.
const LIMIT: u32 = 20;

/// Correct and wrong keys come from the same address, as in an office behind one router.
#[tokio::test]
async fn thousands_of_wrong_keys_cost_good_people_nothing() {
    let t = TestApp::with(|config| config.http.failures_per_min_per_address = LIMIT).await;
    let api = Api::start(&t.app).await;
    let before = Browser::signed_in(&t, &api, AccountRole::Viewer).await;
    let key = t.key(AccountRole::Dispatcher).await;

    let mut wrong = JoinSet::new();
    for _ in 0..AT_ONCE {
        let browser = Browser::new(&api);
        wrong.spawn(async move {
            let mut shown = 0;
            for _ in 0..WRONG / AT_ONCE {
                let answer = browser.post("/console/login", &[("key", &api_keys::generate_key())]).await;
                match answer.status().as_u16() {
                    401 => shown += 1,
                    429 => assert!(answer.headers().contains_key("retry-after")),
                    other => panic!("{other}"),
                }
            }
            shown
        });
    }
    // A sign-in works during the attack.
    let mut others = Browser::new(&api);
    let answer = others.post("/console/login", &[("key", &key)]).await;
    assert_eq!((answer.status().as_u16(), place(&answer)), (303, "/console"));
    others.take_cookie(&answer);
    for browser in [&before, &others] {
        assert!(browser.text("/console/orders").await.contains("No orders found"));
    }
    let shown: usize = wrong.join_all().await.into_iter().sum();
    assert!(shown <= 2 * LIMIT as usize, "{shown} wrong keys were answered as such");

    // A sign-in works after the attack.
    let answer = Browser::new(&api).post("/console/login", &[("key", &key)]).await;
    assert_eq!(answer.status(), 303);
    assert!(before.text("/console").await.contains("test-viewer"));
    assert_eq!(t.count("SELECT count(*) FROM console_sessions").await, 3);
}

// Rule U1: The page of a failed sign-in names the reason; it neither repeats the key nor offers to send it again.
#[tokio::test]
async fn refused_sign_in_repeats_no_key() {
    let t = TestApp::with(|config| config.http.failures_per_min_per_address = 1).await;
    let api = Api::start(&t.app).await;
    let browser = Browser::new(&api);
    let mut seen = Vec::new();
    while seen.last() != Some(&429) {
        let answer = browser.post("/console/login", &[("key", "dq_marker")]).await;
        seen.push(answer.status().as_u16());
        let page = answer.text().await.unwrap();
        assert!(!page.contains("dq_marker") && !page.contains("Send again"), "{seen:?}: {page}");
    }
    assert_eq!(seen[0], 401);
}
