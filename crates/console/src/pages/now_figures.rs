//! The figures of the page Now, each with its threshold, its trend and its curve. The curve ends with the figure, so both
//! have one source.

use chrono::{DateTime, TimeDelta, Utc};
use desk::reports::glance::{AreaPoint, GlancePoint, OpenAlerts, OpenOrders, OwedRefunds};
use model::admission::decide::AreaRefusal;

use crate::{
    catalogue::{Words, fill, tr},
    chart::Sparkline,
    shown::{Code, describe_amount, describe_count, describe_left, describe_ms, describe_span, group_digits},
};

/// Minimum age of the value that a figure is compared with.
const COMPARED: TimeDelta = TimeDelta::minutes(5);
/// Job delay above which jobs are late, in milliseconds.
const LATE_MS: u64 = 1_000;

/// A number with its label.
pub(super) struct Figure {
    pub(super) label: Words,
    pub(super) value: String,
    pub(super) under: String,
    /// "", "warn" or "bad".
    pub(super) tone: &'static str,
    /// Path of the page with details.
    pub(super) path: &'static str,
    /// Whether the page shows it larger than others.
    pub(super) is_main: bool,
    /// Value above which the figure needs attention; empty if there is none.
    pub(super) limit: String,
    /// Comparison with the oldest value of the last hour; empty without one.
    pub(super) trend: String,
    pub(super) curve: Option<Sparkline>,
}

impl Figure {
    pub(super) fn flag(&self) -> &'static str {
        flag_of(self.tone)
    }

    /// Adds a curve of the last hour that ends with the present value.
    fn with_curve(self, past: &[(DateTime<Utc>, i64)], present: u64, now: DateTime<Utc>, describe: Describe) -> Self {
        let mut points = past.to_vec();
        points.push((now, present.cast_signed()));
        let trend = describe_trend(&points, describe);
        Self { trend, curve: Sparkline::draw(self.label, &points, now, describe), ..self }
    }
}

/// Writes a value with its unit.
pub(super) type Describe = fn(u64) -> String;

pub(super) fn flag_of(tone: &str) -> &'static str {
    match tone {
        "warn" => tr("now.check").get(),
        "bad" => tr("now.action_needed").get(),
        _ => "",
    }
}

pub(super) fn tone(is_bad: bool, is_odd: bool) -> &'static str {
    if is_bad {
        "bad"
    } else if is_odd {
        "warn"
    } else {
        ""
    }
}

/// Compares the last value with the first one. Returns an empty text if the first is too young.
fn describe_trend(points: &[(DateTime<Utc>, i64)], describe: Describe) -> String {
    let [(since, first), .., (now, last)] = points else { return String::new() };
    if *now - *since < COMPARED {
        return String::new();
    }
    let (age, change) = (describe_span(*now - *since), describe((last - first).unsigned_abs()));
    match last.cmp(first) {
        std::cmp::Ordering::Greater => fill!("now.more", change, age),
        std::cmp::Ordering::Less => fill!("now.less", change, age),
        std::cmp::Ordering::Equal => fill!("now.same", age),
    }
}

/// Rows of the figures.
pub(super) struct NowRows<'a> {
    pub(super) now: DateTime<Utc>,
    pub(super) open: &'a OpenOrders,
    pub(super) refunds: &'a OwedRefunds,
    /// Time at which the oldest refund must be paid.
    pub(super) refund_due: Option<DateTime<Utc>>,
    pub(super) alerts: &'a OpenAlerts,
    pub(super) whole: &'a [GlancePoint],
    pub(super) areas: &'a [AreaPoint],
    /// Job delay: the 99th percentile and the median, in milliseconds; `None` if Redis does not answer.
    pub(super) delay_ms: Option<(u64, u64)>,
}

impl NowRows<'_> {
    fn whole_curve(&self, value: fn(&GlancePoint) -> i64) -> Vec<(DateTime<Utc>, i64)> {
        self.whole.iter().map(|point| (point.at, value(point))).collect()
    }

    fn describe_age(&self, oldest: Option<DateTime<Utc>>) -> String {
        oldest
            .map_or_else(|| tr("now.none").into(), |oldest| fill!("now.oldest", age = describe_span(self.now - oldest)))
    }

    /// Returns the figures, those that need a person first.
    pub(super) fn list_figures(&self) -> Vec<Figure> {
        let mut figures = vec![self.to_decide(), self.refunds_owed(), self.open_alerts()];
        figures.extend(self.job_delay());
        figures.extend([self.full_areas(), self.open_orders()]);
        figures
    }

    fn to_decide(&self) -> Figure {
        let held = group_digits(self.open.held);
        let figure = Figure {
            under: fill!("now.under_review", held),
            tone: tone(false, self.open.to_decide > 0),
            is_main: true,
            limit: fill!("now.limit", limit = 0),
            ..plain(tr("now.waiting_person"), group_digits(self.open.to_decide), "/desk")
        };
        figure.with_curve(&self.whole_curve(|p| p.to_decide), self.open.to_decide, self.now, group_digits)
    }

    fn refunds_owed(&self) -> Figure {
        let sums = self.refunds.sums.iter().map(|(currency, sum)| describe_amount(Some(*sum), Some(currency)));
        let sums = sums.collect::<Vec<_>>().join(", ");
        let under = match self.refund_due {
            Some(end) => fill!("now.deadline_oldest", sums, left = describe_left(end - self.now)),
            None => tr("common.no_refunds_owed").into(),
        };
        let is_late = self.refund_due.is_some_and(|end| end < self.now);
        let figure = Figure {
            under,
            tone: tone(is_late, self.refunds.all.rows > 0),
            is_main: true,
            limit: fill!("now.limit", limit = 0),
            ..plain(tr("now.refunds_owed"), describe_count(self.refunds.all), "/refunds")
        };
        figure.with_curve(&self.whole_curve(|p| p.refunds_owed), self.refunds.all.rows, self.now, group_digits)
    }

    fn open_alerts(&self) -> Figure {
        Figure {
            under: self.describe_age(self.alerts.oldest),
            tone: tone(false, self.alerts.all.rows > 0),
            limit: fill!("now.limit", limit = 0),
            ..plain(tr("now.open_alerts"), describe_count(self.alerts.all), "/alerts")
        }
    }

    fn job_delay(&self) -> Option<Figure> {
        let (p99_ms, half_ms) = self.delay_ms?;
        let figure = Figure {
            under: fill!("now.half_jobs_at_most", half = describe_ms(half_ms)),
            tone: tone(false, p99_ms > LATE_MS),
            limit: fill!("now.limit", limit = describe_ms(LATE_MS)),
            ..plain(tr("now.job_delay"), describe_ms(p99_ms), "/charts")
        };
        Some(figure.with_curve(&self.whole_curve(|p| p.lateness_p99_ms), p99_ms, self.now, describe_ms))
    }

    /// Areas that refuse orders. The figure is the last point of its curve.
    fn full_areas(&self) -> Figure {
        let points: Vec<_> = self.areas.iter().map(|point| (point.at, point.full)).collect();
        let latest = self.areas.last();
        let figure = Figure {
            under: latest.map_or_else(|| tr("now.no_data_from_last").into(), describe_areas),
            tone: tone(false, latest.is_some_and(|point| point.full > 0)),
            limit: fill!("now.limit", limit = 0),
            ..plain(
                tr("now.full_areas"),
                latest.map_or_else(|| "–".to_owned(), |p| group_digits(p.full.unsigned_abs())),
                "/areas",
            )
        };
        let curve = Sparkline::draw(figure.label, &points, self.now, group_digits);
        Figure { trend: describe_trend(&points, group_digits), curve, ..figure }
    }

    fn open_orders(&self) -> Figure {
        let figure = Figure {
            under: self.describe_age(self.open.oldest),
            ..plain(tr("now.open_orders"), describe_count(self.open.all), "/orders")
        };
        figure.with_curve(&self.whole_curve(|p| p.open_orders), self.open.all.rows, self.now, group_digits)
    }
}

fn plain(label: Words, value: String, path: &'static str) -> Figure {
    Figure {
        label,
        value,
        under: String::new(),
        tone: "",
        path,
        is_main: false,
        limit: String::new(),
        trend: String::new(),
        curve: None,
    }
}

/// Returns the number of orders that wait in areas, and the reasons of refusals.
fn describe_areas(point: &AreaPoint) -> String {
    let waiting = group_digits(point.waiting.unsigned_abs());
    let mut parts = vec![fill!("now.waiting_areas", waiting)];
    let causes = AreaRefusal::ALL.into_iter().zip(&point.by_cause).filter(|(_, count)| **count > 0);
    parts.extend(causes.map(|(cause, count)| format!("{}: {count}", Code::new("area_refusal", cause.as_str()).text())));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trend_compares_with_oldest_value() {
        let now: DateTime<Utc> = "2026-01-08T10:00:00Z".parse().unwrap();
        let ago = |minutes| now - TimeDelta::minutes(minutes);
        let trend = |first, last| describe_trend(&[(ago(50), first), (ago(9), 7), (now, last)], group_digits);
        assert_eq!(trend(1_000, 3_500), "▲ 2,500 in 50 min 0 s");
        assert_eq!(trend(9, 2), "▼ 7 in 50 min 0 s");
        assert_eq!(trend(4, 4), "= the same as 50 min 0 s ago");
        assert_eq!(describe_trend(&[(ago(4), 1), (now, 2)], group_digits), "");
        assert_eq!(describe_trend(&[(now, 2)], group_digits), "");
    }
}
