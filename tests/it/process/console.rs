//! The console of whole processes: on its own address, and during a replay.

use std::{fs::Permissions, os::unix::fs::PermissionsExt};

use reqwest::{
    Client,
    header::{COOKIE, LOCATION, SET_COOKIE},
};

use crate::support::{Child, Fleet, eventually, secs};
use accounts::{api_keys::AccountRole, key_admin};

/// Signs in with a key and returns the session cookie.
async fn sign_in(client: &Client, console: &str, key: &str) -> String {
    let form = client.post(format!("{console}/login")).header("sec-fetch-site", "same-origin");
    let form = form.header("content-type", "application/x-www-form-urlencoded");
    let answer = form.body(format!("key={key}")).send().await.unwrap();
    assert_eq!(answer.status(), 303);
    answer.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned()
}

async fn read_page(client: &Client, url: &str, cookie: &str) -> String {
    let answer = client.get(url).header(COOKIE, cookie).send().await.unwrap();
    assert_eq!(answer.status(), 200, "{url}");
    answer.text().await.unwrap()
}

#[tokio::test]
async fn the_console_may_have_an_address_of_its_own() {
    let fleet = Fleet::start().await;
    let (_, key) =
        key_admin::create_permanent_key(&fleet.app.core.db, "desk", AccountRole::Viewer, None).await.unwrap();
    let (mut serve, api) = fleet.api_with(&[("DISPATCHQ_CONSOLE__BIND", "127.0.0.1:0")]).await;
    let said = || serve.said("Serving the console on its own address", "address");
    eventually("the console listens", || async { said().is_some() }).await;
    let own = format!("http://{}", said().unwrap());
    let client = foundation::outbound::build_client(secs(10)).unwrap();
    let status = async |url: String| client.get(url).send().await.unwrap().status().as_u16();

    let first = client.get(&own).send().await.unwrap();
    assert_eq!((first.status().as_u16(), first.headers()[LOCATION].to_str().unwrap()), (303, "/console"));
    let cookie = sign_in(&client, &format!("{own}/console"), &key).await;
    assert!(read_page(&client, &format!("{own}/console"), &cookie).await.contains("Open orders"));
    // Each address serves only its own routes.
    assert_eq!(status(format!("{own}/api/v1/orders/ORD-1")).await, 404);
    assert_eq!(status(format!("{own}/healthz")).await, 404);
    assert_eq!(status(format!("{api}/console/login")).await, 404);
    assert_eq!(status(format!("{api}/healthz")).await, 200);
    serve.terminate();
    assert!(serve.ended().await.success(), "both end in good order");
}

// Rule U18: The output of the demo names --keep and prints a link that signs in.
#[tokio::test]
async fn replay_prints_a_console_sign_in_link() {
    // Postgres may have to run as another user, who needs access to the directory.
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    let args = ["replay", "--sample", "--limit", "40", "--speed", "30", "--workers", "1"];
    let mut replay = Child::spawn(dir.path(), "replay", &args, &[("TMPDIR", dir.path().to_str().unwrap())]);
    eventually("the replay says where it can be watched", || async { replay.log().contains(" --keep") }).await;
    let log = replay.log();
    let line = log.lines().find_map(|line| line.split_once("Watch it at ")).unwrap().1;
    let (console, key) = line.split_once(" (sign in with ").unwrap();
    let key = key.trim_end_matches(").");
    assert!(log.contains(&format!("{console}/login#key={key}\n")), "{log}");

    let client = foundation::outbound::build_client(secs(10)).unwrap();
    let cookie = sign_in(&client, console, key).await;
    eventually("an order of the replay is on the page", || async {
        read_page(&client, &format!("{console}/orders"), &cookie).await.contains("/console/orders/ride-")
    })
    .await;
    replay.terminate();
    replay.ended().await;
}
