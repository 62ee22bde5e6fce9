//! Sockets that send nothing or send their bodies slowly, and driver apps with many waiting requests.

use std::time::Instant;

use futures_util::{StreamExt, stream};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use accounts::api_keys::AccountRole;
use foundation::outbound;
use test_support::{Api, TestApp, eventually, http_client, secs};

/// Sends a request on this socket and expects 200.
async fn ask(stream: &mut TcpStream) {
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: dispatchq\r\n\r\n").await.unwrap();
    let mut said = String::new();
    while !said.ends_with("ok\n") {
        let mut part = [0; 1024];
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "the server hung up after '{said}'");
        said.push_str(std::str::from_utf8(&part[..read]).unwrap());
    }
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

/// Returns whether the server has closed this socket.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut part = [0; 16];
    let read = tokio::time::timeout(secs(30), stream.read(&mut part)).await.expect("the server hangs up");
    read.map_or(true, |bytes| bytes == 0)
}

async fn connect(api: &Api) -> TcpStream {
    let url = api.url("");
    TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap()
}

// Fault S2
#[tokio::test]
async fn silent_sockets_never_displace_a_working_client() {
    for per_address in [true, false] {
        let t = TestApp::with(|c| {
            let most = if per_address { &mut c.http.max_connections_per_address } else { &mut c.http.max_connections };
            *most = 4;
        })
        .await;
        let api = Api::start(&t.app).await;
        let mut good = connect(&api).await;
        ask(&mut good).await;
        let mut silent = Vec::new();
        for _ in 0..20 {
            silent.push(connect(&api).await);
        }
        for early in &mut silent[..17] {
            assert!(is_closed(early).await);
        }
        // After twenty more sockets the working client is still connected, and so are the last three.
        ask(&mut good).await;
        for late in &mut silent[17..] {
            ask(late).await;
        }
        // All sockets have sent a request, so the server closes the one that was idle longest.
        let mut fifth = connect(&api).await;
        ask(&mut fifth).await;
        assert!(is_closed(&mut good).await);
    }
}

// Fault S2
#[tokio::test]
async fn a_driver_waits_with_two_requests_at_most() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let api = Api::start(&t.app).await;
    let key = t.driver_key("D1").await;
    let wait = || {
        let (url, key) = (api.url("/api/v1/drivers/D1/offers?wait_sec=50"), key.clone());
        tokio::spawn(async move { http_client().get(url).bearer_auth(key).send().await.unwrap() })
    };
    let mut waiting: Vec<_> = (0..12).map(|_| wait()).collect();
    // Ten requests are answered long before their 50 s are over. The two latest continue to wait.
    eventually("ten are answered", async || waiting.iter().filter(|w| w.is_finished()).count() == 10).await;
    let (done, left): (Vec<_>, Vec<_>) = waiting.drain(..).partition(tokio::task::JoinHandle::is_finished);
    for answer in done {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"10".parse().unwrap()));
    }
    // Requests of staff do not count as waiting requests of the driver.
    let staff = t.key(AccountRole::Support).await;
    for _ in 0..3 {
        assert_eq!(api.get("/api/v1/drivers/D1/offers", &staff).await.status, 200);
    }
    t.order("ORD-1").await;
    t.run_due().await;
    for answer in left {
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200);
        assert!(answer.text().await.unwrap().contains("ORD-1"));
    }
}

/// Sends the head of a request, as a form of this site, and half of its body. The server may have closed the socket
/// already.
async fn send_half(stream: &mut TcpStream, path: &str) {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\nSec-Fetch-Site: same-origin\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\nhalf!"
    );
    let _ = stream.write_all(head.as_bytes()).await;
}

/// Reads until the server closes the socket. Returns the text and the time.
async fn read_end(mut stream: TcpStream) -> (String, Instant) {
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said).await;
    (String::from_utf8_lossy(&said).into_owned(), Instant::now())
}

// Rule F35: While 2,000 unknown callers send their bodies slowly, no request with a valid key fails, and their p99 is
// below 1 s.
// Rule F35: Signed routes and the sign-in wait 5 to 10 s for a body.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_bodies_of_strangers_delay_no_client() {
    const SLOW: usize = 2_000;
    api::server::raise_open_files();
    let t = TestApp::with(|c| (c.http.max_connections, c.http.max_connections_per_address) = (100, 10_000)).await;
    let (api, quiet) = (Api::start(&t.app).await, Api::start(&t.app).await);
    let key = t.key(AccountRole::Producer).await;

    let begun = Instant::now();
    let mut patient = Vec::new();
    for path in [
        "/api/v1/callbacks/bbd",
        "/api/v1/payment-callbacks",
        "/api/v1/voice/calls/status?message=019ba1c0-0000-7000-8000-000000000001",
        "/console/login",
    ] {
        let mut stream = connect(&quiet).await;
        send_half(&mut stream, path).await;
        patient.push(tokio::spawn(read_end(stream)));
    }

    let address = api.url("").strip_prefix("http://").unwrap().to_owned();
    let flood = tokio::spawn(async move {
        let slow = stream::iter(0..SLOW).map(|n| {
            let address = address.clone();
            async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                send_half(&mut stream, if n % 2 == 0 { "/api/v1/callbacks/bbd" } else { "/console/login" }).await;
                stream
            }
        });
        slow.buffer_unordered(8).collect::<Vec<TcpStream>>().await
    });
    // Each request uses its own connection, like requests of new clients.
    let client = outbound::client_builder().pool_max_idle_per_host(0).timeout(secs(10)).build().unwrap();
    let order = json!({ "service_type": "RIDE", "pickup": { "latitude": -6.2, "longitude": 106.8 } });
    let mut taken = Vec::new();
    while taken.len() < 200 || !flood.is_finished() {
        let asked = Instant::now();
        let request = if taken.len() % 2 == 0 {
            client.post(api.url("/api/v1/orders")).json(&order)
        } else {
            client.get(api.url("/api/v1/events?limit=1"))
        };
        let answer =
            request.bearer_auth(&key).send().await.unwrap_or_else(|error| panic!("a request failed: {error:?}"));
        assert!(answer.status().is_success(), "{answer:?}");
        taken.push(asked.elapsed());
    }
    taken.sort_unstable();
    let p99 = taken[taken.len() * 99 / 100];
    assert!(p99 < secs(1), "p99 of {} requests is {p99:?}", taken.len());
    let mut slow = flood.await.unwrap();
    assert_eq!(slow.len(), SLOW);
    assert!(is_closed(&mut slow[0]).await, "the first of the slow ones went");

    for stream in patient {
        let (said, ended) = stream.await.unwrap();
        let waited = ended - begun;
        assert!(said.starts_with("HTTP/1.1 408"), "{said}");
        // The upper limit allows for a slow machine.
        assert!(waited >= secs(5) && waited < secs(20), "{waited:?}: {said}");
    }
}
