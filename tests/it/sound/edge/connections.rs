//! Sockets that say nothing, and drivers' apps that wait many times.

use dispatch::accounts::api_keys::AccountRole;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{Api, TestApp, eventually, http_client, secs};

/// A request on this socket, whose answer is 200.
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

/// The server has hung up on this socket.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut part = [0; 16];
    let read = tokio::time::timeout(secs(30), stream.read(&mut part)).await.expect("the server hangs up");
    read.map_or(true, |bytes| bytes == 0)
}

async fn connect(api: &Api) -> TcpStream {
    let url = api.url("");
    TcpStream::connect(url.strip_prefix("http://").unwrap()).await.unwrap()
}

#[tokio::test]
async fn s02_silent_sockets_push_out_each_other_and_not_a_client_at_work() {
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
        // Twenty later the good one is still there; so are the last three.
        ask(&mut good).await;
        for late in &mut silent[17..] {
            ask(late).await;
        }
        // Now all have asked; the one that has waited longest goes.
        let mut fifth = connect(&api).await;
        ask(&mut fifth).await;
        assert!(is_closed(&mut good).await);
    }
}

#[tokio::test]
async fn s02_a_driver_waits_with_two_requests_at_most() {
    let t = TestApp::start().await;
    t.drivers(&[("D1", 100.0)]).await;
    let api = Api::start(&t.app).await;
    let key = t.driver_key("D1").await;
    let wait = || {
        let (url, key) = (api.url("/api/v1/drivers/D1/offers?wait_sec=50"), key.clone());
        tokio::spawn(async move { http_client().get(url).bearer_auth(key).send().await.unwrap() })
    };
    let mut waiting: Vec<_> = (0..12).map(|_| wait()).collect();
    // Ten of them are sent away long before their 50 s are over; the two youngest wait.
    eventually("ten are answered", async || waiting.iter().filter(|w| w.is_finished()).count() == 10).await;
    let (done, left): (Vec<_>, Vec<_>) = waiting.drain(..).partition(tokio::task::JoinHandle::is_finished);
    for answer in done {
        let answer = answer.await.unwrap();
        assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (429, &"10".parse().unwrap()));
    }
    // Another driver's staff who look are not counted among those who wait.
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
