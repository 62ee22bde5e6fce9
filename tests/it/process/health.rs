//! Health endpoints of processes, and `dispatchq health`, which container health checks run.

use std::net::TcpListener;

use foundation::outbound::build_client;
use serde_json::{Value, json};
use servers::RedisServer;

use crate::support::{Fleet, Scrape, eventually, run_binary, secs};

#[tokio::test]
async fn health_says_what_a_process_answers() {
    let mut fleet = Fleet::start().await;
    let (mut api, at_api) = fleet.spawn_showing("api", &["serve"]).await;
    let (_worker, at_worker) = fleet.spawn_showing("w1", &["work"]).await;

    // `health` asks the configured address, also when the process listens on all addresses.
    let everywhere = format!("0.0.0.0:{}", at_api.rsplit_once(':').unwrap().1);
    for bound in [&at_api, &everywhere] {
        let printed = run_binary(fleet.dir(), &["health"], &[("DISPATCHQ_HTTP__ADMIN_BIND", bound)]);
        assert_eq!(printed.code, Some(0), "{printed:?}");
        assert_eq!(printed.stdout, format!("http://{at_api}/healthz answers 200 OK: ok\n"));
    }
    let of_worker = || {
        let settings = [("DISPATCHQ_WORKER__ADMIN_BIND", at_worker.as_str())];
        run_binary(fleet.dir(), &["health", "--worker", "--ready"], &settings)
    };
    let yes = format!("http://{at_worker}/readyz answers 200 OK: {{\"ready\":true");
    eventually("the worker is ready", || async {
        let printed = of_worker();
        printed.code == Some(0) && printed.stdout.starts_with(&yes)
    })
    .await;

    // The process is alive but not ready.
    fleet.redis.kill().await;
    let url = format!("http://{at_worker}");
    let unready = fleet.run(&["health", "--ready", "--url", &url, "--timeout", "1m"]);
    assert_eq!(unready.code, Some(1), "{unready:?}");
    assert!(unready.stdout.contains("/readyz answers 503 Service Unavailable: {\"ready\":false"), "{unready:?}");
    assert!(unready.stdout.contains("\"redis\":\"unreachable\""), "{unready:?}");
    assert_eq!(fleet.run(&["health", "--url", &url]).code, Some(0));

    api.kill();
    let gone = fleet.run(&["health", "--url", &format!("http://{at_api}")]);
    assert_eq!((gone.code, gone.stdout.as_str()), (Some(1), ""), "{gone:?}");
    assert!(gone.stderr.contains(&format!("http://{at_api}/healthz does not answer")), "{gone:?}");
}

/// A worker cannot work without Redis. `serve` continues and reports that it is degraded.
#[tokio::test]
async fn without_redis_api_is_degraded_and_worker_unready() {
    let mut fleet = Fleet::start().await;
    let (_api, at_api) = fleet.spawn_showing("api", &["serve"]).await;
    let (_worker, at_worker) = fleet.spawn_showing("w1", &["work"]).await;
    let client = build_client(secs(30)).unwrap();
    let ask = async |address: &str| {
        let answer = client.get(format!("http://{address}/readyz")).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let well = (200, json!({ "ready": true, "degraded": false, "postgres": "ok", "redis": "ok" }));
    for address in [&at_api, &at_worker] {
        eventually("it is well", || async { ask(address).await == well }).await;
    }
    fleet.redis.kill().await;
    let of_api = json!({ "ready": true, "degraded": true, "postgres": "ok", "redis": "unreachable" });
    eventually("the API is degraded", || async { ask(&at_api).await == (200, of_api.clone()) }).await;
    let of_worker = [json!(false), json!(false), json!("ok"), json!("unreachable"), json!("NOT_READY")];
    let is_unready = || async {
        let (status, report) = ask(&at_worker).await;
        let said = ["ready", "degraded", "postgres", "redis", "error_code"].map(|field| report[field].clone());
        (status, said) == (503, of_worker.clone())
    };
    eventually("the worker is not ready", is_unready).await;
    let [api, worker] = [Scrape::ask(&at_api).await, Scrape::ask(&at_worker).await];
    assert_eq!(api.value("dispatchq_degraded"), 1.0);
    assert!(!worker.has("dispatchq_degraded"));
}

#[tokio::test]
async fn health_times_out_and_names_the_address() {
    let dir = tempfile::tempdir().unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let printed = run_binary(dir.path(), &["health", "--url", &url, "--timeout", "200ms"], &[]);
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(1), ""), "{printed:?}");
    assert!(printed.stderr.contains("no answer in time"), "{printed:?}");

    // With the default configuration a worker opens no port.
    let printed = run_binary(dir.path(), &["health", "--worker"], &[]);
    assert_eq!(printed.code, Some(1), "{printed:?}");
    assert!(printed.stderr.contains("worker.admin_bind is empty") && printed.stderr.contains("--url"), "{printed:?}");
}

/// Over HTTPS a process needs a certificate from an authority that the machine trusts. The server here is a Redis with
/// TLS, which has no health endpoint.
#[tokio::test]
async fn a_certificate_of_an_unknown_authority_is_not_trusted() {
    let redis = RedisServer::start().await.unwrap();
    let tls = redis.serve_tls().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let url = tls.url().replace("rediss", "https");
    let ask = |settings: &[(&str, &str)]| {
        let printed = run_binary(dir.path(), &["health", "--url", &url, "--timeout", "1m"], settings);
        assert_eq!((printed.code, printed.stdout.as_str()), (Some(1), ""), "{printed:?}");
        printed.stderr
    };
    let unknown = ask(&[]);
    assert!(unknown.contains("does not answer: ") && unknown.contains("invalid peer certificate"), "{unknown}");
    let authority = tls.root_certificate().display().to_string();
    let known = ask(&[("SSL_CERT_FILE", &authority)]);
    assert!(known.contains("does not answer: ") && !known.contains("certificate"), "{known}");
}
