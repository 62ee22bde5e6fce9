//! Now: overview of the installation.

use askama::Template;
use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};

use model::admission::decide::AreaRefusal;

use super::roles::STAFF;
use crate::{
    catalogue::{Words, fill, tr},
    chart::Sparkline,
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Code, describe_amount, describe_count, describe_left, describe_ms, describe_span, group_digits},
};
use app::App;
use desk::reports::{
    glance::{self, AreaPoint, GlancePoint, QueuePoint, ServerGlance},
    page_changes::ChangeTopic,
};

/// Seconds between refreshes.
const REFRESH_S: u32 = 5;

/// A number with its label.
struct Tile {
    label: Words,
    figure: String,
    under: String,
    /// "", "warn" or "bad".
    tone: &'static str,
    /// Path of the page with details; empty if there is none.
    path: &'static str,
}

impl Tile {
    fn flag(&self) -> &'static str {
        match self.tone {
            "warn" => tr("now.check").get(),
            "bad" => tr("now.action_needed").get(),
            _ => "",
        }
    }
}

#[derive(Template)]
#[template(path = "now.html")]
struct NowPage {
    shell: Shell,
    tiles: Vec<Tile>,
    charts: Vec<Sparkline>,
    states: Vec<(Chip, String, &'static str)>,
    /// Whether the counts by state cover only the oldest orders.
    is_cut: bool,
    /// Error of Redis, if it does not answer.
    redis_problem: Option<String>,
    to_decide: u64,
}

fn tone(is_bad: bool, is_odd: bool) -> &'static str {
    if is_bad {
        "bad"
    } else if is_odd {
        "warn"
    } else {
        ""
    }
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
    let queue_curve = glance::queue_curve(&app.core.db).await?;
    let area_curve = glance::area_curve(&app.core.db).await?;
    let whole_curve = glance::glance_curve(&app.core.db).await?;
    let sla_ends = refunds.oldest.map(|oldest| app.config.notifications.sla_end(oldest));
    let latest = area_curve.last();
    let sums: Vec<String> =
        refunds.sums.iter().map(|(currency, sum)| describe_amount(Some(*sum), Some(currency))).collect();
    let is_old = |oldest: Option<DateTime<Utc>>| match oldest {
        Some(oldest) => {
            let age = describe_span(now - oldest);
            fill!("now.oldest", age)
        }
        None => tr("now.none").into(),
    };
    let held = group_digits(open.held);
    let mut tiles = vec![
        Tile {
            label: tr("now.open_orders"),
            figure: describe_count(open.all),
            under: is_old(open.oldest),
            tone: "",
            path: "/orders",
        },
        Tile {
            label: tr("now.waiting_person"),
            figure: group_digits(open.to_decide),
            under: fill!("now.under_review", held),
            tone: tone(false, open.to_decide > 0),
            path: "/desk",
        },
        Tile {
            label: tr("now.open_alerts"),
            figure: describe_count(alerts.all),
            under: is_old(alerts.oldest),
            tone: tone(false, alerts.all.rows > 0),
            path: "/alerts",
        },
        Tile {
            label: tr("now.refunds_owed"),
            figure: describe_count(refunds.all),
            under: match sla_ends {
                Some(end) => {
                    let (sums, left) = (sums.join(", "), describe_left(end - now));
                    fill!("now.deadline_oldest", sums, left)
                }
                None => tr("common.no_refunds_owed").into(),
            },
            tone: tone(sla_ends.is_some_and(|end| end < now), refunds.all.rows > 0),
            path: "/refunds",
        },
        Tile {
            label: tr("now.full_areas"),
            figure: latest.map_or_else(|| "–".to_owned(), |point| point.full.to_string()),
            under: latest.map_or_else(|| tr("now.no_data_from_last").into(), describe_areas),
            tone: tone(false, latest.is_some_and(|point| point.full > 0)),
            path: "/areas",
        },
    ];
    tiles.extend(servers_tile(&servers));
    let redis_problem = add_engine(&app, &mut tiles).await;
    let curve = |title, pick: &dyn Fn(usize) -> Option<(DateTime<Utc>, i64)>, len: usize| {
        let points: Vec<_> = (0..len).filter_map(pick).collect();
        Sparkline::draw(title, &points, now)
    };
    let whole = |title, pick: fn(&GlancePoint) -> i64| {
        curve(title, &|i| whole_curve.get(i).map(|p| (p.at, pick(p))), whole_curve.len())
    };
    let queues = |title, pick: fn(&QueuePoint) -> i64| {
        curve(title, &|i| queue_curve.get(i).map(|p| (p.at, pick(p))), queue_curve.len())
    };
    let areas = |title, pick: fn(&AreaPoint) -> i64| {
        curve(title, &|i| area_curve.get(i).map(|p| (p.at, pick(p))), area_curve.len())
    };
    // The charts are in the same order as the tiles.
    let charts = [
        whole(tr("now.open_orders"), |p| p.open_orders),
        whole(tr("now.waiting_person"), |p| p.to_decide),
        whole(tr("now.refunds_owed"), |p| p.refunds_owed),
        areas(tr("now.orders_waiting_areas"), |p| p.waiting),
        areas(tr("now.full_areas"), |p| p.full),
        areas(tr("now.refused_requests"), |p| p.rejected),
        queues(tr("now.due_jobs"), |p| p.due),
        whole(tr("now.age_oldest_due_job"), |p| p.oldest_due_ms),
        whole(tr("now.job_delay_ms"), |p| p.lateness_p99_ms),
        queues(tr("common.dead_jobs"), |p| p.dead),
        whole(tr("common.workers"), |p| p.workers),
        (servers.enabled > 0).then(|| whole(tr("now.paused_servers"), |p| p.servers_left_alone)).flatten(),
    ];
    let states = open.by_status.iter();
    let page = NowPage {
        tiles,
        charts: charts.into_iter().flatten().collect(),
        states: states.map(|(s, n)| (Chip::of_status(*s), group_digits(*n), s.as_str())).collect(),
        is_cut: open.all.is_cut,
        redis_problem,
        to_decide: open.to_decide,
        shell: Shell::for_person(&app.config, &person, "/", tr("common.now"), None)
            .live(REFRESH_S)
            .follow(ChangeTopic::Orders)
            .made_at(now),
    };
    render(&page)
}

/// Returns the number of orders that wait in areas, and the reasons of refusals.
fn describe_areas(point: &AreaPoint) -> String {
    let waiting = point.waiting;
    let mut parts = vec![fill!("now.waiting_areas", waiting)];
    let causes = AreaRefusal::ALL.into_iter().zip(&point.by_cause).filter(|(_, count)| **count > 0);
    parts.extend(causes.map(|(cause, count)| format!("{}: {count}", Code::new("area_refusal", cause.as_str()).text())));
    parts.join("; ")
}

/// Adds the tiles with data from Redis. If Redis does not answer, adds none and returns the error.
async fn add_engine(app: &App, tiles: &mut Vec<Tile>) -> Option<String> {
    let asked = async {
        let queues = app.core.queue().queue_stats(&jobs::queues::ALL).await?;
        let workers = app.core.store.list_workers().await?;
        let lateness = app.core.store.read_lateness().await?;
        Ok::<_, queue::StoreError>((queues, workers, lateness))
    };
    let (queues, workers, lateness) = match asked.await {
        Ok(answers) => answers,
        Err(error) => return Some(error.to_string()),
    };
    let sum = |pick: fn(&queue::store::QueueStats) -> u64| queues.iter().map(pick).sum::<u64>();
    let oldest_ms = queues.iter().filter_map(|queue| queue.oldest_due_ms).max();
    let paused: Vec<&str> = queues.iter().filter(|queue| queue.paused).map(|queue| queue.queue.as_str()).collect();
    let (due, dead) = (sum(|queue| queue.due), sum(|queue| queue.dead));
    let later = group_digits(sum(|queue| queue.scheduled));
    let half = describe_ms(lateness.p50_ms);
    let in_hand: usize = workers.iter().map(|worker| worker.info.in_hand).sum();
    tiles.extend([
        Tile {
            label: tr("now.due_jobs"),
            figure: group_digits(due),
            under: match oldest_ms {
                Some(ms) => {
                    let age = describe_ms(ms);
                    fill!("now.oldest_due", age)
                }
                None => fill!("now.scheduled", later),
            },
            tone: tone(false, oldest_ms.is_some_and(|ms| ms > 5_000) || !paused.is_empty()),
            path: "/queues",
        },
        Tile {
            label: tr("now.job_delay"),
            figure: describe_ms(lateness.p99_ms),
            under: fill!("now.half_jobs_at_most", half),
            tone: tone(false, lateness.p99_ms > 1_000),
            path: "/queues",
        },
        Tile {
            label: tr("common.dead_jobs"),
            figure: group_digits(dead),
            under: if dead == 0 { tr("now.none").into() } else { tr("now.waiting_decision").into() },
            tone: tone(false, dead > 0),
            path: "/dead",
        },
        Tile {
            label: tr("common.workers"),
            figure: workers.len().to_string(),
            under: fill!("now.running_jobs", in_hand),
            tone: tone(workers.is_empty(), false),
            path: "/workers",
        },
    ]);
    match partners_tile(app).await {
        Ok(tile) => tiles.extend(tile),
        Err(error) => return Some(error.to_string()),
    }
    None
}

/// Returns the tile about calls to providers' servers; `None` if there are no servers.
fn servers_tile(servers: &ServerGlance) -> Option<Tile> {
    let ServerGlance { now, enabled, left_alone, longest, until } = servers;
    let under = match longest.as_deref().zip(*until) {
        Some((id, until)) => {
            let span = describe_span(until - now);
            fill!("now.servers_paused_another", enabled, id, span)
        }
        None => fill!("now.all_servers_called", enabled),
    };
    (*enabled > 0).then(|| Tile {
        label: tr("now.paused_servers"),
        figure: group_digits(left_alone.unsigned_abs()),
        under,
        tone: tone(left_alone == enabled, *left_alone > 0),
        path: "/bindings",
    })
}

/// Returns the tile about calls to partners; `None` if there are no partners.
async fn partners_tile(app: &App) -> Result<Option<Tile>, queue::StoreError> {
    let (mut all, mut left_alone) = (0_u64, 0_u64);
    let mut longest = None;
    for partner in app.partners.registry.iter() {
        all += 1;
        let state = partner.breaker_state(&app.core.store).await?;
        if state.is_open() {
            left_alone += 1;
            longest = longest.max(Some((state.open_for, &partner.name, state.why)));
        }
    }
    let under = match longest {
        Some((open_for, name, why)) => {
            let span = describe_ms(u64::try_from(open_for.as_millis()).unwrap_or(u64::MAX));
            fill!("now.partners_paused_another", all, name, span, why)
        }
        None => fill!("now.all_partners_called", all),
    };
    Ok((all > 0).then(|| Tile {
        label: tr("now.paused_partners"),
        figure: group_digits(left_alone),
        under,
        tone: tone(left_alone == all, left_alone > 0),
        path: "/partners",
    }))
}
