//! What the partner does, or own drivers. Pure.
//!
//! Source: the load tests that the design of the job id retrieval asks for.

use std::time::Duration;

use serde::Serialize;

use partner_sim::{PartnerKnobs, values::EventRate};

/// How long the partner is down, in the order's time.
const OUTAGE: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum OrdersScenario {
    /// 95 % of its callbacks arrive
    Normal,
    /// None arrives: everything by asking
    NoCallback,
    /// Half of the job ids come only after 10 to 15 minutes of the order's time
    Slow,
    /// It is down for 10 minutes of the order's time, then recovers
    Outage,
    /// It calls back never, is slow and forgets job ids, at real speed, until each job id alert has fired
    Alerts,
    /// No partner: own drivers serve each order at its real speed, the second who is asked accepts
    Fleet,
}

impl OrdersScenario {
    pub(super) fn partner_knobs(self) -> PartnerKnobs {
        let knobs = PartnerKnobs::default();
        match self {
            Self::Normal | Self::Outage | Self::Fleet => knobs,
            Self::NoCallback => {
                PartnerKnobs { job_id_callback_rate: EventRate::NEVER, callback_rate: EventRate::NEVER, ..knobs }
            }
            Self::Slow => {
                PartnerKnobs { job_id_delay: "50% 500ms-2s, 50% 10m-15m".parse().expect("a test parses it"), ..knobs }
            }
            // The last share comes after the lifetime of the order.
            Self::Alerts => PartnerKnobs {
                job_id_callback_rate: EventRate::NEVER,
                callback_rate: EventRate::NEVER,
                job_id_delay: "35% 500ms-2s, 35% 10m-14m, 30% 40m-50m".parse().expect("a test parses it"),
                ..knobs
            },
        }
    }

    /// The partner is down from a quarter of the orders on: begin and length, of wall time.
    pub(super) fn outage_window(self, creating: Duration, speed: f64) -> Option<(Duration, Duration)> {
        (self == Self::Outage).then(|| (creating / 4, OUTAGE.div_f64(speed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_is_as_the_design_says() {
        let rates = |s: OrdersScenario| {
            (f64::from(s.partner_knobs().job_id_callback_rate), f64::from(s.partner_knobs().callback_rate))
        };
        assert_eq!(rates(OrdersScenario::Normal), (0.95, 0.95));
        assert_eq!(rates(OrdersScenario::NoCallback), (0.0, 0.0));
        assert_eq!(OrdersScenario::Slow.partner_knobs().job_id_delay.to_string(), "50% 500ms-2s, 50% 10m-15m");
        assert_eq!(rates(OrdersScenario::Alerts), (0.0, 0.0));
        let delay = OrdersScenario::Alerts.partner_knobs().job_id_delay.to_string();
        assert_eq!(delay, "35% 500ms-2s, 35% 10m-14m, 30% 40m-50m");
    }

    #[test]
    fn only_an_outage_takes_the_partner_down() {
        let creating = Duration::from_secs(120);
        assert_eq!(OrdersScenario::Normal.outage_window(creating, 30.0), None);
        let (begin, length) = OrdersScenario::Outage.outage_window(creating, 30.0).unwrap();
        assert_eq!((begin.as_secs(), length.as_secs()), (30, 20));
    }
}
