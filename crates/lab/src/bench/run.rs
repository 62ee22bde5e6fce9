//! The benchmark from first to last. Rounds of a kind follow each other, and peers take turns with us, so that whatever
//! else the machine does meets all alike.

use std::{collections::BTreeMap, path::Path};

use anyhow::Context;

use super::{
    herd, idle, lateness,
    machine::{MachineInfo, SoftwareVersions},
    memory,
    options::{QueueOptions, RoundSizes},
    peer, pickup,
    progress::StepProgress,
    report::{PeerRounds, QueueReport},
    stage::QueueStage,
    throughput,
};
use crate::testbed::print;

/// Measures, prints the report, and answers whether every promise was kept: nothing lost, doubled or early. Speed is
/// reported, never judged: a busy or small machine is no fault.
pub async fn run(options: QueueOptions) -> anyhow::Result<bool> {
    let report = measure_queue(&options).await?;
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.keeps_promises())
}

async fn measure_queue(options: &QueueOptions) -> anyhow::Result<QueueReport> {
    let sizes = options.round_sizes();
    let rounds = options.rounds.get();
    let peers = options.peer.len();
    let progress = StepProgress::new(rounds * (5 + peers) + 2 + peers, options.json);
    let of = |round: usize, what: &str| format!("{what}, round {} of {rounds}", round + 1);

    let machine = MachineInfo::read_system();
    let mut report = QueueReport::new(machine, SoftwareVersions::read_versions().await?, sizes);
    for round in 0..rounds {
        let measured = progress
            .run_step(of(round, "enqueue and process"), throughput::measure_throughput(sizes.throughput_jobs))
            .await;
        report.throughput.push(measured.context("throughput")?);
        for program in &options.peer {
            let measured =
                progress.run_step(of(round, "peer: process"), peer::measure_peer_throughput(program, &sizes)).await;
            add_peer_round(&mut report.peers, measured.context("throughput of a peer")?);
        }
    }

    {
        let stage = QueueStage::start().await?;
        progress.run_step("filling the queue", lateness::fill_queue(&stage, sizes.pending)).await?;
        for round in 0..rounds {
            let measured = progress.run_step(of(round, "lateness"), lateness::measure_lateness(&stage, &sizes)).await;
            report.lateness.push(measured.context("lateness")?);
        }
    }
    for (position, program) in options.peer.iter().enumerate() {
        let measured = progress.run_step("peer: lateness", peer_lateness(program, &sizes)).await?;
        if let Some(peer) = report.peers.values_mut().find(|peer| peer.position == position) {
            peer.lateness = Some(measured);
        }
    }

    for round in 0..rounds {
        let measured = progress.run_step(of(round, "pickup"), pickup::measure_pickup(sizes.pickups)).await;
        report.pickup.push(measured.context("pickup")?);
    }
    let enqueue_per_s = report.slowest_enqueue();
    for round in 0..rounds {
        let measured = progress.run_step(of(round, "herd"), herd::measure_herd(sizes.herd_jobs, enqueue_per_s)).await;
        report.herd.push(measured.context("herd")?);
    }
    report.memory =
        Some(progress.run_step("memory", memory::measure_memory(sizes.memory_jobs)).await.context("memory")?);
    for round in 0..rounds {
        let measured = progress.run_step(of(round, "idle cost"), idle::measure_idle(sizes.idle_for)).await;
        report.idle.push(measured.context("idle cost")?);
    }
    Ok(report)
}

async fn peer_lateness(program: &Path, sizes: &RoundSizes) -> anyhow::Result<peer::PeerLateness> {
    peer::measure_peer_lateness(program, sizes).await.context("lateness of a peer")
}

fn add_peer_round(peers: &mut BTreeMap<String, PeerRounds>, processed: peer::PeerThroughput) {
    let position = peers.len();
    let peer = peers.entry(processed.name.clone()).or_insert_with(|| PeerRounds {
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
