//! The phases, from first to last.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::time::sleep;

use super::{
    clients::Clients,
    flood::{Flood, Met},
    options::Options,
    report::{Phase, Report},
};
use crate::{
    bench::machine::{Machine, Versions},
    testbed::{Settings, Testbed, print, signals::interrupted},
};
use api::server;
use dispatch::people::api_keys::{self, Role};

/// Producers with keys of their own.
const PRODUCERS: usize = 10;
/// Connections are opened, statements prepared, caches filled.
const WARM_UP: Duration = Duration::from_secs(3);
/// Until all sockets of a flood are open.
const RISE: Duration = Duration::from_secs(2);

/// Measures, prints the report, and answers whether good requests noticed as little as they may.
pub async fn run(options: Options) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure(&options) => report?,
        name = interrupted() => bail!("the measurement was interrupted by {name}"),
    };
    print::report(&report.text(), &report.json(), options.json)?;
    Ok(report.violations().is_empty())
}

async fn measure(options: &Options) -> anyhow::Result<Report> {
    // Two thousand sockets have two ends each, and one of them is ours.
    server::raise_open_files();
    let (machine, versions) = (Machine::look(), Versions::look().await?);
    let settings =
        Settings { speed: 1.0, serves: 1, workers: 1, for_faults: false, offers: None, alerts: None, partner: None };
    let mut testbed = Testbed::start(&settings).await?;
    let measured = phases(options, &testbed).await;
    if measured.is_err() {
        testbed.dir.keep();
    }
    let phases = measured.with_context(|| format!("the measurement failed; logs: {}", testbed.dir.path().display()))?;
    let (processes, _app, _redis, _postgres, _dir) = testbed.into_parts();
    let complaints = processes.stop().await;
    Ok(Report { phases, complaints, machine, versions })
}

async fn phases(options: &Options, testbed: &Testbed) -> anyhow::Result<Vec<Phase>> {
    let base = testbed.api.base().to_owned();
    let mut keys = Vec::new();
    for n in 0..PRODUCERS {
        keys.push(api_keys::create(&testbed.app.db, &format!("bench-{n}"), Role::Producer, None).await?.1);
    }
    let clients = Clients::new(&base, keys)?;
    clients.ask("FIRST", WARM_UP).await;
    let lasting = Duration::from_secs(options.seconds.get().into());
    let mut phases = Vec::new();
    for (name, from) in [
        ("no_flood", None),
        ("flood_from_another_address", Some(Ipv4Addr::new(127, 0, 0, 2))),
        ("flood_from_the_same_address", Some(Ipv4Addr::LOCALHOST)),
    ] {
        let flood = from.map(|from| Flood::begin(&base, IpAddr::V4(from))).transpose()?;
        sleep(RISE).await;
        let told = clients.ask(name, lasting).await;
        let met = match flood {
            Some(flood) => flood.stop().await,
            None => Met::default(),
        };
        phases.push(Phase { name, told, met });
    }
    Ok(phases)
}
