//! The installation: processes, a Postgres that counts its statements, drivers with keys, orders.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, bail};
use jobs::OrderId;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use super::{counts, options::ScarcityOptions};
use crate::{
    bench::statement_counts::count_statements,
    testbed::{Testbed, TestbedSettings},
};
use dispatch::{
    accounts::{api_keys::AccountRole, key_admin},
    actor::{Actor, ActorRole},
    app::App,
    fleet::drivers::{self, NewDriver},
    ids::DriverId,
    orders::create::{self, NewOrder, OrderLocation},
};

pub(super) const SERVICE_TYPE: &str = "RIDE";
const ACTOR: Actor = Actor::with_fixed_name(ActorRole::Producer, "bench");
pub(super) const CENTRE: OrderLocation = OrderLocation { latitude: -6.2088, longitude: 106.8456 };
/// Pickups and drivers lie on a line north of the centre, so long that each driver is near each pickup.
const SPREAD_DEGREES: f64 = 0.02;
/// Orders created at the same time.
const AT_ONCE: usize = 64;
/// Until each order was searched for.
const SEARCHED_WAIT: Duration = Duration::from_secs(300);
const LOOK: Duration = Duration::from_millis(100);

/// Keys by driver.
pub(in crate::bench) type DriverKeys = HashMap<DriverId, String>;

/// Starts processes and servers. Postgres counts its statements.
pub(super) async fn start(options: &ScarcityOptions) -> anyhow::Result<Testbed> {
    let settings = TestbedSettings {
        speed: 1.0,
        serves: 1,
        workers: usize::try_from(options.workers.get())?,
        for_faults: false,
        offers: None,
        alerts: None,
        partner: None,
        durable: false,
    };
    let mut testbed = Testbed::start(&settings).await?;
    if let Err(error) = count_statements(&mut testbed).await {
        testbed.dir.keep_files();
        return Err(error);
    }
    Ok(testbed)
}

/// Adds free drivers on a line north of this place, and returns their keys.
pub(in crate::bench) async fn hire_drivers(
    app: &App,
    service_type: &str,
    from: OrderLocation,
    count: u32,
) -> anyhow::Result<DriverKeys> {
    let new: Vec<_> = (0..count)
        .map(|n| NewDriver {
            id: format!("D-{n:05}").into(),
            service_types: vec![service_type.into()],
            latitude: from.latitude + SPREAD_DEGREES * f64::from(n) / f64::from(count),
            longitude: from.longitude,
            available: true,
            phone: None,
        })
        .collect();
    drivers::import_drivers(&app.db, &new).await?;
    let mut keys = DriverKeys::new();
    for NewDriver { id, .. } in new {
        let (_, key) = key_admin::create_permanent_key(&app.db, &id, AccountRole::Driver, Some(&id)).await?;
        keys.insert(id, key);
    }
    Ok(keys)
}

/// Creates the orders, and waits until each was searched for.
pub(super) async fn create_orders(app: &App, count: u32) -> anyhow::Result<()> {
    let mut creations = JoinSet::new();
    for n in 0..count {
        if creations.len() >= AT_ONCE
            && let Some(created) = creations.join_next().await
        {
            created.context("a creation panicked")??;
        }
        creations.spawn(create_order(app.clone(), n, SPREAD_DEGREES * f64::from(n) / f64::from(count)));
    }
    while let Some(created) = creations.join_next().await {
        created.context("a creation panicked")??;
    }
    let deadline = Instant::now() + SEARCHED_WAIT;
    loop {
        let unsearched = counts::count_unsearched(&app.db).await?;
        if unsearched == 0 {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("{unsearched} orders were not searched for within {SEARCHED_WAIT:?}");
        }
        sleep(LOOK).await;
    }
}

async fn create_order(app: App, n: u32, north: f64) -> anyhow::Result<()> {
    let id: OrderId = format!("ORD-{n:06}").parse()?;
    let new = NewOrder {
        order_id: Some(id.clone()),
        service_type: SERVICE_TYPE.into(),
        pickup: OrderLocation { latitude: CENTRE.latitude + north, longitude: CENTRE.longitude },
        payment_status: "UNPAID".to_owned().try_into()?,
        amount_minor: None,
        currency: None,
        area_id: None,
        customer_id: None,
        language: None,
        channel: None,
        loyalty_level: None,
    };
    create::create_order(&app, id, &new, &ACTOR).await?;
    Ok(())
}
