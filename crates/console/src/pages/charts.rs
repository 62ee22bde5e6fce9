//! Page of charts: an hour, a day or a week of a queue, or of the whole installation.

use askama::Template;
use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::roles::STAFF;
use crate::{
    catalogue::{Words, tr},
    chart::ChartFrame,
    form::{read_query, write_query},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{describe_ms, group_digits},
};
use app::App;
use desk::reports::curves::{self, CurveSpan, QueueCurvePoint, WholeCurvePoint};
use foundation::db;

/// Seconds between refreshes. A snapshot is written each minute.
const REFRESH_S: u32 = 15;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ChartQuery {
    /// Name of a queue; empty for the whole installation.
    of: String,
    span: String,
}

impl ChartQuery {
    fn span(&self) -> Result<CurveSpan, PageError> {
        if self.span.is_empty() {
            return Ok(CurveSpan::Hour);
        }
        let found = CurveSpan::ALL.into_iter().find(|span| span_word(*span) == self.span);
        found.ok_or_else(|| PageError::Invalid(tr("charts.no_such_span").into()))
    }

    /// Returns the queue; `None` for the whole installation.
    fn queue(&self) -> Result<Option<&'static str>, PageError> {
        if self.of.is_empty() {
            return Ok(None);
        }
        let known = jobs::queues::ALL.into_iter().find(|known| *known == self.of);
        known.map(Some).ok_or(PageError::NotFound(tr("jobs.no_queue_name")))
    }
}

fn span_word(span: CurveSpan) -> &'static str {
    match span {
        CurveSpan::Hour => "1h",
        CurveSpan::Day => "24h",
        CurveSpan::Week => "7d",
    }
}

fn span_label(span: CurveSpan) -> Words {
    match span {
        CurveSpan::Hour => tr("charts.hour"),
        CurveSpan::Day => tr("charts.day"),
        CurveSpan::Week => tr("charts.week"),
    }
}

/// A link to the same curves for another span, or to those of something else.
struct ChartLink {
    label: String,
    query: String,
    is_here: bool,
}

#[derive(Template)]
#[template(path = "charts.html")]
struct ChartsPage {
    shell: Shell,
    /// Query of this page.
    here: String,
    spans: Vec<ChartLink>,
    subjects: Vec<ChartLink>,
    /// HTML of each chart; empty without data.
    charts: Vec<String>,
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<ChartQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let query: ChartQuery = read_query(query)?;
    let (span, queue) = (query.span()?, query.queue()?);
    let now = db::database_now(&app.core.db).await?;
    let charts = match queue {
        Some(queue) => draw_queue(&curves::queue_curve(&app.core.db, queue, span, now).await?, span, now),
        None => draw_whole(&curves::whole_curve(&app.core.db, span, now).await?, span, now),
    };
    let address = |of: &str, span: CurveSpan| write_query(&[("of", of), ("span", span_word(span))]);
    let spans = CurveSpan::ALL.into_iter().map(|other| ChartLink {
        label: span_label(other).into(),
        query: address(&query.of, other),
        is_here: other == span,
    });
    let whole = ChartLink { label: tr("charts.whole").into(), query: address("", span), is_here: queue.is_none() };
    let queues = jobs::queues::ALL.into_iter().map(|other| ChartLink {
        label: other.to_owned(),
        query: address(other, span),
        is_here: queue == Some(other),
    });
    let page = ChartsPage {
        here: address(&query.of, span),
        spans: spans.collect(),
        subjects: std::iter::once(whole).chain(queues).collect(),
        charts,
        shell: Shell::for_person(&app.config, &person, "/charts", tr("charts.title"), None)
            .live(REFRESH_S)
            .made_at(now),
    };
    render(&page)
}

/// A value of a point, with the title of its chart.
type CurveValue<P> = (Words, fn(&P) -> i64);

fn draw_queue(points: &[QueueCurvePoint], span: CurveSpan, now: DateTime<Utc>) -> Vec<String> {
    let counts: [CurveValue<QueueCurvePoint>; 4] = [
        (tr("common.due"), |p| p.due),
        (tr("common.scheduled"), |p| p.scheduled),
        (tr("common.running"), |p| p.leased),
        (tr("common.dead"), |p| p.dead),
    ];
    draw_values(points, |p| p.at, &counts, &group_digits, (span, now))
}

fn draw_whole(points: &[WholeCurvePoint], span: CurveSpan, now: DateTime<Utc>) -> Vec<String> {
    let counts: [CurveValue<WholeCurvePoint>; 4] = [
        (tr("now.open_orders"), |p| p.open_orders),
        (tr("now.waiting_person"), |p| p.to_decide),
        (tr("now.refunds_owed"), |p| p.refunds_owed),
        (tr("common.workers"), |p| p.workers),
    ];
    let times: [CurveValue<WholeCurvePoint>; 2] =
        [(tr("now.job_delay"), |p| p.lateness_p99_ms), (tr("charts.oldest_due"), |p| p.oldest_due_ms)];
    let mut charts = draw_values(points, |p| p.at, &counts, &group_digits, (span, now));
    charts.extend(draw_values(points, |p| p.at, &times, &describe_ms, (span, now)));
    charts
}

/// Draws a chart of each value. Returns no chart if there are no points.
fn draw_values<P>(
    points: &[P],
    at: fn(&P) -> DateTime<Utc>,
    values: &[CurveValue<P>],
    describe: &dyn Fn(u64) -> String,
    (span, now): (CurveSpan, DateTime<Utc>),
) -> Vec<String> {
    if points.is_empty() {
        return Vec::new();
    }
    let draw = |(title, value): &CurveValue<P>| {
        let frame = ChartFrame { title: *title, from: now - span.length(), to: now, step: span.step(), describe };
        let values: Vec<_> = points.iter().map(|point| (at(point), value(point))).collect();
        frame.draw(&values)
    };
    values.iter().map(draw).collect()
}
