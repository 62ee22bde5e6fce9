//! `dispatchq bench accept`: many drivers accept the same order at the same moment, over HTTP.
//!
//! The benchmark runs first with a healthy Redis. Then it stops and starts Redis, flushes it, and slows it down.
//!
//! * `stage`: servers, drivers, and orders that are offered to all of them. `race`: the race for one order. `answers`:
//!   the server time of a refusal.

mod answers;
mod race;
mod stage;

use std::{num::NonZeroU32, time::Duration};

use clap::Args;
use jobs::OrderId;
use serde_json::Map;

use self::{
    race::{DriverClients, RaceTally},
    stage::AcceptStage,
};
use super::{
    frame::{Bound, Figures, Measure},
    spread::{SamplePercentiles, us_to_ms},
};
use crate::testbed::drivers::SimulatedDriver;
use foundation::outbound;
use model::ids::OfferId;

const SLOW: Duration = Duration::from_millis(200);
/// Request timeout, longer than any answer of a working server.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench accept --json > accept.json")]
pub struct AcceptOptions {
    /// Number of orders
    #[arg(long, value_name = "N", default_value = "1000")]
    pub orders: NonZeroU32,

    /// Drivers that accept each order
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(2..=500))]
    pub drivers: u16,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

impl Measure for AcceptOptions {
    fn prints_json(&self) -> bool {
        self.json
    }

    async fn measure(&self) -> anyhow::Result<Figures> {
        let mut races = RaceRunner {
            stage: AcceptStage::set_up(self.drivers).await?,
            clients: DriverClients { http: outbound::build_client(ORDER_TIMEOUT)?, thread: stage::start_thread()? },
            number: 0,
        };
        // The first races open connections, prepare statements and fill caches.
        races.run_races(2).await?;
        let told = races.run_races(self.orders.get()).await?;
        let faults = races.race_during_faults((self.orders.get() / 10).max(1)).await?;
        let given_twice = races.stage.count_given_twice().await?;
        let mut figures = Figures::new(told.to_json());
        figures.set("drivers", self.drivers);
        figures.set("double", i64::from(told.doubled) + given_twice);
        figures.set(
            "faults",
            faults.iter().map(|(name, told)| ((*name).to_owned(), told.to_json())).collect::<Map<_, _>>(),
        );
        let refusal = us_to_ms(SamplePercentiles::from_samples(told.refusals_us.clone()).p50);
        figures.goal("sql_updates_per_order", told.updates_per_order(), Bound::AtMost(1.05));
        figures.goal("loser_head_to_answer_p50_ms", refusal, Bound::Below(1.0));
        figures.violations = races.stage.find_violations().await?;
        if given_twice > 0 {
            figures.violations.push(format!("{given_twice} orders were assigned to two drivers"));
        }
        for (name, told) in [("healthy", &told)].into_iter().chain(faults.iter().map(|(name, told)| (*name, told))) {
            figures.violations.extend(told.find_violation().map(|what| format!("{name}: {what}")));
        }
        Ok(figures)
    }
}

struct RaceRunner {
    stage: AcceptStage,
    clients: DriverClients,
    number: u32,
}

impl RaceRunner {
    /// Runs the races for this many orders, one after another.
    async fn run_races(&mut self, orders: u32) -> anyhow::Result<RaceTally> {
        let mut told = RaceTally::default();
        for _ in 0..orders {
            told.add_race(self.run_next_race().await?);
        }
        Ok(told)
    }

    async fn run_next_race(&mut self) -> anyhow::Result<RaceTally> {
        let (order, offers) = self.offer_next_order().await?;
        let before = self.stage.count_updates();
        let mut told = race::run_race(&self.clients, self.stage.target(), &order, offers).await;
        told.updates = self.stage.count_updates() - before;
        self.stage.finish_trip(&order).await?;
        Ok(told)
    }

    async fn offer_next_order(&mut self) -> anyhow::Result<(OrderId, Vec<(SimulatedDriver, OfferId)>)> {
        self.number += 1;
        let order: OrderId = format!("ORD-{}", self.number).parse()?;
        let offers = self.stage.create_offered_order(&order).await?;
        Ok((order, offers))
    }

    /// Runs races while Redis is stopped, flushed or slow.
    async fn race_during_faults(&mut self, orders: u32) -> anyhow::Result<[(&'static str, RaceTally); 3]> {
        let mut stopped = RaceTally::default();
        for n in 0..orders {
            let (order, offers) = self.offer_next_order().await?;
            // For half of the orders Redis is down during the whole race. For the other half it restarts during the
            // race.
            self.stage.redis.stop().await?;
            let (clients, base, times) = (self.clients.clone(), self.stage.base.clone(), self.stage.times.clone());
            let racing = race::run_race(&clients, (&base, &times), &order, offers);
            let told = if n % 2 == 0 {
                let told = racing.await;
                self.stage.redis.restart().await?;
                told
            } else {
                let (told, restarted) = tokio::join!(racing, self.stage.redis.restart());
                restarted?;
                told
            };
            stopped.add_race(told);
            self.stage.finish_trip(&order).await?;
        }
        let mut flushed = RaceTally::default();
        for _ in 0..orders {
            let (order, offers) = self.offer_next_order().await?;
            let flush = flush_repeatedly(self.stage.redis.port());
            let racing = race::run_race(&self.clients, self.stage.target(), &order, offers);
            let (told, done) = tokio::join!(racing, flush);
            done?;
            flushed.add_race(told);
            self.stage.finish_trip(&order).await?;
        }
        let mut slow = RaceTally::default();
        for n in 0..=orders.div_ceil(5) {
            let (order, offers) = self.offer_next_order().await?;
            // The first race opens connections to this server and makes it look up the keys, so it runs without delay
            // and is not counted.
            self.stage.proxy.set_delay(if n == 0 { Duration::ZERO } else { SLOW });
            let racing = race::run_race(&self.clients, self.stage.slow_target(), &order, offers);
            let told = racing.await;
            self.stage.proxy.set_delay(Duration::ZERO);
            if n > 0 {
                slow.add_race(told);
            }
            self.stage.finish_trip(&order).await?;
        }
        Ok([("redis_stopped", stopped), ("redis_flushed", flushed), ("redis_slow_200_ms", slow)])
    }
}

/// Flushes Redis three times in the first milliseconds of the race.
async fn flush_repeatedly(port: u16) -> anyhow::Result<()> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(4)).await;
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
    }
    Ok(())
}
