//! The turns, from first to last.

use std::time::Duration;

use anyhow::bail;
use jobs::OrderId;

use super::{
    options::AcceptOptions,
    race::{self, DriverClients, RaceTally},
    report::{AcceptReport, FaultTally},
    stage::{self, AcceptStage},
};
use crate::{
    bench::machine::{MachineInfo, SoftwareVersions},
    testbed::{print, signals::wait_for_interrupt},
};
use foundation::outbound;

/// Races between two updates of the progress line.
const BLOCK: u32 = 25;
const SLOW: Duration = Duration::from_millis(200);
/// Longer than any answer of a server that is alive.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures, prints the report, and answers whether each order went to exactly one driver.
pub async fn run(options: AcceptOptions) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure_accepts(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.is_good())
}

async fn measure_accepts(options: &AcceptOptions) -> anyhow::Result<AcceptReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let mut races = RaceRunner {
        stage: AcceptStage::set_up(options).await?,
        clients: DriverClients { http: outbound::build_client(ORDER_TIMEOUT)?, thread: stage::start_thread()? },
        number: 0,
    };
    // The first races open connections, prepare statements and fill caches.
    races.run_races(2).await?;
    let mut told = RaceTally::default();
    while told.orders < options.orders.get() {
        told.add_race(races.run_races(BLOCK.min(options.orders.get() - told.orders)).await?);
        eprint!("\r{} of {} orders", told.orders, options.orders);
    }
    eprintln!();
    let faults = races.race_during_faults(options.orders_of_faults()).await?;
    let given_twice = races.stage.count_given_twice().await?;
    let violations = races.stage.find_violations().await?;
    Ok(AcceptReport { options: options.clone(), machine, versions, told, faults, given_twice, violations })
}

struct RaceRunner {
    stage: AcceptStage,
    clients: DriverClients,
    number: u32,
}

impl RaceRunner {
    /// So many orders, one after the other.
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

    async fn offer_next_order(
        &mut self,
    ) -> anyhow::Result<(OrderId, Vec<(super::stage::RacingDriver, dispatch::ids::OfferId)>)> {
        self.number += 1;
        let order: OrderId = format!("ORD-{}", self.number).parse()?;
        let offers = self.stage.create_offered_order(&order).await?;
        Ok((order, offers))
    }

    /// The product's way while Redis has its troubles.
    async fn race_during_faults(&mut self, orders: u32) -> anyhow::Result<Vec<FaultTally>> {
        let mut stopped = RaceTally::default();
        for n in 0..orders {
            let (order, offers) = self.offer_next_order().await?;
            // Half of the orders find it stopped, the other half see it come back in the middle of their race.
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
            // The first opens connections to this server, and has it look up the keys.
            self.stage.proxy.set_delay(if n == 0 { Duration::ZERO } else { SLOW });
            let racing = race::run_race(&self.clients, self.stage.slow_target(), &order, offers);
            let told = racing.await;
            self.stage.proxy.set_delay(Duration::ZERO);
            if n > 0 {
                slow.add_race(told);
            }
            self.stage.finish_trip(&order).await?;
        }
        Ok(vec![
            FaultTally { name: "redis_stopped", told: stopped },
            FaultTally { name: "redis_flushed", told: flushed },
            FaultTally { name: "redis_slow_200_ms", told: slow },
        ])
    }
}

/// Three times in the first milliseconds of the race.
async fn flush_repeatedly(port: u16) -> anyhow::Result<()> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(4)).await;
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
    }
    Ok(())
}
