//! Servers, drivers, and orders that are offered to all of them.

use std::{future, thread};

use anyhow::{Context, ensure};
use axum::middleware::from_fn_with_state;
use geo::Point;
use jobs::{DispatchOrder, OrderId};
use metrics_exporter_prometheus::PrometheusHandle;
use servers::{PostgresServer, RedisServer, TcpProxy};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Handle},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::answers::{self, RefusalTimes};
use crate::testbed::{
    drivers::{SimulatedDriver, insert_drivers},
    start_private_app,
};
use accounts::api_keys;
use api::server;
use app::App;
use foundation::telemetry;
use maintenance::recovery::reconciler;
use model::{
    actor::{Actor, ActorRole},
    decide::actions,
    ids::{DriverId, OfferId},
    location::OrderLocation,
};
use orders::{
    create::{self, NewOrder},
    metrics::UPDATES,
    order_store::load,
    seen::Basis,
};
use queue::{Outcome, Store};

const SERVICE_TYPE: &str = "RIDE";
const PICKUP: OrderLocation = OrderLocation { latitude: -6.2088, longitude: 106.8456 };
/// Postgres connections: the default of `serve`.
const CONNECTIONS: u32 = 16;

#[derive(Debug)]
pub(super) struct AcceptStage {
    app: App,
    pub(super) redis: RedisServer,
    /// Proxy to Redis for a second server; it can be slowed down. The other server connects to Redis directly, because
    /// a proxy would use CPU time that is measured.
    pub(super) proxy: TcpProxy,
    pub(super) drivers: Vec<SimulatedDriver>,
    /// Base URL of the API.
    pub(super) base: String,
    /// Base URL of the API that reaches Redis through the proxy.
    slow_base: String,
    /// Server times of refusals.
    pub(super) times: RefusalTimes,
    metrics: PrometheusHandle,
    _serving: [DropGuard; 2],
    // Dropped last, because the other fields use it.
    _postgres: PostgresServer,
}

impl AcceptStage {
    pub(super) async fn set_up(drivers: u16) -> anyhow::Result<Self> {
        let metrics = telemetry::init_metrics()?;
        let (app, redis, postgres) = start_private_app(|config| {
            config.database.max_connections = CONNECTIONS;
            config.dispatch.ask_at_once = drivers;
        })
        .await?;
        let proxy = start_proxy(redis.port()).await?;
        let slow_store = Store::connect(&format!("redis://127.0.0.1:{}", proxy.port())).await?;
        let slow_app = App::new((*app.config).clone(), app.core.db.clone(), slow_store)?;
        reconciler::reconcile_once(&app.maintenance).await?;
        let drivers = hire_drivers(&app, drivers).await?;

        let times = RefusalTimes::default();
        let (base, serving) = serve_api(&app, &times).await?;
        let (slow_base, slow_serving) = serve_api(&slow_app, &times).await?;
        let serving = [serving, slow_serving];
        Ok(Self { app, redis, proxy, drivers, base, slow_base, times, metrics, _serving: serving, _postgres: postgres })
    }

    /// Returns the base URL of the API, and the times of its refusals.
    pub(super) fn target(&self) -> (&str, &RefusalTimes) {
        (&self.base, &self.times)
    }

    /// Returns the same for the API that reaches Redis through the proxy.
    pub(super) fn slow_target(&self) -> (&str, &RefusalTimes) {
        (&self.slow_base, &self.times)
    }

    /// Creates an order and offers it to every driver. Returns each driver with its offer.
    pub(super) async fn create_offered_order(&self, id: &OrderId) -> anyhow::Result<Vec<(SimulatedDriver, OfferId)>> {
        let new = NewOrder {
            order_id: Some(id.clone()),
            service_type: SERVICE_TYPE.into(),
            pickup: PICKUP.into(),
            payment_status: "UNPAID".to_owned().try_into()?,
            amount_minor: None,
            currency: None,
            area_id: None,
            customer_id: None,
            language: None,
            channel: None,
            loyalty_level: None,
            dropoff: None,
            notes: None,
            contact: None,
            metadata: None,
            requires: None,
            pickup_at: None,
        };
        create::create_order(&self.app.orders, id.clone(), &new, &Actor::with_fixed_name(ActorRole::Producer, "bench"))
            .await?;
        let outcome = workers::dispatch::perform_dispatch(
            self.app.partners.clone(),
            DispatchOrder { order: id.clone(), attempt: 1 },
        )
        .await;
        ensure!(matches!(outcome, Outcome::Done { .. }), "the order was not offered: {outcome:?}");
        // The delivery of offers is not measured, so the messages are marked as delivered.
        sqlx::query("UPDATE outbox SET state = 'delivered' WHERE state = 'pending'").execute(&self.app.core.db).await?;
        let s = load::load_order(&self.app.core.db, id).await?.context("the order does not exist")?;
        let offers: Vec<_> = s
            .live_offers()
            .filter_map(|o| Some((self.drivers.iter().find(|d| d.id == o.driver_id.as_str())?.clone(), o.id)))
            .collect();
        ensure!(offers.len() == self.drivers.len(), "{} of {} drivers got an offer", offers.len(), self.drivers.len());
        Ok(offers)
    }

    /// Completes the winner's trip. Returns the winner in the order's row.
    pub(super) async fn finish_trip(&self, id: &OrderId) -> anyhow::Result<Option<DriverId>> {
        let s = load::load_order(&self.app.core.db, id).await?.context("the order does not exist")?;
        let Some(driver) = s.order.driver_id else { return Ok(None) };
        let orders = &self.app.orders;
        let picked_up = orders.change(id, Basis::Fresh, |s| actions::record_pickup(s, &driver)).await?;
        picked_up.effects.run(orders).await;
        let completed = orders.change(id, Basis::Fresh, |s| actions::complete_trip(s, &driver)).await?;
        completed.effects.run(orders).await;
        Ok(Some(driver))
    }

    /// Counts orders that more than one driver won, by offers and by history.
    pub(super) async fn count_given_twice(&self) -> anyhow::Result<i64> {
        Ok(sqlx::query_scalar(
            "SELECT (SELECT count(*) FROM (SELECT 1 FROM offers WHERE state = 'accepted'
                                           GROUP BY order_id HAVING count(*) > 1) o)
                  + (SELECT count(*) FROM (SELECT 1 FROM order_events WHERE reason = 'OFFER_ACCEPTED'
                                           GROUP BY order_id HAVING count(*) > 1) e)",
        )
        .fetch_one(&self.app.core.db)
        .await?)
    }

    /// Returns the number of UPDATE statements on orders so far, whether they changed a row or not.
    pub(super) fn count_updates(&self) -> u64 {
        let series = format!("{UPDATES}{{");
        let text = self.metrics.render();
        let counts = text.lines().filter(|line| line.starts_with(&series)).filter_map(|line| line.rsplit(' ').next());
        counts.filter_map(|count| count.parse::<u64>().ok()).sum()
    }

    pub(super) async fn find_violations(&self) -> anyhow::Result<Vec<String>> {
        // No worker runs here, so the timers stay. The history check ignores them.
        let found = maintenance::audit::check_history(&self.app.maintenance).await?;
        Ok(found.iter().map(ToString::to_string).collect())
    }
}

/// Serves the API until the guard is dropped. Returns its address.
async fn serve_api(app: &App, times: &RefusalTimes) -> anyhow::Result<(String, DropGuard)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base = format!("http://{}", listener.local_addr()?);
    let stop = CancellationToken::new();
    let router = api::api_router(app.clone()).layer(from_fn_with_state(times.clone(), answers::time_refusal));
    tokio::spawn(server::serve_router(listener, router, app.config.http.clone(), stop.clone()));
    tokio::spawn(app.accounts.keys.clone().watch_revision(
        app.core.upkeep.clone(),
        app.core.loops.clone(),
        stop.clone(),
    ));
    Ok((base, stop.drop_guard()))
}

/// Starts the proxy to Redis on its own thread, so that its work does not compete with the drivers and the server.
async fn start_proxy(port: u16) -> anyhow::Result<TcpProxy> {
    Ok(start_thread()?.spawn(TcpProxy::start(port)).await??)
}

/// Starts a thread with a runtime that lives until the process ends.
pub(super) fn start_thread() -> anyhow::Result<Handle> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(future::pending::<()>()));
    Ok(handle)
}

/// Adds drivers at the pickup, with their keys.
async fn hire_drivers(app: &App, count: u16) -> anyhow::Result<Vec<SimulatedDriver>> {
    let at = Point::new(PICKUP.longitude, PICKUP.latitude);
    let driver = |n: u16| SimulatedDriver { id: format!("D-{n:03}"), key: api_keys::generate_key(), at };
    let fleet: Vec<_> = (1..=count).map(driver).collect();
    insert_drivers(app, &fleet, &[SERVICE_TYPE]).await?;
    Ok(fleet)
}
