//! Drivers of a replay: simulated own drivers, or a simulated partner.
//!
//! The address must be known before the system is configured, and the drivers can start only when the system runs. So
//! there are two steps.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{
    choices::{self, DriverBehaviour},
    fleet,
    options::{ReplayOptions, SupplyStrategy},
    plan::ReplayPlan,
};
use crate::testbed::{
    Testbed, TestbedSettings,
    drivers::{self, DriverChoice, DriverScript, OfferReceiver, RunningDrivers},
    partner,
    settings::{ServedBy, WebhookTarget, real_policy},
};
use partner_sim::{PartnerKnobs, PartnerSim, PartnerSimOptions, counters::SimulationCounters, values::EventRate};

/// Channel of the simulated drivers.
const CHANNEL: &str = "replay-drivers";

/// Supply with an address.
#[derive(Debug)]
pub(super) enum BoundSupply {
    Fleet(OfferReceiver),
    Partner(PartnerSim, Box<ServedBy>),
}

/// Running supply. Dropping it stops it.
#[derive(Debug)]
pub(super) enum RunningSupply {
    Fleet(RunningDrivers),
    Partner(PartnerSim),
}

impl SupplyStrategy {
    pub(super) fn service_type(self) -> &'static str {
        match self {
            Self::Fleet => fleet::SERVICE_TYPE,
            Self::Partner => partner::SERVICE_TYPE,
        }
    }
}

impl BoundSupply {
    pub(super) async fn bind_supply(options: &ReplayOptions) -> anyhow::Result<Self> {
        Ok(match options.strategy {
            SupplyStrategy::Fleet => Self::Fleet(OfferReceiver::bind_port().await?),
            SupplyStrategy::Partner => {
                let mut knobs = PartnerKnobs::default();
                if let Some(rate) = options.driver_rate {
                    knobs.driver_rate = EventRate::try_from(rate).map_err(anyhow::Error::msg)?;
                }
                let sim_options = PartnerSimOptions {
                    knobs,
                    seed: options.seed,
                    speed: options.replay_speed(),
                    // A killed worker keeps its jobs for 8 s of real time, which are hours of simulated time.
                    keep_finished: Duration::from_secs(7 * 24 * 3600),
                    ..PartnerSimOptions::default()
                };
                let sim = partner::start(&sim_options).await?;
                let mut served = partner::served_by(&sim, &sim_options);
                // The speed shortens rides, so the allowed call rate is multiplied by it.
                let rate = f64::from(served.config.rate_per_s) * options.replay_speed();
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

    pub(super) fn testbed_settings(&self, options: &ReplayOptions) -> TestbedSettings {
        let mut settings = TestbedSettings {
            speed: options.replay_speed(),
            workers: options.workers.get(),
            ..TestbedSettings::default()
        };
        match self {
            Self::Fleet(receiver) => settings.offers = Some(WebhookTarget { name: CHANNEL, url: receiver.url() }),
            Self::Partner(_, served) => settings.partner = Some(*served.clone()),
        }
        settings
    }

    /// Starts the supply; `drivers` is the number of own drivers.
    pub(super) async fn start(
        self,
        options: &ReplayOptions,
        plan: &ReplayPlan,
        drivers: usize,
        testbed: &Testbed,
    ) -> anyhow::Result<RunningSupply> {
        Ok(match self {
            Self::Fleet(receiver) => {
                let fleet = fleet::place_drivers(plan, drivers, options.seed);
                drivers::insert_drivers(&testbed.app, &fleet, &[fleet::SERVICE_TYPE]).await?;
                let script = Box::new(ReplayScript::new(options, plan));
                RunningSupply::Fleet(receiver.start(testbed.api.clone(), script, &fleet))
            }
            Self::Partner(sim, _) => {
                partner::call_back(&sim, testbed.api.base_url())?;
                RunningSupply::Partner(sim)
            }
        })
    }
}

/// Behaviour of the simulated fleet drivers, at the speed of the replay.
#[derive(Debug)]
struct ReplayScript {
    behaviour: DriverBehaviour,
    speed: f64,
    /// Approach and trip by order, in simulated time.
    trips: HashMap<String, (Duration, Duration)>,
}

impl ReplayScript {
    fn new(options: &ReplayOptions, plan: &ReplayPlan) -> Self {
        let attempt = real_policy(fleet::SERVICE_TYPE).attempt;
        Self {
            behaviour: DriverBehaviour { seed: options.seed, accept_rate: options.accept_rate(), attempt },
            speed: options.replay_speed(),
            trips: plan.orders.iter().map(|order| (order.id.clone(), (order.approach, order.trip))).collect(),
        }
    }
}

impl DriverScript for ReplayScript {
    fn choose_reaction(&self, driver: &str, order: &str, attempt_no: u64) -> DriverChoice {
        let choice = choices::choose_reaction(&self.behaviour, driver, order, attempt_no);
        DriverChoice { after: choice.after.div_f64(self.speed), ..choice }
    }

    fn drive_times(&self, order: &str) -> Option<(Duration, Duration)> {
        let (approach, trip) = self.trips.get(order)?;
        Some((approach.div_f64(self.speed), trip.div_f64(self.speed)))
    }
}

impl RunningSupply {
    /// Returns the number of own drivers.
    pub(super) fn driver_count(&self) -> usize {
        match self {
            Self::Fleet(drivers) => drivers.driver_count(),
            Self::Partner(_) => 0,
        }
    }

    /// Returns how often own drivers gave each answer.
    pub(super) fn answer_counts(&self) -> BTreeMap<String, u64> {
        match self {
            Self::Fleet(drivers) => drivers.answer_counts(),
            Self::Partner(_) => BTreeMap::new(),
        }
    }

    pub(super) fn simulated_partner(&self) -> Option<&PartnerSim> {
        match self {
            Self::Fleet(_) => None,
            Self::Partner(sim) => Some(sim),
        }
    }

    /// Returns the counters of the partner.
    pub(super) fn partner_counters(&self) -> Option<SimulationCounters> {
        self.simulated_partner().map(|sim| sim.read_report().counters)
    }
}
