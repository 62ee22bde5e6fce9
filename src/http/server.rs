//! Listening, and ending in good order.

use std::{net::SocketAddr, time::Duration};

use anyhow::Context;
use axum::{Router, middleware::from_fn_with_state, serve::Listener};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{net::TcpListener, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::finish::{self, DEADLINE, Requests};
use crate::{admission::rules, app::App};

/// Binds an address from the configuration; `setting` names it in the error.
pub async fn bind(address: &str, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: is it host:port, and is no other process using the port? see {setting}")
    })
}

/// What running requests may take once told to stop; a client that sends no more must not hold up the end.
const GRACE: Duration = Duration::from_secs(10);

/// Serves the API until `stop`; then whoever waits for an offer is answered, so that nobody holds up the end.
pub async fn serve_api(listener: TcpListener, app: App, stop: CancellationToken) -> anyhow::Result<()> {
    let closing = {
        let (offers, stop) = (app.offers.clone(), stop.clone());
        async move {
            stop.cancelled().await;
            offers.close();
        }
    };
    tokio::spawn(closing);
    tokio::spawn(rules::keep(app.clone(), stop.clone()));
    tokio::spawn(app.loops.clone().watch(stop.clone()));
    let keep_alive = app.config.http.keep_alive;
    serve(listener, super::api(app), keep_alive, stop).await
}

/// Serves until `stop`, then lets running requests finish. By hyper itself: `axum::serve` waits for ever for the head of a
/// request, and here it has `keep_alive` to come.
///
/// Requests whose client has hung up count as running, too: see [`finish`].
pub async fn serve(
    mut listener: TcpListener,
    router: Router,
    keep_alive: Duration,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let address: SocketAddr = listener.local_addr()?;
    tracing::debug!(%address, "Listening.");
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(keep_alive);
    let connections = GracefulShutdown::new();
    let requests = Requests { running: TaskTracker::new(), deadline: DEADLINE };
    let running = requests.running.clone();
    let router = router.layer(from_fn_with_state(requests, finish::run_to_end));
    while let Some((stream, _)) = stop.run_until_cancelled(Listener::accept(&mut listener)).await {
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "A connection broke.");
            }
        });
    }
    drop(listener);
    let finished = async {
        connections.shutdown().await;
        running.close();
        running.wait().await;
    };
    if timeout(GRACE, finished).await.is_err() {
        tracing::warn!("Requests that did not finish in time are cut off.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Instant};

    use axum::routing::{get, post};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        sync::Semaphore,
    };

    use super::{super::body::in_time, *};

    const SOON: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(30);

    async fn start(keep_alive: Duration) -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = Router::new().route("/", get(async || "hello").post(async |body: String| body));
        let router = router.layer(from_fn_with_state(SOON, in_time));
        tokio::spawn(serve(listener, router, keep_alive, stop.clone()));
        (address, stop)
    }

    /// What the server says until it hangs up.
    async fn rest(stream: &mut TcpStream) -> String {
        let mut said = String::new();
        timeout(LONG, stream.read_to_string(&mut said)).await.expect("the server hangs up").unwrap();
        said
    }

    #[tokio::test]
    async fn whoever_does_not_finish_asking_is_hung_up_on() {
        let (address, _stop) = start(SOON).await;
        for said in ["", "GET / HTTP/1.1\r\nHost: dispatchq\r\nX-Slow"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(said.as_bytes()).await.unwrap();
            assert_eq!(rest(&mut stream).await, "");
        }
        let (address, _stop) = start(LONG).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: dispatchq\r\nConnection: close\r\n\r\n").await.unwrap();
        assert!(rest(&mut stream).await.ends_with("hello"));
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_not_waited_for() {
        let (address, _stop) = start(LONG).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: dispatchq\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
        let said = rest(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 408") && said.contains("TOO_SLOW"), "{said}");
    }

    #[tokio::test]
    async fn an_idle_connection_does_not_hold_up_the_end() {
        let (address, stop) = start(LONG).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: dispatchq\r\n\r\n").await.unwrap();
        stream.readable().await.unwrap();
        let begun = Instant::now();
        stop.cancel();
        assert!(rest(&mut stream).await.ends_with("hello"));
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    }

    #[tokio::test]
    async fn f01_a_request_whose_client_hung_up_runs_to_its_end_and_is_waited_for() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (begun, released, done) =
            (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let handler = {
            let (begun, released, done) = (begun.clone(), released.clone(), done.clone());
            async move || {
                begun.add_permits(1);
                released.acquire().await.unwrap().forget();
                done.add_permits(1);
            }
        };
        let router = Router::new().route("/", post(handler));
        let stop = CancellationToken::new();
        let mut server = tokio::spawn(serve(listener, router, LONG, stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: dispatchq\r\n\r\n").await.unwrap();
        begun.acquire().await.unwrap().forget();
        drop(stream);
        stop.cancel();
        // The connection is gone, the request is not: the server stays.
        assert!(timeout(SOON, &mut server).await.is_err(), "the server ended before its request");
        released.add_permits(1);
        server.await.unwrap().unwrap();
        assert_eq!(done.available_permits(), 1);
    }

    #[tokio::test]
    async fn f08_a_request_that_gets_no_answer_ends() {
        let requests = Requests { running: TaskTracker::new(), deadline: SOON };
        let hangs = std::future::pending::<()>;
        let router = Router::new().route("/", get(hangs).post(hangs));
        let router = router.layer(from_fn_with_state(requests, finish::run_to_end));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, router, SOON, CancellationToken::new()));
        for method in ["GET", "POST"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(format!("{method} / HTTP/1.1\r\nHost: dispatchq\r\n\r\n").as_bytes()).await.unwrap();
            let said = rest(&mut stream).await;
            assert!(said.starts_with("HTTP/1.1 503") && said.contains("UNAVAILABLE"), "{method}: {said}");
        }
    }

    #[tokio::test]
    async fn f01_a_handler_that_panics_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", post(async || -> () { panic!("as this test wants it") }));
        tokio::spawn(serve(listener, router, SOON, CancellationToken::new()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: dispatchq\r\n\r\n").await.unwrap();
        let said = rest(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 500") && said.contains("INTERNAL"), "{said}");
    }
}
