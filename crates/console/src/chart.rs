//! Small curves as SVG, which show one hour of a value.

use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Utc};

use crate::catalogue::Words;

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 48.0;

/// A curve of an hour, with its latest and highest value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sparkline {
    pub(crate) title: Words,
    pub(crate) latest: i64,
    pub(crate) highest: i64,
    /// Points of a polyline.
    pub(crate) line: String,
    /// The same points, closed along the bottom.
    pub(crate) field: String,
}

impl Sparkline {
    /// Draws the points, which are sorted by time. The line covers the hour before `now`, or more if the first point is
    /// older. Returns `None` if there are fewer than two points.
    pub(crate) fn draw(title: Words, points: &[(DateTime<Utc>, i64)], now: DateTime<Utc>) -> Option<Self> {
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
        Some(Self { title, latest: *latest, highest, line: line.trim_end().to_owned(), field })
    }
}

fn seconds(span: TimeDelta) -> f64 {
    span.as_seconds_f64()
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn to_float(value: i64) -> f64 {
    value as f64
}
