//! Now: overview of the installation.

use askama::Template;
use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};

use model::admission::decide::AreaRefusal;

use super::roles::STAFF;
use crate::{
    chart::Sparkline,
    language::{Words, both, say},
    page::{Shell, render},
    page_error::PageError,
    service_words::describe_area_refusal,
    session::SignedIn,
    shown::{Chip, describe_amount, describe_count, describe_left, describe_span, group_digits},
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
            "warn" => both("! look", "! periksa").get(),
            "bad" => both("✕ act", "✕ tangani").get(),
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
            say!("oldest: {age}", "tertua: {age}")
        }
        None => both("none", "tidak ada").into(),
    };
    let held = group_digits(open.held);
    let mut tiles = vec![
        Tile {
            label: both("Open orders", "Pesanan terbuka"),
            figure: describe_count(open.all),
            under: is_old(open.oldest),
            tone: "",
            path: "/orders",
        },
        Tile {
            label: both("For a person", "Menunggu orang"),
            figure: group_digits(open.to_decide),
            under: say!("{held} under review", "{held} sedang ditinjau"),
            tone: tone(false, open.to_decide > 0),
            path: "/desk",
        },
        Tile {
            label: both("Open alerts", "Peringatan terbuka"),
            figure: describe_count(alerts.all),
            under: is_old(alerts.oldest),
            tone: tone(false, alerts.all.rows > 0),
            path: "/alerts",
        },
        Tile {
            label: both("Refunds owed", "Dana yang harus dikembalikan"),
            figure: describe_count(refunds.all),
            under: match sla_ends {
                Some(end) => {
                    let (sums, left) = (sums.join(", "), describe_left(end - now));
                    say!("{sums}; SLA of the oldest: {left}", "{sums}; SLA yang tertua: {left}")
                }
                None => both("nothing to pay back", "tidak ada yang harus dikembalikan").into(),
            },
            tone: tone(sla_ends.is_some_and(|end| end < now), refunds.all.rows > 0),
            path: "/refunds",
        },
        Tile {
            label: both("Areas at threshold", "Wilayah pada ambang batas"),
            figure: latest.map_or_else(|| "–".to_owned(), |point| point.full.to_string()),
            under: latest.map_or_else(
                || both("no snapshot in the last hour", "tidak ada catatan dalam satu jam terakhir").into(),
                describe_areas,
            ),
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
        whole(both("Open orders", "Pesanan terbuka"), |p| p.open_orders),
        whole(both("For a person", "Menunggu orang"), |p| p.to_decide),
        whole(both("Refunds owed", "Dana yang harus dikembalikan"), |p| p.refunds_owed),
        areas(both("Orders that wait in areas", "Pesanan yang menunggu di wilayah"), |p| p.waiting),
        areas(both("Areas at threshold", "Wilayah pada ambang batas"), |p| p.full),
        areas(both("Requests refused", "Permintaan yang ditolak"), |p| p.rejected),
        queues(both("Jobs that are due", "Pekerjaan yang jatuh tempo"), |p| p.due),
        whole(both("Oldest due (ms)", "Jatuh tempo terlama (ms)"), |p| p.oldest_due_ms),
        whole(both("Lateness p99 (ms)", "Keterlambatan p99 (ms)"), |p| p.lateness_p99_ms),
        queues(both("Dead jobs", "Pekerjaan mati"), |p| p.dead),
        whole(both("Workers", "Pekerja"), |p| p.workers),
        (servers.enabled > 0)
            .then(|| whole(both("Servers left alone", "Server tidak dihubungi"), |p| p.servers_left_alone))
            .flatten(),
    ];
    let states = open.by_status.iter();
    let page = NowPage {
        tiles,
        charts: charts.into_iter().flatten().collect(),
        states: states.map(|(s, n)| (Chip::of_status(*s), group_digits(*n), s.as_str())).collect(),
        is_cut: open.all.is_cut,
        redis_problem,
        to_decide: open.to_decide,
        shell: Shell::for_person(&app.config, &person, "/", both("Now", "Sekarang"), None)
            .live(REFRESH_S)
            .follow(ChangeTopic::Orders)
            .made_at(now),
    };
    render(&page)
}

/// Returns the number of orders that wait in areas, and the reasons of refusals.
fn describe_areas(point: &AreaPoint) -> String {
    let waiting = point.waiting;
    let mut parts = vec![say!("{waiting} orders wait in areas", "{waiting} pesanan menunggu di wilayah")];
    let causes = AreaRefusal::ALL.into_iter().zip(&point.by_cause).filter(|(_, count)| **count > 0);
    parts.extend(causes.map(|(cause, count)| format!("{}: {count}", describe_area_refusal(cause))));
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
            label: both("Jobs due", "Pekerjaan jatuh tempo"),
            figure: group_digits(due),
            under: match oldest_ms {
                Some(ms) => {
                    let age = describe_ms(ms);
                    say!("the oldest for {age}", "yang tertua selama {age}")
                }
                None => say!("{later} come later", "{later} menyusul"),
            },
            tone: tone(false, oldest_ms.is_some_and(|ms| ms > 5_000) || !paused.is_empty()),
            path: "/queues",
        },
        Tile {
            label: both("Lateness (p99)", "Keterlambatan (p99)"),
            figure: describe_ms(lateness.p99_ms),
            under: say!(
                "half within {half}, since the last full hour",
                "separuhnya di bawah {half}, sejak jam penuh terakhir"
            ),
            tone: tone(false, lateness.p99_ms > 1_000),
            path: "/queues",
        },
        Tile {
            label: both("Dead jobs", "Pekerjaan mati"),
            figure: group_digits(dead),
            under: if dead == 0 {
                both("none", "tidak ada").into()
            } else {
                both("wait for a decision", "menunggu keputusan").into()
            },
            tone: tone(false, dead > 0),
            path: "/dead",
        },
        Tile {
            label: both("Workers", "Pekerja"),
            figure: workers.len().to_string(),
            under: say!("jobs in hand: {in_hand}", "pekerjaan yang dikerjakan: {in_hand}"),
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
            say!("of {enabled}; {id} for {span} more", "dari {enabled}; {id} selama {span} lagi")
        }
        None => say!("all {enabled} are called", "semua {enabled} dihubungi"),
    };
    (*enabled > 0).then(|| Tile {
        label: both("Servers left alone", "Server tidak dihubungi"),
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
            let s = open_for.as_secs().max(1);
            say!("of {all}; {name} for {s} s more: {why}", "dari {all}; {name} selama {s} s lagi: {why}")
        }
        None => say!("all {all} are called", "semua {all} dihubungi"),
    };
    Ok((all > 0).then(|| Tile {
        label: both("Partners left alone", "Mitra tidak dihubungi"),
        figure: group_digits(left_alone),
        under,
        tone: tone(left_alone == all, left_alone > 0),
        path: "/partners",
    }))
}

fn describe_ms(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        _ => describe_span(chrono::TimeDelta::milliseconds(ms.cast_signed())),
    }
}
