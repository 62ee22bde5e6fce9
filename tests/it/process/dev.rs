//! `dispatchq dev`: one command starts all servers and stops all of them.

use std::{
    fs::Permissions,
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use serde_json::{Value, json};
use servers::PostgresServer;
use sqlx::{Connection, PgConnection};

use crate::support::{Child, eventually, run_binary, run_binary_with_input, secs, send_until_answered};

/// Returns the value of a line such as `Key       dq_...`.
pub(super) fn line(child: &Child, name: &str) -> String {
    let log = child.log();
    let line = log.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("no {name} in {log}"));
    line.split_whitespace().nth(1).unwrap().to_owned()
}

// Rule U7: `dev` takes a free port for metrics, records when its key was used, and logs no warning at a healthy first start.
// Rule F28: `dev` quotes arguments in the commands that it prints, and its config.toml has the address that it listens
// on.
// Rule F41: The Redis of `dev` requires a password, which the banner shows.
#[tokio::test]
async fn dev_serves_an_order_and_leaves_nothing_running() {
    // Another process uses the configured metrics port.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    // Postgres may have to run as another user, who needs access to the directory. The name needs quoting in a shell.
    let dir = tempfile::Builder::new()
        .prefix("it's mine ")
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in("/var/tmp")
        .unwrap();
    let client = foundation::outbound::build_client(secs(10)).unwrap();
    let mut orders = Vec::new();
    let mut cycles_before: Vec<i64> = Vec::new();
    for run in 1..=2 {
        let settings = [("DISPATCHQ_HTTP__ADMIN_BIND", taken.as_str())];
        let args = ["dev", "--bind", "127.0.0.1:0", "--partner-speed", "400"];
        let mut dev = Child::spawn(dir.path(), "dev", &args, &settings);
        eventually("dev is up", || async { dev.log().contains("Press Ctrl-C to stop") }).await;
        let metrics = line(&dev, "Metrics");
        assert_ne!(metrics, format!("http://{taken}/metrics"));
        assert!(
            client.get(&metrics).send().await.unwrap().text().await.unwrap().contains("dispatchq_build_info{"),
            "{metrics}"
        );
        let board = format!("{}/api/v1/queues", line(&dev, "Board"));
        eventually("the board shows a queue with its worker", || async {
            let queues: Value = client.get(&board).send().await.unwrap().json().await.unwrap();
            let is_served = |queue: &Value| queue["name"] == "lifetime-cancel-queue" && queue["workers"][0].is_string();
            queues.as_array().unwrap().iter().any(is_served)
        })
        .await;
        let (url, key, provider) = (line(&dev, "API"), line(&dev, "Key"), line(&dev, "Provider"));
        let page = format!("{}/sign-in", line(&dev, "Drivers"));
        assert_eq!(client.get(&page).send().await.unwrap().status().as_u16(), 200, "{page}");
        let reference = line(&dev, "Docs");
        assert_eq!(client.get(&reference).send().await.unwrap().status().as_u16(), 200, "{reference}");
        // Without OTPs, bindings do not wait while the test checks other parts.
        turn_knobs(&client, &provider, &json!({ "otp_rate": 0 })).await;
        let created = send_until_answered(
            client
                .post(&url)
                .bearer_auth(&key)
                .json(&json!({ "service_type": "RENT", "pickup": { "latitude": -6.2, "longitude": 106.8 } })),
        )
        .await;
        assert_eq!(created.status().as_u16(), 201);
        let created: Value = created.json().await.unwrap();
        orders.push(created["order_id"].as_str().unwrap().to_owned());
        // The worker has found no driver, also for the order of the earlier run.
        for order in &orders {
            eventually("the order waits for a dispatcher", || async {
                let order = client.get(format!("{url}/{order}")).bearer_auth(&key).send().await.unwrap();
                order.json::<Value>().await.unwrap()["status"] == "PENDING"
            })
            .await;
        }

        // An order that the simulated partner serves runs to its end, with callbacks.
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
        eventually("the partner has driven", || async {
            cli(&["order", "show", &taxi, "--json"]).contains("\"COMPLETED\"")
        })
        .await;
        assert!(cli(&["order", "timeline", &taxi]).contains("JOB_ID_VIA_"));
        let areas = cli(&["area", "list"]);
        assert!(areas.contains("JKT-PUSAT") && areas.contains("CGK-T3"), "{areas}");
        assert_eq!(config.metadata().unwrap().permissions().mode() & 0o777, 0o600, "it holds secrets");
        let address = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap().0;
        let settings = std::fs::read_to_string(&config).unwrap().parse::<toml::Table>().unwrap();
        assert_eq!(settings["http"]["bind"].as_str(), Some(address), "the address in use, not the default");
        let log = dev.log();
        let command = log.lines().find(|line| line.ends_with(" binding list")).unwrap().trim();
        let command = command.replacen("dispatchq", env!("CARGO_BIN_EXE_dispatchq"), 1);
        let ran = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
        assert!(ran.status.success() && String::from_utf8_lossy(&ran.stdout).contains("B-1"), "{command}: {ran:?}");
        let redis = line(&dev, "Redis");
        let info: String = redis::cmd("INFO").query(&mut redis::Client::open(redis.as_str()).unwrap()).unwrap();
        assert!(info.contains("redis_version"));
        let open = redis.split_once('@').unwrap().1;
        let refused = redis::cmd("INFO").query::<String>(&mut redis::Client::open(format!("redis://{open}")).unwrap());
        assert!(refused.unwrap_err().to_string().contains("Authentication"), "others of this machine");

        if run == 1 {
            let log = dev.log();
            assert!(!log.contains(" WARN ") && !log.contains(" ERROR ") && !log.contains("postgres::notice"), "{log}");
        }

        // Five bindings run. In the second run they continue from their last cycle.
        let bindings = || -> Vec<Value> { serde_json::from_str(&cli(&["binding", "list", "--json"])).unwrap() };
        let cycles = || bindings().iter().map(|b| b["cycle"].as_i64().unwrap()).collect::<Vec<_>>();
        eventually("the bindings run", || async {
            let now = cycles();
            let has_begun = now.len() == 5 && now.iter().all(|cycle| *cycle > 0);
            has_begun && now.iter().sum::<i64>() > cycles_before.iter().sum::<i64>()
        })
        .await;
        assert!(bindings().iter().all(|b| b["state"] == "RUNNING"), "{:?}", bindings());
        let now = cycles();
        assert!(now.iter().zip(&cycles_before).all(|(now, before)| now >= before), "{cycles_before:?} {now:?}");
        if run == 2 {
            let begun: Vec<_> = bindings().iter().map(|b| b["trx_id"].clone()).collect();
            turn_knobs(&client, &provider, &json!({ "otp_rate": 1, "processing_rate": 0, "failures": "" })).await;
            hand_in_an_otp(&bindings, &begun, config.to_str().unwrap(), dir.path()).await;
        }
        cycles_before = cycles();

        if run == 2 {
            // The first run wrote the last use of its keys when it ended.
            let keys: Vec<Value> = serde_json::from_str(&cli(&["apikey", "list", "--json"])).unwrap();
            assert!(keys.iter().any(|key| key["name"] == "dev" && key["last_used_at"].is_string()), "{keys:?}");
        }
        dev.terminate();
        assert_eq!(dev.ended().await.code(), Some(0), "run {run}");
        for server in ["Redis", "Postgres"] {
            let url: reqwest::Url = line(&dev, server).parse().unwrap();
            assert!(TcpStream::connect(("127.0.0.1", url.port().unwrap())).is_err(), "{server} is still there");
        }
    }
}

async fn turn_knobs(client: &reqwest::Client, provider: &str, knobs: &Value) {
    let turned = client.post(format!("{provider}/_sim/knobs")).json(knobs).send().await.unwrap();
    assert_eq!(turned.status().as_u16(), 200);
}

/// Waits for a transaction that needs an OTP, sends the OTP, and waits for its success. `begun`: earlier transactions,
/// whose OTP the provider forgot when it restarted.
async fn hand_in_an_otp(bindings: &impl Fn() -> Vec<Value>, begun: &[Value], config: &str, dir: &Path) {
    let waiting = || bindings().into_iter().find(|b| b["phase"] == "WAITING_OTP" && !begun.contains(&b["trx_id"]));
    eventually("a binding waits for an OTP", || async { waiting().is_some() }).await;
    let waiting = waiting().expect("it waits for minutes");
    let (id, trx) = (waiting["id"].as_str().unwrap(), waiting["trx_id"].as_str().unwrap());
    let otp = ["--config", config, "binding", "otp", id, "--trx", trx];
    let printed = run_binary_with_input(dir, &otp, "123456\n");
    assert_eq!(printed.code, Some(0), "{printed:?}");
    let cycle = waiting["cycle"].to_string();
    let show = ["--config", config, "binding", "transactions", id, "--cycle", &cycle, "--json"];
    eventually("the transaction is done", || async { run_binary(dir, &show, &[]).stdout.contains("\"SUKSES\"") }).await;
}

#[tokio::test]
async fn dev_refuses_data_of_an_older_schema() {
    let dir = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir_in("/var/tmp").unwrap();
    let data = dir.path().join("old data");
    std::fs::create_dir(&data).unwrap();
    let mut postgres = PostgresServer::start_in(&data.join("postgres"), None).await.unwrap();
    let mut db = PgConnection::connect(&postgres.url()).await.unwrap();
    let applied = "CREATE TABLE _sqlx_migrations AS
        SELECT 1::bigint AS version, 'clock' AS description, true AS success, '\\x00'::bytea AS checksum";
    sqlx::raw_sql(applied).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
    postgres.stop().await.unwrap();
    let printed = run_binary(dir.path(), &["dev", "--bind", "127.0.0.1:0", "--data", "old data"], &[]);
    assert_eq!(printed.code, Some(1), "{printed:?}");
    assert!(printed.stderr.contains("rm -r 'old data'"), "{printed:?}");
}
