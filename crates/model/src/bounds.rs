//! Minimum and maximum of a setting, declared on the field: `#[garde(custom(time_within(MS..=HOUR)))]`.
//!
//! garde's own `range` does not support durations, accepts NaN, and its error names neither both bounds nor the value.

use std::{fmt, ops::RangeInclusive, time::Duration};

use humantime::format_duration;

pub const NONE: Duration = Duration::ZERO;
pub const MS: Duration = Duration::from_millis(1);
pub const SECOND: Duration = Duration::from_secs(1);
pub const HOUR: Duration = Duration::from_secs(3_600);
pub const DAY: Duration = Duration::from_secs(24 * 3_600);
pub const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
pub const DECADE: Duration = Duration::from_secs(3_650 * 24 * 3_600);
pub const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

/// One or more values that bounds of type `B` apply to. An absent value satisfies all bounds.
pub trait BoundedValue<B> {
    /// Returns the first value outside the bounds, formatted for people.
    fn find_outside(&self, bounds: &RangeInclusive<B>) -> Option<String>;
}

macro_rules! bounded_numbers {
    ($($number:ty),*) => {
        $(impl BoundedValue<f64> for $number {
            #[allow(clippy::cast_lossless, clippy::cast_precision_loss, reason = "bounds are far below 2^53")]
            fn find_outside(&self, bounds: &RangeInclusive<f64>) -> Option<String> {
                (!bounds.contains(&(*self as f64))).then(|| format!("{self:?}"))
            }
        })*
    };
}

bounded_numbers!(u8, u16, u32, usize, i64, f64);

impl BoundedValue<Duration> for Duration {
    fn find_outside(&self, bounds: &RangeInclusive<Duration>) -> Option<String> {
        (!bounds.contains(self)).then(|| format!("\"{}\"", format_duration(*self)))
    }
}

impl<B, T: BoundedValue<B>> BoundedValue<B> for Option<T> {
    fn find_outside(&self, bounds: &RangeInclusive<B>) -> Option<String> {
        self.as_ref().and_then(|value| value.find_outside(bounds))
    }
}

impl<B, T: BoundedValue<B>> BoundedValue<B> for Vec<T> {
    fn find_outside(&self, bounds: &RangeInclusive<B>) -> Option<String> {
        self.iter().find_map(|value| value.find_outside(bounds))
    }
}

/// Returns the validation rule for numbers within these bounds.
pub fn number_within<T: BoundedValue<f64>>(bounds: RangeInclusive<f64>) -> impl Fn(&T, &()) -> garde::Result {
    move |value, ()| refuse_outside(value, &bounds, |bound| bound)
}

/// Returns the validation rule for durations within these bounds.
pub fn time_within<T: BoundedValue<Duration>>(bounds: RangeInclusive<Duration>) -> impl Fn(&T, &()) -> garde::Result {
    move |value, ()| refuse_outside(value, &bounds, format_duration)
}

fn refuse_outside<B: Copy, T: BoundedValue<B>, S: fmt::Display>(
    value: &T,
    bounds: &RangeInclusive<B>,
    shown: impl Fn(B) -> S,
) -> garde::Result {
    let Some(outside) = value.find_outside(bounds) else { return Ok(()) };
    let (least, most) = (shown(*bounds.start()), shown(*bounds.end()));
    Err(garde::Error::new(format!("must be {least} to {most}, not {outside}")))
}
