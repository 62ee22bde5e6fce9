//! The phases, from first to last.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use anyhow::{Context, bail};
use tokio::time::sleep;

use super::{
    clients::FloodClients,
    flood::{FloodTally, RunningFlood},
    options::FloodOptions,
    report::{FloodPhase, FloodReport},
};
use crate::{
    bench::machine::{MachineInfo, SoftwareVersions},
    testbed::{Testbed, TestbedSettings, print, signals::wait_for_interrupt},
};
use api::server;
use dispatch::accounts::{api_keys::AccountRole, key_admin};

/// Producers with keys of their own.
const PRODUCERS: usize = 10;
/// Connections are opened, statements prepared, caches filled.
const WARM_UP: Duration = Duration::from_secs(3);
/// Until all sockets of a flood are open.
const RISE: Duration = Duration::from_secs(2);

/// Measures, prints the report, and answers whether good requests noticed as little as they may.
pub async fn run(options: FloodOptions) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure_flood(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.find_violations().is_empty())
}

async fn measure_flood(options: &FloodOptions) -> anyhow::Result<FloodReport> {
    // Two thousand sockets have two ends each, and one of them is ours.
    server::raise_open_files();
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let settings = TestbedSettings {
        speed: 1.0,
        serves: 1,
        workers: 1,
        for_faults: false,
        offers: None,
        alerts: None,
        partner: None,
        durable: false,
    };
    let mut testbed = Testbed::start(&settings).await?;
    let measured = measure_phases(options, &testbed).await;
    if measured.is_err() {
        testbed.dir.keep_files();
    }
    let phases = measured.with_context(|| format!("the measurement failed; logs: {}", testbed.dir.path().display()))?;
    let (processes, _app, _redis, _postgres, _dir) = testbed.into_parts();
    let complaints = processes.stop().await;
    Ok(FloodReport { phases, complaints, machine, versions })
}

async fn measure_phases(options: &FloodOptions, testbed: &Testbed) -> anyhow::Result<Vec<FloodPhase>> {
    let base = testbed.api.base_url().to_owned();
    let mut keys = Vec::new();
    for n in 0..PRODUCERS {
        keys.push(
            key_admin::create_permanent_key(&testbed.app.db, &format!("bench-{n}"), AccountRole::Producer, None)
                .await?
                .1,
        );
    }
    let clients = FloodClients::new(&base, keys)?;
    clients.send_requests("FIRST", WARM_UP).await;
    let lasting = Duration::from_secs(options.seconds.get().into());
    let mut phases = Vec::new();
    for (name, from) in [
        ("no_flood", None),
        ("flood_from_another_address", Some(Ipv4Addr::new(127, 0, 0, 2))),
        ("flood_from_the_same_address", Some(Ipv4Addr::LOCALHOST)),
    ] {
        let flood = from.map(|from| RunningFlood::start_from(&base, IpAddr::V4(from))).transpose()?;
        sleep(RISE).await;
        let told = clients.send_requests(name, lasting).await;
        let met = match flood {
            Some(flood) => flood.stop().await,
            None => FloodTally::default(),
        };
        phases.push(FloodPhase { name, told, met });
    }
    Ok(phases)
}
