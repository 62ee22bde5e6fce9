//! `dispatchq dev`: one command brings everything up, and takes all of it down again.

use std::{fs::Permissions, net::TcpStream, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};

use crate::support::{Child, eventually, run_binary, secs};

/// The value of a line such as `Key       dq_...`.
fn line(child: &Child, name: &str) -> String {
    let log = child.log();
    let line = log.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {log}"));
    line.split_whitespace().nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn dev_serves_an_order_and_leaves_nothing_running() {
    // Postgres may have to run as another user, who must be let in.
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/var/tmp").unwrap();
    let client = dispatch::outbound::build_client(secs(10)).unwrap();
    let mut orders = Vec::new();
    for run in 1..=2 {
        let mut dev = Child::spawn(dir.path(), "dev", &["dev", "--bind", "127.0.0.1:0", "--partner-speed", "400"], &[]);
        eventually("dev is up", secs(60), || async { dev.log().contains("Ctrl-C ends it") }).await;
        let (url, key) = (line(&dev, "API"), line(&dev, "Key"));
        let created = client
            .post(&url)
            .bearer_auth(&key)
            .json(&json!({ "service_type": "RENT", "pickup": { "latitude": -6.2, "longitude": 106.8 } }))
            .send()
            .await
            .unwrap();
        assert_eq!(created.status().as_u16(), 201);
        let created: Value = created.json().await.unwrap();
        orders.push(created["order_id"].as_str().unwrap().to_owned());
        // The worker has found no driver, also for the order of the run before.
        for order in &orders {
            eventually("the order waits for a dispatcher", secs(20), || async {
                let order = client.get(format!("{url}/{order}")).bearer_auth(&key).send().await.unwrap();
                order.json::<Value>().await.unwrap()["status"] == "PENDING"
            })
            .await;
        }

        // One that is served by the simulated partner takes its course, callbacks and all.
        let config = dir.path().join(".dispatchq/config.toml");
        let taxi = format!("TAXI-{run}");
        let cli = |args: &[&str]| {
            let with_config = [&["--config", config.to_str().unwrap()], args].concat();
            let printed = run_binary(dir.path(), &with_config, &[]);
            assert_eq!(printed.code, Some(0), "{args:?}: {printed:?}");
            printed.stdout
        };
        let place = ["--lat", "-6.2088", "--lng", "106.8456"];
        cli(&[&["order", "create", "--service-type", "TAXI", "--id", &taxi], &place[..]].concat());
        eventually("the partner has driven", secs(20), || async {
            cli(&["order", "show", &taxi, "--json"]).contains("\"COMPLETED\"")
        })
        .await;
        assert!(cli(&["order", "timeline", &taxi]).contains("JOB_ID_VIA_"));
        assert_eq!(config.metadata().unwrap().permissions().mode() & 0o777, 0o600, "it holds secrets");

        dev.terminate();
        assert_eq!(dev.ended(secs(30)).await.code(), Some(0), "run {run}");
        for server in ["Redis", "Postgres"] {
            let url: reqwest::Url = line(&dev, server).parse().unwrap();
            assert!(TcpStream::connect(("127.0.0.1", url.port().unwrap())).is_err(), "{server} is still there");
        }
    }
}
