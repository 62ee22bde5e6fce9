//! Metrics of a single test, in a recorder of its own.

use std::fmt;

use metrics::LocalRecorderGuard;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Scrape;
use app::App;

/// Records metrics on this thread until it is dropped. All tasks of a test run on one thread.
pub struct Counting {
    handle: PrometheusHandle,
    _guard: LocalRecorderGuard<'static>,
}

impl fmt::Debug for Counting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counting").finish_non_exhaustive()
    }
}

impl Counting {
    pub fn start() -> Self {
        let recorder = PrometheusBuilder::new().set_buckets(&[1.0]).unwrap().build_recorder();
        let recorder = Box::leak(Box::new(recorder));
        Self { handle: recorder.handle(), _guard: metrics::set_default_local_recorder(recorder) }
    }

    /// Serves /metrics with these metrics and the gauges of this application until the guard is dropped. Returns its
    /// address.
    pub async fn shown(&self, app: &App) -> (String, DropGuard) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let router = api::admin_router(app.clone(), self.handle.clone(), api::ProcessKind::Serve);
        tokio::spawn(api::server::serve_router(listener, router, app.config.http.clone(), stop.clone()));
        (address, stop.drop_guard())
    }

    pub fn read(&self) -> Scrape {
        Scrape::of(&self.handle.render())
    }

    /// Returns the series with a nonzero value whose metric starts with `prefix`.
    pub fn of(&self, prefix: &str) -> Vec<String> {
        self.read().counted(prefix)
    }
}
