//! Now: overview of the installation.

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};

use super::{
    now_figures::{Describe, Figure, NowRows},
    now_system::{EngineRows, SystemRow, read_engine, servers_row},
    roles::STAFF,
};
use crate::{
    catalogue::{Words, tr},
    chart::Sparkline,
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, describe_ms, group_digits},
};
use app::App;
use desk::reports::{
    glance::{self, AreaPoint, GlancePoint, QueuePoint},
    page_changes::ChangeTopic,
};

/// Seconds between refreshes.
const REFRESH_S: u32 = 5;

#[derive(Template)]
#[template(path = "now.html")]
struct NowPage {
    shell: Shell,
    figures: Vec<Figure>,
    system: Vec<SystemRow>,
    charts: Vec<Sparkline>,
    states: Vec<(Chip, String, &'static str)>,
    /// Whether the counts by state cover only the oldest orders.
    is_cut: bool,
    /// Error of Redis, if it does not answer.
    redis_problem: Option<String>,
    to_decide: u64,
}

pub(crate) async fn show_page(State(app): State<App>, person: SignedIn) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    if person.scope().is_some() {
        // The figures count all orders.
        return Ok(Redirect::to(&format!("{}/orders", app.config.console.path)).into_response());
    }
    let app = app.showing();
    let servers = glance::count_servers(&app.core.db).await?;
    let now = servers.now;
    let open = glance::count_open_orders(&app.core.db).await?;
    let refunds = glance::count_refunds(&app.core.db).await?;
    let alerts = glance::count_alerts(&app.core.db).await?;
    let queues = glance::queue_curve(&app.core.db).await?;
    let areas = glance::area_curve(&app.core.db).await?;
    let whole = glance::glance_curve(&app.core.db).await?;
    let (engine, redis_problem) = match read_engine(&app).await {
        Ok(engine) => (Some(engine), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let rows = NowRows {
        now,
        open: &open,
        refund_due: refunds.oldest.map(|oldest| app.config.notifications.sla_end(oldest)),
        refunds: &refunds,
        alerts: &alerts,
        whole: &whole,
        areas: &areas,
        delay_ms: engine.as_ref().map(|engine| engine.delay_ms),
    };
    let curves = Curves { now, queues: &queues, areas: &areas, whole: &whole, engine: engine.as_ref() };
    let page = NowPage {
        figures: rows.list_figures(),
        charts: curves.draw_all(servers.enabled > 0),
        states: open.by_status.iter().map(|(s, n)| (Chip::of_status(*s), group_digits(*n), s.as_str())).collect(),
        is_cut: open.all.is_cut,
        redis_problem,
        to_decide: open.to_decide,
        system: engine.into_iter().flat_map(|engine| engine.rows).chain(servers_row(&servers)).collect(),
        shell: Shell::for_person(&app.config, &person, "/", tr("common.now"), None)
            .live(REFRESH_S)
            .follow(ChangeTopic::Orders)
            .made_at(now),
    };
    render(&page)
}

/// Curves of the last hour of values that are not among the figures.
struct Curves<'a> {
    now: DateTime<Utc>,
    queues: &'a [QueuePoint],
    areas: &'a [AreaPoint],
    whole: &'a [GlancePoint],
    /// State of the engine, with which its curves end.
    engine: Option<&'a EngineRows>,
}

impl Curves<'_> {
    fn draw_all(&self, has_servers: bool) -> Vec<Sparkline> {
        let engine = |pick: fn(&EngineRows) -> u64| self.engine.map(pick);
        let whole = |pick: fn(&GlancePoint) -> i64| self.whole.iter().map(|p| (p.at, pick(p))).collect::<Vec<_>>();
        let queues = |pick: fn(&QueuePoint) -> i64| self.queues.iter().map(|p| (p.at, pick(p))).collect::<Vec<_>>();
        let areas = |pick: fn(&AreaPoint) -> i64| self.areas.iter().map(|p| (p.at, pick(p))).collect::<Vec<_>>();
        let charts = [
            self.draw(tr("now.orders_waiting_areas"), areas(|p| p.waiting), None, group_digits),
            self.draw(tr("now.refused_requests"), areas(|p| p.rejected), None, group_digits),
            self.draw(tr("now.due_jobs"), queues(|p| p.due), engine(|e| e.due), group_digits),
            self.draw(tr("charts.oldest_due"), whole(|p| p.oldest_due_ms), engine(|e| e.oldest_due_ms), describe_ms),
            self.draw(tr("common.dead_jobs"), queues(|p| p.dead), engine(|e| e.dead), group_digits),
            self.draw(tr("common.workers"), whole(|p| p.workers), engine(|e| e.workers), group_digits),
            self.draw(tr("now.paused_servers"), whole(|p| p.servers_left_alone), None, group_digits)
                .filter(|_| has_servers),
        ];
        charts.into_iter().flatten().collect()
    }

    /// Draws a curve that ends with the present value, if it is known. Draws none without a point of the last hour.
    fn draw(
        &self,
        title: Words,
        mut points: Vec<(DateTime<Utc>, i64)>,
        present: Option<u64>,
        describe: Describe,
    ) -> Option<Sparkline> {
        if points.is_empty() {
            return None;
        }
        points.extend(present.map(|present| (self.now, present.cast_signed())));
        Sparkline::draw(title, &points, self.now, describe)
    }
}
