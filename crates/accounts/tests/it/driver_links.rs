//! One-time links of drivers work once, expire, and end with their driver.

use std::net::{IpAddr, Ipv4Addr};

use accounts::{driver_links, driver_sessions};
use foundation::staff_actions::ActionAuthor;
use model::ids::DriverId;
use orders::fleet::driver_admin;
use test_support::{TestApp, by, millis, secs};

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Returns the code of a new link.
async fn create_code(t: &TestApp, driver: &str) -> Option<String> {
    let actor = by("dispatcher:anna");
    let author = ActionAuthor { actor: &actor, reason: Some("asked by phone") };
    let made = driver_links::create_link(&t.app.core.db, &driver.into(), author).await.unwrap();
    made.map(|made| made.code)
}

/// Returns the token of the session that the code opens.
async fn use_code(t: &TestApp, code: &str) -> Option<String> {
    driver_links::use_code(&t.app.core.db, code, ADDRESS).await.unwrap()
}

async fn driver_of(t: &TestApp, token: &str) -> Option<DriverId> {
    driver_sessions::find_session(&t.app.core.db, token).await.unwrap().map(|session| session.driver_id)
}

#[tokio::test]
async fn one_of_two_requests_uses_a_code() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    for _ in 0..20 {
        let code = create_code(&t, "D1").await.unwrap();
        let (one, other) = tokio::join!(use_code(&t, &code), use_code(&t, &code));
        assert!(one.is_some() != other.is_some(), "one of them");
        let token = one.or(other).unwrap();
        assert_eq!(driver_of(&t, &token).await, Some("D1".into()));
        assert_eq!(use_code(&t, &code).await, None, "a third time");
    }
    assert_eq!(t.count("SELECT count(*) FROM driver_sessions").await, 20);
}

#[tokio::test]
async fn code_expires_after_fifteen_minutes() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let (early, late) = (create_code(&t, "D1").await.unwrap(), create_code(&t, "D1").await.unwrap());
    t.advance(secs(15 * 60) - millis(1)).await;
    let token = use_code(&t, &early).await.unwrap();
    t.advance(millis(1)).await;
    assert_eq!(use_code(&t, &late).await, None);

    t.advance(driver_sessions::VALID - millis(2)).await;
    assert_eq!(driver_of(&t, &token).await, Some("D1".into()));
    t.advance(millis(1)).await;
    assert_eq!(driver_of(&t, &token).await, None);
}

#[tokio::test]
async fn disabled_driver_loses_sessions_and_links() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0), ("D2", 100.0)]).await;
    let actor = by("operator:otto");
    let author = ActionAuthor { actor: &actor, reason: Some("a test") };
    let (first, second) = (create_code(&t, "D1").await.unwrap(), create_code(&t, "D1").await.unwrap());
    let token = use_code(&t, &first).await.unwrap();
    let set =
        async |disabled| driver_admin::set_disabled(&t.app.core.db, &"D1".into(), disabled, author).await.unwrap();
    set(true).await;
    assert!(driver_of(&t, &token).await.is_none() && use_code(&t, &second).await.is_none());
    assert_eq!(create_code(&t, "D1").await, None, "for a disabled driver");
    set(false).await;
    assert!(driver_of(&t, &token).await.is_none() && use_code(&t, &second).await.is_none(), "they stay ended");

    let (used, unused) = (create_code(&t, "D2").await.unwrap(), create_code(&t, "D2").await.unwrap());
    let token = use_code(&t, &used).await.unwrap();
    driver_admin::remove_driver(&t.app.core.db, &"D2".into(), author).await.unwrap();
    assert!(driver_of(&t, &token).await.is_none() && use_code(&t, &unused).await.is_none());
    assert_eq!(create_code(&t, "D2").await, None, "for a removed driver");
}

#[tokio::test]
async fn signed_out_session_ends_alone() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let code = create_code(&t, "D1").await.unwrap();
        tokens.push(use_code(&t, &code).await.unwrap());
    }
    driver_sessions::end_session(&t.app.core.db, &tokens[0]).await.unwrap();
    assert!(driver_of(&t, &tokens[0]).await.is_none() && driver_of(&t, &tokens[1]).await.is_some());
    assert!(driver_of(&t, "nonsense").await.is_none());
}
