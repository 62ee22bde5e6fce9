//! A console with data on each page, and a browser that is signed in.

use std::future::ready;

use axum::{Router, response::Html, routing::get};
use model::binding::BindingCommand;
use serde_json::json;
use tokio::{net::TcpListener, task::JoinHandle};

use super::chromium::Chromium;
use crate::support::{Api, ProviderStage, TestApp, by, dead_letters::bury_due, id};
use ::desk::{
    operator::{
        desk,
        order::{self, OrderAction},
    },
    plans::{
        create::{self, PlanMode},
        dead_plans::{self, DeadJobFilter, DeadJobVerb},
    },
};
use accounts::api_keys::AccountRole;
use areas::{
    import,
    table::{ChangeAuthor, geofences},
};
use chrono::TimeDelta;
use foundation::{db, staff_actions::ActionAuthor};
use model::{
    actor::{Actor, ActorRole},
    decide::money,
    ids::PlanId,
};
use settings::PartnerConfig;

const AUTHOR: ChangeAuthor<'static> =
    ChangeAuthor { actor: &Actor::with_fixed_name(ActorRole::Operator, "test"), reason: Some("test") };
/// Id of the plan of [`lay_out`].
const PLAN: &str = "01937c3e-8f00-7000-8000-0000000000aa";
/// Webhook endpoint of [`lay_out`].
const ENDPOINT: &str = "INSERT INTO webhook_endpoints (id, producer, url, events, secret)
    VALUES ('01937c3e-8f00-7000-8000-0000000000bb', 'shop', 'https://shop.example.com/dispatchq/webhooks', '{}', 'whsec_AAAA')";
/// Violation of [`lay_out`].
const VIOLATION: &str = "INSERT INTO proof_violations (invariant, subject, detail, order_id, step, found_at, seen_at)
    VALUES ('unbroken_chain', 'HELD', 'HELD is DISPATCHING but its history ends in PENDING', 'HELD', 1, dispatchq_now(), dispatchq_now())";
/// Values of the curves of [`lay_out`], one a minute.
const SNAPSHOTS: &str = "
    INSERT INTO glance_snapshots (at, open_orders, to_decide, refunds_owed, lateness_p99_ms, oldest_due_ms, workers, servers_left_alone)
    SELECT dispatchq_now() - n * interval '1 minute', 100 + n % 60, n % 9, n % 4, 20 + n % 30, n % 50, 2, 0 FROM generate_series(1, 1500) n;
    INSERT INTO queue_snapshots (at, queue, due, scheduled, leased, dead)
    SELECT dispatchq_now() - n * interval '1 minute', 'dispatch-queue', n % 7, 1000, n % 5, 10 FROM generate_series(1, 1500) n;
    INSERT INTO waiting_snapshots (at, area_id, service_type, waiting, threshold, rejected, would_reject, bypassed, refuses)
    SELECT dispatchq_now() - n * interval '1 minute', 'JKT-PUSAT', 'RIDE', n % 100, 100, n % 3, 0, 0, '' FROM generate_series(1, 300) n";
/// Zones shipped in the repository.
const JAKARTA: &str = include_str!("../../../deploy/areas/jakarta.geojson");

/// The console of an application, and a browser in which one person has signed in.
pub(super) struct Console {
    pub(super) browser: Chromium,
    pub(super) api: Api,
    /// Base URL of the console, for example `http://127.0.0.1:8080/console`.
    pub(super) base: String,
}

impl Console {
    /// Signs in with this role and shows the first page.
    pub(super) async fn open(t: &TestApp, role: AccountRole) -> Self {
        let api = Api::start(&t.app).await;
        let path = t.app.config.console.path.clone();
        let mut browser = Chromium::start().await;
        browser.sign_in(&api.url(""), &path, &t.key(role).await).await;
        let base = api.url(&path);
        Self { browser, api, base }
    }

    pub(super) async fn visit(&mut self, path: &str) {
        let url = format!("{}{path}", self.base);
        self.browser.open(&url).await;
    }
}

/// Imports the areas of Jakarta for all service types.
pub(super) async fn import_areas(t: &TestApp) {
    geofences::import_areas(&t.app.core.db, &import::parse(JAKARTA).unwrap(), false, None, AUTHOR).await.unwrap();
    reload_rules(t).await;
}

/// Reloads the area rules. Processes do this twice a second.
pub(super) async fn reload_rules(t: &TestApp) {
    t.app.areas.reload_if_changed().await.unwrap();
}

/// Creates a paid RENT order without a driver. It waits for a dispatcher.
pub(super) async fn let_wait(t: &TestApp, order: &str) {
    t.order_of(order, "RENT", "PAID").await;
    t.run_due().await;
}

/// Creates a paid order and cancels it, so that a refund is due.
pub(super) async fn owe(t: &TestApp, order: &str) {
    t.order_of(order, "RIDE", "PAID").await;
    t.cancel(order).await.unwrap();
}

/// Creates data for every page: orders in each state with actions, areas, drivers, a partner, bindings (B-ASKS waits
/// for an OTP), a plan, a dead job, a dead message, a webhook endpoint, a violation of the history, and a user. The orders are WAITS (PENDING), HELD (under review),
/// ASKS (offered to a driver), RIDES (accepted by a driver), OWED and BEGUN (refunds), and LATER (scheduled).
pub(super) async fn lay_out() -> ProviderStage {
    let stage = ProviderStage::with(|config| {
        config.partners.insert("bbd".into(), PartnerConfig::with_url("http://127.0.0.1:9/v1"));
    })
    .await;
    let t = &stage.t;
    import_areas(t).await;
    stage.turn_knobs(|knobs| knobs.otp_rate = "1".parse().unwrap());
    stage.run_binding("B-ASKS", "S1", json!({})).await;
    t.run_due().await;
    stage.turn_knobs(|knobs| knobs.otp_rate = "0".parse().unwrap());
    t.order("DEAD").await;
    assert_eq!(bury_due(&t.app, "no route to host").await, 1);
    let_wait(t, "WAITS").await;
    t.sql("UPDATE outbox SET state = 'dead', last_error = 'the receiver answered 404'").await;
    t.drivers(&[("D1", 100.0), ("D2", 400.0), ("D3", 900.0)]).await;
    t.order("RIDES").await;
    t.run_due().await;
    t.accept_offer("RIDES").await;
    t.sql("UPDATE orders SET customer_id = 'CUS-1' WHERE id = 'RIDES'").await;
    t.order("HELD").await;
    let why = Some("the customer calls back");
    order::act_on_order(&t.app.desk, &id("HELD"), &OrderAction::Hold, &by("dispatcher:test"), why).await.unwrap();
    // By the admin who looks at the pages.
    let admin = by("admin:test-admin");
    desk::take_order(&t.app.core.db, &id("HELD"), ActionAuthor { actor: &admin, reason: None }).await.unwrap();
    t.order("ASKS").await;
    t.run_due().await;
    owe(t, "OWED").await;
    owe(t, "BEGUN").await;
    t.act("BEGUN", |s| money::start_refund(s, &by("support:test"), None)).await.unwrap();
    plan_requeue(t).await;
    t.user("anna", AccountRole::Support, "log").await;
    stage.run_binding("B-RUNS", "S1", json!({})).await;
    stage.run_binding("B-PAUSED", "S1", json!({})).await;
    stage.command("B-PAUSED", BindingCommand::Pause).await;
    stage.create_binding("B-STOPPED", "S1", json!({})).await;
    t.sql(ENDPOINT).await;
    t.sql(VIOLATION).await;
    t.sql(SNAPSHOTS).await;
    t.order_at("LATER", db::database_now(&t.app.core.db).await.unwrap() + TimeDelta::hours(5)).await;
    stage
}

/// A plan to requeue all dead jobs, which waits to be run.
async fn plan_requeue(t: &TestApp) {
    let filter = DeadJobFilter::default();
    let selection = filter.to_selection().unwrap();
    let reason = Some("routing is back".to_owned());
    let draft = dead_plans::draft_plan(&t.app.core, &filter, &selection, DeadJobVerb::Requeue, reason).await.unwrap();
    let plan: PlanId = PLAN.parse().unwrap();
    create::store_draft(&t.app.core, plan, &draft, PlanMode::DryRun, &by("operator:test")).await.unwrap();
}

/// A site that is not ours, with one page.
pub(super) struct OtherSite {
    port: u16,
    server: JoinHandle<std::io::Result<()>>,
}

impl OtherSite {
    pub(super) async fn start(page: impl Into<String>) -> Self {
        let page = page.into();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new().route("/", get(move || ready(Html(page.clone()))));
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Self { port, server }
    }

    /// Its address under this name of the machine.
    pub(super) fn url(&self, host: &str) -> String {
        format!("http://{host}:{}/", self.port)
    }
}

impl Drop for OtherSite {
    fn drop(&mut self) {
        self.server.abort();
    }
}
