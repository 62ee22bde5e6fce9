//! The flood: wrong keys at a steady rate, and sockets that say nothing.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use serde::Serialize;
use tokio::{
    io::AsyncReadExt,
    net::TcpSocket,
    sync::Semaphore,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};

use dispatch::accounts::api_keys;

/// Wrong keys a second.
pub(super) const KEYS_PER_S: u32 = 1_000;
/// Sockets that say nothing, at the same time.
pub(super) const SOCKETS: u32 = 2_000;
/// Requests with wrong keys at the same time; more would only wait in the flood itself.
const MOST_IN_FLIGHT: usize = 500;
/// A socket that was hung up on comes back after this.
const COME_BACK: Duration = Duration::from_secs(1);

/// What the flood met.
#[derive(Debug, Default)]
struct FloodCounts {
    unauthenticated: AtomicU64,
    limited: AtomicU64,
    other: AtomicU64,
    opened: AtomicU64,
    closed: AtomicU64,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct FloodTally {
    pub(super) answered_401: u64,
    pub(super) answered_429: u64,
    /// Answered otherwise, or not at all.
    pub(super) other: u64,
    pub(super) sockets_opened: u64,
    pub(super) sockets_closed: u64,
}

/// A flood that goes on until it is stopped or dropped.
#[derive(Debug)]
pub(super) struct RunningFlood {
    counts: Arc<FloodCounts>,
    running: JoinSet<()>,
}

impl RunningFlood {
    /// Begins to flood the API at `base` from this address of our own.
    pub(super) fn start_from(base: &str, from: IpAddr) -> anyhow::Result<Self> {
        let server: SocketAddr = base.trim_start_matches("http://").parse().context("the API has no address")?;
        let client =
            dispatch::outbound::client_builder().no_proxy().local_address(from).timeout(Duration::from_secs(10));
        let client = client.build().context("cannot make an HTTP client")?;
        let counts = Arc::new(FloodCounts::default());
        let mut running = JoinSet::new();
        running.spawn(send_keys(client, format!("{base}/api/v1/orders/FIRST-0"), counts.clone()));
        for n in 0..SOCKETS {
            running.spawn(keep_socket(server, from, Duration::from_secs(1) * n / SOCKETS, counts.clone()));
        }
        Ok(Self { counts, running })
    }

    /// Ends it, and returns what it met.
    pub(super) async fn stop(mut self) -> FloodTally {
        self.running.shutdown().await;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        FloodTally {
            answered_401: count(&self.counts.unauthenticated),
            answered_429: count(&self.counts.limited),
            other: count(&self.counts.other),
            sockets_opened: count(&self.counts.opened),
            sockets_closed: count(&self.counts.closed),
        }
    }
}

async fn send_keys(client: reqwest::Client, url: String, counts: Arc<FloodCounts>) {
    let mut every = interval(Duration::from_secs(1) / KEYS_PER_S);
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let in_flight = Arc::new(Semaphore::new(MOST_IN_FLIGHT));
    let mut requests = JoinSet::new();
    loop {
        every.tick().await;
        let Ok(permit) = in_flight.clone().acquire_owned().await else { return };
        while requests.try_join_next().is_some() {}
        let request = client.get(&url).bearer_auth(api_keys::generate_key());
        let counts = counts.clone();
        requests.spawn(async move {
            let answer = request.send().await;
            let counter = match answer.map(|answer| answer.status().as_u16()) {
                Ok(401) => &counts.unauthenticated,
                Ok(429) => &counts.limited,
                _ => &counts.other,
            };
            counter.fetch_add(1, Ordering::Relaxed);
            drop(permit);
        });
    }
}

/// Connects, says nothing until it is hung up on, and comes back.
async fn keep_socket(server: SocketAddr, from: IpAddr, delay: Duration, counts: Arc<FloodCounts>) {
    sleep(delay).await;
    loop {
        let connected = async {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::new(from, 0))?;
            socket.connect(server).await
        };
        if let Ok(mut stream) = connected.await {
            counts.opened.fetch_add(1, Ordering::Relaxed);
            let _ = stream.read(&mut [0; 16]).await;
            counts.closed.fetch_add(1, Ordering::Relaxed);
        }
        sleep(COME_BACK).await;
    }
}
