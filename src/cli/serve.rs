//! `dispatchq serve`: the HTTP API, and its admin port.

use std::{process::ExitCode, time::Duration};

use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{build_info, service_manager, signals};
use api::{ProcessKind, orders::test_clock::test_clock_routes};
use app::{App, metrics_list};
use foundation::telemetry;
use settings::Config;

/// Interval of the warning that alerts to support reach no person.
const UNHEARD_WARNING: Duration = Duration::from_mins(1);

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(super) struct Args {
    /// Address to listen on instead of http.bind
    #[arg(long, value_name = "HOST:PORT", value_parser = foundation::config::address::parse_bind)]
    bind: Option<String>,
}

impl Args {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        orders::service_types::publish(&app.core.db, &app.config).await?;
        let stop = signals::stop_token()?;
        self.serve_until(&app, &stop).await?;
        Ok(ExitCode::SUCCESS)
    }

    /// Serves the API, the console and the admin port until `stop`.
    pub(super) async fn serve_until(self, app: &App, stop: &CancellationToken) -> anyhow::Result<()> {
        api::server::raise_open_files();
        let bind = self.bind.unwrap_or_else(|| app.config.http.bind.clone());
        let admin = start_admin(app, ProcessKind::Serve, stop).await?;
        let listener = api::server::bind_listener(&bind, "http.bind").await?;
        tracing::info!(address = %listener.local_addr()?, "Serving the API.");
        let apart = serve_console_apart(app, stop).await?;
        service_manager::report_serving(app);
        // The warnings also end when the listener fails.
        let served = stop.child_token();
        let requests = async {
            let pages = NextToApi { console: apart.is_none(), test_clock: false };
            let result = serve_requests(app, listener, pages, stop).await;
            served.cancel();
            result
        };
        let (result, ()) = tokio::join!(requests, warn_while_unheard(&app.config, UNHEARD_WARNING, &served));
        result?;
        for server in apart.into_iter().chain(admin) {
            server.await??;
        }
        Ok(())
    }
}

/// Warns at once and then at this interval until `stop`, if alerts to support go only to the log. Without this warning,
/// the first sign of a lost alert is a customer who asks for a refund.
async fn warn_while_unheard(config: &Config, every: Duration, stop: &CancellationToken) {
    if !config.ends_in_log(&config.notifications.support) {
        return;
    }
    let mut due = tokio::time::interval(every);
    while stop.run_until_cancelled(due.tick()).await.is_some() {
        tracing::warn!(
            "Alerts to support go only to the log and reach no person. Configure a channel and name it in \
             notifications.support (docs/DEPLOY.md)."
        );
    }
}

/// Routes that a process serves next to the API.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextToApi {
    pub(super) console: bool,
    /// Only for `dispatchq dev`.
    pub(super) test_clock: bool,
}

/// Serves requests until `stop`, and writes their statistics: the last use of keys, and admission results.
/// `next_to_api.console` adds the console's pages. The pages for drivers and customers and the reference are always on
/// the address of the API.
pub(super) async fn serve_requests(
    app: &App,
    listener: TcpListener,
    next_to_api: NextToApi,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let mut pages = if next_to_api.console { staff_console::console_pages(app) } else { Default::default() };
    pages = pages
        .merge(staff_console::driver_page(app))
        .merge(staff_console::tracking_page(app))
        .merge(staff_console::docs_page(app));
    if next_to_api.test_clock {
        pages = pages.merge(test_clock_routes());
    }
    let key_use = tokio::spawn(app.accounts.key_use.clone().keep_written(app.core.db.clone(), stop.clone()));
    // Cancelled after the last request is answered, because that request may have been refused and must be counted.
    let answered = CancellationToken::new();
    let tally = app.areas.tally.clone().keep_written(app.core.upkeep.clone(), app.core.loops.clone(), answered.clone());
    let tally = tokio::spawn(tally);
    let served = api::server::serve_api(listener, app.clone(), pages, stop.clone()).await;
    answered.cancel();
    tally.await?;
    served?;
    key_use.await?;
    Ok(())
}

/// Serves the console on its own address. Returns `None` if it is disabled or served together with the API.
async fn serve_console_apart(
    app: &App,
    stop: &CancellationToken,
) -> anyhow::Result<Option<JoinHandle<anyhow::Result<()>>>> {
    let console = &app.config.console;
    if !console.enabled {
        return Ok(None);
    }
    if console.bind.is_empty() {
        tracing::info!(path = console.path, "Serving the console.");
        return Ok(None);
    }
    let listener = api::server::bind_listener(&console.bind, "console.bind").await?;
    tracing::info!(address = %listener.local_addr()?, path = console.path, "Serving the console on its own address.");
    let router = api::pages_router(app.clone(), staff_console::console_pages(app), &console.path);
    Ok(Some(tokio::spawn(api::server::serve_router(listener, router, app.config.http.clone(), stop.clone()))))
}

/// Serves health and metrics in the background, unless the address is empty.
pub(super) async fn start_admin(
    app: &App,
    process: ProcessKind,
    stop: &CancellationToken,
) -> anyhow::Result<Option<JoinHandle<anyhow::Result<()>>>> {
    let (address, setting) = match process {
        ProcessKind::Serve => (&app.config.http.admin_bind, "http.admin_bind"),
        ProcessKind::Work => (&app.config.worker.admin_bind, "worker.admin_bind"),
    };
    if address.is_empty() {
        return Ok(None);
    }
    let listener = api::server::bind_listener(address, setting).await?;
    Ok(Some(serve_admin(app, process, listener, stop)?))
}

/// Serves health and metrics on this listener.
pub(super) fn serve_admin(
    app: &App,
    process: ProcessKind,
    listener: TcpListener,
    stop: &CancellationToken,
) -> anyhow::Result<JoinHandle<anyhow::Result<()>>> {
    let metrics = telemetry::init_metrics()?;
    metrics_list::register_metrics(&app.config);
    build_info::export_build_info();
    tracing::info!(address = %listener.local_addr()?, "Serving health and metrics.");
    let router = api::admin_router(app.clone(), metrics, process);
    Ok(tokio::spawn(api::server::serve_router(listener, router, app.config.http.clone(), stop.clone())))
}

#[cfg(test)]
mod tests {
    use test_support::{LogLines, eventually, millis};

    use super::*;

    #[tokio::test]
    async fn unheard_alerts_are_logged_again_and_again() {
        let lines = LogLines::default();
        tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).init();
        let stop = CancellationToken::new();
        let mut config = Config::defaults();
        let warned =
            || async { lines.with(" WARN ").iter().filter(|line| line.contains("reach no person")).count() >= 3 };
        tokio::select! {
            () = warn_while_unheard(&config, millis(5), &stop) => panic!("it ended before stop"),
            () = eventually("three warnings", warned) => {}
        }
        stop.cancel();
        warn_while_unheard(&config, UNHEARD_WARNING, &stop).await;

        config.notifications.support = vec!["log".to_owned(), "desk".to_owned()];
        warn_while_unheard(&config, UNHEARD_WARNING, &CancellationToken::new()).await;
    }
}
