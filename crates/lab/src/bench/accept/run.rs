//! The turns, from first to last.

use std::time::Duration;

use anyhow::bail;
use jobs::OrderId;

use super::{
    options::Options,
    race::{self, Told},
    report::{Fault, Report},
    stage::Stage,
    ways::Way,
};
use crate::{
    bench::machine::{Machine, Versions},
    testbed::{print, signals::interrupted},
};
use dispatch::outbound;

/// Orders of one way in a row: short enough that all ways see the same weather.
const BLOCK: u32 = 25;
const SLOW: Duration = Duration::from_millis(200);
/// Longer than any answer of a server that is alive.
const ORDER_TIMEOUT: Duration = Duration::from_secs(30);

/// Measures, prints the report, and answers whether each order went to exactly one driver.
pub async fn run(options: Options) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure(&options) => report?,
        name = interrupted() => bail!("the measurement was interrupted by {name}"),
    };
    print::report(&report.text(), &report.json(), options.json)?;
    Ok(report.is_good())
}

async fn measure(options: &Options) -> anyhow::Result<Report> {
    let (machine, versions) = (Machine::look(), Versions::look().await?);
    let mut races = Races { stage: Stage::set(options).await?, client: outbound::client(ORDER_TIMEOUT)?, number: 0 };
    // Connections are opened, statements prepared, caches filled.
    for way in Way::ALL {
        races.run(way, 2).await?;
    }
    let mut told = Way::ALL.map(|way| (way, Told::default()));
    let mut done = 0;
    while done < options.orders.get() {
        let block = BLOCK.min(options.orders.get() - done);
        done += block;
        eprint!("\r{done} of {} orders", options.orders);
        for (way, told) in &mut told {
            let wanted = if *way == Way::Gate { done } else { options.orders_of_peers().min(done) };
            let left = wanted.saturating_sub(told.orders);
            told.add(races.run(*way, left).await?);
        }
    }
    eprintln!();
    let faults = races.faults(options.orders_of_faults()).await?;
    let given_twice = races.stage.given_twice().await?;
    let violations = races.stage.violations().await?;
    Ok(Report { options: options.clone(), machine, versions, told, faults, given_twice, violations })
}

struct Races {
    stage: Stage,
    client: reqwest::Client,
    number: u32,
}

impl Races {
    /// So many orders, one after the other.
    async fn run(&mut self, way: Way, orders: u32) -> anyhow::Result<Told> {
        let mut told = Told::default();
        for _ in 0..orders {
            told.add(self.one(way).await?);
        }
        Ok(told)
    }

    async fn one(&mut self, way: Way) -> anyhow::Result<Told> {
        let (order, offers) = self.offered().await?;
        let before = self.stage.updates();
        let mut told = race::run(&self.client, &self.stage.base, way, &order, offers).await;
        told.updates = self.stage.updates() - before;
        self.stage.finish(&order).await?;
        Ok(told)
    }

    async fn offered(&mut self) -> anyhow::Result<(OrderId, Vec<(super::stage::Driver, uuid::Uuid)>)> {
        self.number += 1;
        let order: OrderId = format!("ORD-{}", self.number).parse()?;
        let offers = self.stage.offered(&order).await?;
        Ok((order, offers))
    }

    /// The product's way while Redis has its troubles.
    async fn faults(&mut self, orders: u32) -> anyhow::Result<Vec<Fault>> {
        let mut stopped = Told::default();
        for n in 0..orders {
            let (order, offers) = self.offered().await?;
            // Half of the orders find it stopped, the other half see it come back in the middle of their race.
            self.stage.redis.stop().await?;
            let client = self.client.clone();
            let base = self.stage.base.clone();
            let racing = race::run(&client, &base, Way::Gate, &order, offers);
            let told = if n % 2 == 0 {
                let told = racing.await;
                self.stage.redis.restart().await?;
                told
            } else {
                let (told, restarted) = tokio::join!(racing, self.stage.redis.restart());
                restarted?;
                told
            };
            stopped.add(told);
            self.stage.finish(&order).await?;
        }
        let mut flushed = Told::default();
        for _ in 0..orders {
            let (order, offers) = self.offered().await?;
            let flush = flush(self.stage.redis.port());
            let racing = race::run(&self.client, &self.stage.base, Way::Gate, &order, offers);
            let (told, done) = tokio::join!(racing, flush);
            done?;
            flushed.add(told);
            self.stage.finish(&order).await?;
        }
        let mut slow = Told::default();
        // Each takes some seconds: what else goes to Redis is as slow.
        for _ in 0..orders.div_ceil(5) {
            let (order, offers) = self.offered().await?;
            self.stage.proxy.delay(SLOW);
            slow.add(race::run(&self.client, &self.stage.base, Way::Gate, &order, offers).await);
            self.stage.proxy.delay(Duration::ZERO);
            self.stage.finish(&order).await?;
        }
        Ok(vec![
            Fault { name: "redis_stopped", told: stopped },
            Fault { name: "redis_flushed", told: flushed },
            Fault { name: "redis_slow_200_ms", told: slow },
        ])
    }
}

/// Three times in the first milliseconds of the race.
async fn flush(port: u16) -> anyhow::Result<()> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(4)).await;
        redis::cmd("FLUSHALL").query_async::<()>(&mut connection).await?;
    }
    Ok(())
}
