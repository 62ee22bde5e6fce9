//! Who drives: simulated drivers of our own, or a simulated partner.
//!
//! Each must have its address before the system it serves can be configured, and can begin only when that system is there:
//! so there are two steps.

use std::{collections::BTreeMap, time::Duration};

use super::{
    choices::Behaviour,
    drivers::{Drivers, Receiver},
    fleet,
    options::{Options, Strategy},
    plan::Plan,
};
use crate::testbed::{
    Settings, Testbed, partner,
    settings::{ServedBy, Webhook, real_policy},
};
use partner_sim::{Knobs, Options as PartnerOptions, PartnerSim, counters::Counters, values::Rate};

/// The channel that reaches the simulated drivers.
const CHANNEL: &str = "replay-drivers";

/// They have an address.
#[derive(Debug)]
pub(super) enum Bound {
    Fleet(Receiver),
    Partner(PartnerSim, Box<ServedBy>),
}

/// They are at work. Dropping it ends that.
#[derive(Debug)]
pub(super) enum Supply {
    Fleet(Drivers),
    Partner(PartnerSim),
}

impl Strategy {
    pub(super) fn service_type(self) -> &'static str {
        match self {
            Self::Fleet => fleet::SERVICE_TYPE,
            Self::Partner => partner::SERVICE_TYPE,
        }
    }
}

impl Bound {
    pub(super) async fn bind(options: &Options) -> anyhow::Result<Self> {
        Ok(match options.strategy {
            Strategy::Fleet => Self::Fleet(Receiver::bind().await?),
            Strategy::Partner => {
                let mut knobs = Knobs::default();
                if let Some(rate) = options.driver_rate {
                    knobs.driver_rate = Rate::try_from(rate).map_err(anyhow::Error::msg)?;
                }
                let sim_options = PartnerOptions {
                    knobs,
                    seed: options.seed,
                    speed: options.speed(),
                    // A worker that is killed keeps its jobs for 8 s of real time: hours of the order's.
                    keep_finished: Duration::from_secs(7 * 24 * 3600),
                    ..PartnerOptions::default()
                };
                let sim = partner::start(&sim_options).await?;
                let mut served = partner::served_by(&sim, &sim_options);
                // Rides come as much faster than life, so calls may, too.
                let rate = f64::from(served.config.rate_per_s) * options.speed();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "it saturates, and is positive"
                )]
                let rate = (rate as u32).max(1);
                served.config.rate_per_s = rate;
                Self::Partner(sim, Box::new(served))
            }
        })
    }

    pub(super) fn settings(&self, options: &Options) -> Settings {
        let mut settings = Settings {
            speed: options.speed(),
            serves: 1,
            workers: options.workers.get(),
            for_faults: false,
            offers: None,
            alerts: None,
            partner: None,
        };
        match self {
            Self::Fleet(receiver) => settings.offers = Some(Webhook { name: CHANNEL, url: receiver.url() }),
            Self::Partner(_, served) => settings.partner = Some(*served.clone()),
        }
        settings
    }

    /// Lets them work; `drivers` of them, if they are ours.
    pub(super) async fn start(
        self,
        options: &Options,
        plan: &Plan,
        drivers: usize,
        testbed: &Testbed,
    ) -> anyhow::Result<Supply> {
        Ok(match self {
            Self::Fleet(receiver) => {
                let fleet = fleet::place(plan, drivers, options.seed);
                fleet::insert(&testbed.app.db, &fleet).await?;
                let attempt = real_policy(fleet::SERVICE_TYPE).attempt;
                let behaviour = Behaviour { seed: options.seed, accept_rate: options.accept_rate(), attempt };
                let drivers = receiver.start(testbed.api.clone(), behaviour, options.speed(), &fleet, &plan.orders);
                Supply::Fleet(drivers)
            }
            Self::Partner(sim, _) => {
                partner::call_back(&sim, testbed.api.base())?;
                Supply::Partner(sim)
            }
        })
    }
}

impl Supply {
    /// Own drivers.
    pub(super) fn drivers(&self) -> usize {
        match self {
            Self::Fleet(drivers) => drivers.count(),
            Self::Partner(_) => 0,
        }
    }

    /// How often own drivers gave each answer.
    pub(super) fn answers(&self) -> BTreeMap<String, u64> {
        match self {
            Self::Fleet(drivers) => drivers.answers(),
            Self::Partner(_) => BTreeMap::new(),
        }
    }

    pub(super) fn partner(&self) -> Option<&PartnerSim> {
        match self {
            Self::Fleet(_) => None,
            Self::Partner(sim) => Some(sim),
        }
    }

    /// What the partner saw.
    pub(super) fn partner_counters(&self) -> Option<Counters> {
        self.partner().map(|sim| sim.report().counters)
    }
}
