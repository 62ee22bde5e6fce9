//! The benchmark from first to last. Rounds of a kind follow each other, and peers take turns with us, so that whatever
//! else the machine does meets all alike.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context;

use super::{
    herd, idle, lateness,
    machine::{Machine, Versions},
    memory,
    options::{QueueOptions, Sizes},
    peer, pickup,
    progress::Progress,
    report::{Peer, Report},
    stage::Stage,
    throughput,
};
use crate::testbed::print;

/// Measures, prints the report, and answers whether every promise was kept: nothing lost, doubled or early. Speed is
/// reported, never judged: a busy or small machine is no fault.
pub async fn run(options: QueueOptions) -> anyhow::Result<bool> {
    let report = measure(&options).await?;
    print::report(&report.text(), &report.json(), options.json)?;
    Ok(report.keeps_promises())
}

async fn measure(options: &QueueOptions) -> anyhow::Result<Report> {
    let sizes = options.sizes();
    let rounds = options.rounds.get();
    let peers = options.peer.len();
    let progress = Progress::new(rounds * (5 + peers) + 2 + peers, options.json);
    let of = |round: usize, what: &str| format!("{what}, round {} of {rounds}", round + 1);

    let machine = Machine::look();
    let mut report = Report::new(machine, Versions::look().await?, sizes);
    for round in 0..rounds {
        let measured =
            progress.step(of(round, "enqueue and process"), throughput::measure(sizes.throughput_jobs)).await;
        report.throughput.push(measured.context("throughput")?);
        for program in &options.peer {
            let measured = progress.step(of(round, "peer: process"), peer::process(program, &sizes)).await;
            add(&mut report.peers, measured.context("throughput of a peer")?);
        }
    }

    {
        let stage = Stage::start().await?;
        progress.step("filling the queue", lateness::fill(&stage, sizes.pending)).await?;
        for round in 0..rounds {
            let measured = progress.step(of(round, "lateness"), lateness::measure(&stage, &sizes)).await;
            report.lateness.push(measured.context("lateness")?);
        }
    }
    for (position, program) in options.peer.iter().enumerate() {
        let measured = progress.step("peer: lateness", peer_lateness(program, &sizes)).await?;
        if let Some(peer) = report.peers.values_mut().find(|peer| peer.position == position) {
            peer.lateness = Some(measured);
        }
    }

    for round in 0..rounds {
        let measured = progress.step(of(round, "pickup"), pickup::measure(sizes.pickups)).await;
        report.pickup.push(measured.context("pickup")?);
    }
    let enqueue_per_s = report.slowest_enqueue();
    for round in 0..rounds {
        let measured = progress.step(of(round, "herd"), herd::measure(sizes.herd_jobs, enqueue_per_s)).await;
        report.herd.push(measured.context("herd")?);
    }
    report.memory = Some(progress.step("memory", memory::measure(sizes.memory_jobs)).await.context("memory")?);
    for round in 0..rounds {
        let measured = progress.step(of(round, "idle cost"), idle::measure(sizes.idle_for)).await;
        report.idle.push(measured.context("idle cost")?);
    }
    Ok(report)
}

async fn peer_lateness(program: &Path, sizes: &Sizes) -> anyhow::Result<peer::Lateness> {
    peer::lateness(program, sizes).await.context("lateness of a peer")
}

fn add(peers: &mut BTreeMap<String, Peer>, processed: peer::Processed) {
    let position = peers.len();
    let peer = peers.entry(processed.name.clone()).or_insert_with(|| Peer {
        position,
        version: processed.version.clone(),
        settings: processed.settings.clone(),
        process_per_s: Vec::new(),
        enqueue_per_s: Vec::new(),
        through_per_s: Vec::new(),
        with_leases_per_s: Vec::new(),
        cpu_us: Vec::new(),
        lateness: None,
    });
    peer.process_per_s.push(processed.process_per_s);
    peer.enqueue_per_s.push(processed.enqueue_per_s);
    peer.through_per_s.push(processed.through_per_s);
    peer.with_leases_per_s.extend(processed.with_leases_per_s);
    peer.cpu_us.push(processed.cpu_us_per_job);
}
