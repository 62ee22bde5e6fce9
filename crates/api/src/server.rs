//! HTTP server: listener, connections and graceful shutdown.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    task::{self, Poll},
    time::{Duration, Instant},
};

use anyhow::Context;
use axum::{
    Router,
    body::{Body, Bytes, HttpBody},
    extract::ConnectInfo,
    http::Request,
    middleware::from_fn_with_state,
    response::Response,
    serve::Listener,
};
use hyper::{
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulConnection,
};
use rlimit::Resource;
use tokio::{
    net::TcpListener,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_service::Service;

use super::{
    connections::{AtWork, ClientConnection, ConnectionLimits, OpenConnections, Refusal, RequestConnection},
    finish::{self, DEADLINE, RunningRequests},
    observe::HeadRead,
    write_deadline::WriteDeadline,
};
use app::App;
use orders::late_work;
use settings::HttpConfig;

/// Binds an address from the configuration; `setting` names it in the error.
pub async fn bind_listener(address: &str, setting: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address}: is it host:port, and is no other process using the port? see {setting}")
    })
}

/// Time for running requests to finish after the stop signal. A client that sends nothing must not delay the shutdown.
const GRACE: Duration = Duration::from_secs(10);
/// File descriptors reserved for connections to Postgres, Redis and partners, and for files.
const OTHER_FILES: usize = 256;

/// Serves the API and `pages` until `stop`. Then requests that wait for an offer, an event or a change are answered, so
/// that they do not delay the shutdown.
pub async fn serve_api(
    listener: TcpListener,
    app: App,
    pages: Router<App>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let closing = {
        let (offers, feed, changes, stop) =
            (app.orders.offers.clone(), app.orders.feed.clone(), app.desk.changes.clone(), stop.clone());
        async move {
            stop.cancelled().await;
            offers.close();
            feed.close();
            changes.close();
        }
    };
    tokio::spawn(closing);
    tokio::spawn(app.areas.clone().keep_fresh(stop.clone()));
    tokio::spawn(app.notify.endpoints.clone().keep_fresh(app.core.clone(), stop.clone()));
    tokio::spawn(app.core.shards.clone().keep_fresh(app.core.upkeep.clone(), app.core.loops.clone(), stop.clone()));
    let (late_work, max) = (app.orders.late_work.clone(), app.config.http.max_lateness);
    tokio::spawn(late_work::run(app.core.clone(), late_work, max, stop.clone()));
    // Uses separate connections, so that known keys stay cached while requests wait for Postgres.
    tokio::spawn(app.accounts.keys.clone().watch_revision(
        app.core.upkeep.clone(),
        app.core.loops.clone(),
        stop.clone(),
    ));
    tokio::spawn(app.core.loops.clone().watch_loops(stop.clone()));
    let (config, behind) = (app.config.http.clone(), app.core.behind_answers.clone());
    serve_router(listener, super::router_with_pages(app, pages), config, stop).await?;
    behind.close();
    if timeout(GRACE, behind.wait()).await.is_err() {
        tracing::warn!(
            "Some work of finished requests was cut off by the shutdown; the reconciler restores what is missing in Redis."
        );
    }
    Ok(())
}

/// Serves until `stop`, then lets running requests finish. Uses hyper directly: `axum::serve` waits forever for the
/// head of a request and accepts any number of connections.
///
/// Requests whose client disconnected count as running, too: see [`finish`].
pub async fn serve_router(
    mut listener: TcpListener,
    router: Router,
    config: HttpConfig,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let address: SocketAddr = listener.local_addr()?;
    tracing::debug!(%address, "Listening.");
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(config.keep_alive);
    let connections = OpenConnections::new(connection_limits(&config)?);
    let running = TaskTracker::new();
    // The shutdown waits for connections and requests alike.
    let requests = RunningRequests { running: running.clone(), deadline: DEADLINE };
    let router = router.layer(from_fn_with_state(requests, finish::run_to_end));
    while let Some((stream, peer)) = stop.run_until_cancelled(Listener::accept(&mut listener)).await {
        let Some(connection) = admit_peer(&connections, peer, &stop).await else {
            tracing::debug!(%peer, "A connection was refused because all others have a request in progress.");
            continue;
        };
        let io = TokioIo::new(WriteDeadline::new(stream, config.write));
        let service = {
            let (router, connection) = (router.clone(), connection.clone());
            service_fn(move |request| answer_request(router.clone(), connection.clone(), peer, request))
        };
        running.spawn(serve_connection(http.serve_connection(io, service), connection, config.first_head));
    }
    drop(listener);
    running.close();
    if timeout(GRACE, running.wait()).await.is_err() {
        tracing::warn!("Requests that did not finish in time are aborted.");
    }
    Ok(())
}

/// Admits a connection. Waits while the connection that would close is younger than its first chance; in this time the
/// kernel keeps new connections in its backlog.
async fn admit_peer(
    connections: &OpenConnections,
    peer: SocketAddr,
    stop: &CancellationToken,
) -> Option<Arc<ClientConnection>> {
    loop {
        match connections.admit_peer(peer.ip(), Instant::now(), stop) {
            Ok(connection) => return Some(connection),
            Err(Refusal::Full) => return None,
            Err(Refusal::TooEarly(wait)) => stop.run_until_cancelled(sleep(wait)).await?,
        }
    }
}

/// Returns the connection limits. They leave room for files and other connections of the process.
fn connection_limits(config: &HttpConfig) -> anyhow::Result<ConnectionLimits> {
    let (open_files, _) = Resource::NOFILE.get().context("cannot read the limit of open files")?;
    let room = usize::try_from(open_files).unwrap_or(usize::MAX);
    let room = room.saturating_sub(OTHER_FILES).max(room / 2).max(1);
    let wanted = |most: u32| if most == 0 { usize::MAX } else { usize::try_from(most).unwrap_or(usize::MAX) };
    Ok(ConnectionLimits {
        in_all: wanted(config.max_connections).min(room),
        per_address: wanted(config.max_connections_per_address),
        proxies: config.trusted_networks()?,
    })
}

/// Raises this process's limit of open files to its maximum.
pub fn raise_open_files() {
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) => tracing::debug!(limit, "The limit of open files was raised to its maximum."),
        Err(error) => tracing::warn!(%error, "The limit of open files could not be raised."),
    }
}

/// Serves a connection until it ends, must close, or sends no request within `first_head`.
async fn serve_connection<C>(serving: C, connection: Arc<ClientConnection>, first_head: Duration)
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let mut serving = pin!(serving);
    let mut patience = pin!(sleep(first_head));
    let (mut is_new, mut is_leaving) = (true, false);
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "A connection failed.");
                }
                return;
            }
            () = connection.closing.cancelled(), if !is_leaving => {
                if connection.is_silent() || connection.waits_for_body() {
                    return;
                }
                is_leaving = true;
                serving.as_mut().graceful_shutdown();
            }
            () = patience.as_mut(), if is_new => {
                if connection.is_silent() {
                    return;
                }
                is_new = false;
            }
        }
    }
}

/// Answers one request. The request is in progress until the answer's body is sent.
async fn answer_request(
    mut router: Router,
    connection: Arc<ClientConnection>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response, Infallible> {
    let at_work = connection.begin_request(!request.body().is_end_stream());
    let connection = RequestConnection(connection);
    let mut request = request.map(|body| RequestBody { body, connection: connection.clone() });
    request.extensions_mut().insert(connection);
    request.extensions_mut().insert(ConnectInfo(peer));
    request.extensions_mut().insert(HeadRead(Instant::now()));
    let answer = router.call(request).await?;
    Ok(answer.map(|body| Body::new(TrackedBody { body, _at_work: at_work })))
}

/// The body of a request. It reports its completion to the connection.
struct RequestBody {
    body: Incoming,
    connection: RequestConnection,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_ready() && self.body.is_end_stream() {
            self.connection.body_is_complete();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer, with the guard that marks the request as in progress.
struct TrackedBody {
    body: Body,
    _at_work: AtWork,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::{get, post};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        sync::Semaphore,
        task::JoinHandle,
    };

    use super::{super::body::limit_body_time, *};
    use settings::Config;

    /// More bytes than the buffers of both sides can store.
    const LONG_ANSWER: usize = 64 * 1024 * 1024;
    const SOON: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(30);

    fn patient(keep_alive: Duration) -> HttpConfig {
        HttpConfig { keep_alive, first_head: keep_alive, ..Config::defaults().http }
    }

    async fn start(keep_alive: Duration) -> (SocketAddr, CancellationToken) {
        let config = patient(keep_alive);
        let (address, stop, _) = start_with(config).await;
        (address, stop)
    }

    async fn start_with(config: HttpConfig) -> (SocketAddr, CancellationToken, JoinHandle<anyhow::Result<()>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let router = Router::new()
            .route("/", get(async || "hello").post(async |body: String| body))
            .route("/long", get(async || "long".repeat(LONG_ANSWER / 4)));
        let router = router.layer(from_fn_with_state(SOON, limit_body_time));
        let serving = tokio::spawn(serve_router(listener, router, config, stop.clone()));
        (address, stop, serving)
    }

    /// Reads the server's output until it disconnects.
    async fn rest(stream: &mut TcpStream) -> String {
        let mut said = String::new();
        timeout(LONG, stream.read_to_string(&mut said)).await.expect("the server hangs up").unwrap();
        said
    }

    #[tokio::test]
    async fn incomplete_request_head_closes_connection() {
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
    async fn incomplete_body_is_answered_408() {
        let (address, _stop) = start(LONG).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: dispatchq\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
        let said = rest(&mut stream).await;
        assert!(said.starts_with("HTTP/1.1 408") && said.contains("TOO_SLOW"), "{said}");
    }

    #[tokio::test]
    async fn idle_connection_does_not_delay_shutdown() {
        let (address, stop) = start(LONG).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: dispatchq\r\n\r\n").await.unwrap();
        stream.readable().await.unwrap();
        let begun = Instant::now();
        stop.cancel();
        assert!(rest(&mut stream).await.ends_with("hello"));
        assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
        assert!(TcpStream::connect(address).await.is_err(), "it listens no more");
    }

    // Fault F1
    #[tokio::test]
    async fn request_finishes_after_client_disconnects() {
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
        let mut server = tokio::spawn(serve_router(listener, router, Config::defaults().http, stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST / HTTP/1.1\r\nHost: dispatchq\r\n\r\n").await.unwrap();
        begun.acquire().await.unwrap().forget();
        drop(stream);
        stop.cancel();
        // The connection is closed, but the request still runs, so the server must not stop.
        assert!(timeout(SOON, &mut server).await.is_err(), "the server ended before its request");
        released.add_permits(1);
        server.await.unwrap().unwrap();
        assert_eq!(done.available_permits(), 1);
    }

    // Fault F8
    #[tokio::test]
    async fn request_without_answer_times_out() {
        let requests = RunningRequests { running: TaskTracker::new(), deadline: SOON };
        let hangs = std::future::pending::<()>;
        let router = Router::new().route("/", get(hangs).post(hangs));
        let router = router.layer(from_fn_with_state(requests, finish::run_to_end));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_router(listener, router, patient(SOON), CancellationToken::new()));
        for method in ["GET", "POST"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let request = format!("{method} / HTTP/1.1\r\nHost: dispatchq\r\nX-Request-Id: trace-7\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let said = rest(&mut stream).await;
            assert!(said.starts_with("HTTP/1.1 503") && said.contains("UNAVAILABLE"), "{method}: {said}");
            assert!(said.contains("x-request-id: trace-7\r\n"), "{method}: {said}");
        }
    }

    // Fault F1
    #[tokio::test]
    async fn panicking_handler_is_answered() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let panics = async || -> () { panic!("as this test wants it") };
        let router = Router::new().route("/", get(panics).post(panics));
        tokio::spawn(serve_router(listener, router, patient(SOON), CancellationToken::new()));
        for method in ["GET", "POST"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(format!("{method} / HTTP/1.1\r\nHost: dispatchq\r\n\r\n").as_bytes()).await.unwrap();
            let said = rest(&mut stream).await;
            assert!(said.starts_with("HTTP/1.1 500") && said.contains("INTERNAL"), "{method}: {said}");
            assert!(said.contains("x-request-id: "), "{method}: {said}");
        }
    }

    #[tokio::test]
    async fn silent_client_is_closed_before_idle_one() {
        let config = HttpConfig { keep_alive: LONG, first_head: SOON, ..Config::defaults().http };
        let (address, ..) = start_with(config).await;
        let mut asked = TcpStream::connect(address).await.unwrap();
        asked.write_all(b"GET / HTTP/1.1\r\nHost: dispatchq\r\n\r\n").await.unwrap();
        let mut silent = TcpStream::connect(address).await.unwrap();
        assert_eq!(rest(&mut silent).await, "");
        asked.write_all(b"GET / HTTP/1.1\r\nHost: dispatchq\r\nConnection: close\r\n\r\n").await.unwrap();
        assert_eq!(rest(&mut asked).await.matches("hello").count(), 2);
    }

    #[tokio::test]
    async fn client_that_never_reads_is_disconnected() {
        let config = HttpConfig { write: SOON, ..Config::defaults().http };
        let (address, stop, serving) = start_with(config).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /long HTTP/1.1\r\nHost: dispatchq\r\n\r\n").await.unwrap();
        stream.readable().await.unwrap();
        // After the stop signal the server waits for unread answers. It ends once the time limit of this answer is
        // over.
        stop.cancel();
        serving.await.unwrap().unwrap();
        let mut said = Vec::new();
        let _ = timeout(LONG, stream.read_to_end(&mut said)).await.expect("the server hangs up");
        assert!(said.len() < LONG_ANSWER, "{} bytes came", said.len());
    }
}
