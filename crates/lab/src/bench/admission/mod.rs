//! `dispatchq bench admission`: availability checks of full areas and areas with room, creations in an area with little
//! room, and a burst of checks.
//!
//! * `stage`: servers, the API, and a thousand areas. `advice`: availability checks, steady and in a burst.
//!   `creations`: orders in the area with little room.

mod advice;
mod creations;
pub(super) mod stage;

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use clap::Args;
use serde_json::{Value, json};

use self::{
    advice::SteadyAdvice,
    stage::{AdmissionStage, AskedAreas},
};
use super::{
    frame::{Bound, Figures, Measure},
    spread::{SamplePercentiles, us_to_ms},
};

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench admission --json > admission.json")]
pub struct AdmissionOptions {
    /// Seconds of steady availability checks
    #[arg(long, value_name = "N", default_value = "10")]
    pub seconds: NonZeroU32,

    /// Number of orders to create
    #[arg(long, value_name = "N", default_value = "20000")]
    pub creations: NonZeroU32,

    /// Requests of the burst, which arrive within ten seconds
    #[arg(long, value_name = "N", default_value = "77000")]
    pub burst: NonZeroU32,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

impl Measure for AdmissionOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        let stage = Arc::new(AdmissionStage::start().await?);
        let seconds = Duration::from_secs(self.seconds.get().into());
        let lookup_ns = advice::measure_area_lookup(&stage);
        let with_room = advice::measure_steady_advice(&stage, AskedAreas::WithRoom, seconds).await;
        stage.fill_asked_areas().await?;
        let full = advice::measure_steady_advice(&stage, AskedAreas::Full, seconds).await;
        let creations = creations::measure_creations(&stage, self.creations.get()).await?;
        let (answered, burst_us) = advice::measure_burst_advice(&stage, self.burst.get()).await;

        let mut figures = Figures::new(advice_json(&full));
        let overshoot = creations.threshold_overshoot();
        figures.extend(json!({
            "with_room": advice_json(&with_room),
            "overshoot": overshoot,
            "burst": {
                "requests": self.burst,
                "answered": answered,
                "p50_ms": us_to_ms(burst_us.p50),
                "p99_ms": us_to_ms(burst_us.p99),
                "max_ms": us_to_ms(burst_us.max),
            },
            "creations": creations.to_json(),
            "lookup_us": lookup_json(lookup_ns),
        }));
        figures.goal("checks_per_s", full.per_s.round(), Bound::AtLeast(20_000.0));
        figures.goal("p99_ms", us_to_ms(full.us.p99), Bound::AtMost(5.0));
        for (what, count) in [
            ("answers about full areas were wrong", i64::from(full.unexpected)),
            ("answers about areas with room were wrong", i64::from(with_room.unexpected)),
            ("orders waited above the threshold", overshoot),
            ("creations had no answer", i64::from(creations.failed)),
            ("requests of the burst did not report a full area", i64::from(self.burst.get()) - answered as i64),
        ] {
            if count > 0 {
                figures.violations.push(format!("{count} {what}"));
            }
        }
        Ok(figures)
    }
}

fn advice_json(SteadyAdvice { per_s, unexpected, us }: &SteadyAdvice) -> Value {
    json!({
        "checks_per_s": per_s.round(),
        "p50_ms": us_to_ms(us.p50),
        "p99_ms": us_to_ms(us.p99),
        "unexpected": unexpected,
    })
}

/// Converts nanoseconds to microseconds with two decimals.
fn lookup_json(ns: SamplePercentiles) -> Value {
    let us = |ns: i64| (ns as f64 / 10.0).round() / 100.0;
    json!({ "p50": us(ns.p50), "p99": us(ns.p99), "max": us(ns.max) })
}
