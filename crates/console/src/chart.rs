//! Curves as SVG: small ones, which show one hour of a value, and charts with axes.

use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};

use crate::{
    catalogue::{Words, fill},
    shown::{describe_time, escape},
};

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 48.0;

/// A curve of an hour, with its latest and highest value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sparkline {
    pub(crate) title: Words,
    pub(crate) latest: String,
    pub(crate) highest: String,
    /// Points of a polyline.
    pub(crate) line: String,
    /// The same points, closed along the bottom.
    pub(crate) field: String,
}

impl Sparkline {
    /// Draws the points, which are sorted by time. The line covers the hour before `now`, or more if the first point is
    /// older. Returns `None` if there are fewer than two points.
    /// `describe` writes a value with its unit.
    pub(crate) fn draw(
        title: Words,
        points: &[(DateTime<Utc>, i64)],
        now: DateTime<Utc>,
        describe: fn(u64) -> String,
    ) -> Option<Self> {
        let [(first, _), .., (last, latest)] = points else { return None };
        let begin = (*first).min(now - TimeDelta::hours(1));
        let span = seconds(*last.max(&now) - begin).max(1.0);
        let highest = points.iter().map(|(_, value)| *value).max().unwrap_or_default();
        let top = to_float(highest.max(1));
        let mut line = String::new();
        for (at, value) in points {
            let x = seconds(*at - begin) / span * WIDTH;
            let y = HEIGHT - 2.0 - to_float(*value) / top * (HEIGHT - 6.0);
            let _ = write!(line, "{x:.1},{y:.1} ");
        }
        let x_of = |at: &DateTime<Utc>| seconds(*at - begin) / span * WIDTH;
        let field = format!("{:.1},{HEIGHT} {line}{:.1},{HEIGHT}", x_of(first), x_of(last));
        let text = |value: i64| describe(value.max(0).unsigned_abs());
        Some(Self { title, latest: text(*latest), highest: text(highest), line: line.trim_end().to_owned(), field })
    }
}

/// Width and height of a chart, and the space of its axes at the left and the bottom.
const CHART: (f64, f64) = (380.0, 170.0);
const LEFT: f64 = 52.0;
const BOTTOM: f64 = 20.0;
const TOP: f64 = 8.0;
/// Labels of the time axis.
const TIMES: i32 = 4;

/// A chart of a value over a time range.
pub(crate) struct ChartFrame<'a> {
    pub(crate) title: Words,
    pub(crate) from: DateTime<Utc>,
    pub(crate) to: DateTime<Utc>,
    /// Time between two points. A longer time without a point is a gap.
    pub(crate) step: TimeDelta,
    /// Writes a value with its unit.
    pub(crate) describe: &'a dyn Fn(u64) -> String,
}

impl ChartFrame<'_> {
    fn x_of(&self, at: DateTime<Utc>) -> f64 {
        LEFT + seconds(at - self.from) / seconds(self.to - self.from).max(1.0) * (CHART.0 - LEFT)
    }

    /// Returns HTML of a chart with axes. Each point shows its time and value as a tooltip. The points are sorted by time.
    pub(crate) fn draw(&self, points: &[(DateTime<Utc>, i64)]) -> String {
        let highest = points.iter().map(|(_, value)| value.max(&0).unsigned_abs()).max().unwrap_or_default();
        let top = round_up(highest);
        let y_of = |value: u64| {
            CHART.1 - BOTTOM - to_float(value.cast_signed()) / to_float(top.cast_signed()) * (CHART.1 - BOTTOM - TOP)
        };
        let latest = points.last().map(|(_, value)| (self.describe)(value.max(&0).unsigned_abs())).unwrap_or_default();
        let title = self.title;
        let label = fill!("charts.label", title, latest, highest = (self.describe)(highest));
        let mut svg = format!(
            "<figure class=\"chart axes\"><figcaption class=\"legend-line\"><span>{title}</span><b>{latest}</b></figcaption>\
             <svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">",
            CHART.0,
            CHART.1,
            escape(&label)
        );
        for value in [0, top / 2, top] {
            let (y, text) = (y_of(value), (self.describe)(value));
            let _ = write!(
                svg,
                "<path class=\"base\" d=\"M{LEFT} {y:.1}H{}\"/><text class=\"before\" x=\"{}\" y=\"{:.1}\">{text}</text>",
                CHART.0,
                LEFT - 6.0,
                y + 4.0
            );
        }
        self.draw_times(&mut svg);
        svg.push_str(&self.draw_line(points, &y_of));
        for (at, value) in points {
            let width = seconds(self.step) / seconds(self.to - self.from).max(1.0) * (CHART.0 - LEFT);
            let (x, value) = (self.x_of(*at) - width / 2.0, value.max(&0).unsigned_abs());
            let _ = write!(
                svg,
                "<g class=\"point\"><title>{}: {}</title><rect x=\"{x:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{}\"/>\
                 <circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"/></g>",
                describe_time(*at),
                (self.describe)(value),
                CHART.1 - BOTTOM - TOP,
                self.x_of(*at),
                y_of(value)
            );
        }
        svg.push_str("</svg></figure>");
        svg
    }

    /// Draws the labels of the time axis, in UTC: times of the day, or dates if the range is longer than a day.
    fn draw_times(&self, svg: &mut String) {
        let format = if self.to - self.from > TimeDelta::days(1) { "%m-%d" } else { "%H:%M" };
        for n in 0..TIMES {
            let at = self.from + (self.to - self.from) * n / TIMES;
            let _ = write!(
                svg,
                "<text class=\"after\" x=\"{:.1}\" y=\"{}\">{}</text>",
                self.x_of(at),
                CHART.1 - 5.0,
                at.format(format)
            );
        }
    }

    fn draw_line(&self, points: &[(DateTime<Utc>, i64)], y_of: &dyn Fn(u64) -> f64) -> String {
        let mut line = String::new();
        let mut before = None;
        for (at, value) in points {
            let is_gap = before.is_none_or(|before| *at - before > self.step * 3);
            before = Some(*at);
            let (x, y) = (self.x_of(*at), y_of(value.max(&0).unsigned_abs()));
            let _ = write!(line, "{}{x:.1} {y:.1}", if is_gap { 'M' } else { 'L' });
        }
        if line.is_empty() { line } else { format!("<path class=\"line\" d=\"{line}\"/>") }
    }
}

/// Returns the smallest number of the form 2, 4 or 10 times a power of ten that is not less than the value. Its half is a
/// whole number.
fn round_up(value: u64) -> u64 {
    let mut base: u64 = 1;
    loop {
        if let Some(top) = [2, 4, 10].into_iter().map(|step| base.saturating_mul(step)).find(|top| *top >= value) {
            return top;
        }
        base = base.saturating_mul(10);
    }
}

fn seconds(span: TimeDelta) -> f64 {
    span.as_seconds_f64()
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn to_float(value: i64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{catalogue::tr, shown::group_digits};

    fn draw(minutes: &[(i64, i64)]) -> String {
        let to: DateTime<Utc> = "2026-01-08T10:00:00Z".parse().unwrap();
        let points: Vec<_> = minutes.iter().map(|(ago, value)| (to - TimeDelta::minutes(*ago), *value)).collect();
        let (from, step) = (to - TimeDelta::hours(1), TimeDelta::minutes(1));
        ChartFrame { title: tr("common.due"), from, to, step, describe: &group_digits }.draw(&points)
    }

    #[test]
    fn chart_has_axes_and_values() {
        let chart = draw(&[(2, 1_500), (1, 700), (0, 40)]);
        for text in [
            ">2,000</text>",
            ">1,000</text>",
            ">0</text>",
            ">09:00</text>",
            ">09:45</text>",
            "<title>2026-01-08 09:58:00 UTC: 1,500</title>",
            "aria-label=\"Due: now 40, maximum 1,500\"",
        ] {
            assert!(chart.contains(text), "{text}: {chart}");
        }
        assert_eq!(
            chart.split("class=\"line\" d=\"").nth(1).unwrap().split('"').next().unwrap().matches('M').count(),
            1
        );
    }

    #[test]
    fn missing_minutes_are_a_gap() {
        let chart = draw(&[(30, 1), (29, 2), (1, 3), (0, 4)]);
        assert_eq!(
            chart.split("class=\"line\" d=\"").nth(1).unwrap().split('"').next().unwrap().matches('M').count(),
            2
        );
        assert!(!draw(&[]).contains("class=\"line\""));
    }

    #[test]
    fn axis_ends_at_a_round_number() {
        assert_eq!([0, 1, 3, 5, 11, 99, 4_001].map(round_up), [2, 2, 4, 10, 20, 100, 10_000]);
        assert!(round_up(u64::MAX) >= u64::MAX / 2);
    }
}
