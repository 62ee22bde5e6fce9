//! `dispatchq bench ladder`: what a job costs the engine, and what of that is the engine's own doing.
//!
//! Each rung does what the one below it does, and more: an empty call per batch; the same call with all arguments and answers; the
//! least that must be written; the engine's scripts; the engine. The jobs, the batches and the settings of Redis are the same, so the
//! difference between two rungs is the price of what the upper one adds.
//!
//! * `calls`: what each rung sends to Redis. `climb`: measuring them. `report`: table and JSON.

mod calls;
mod climb;
mod report;

use std::num::{NonZeroU32, NonZeroUsize};

use clap::Args;

use self::{calls::Rung, report::LadderReport};
use super::{
    machine::{MachineInfo, SoftwareVersions},
    progress::StepProgress,
};
use crate::testbed::print;

#[derive(Debug, Clone, Args)]
#[command(after_help = "Example:\n  dispatchq bench ladder --jobs 200000 --json > ladder.json")]
pub struct LadderOptions {
    /// Jobs on each rung
    #[arg(long, value_name = "N", default_value = "200000")]
    pub jobs: NonZeroU32,

    /// Times that the ladder is climbed; the median counts
    #[arg(long, value_name = "N", default_value = "3")]
    pub rounds: NonZeroUsize,

    /// Print one JSON object; the table goes to stderr
    #[arg(long)]
    pub json: bool,
}

/// Measures and prints. Returns whether every job went through; speed is reported and never judged.
pub async fn run(options: LadderOptions) -> anyhow::Result<bool> {
    let report = measure_ladder(&options).await?;
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.left == 0)
}

/// Round by round, so that whatever else the machine does meets all rungs alike.
async fn measure_ladder(options: &LadderOptions) -> anyhow::Result<LadderReport> {
    let (jobs, rounds) = (options.jobs.get(), options.rounds.get());
    let machine = MachineInfo::read_system();
    let mut report = LadderReport::new(jobs, machine, SoftwareVersions::read_versions().await?);
    let progress = StepProgress::new(rounds * (Rung::ALL.len() + 1), options.json);
    for round in 0..rounds {
        let of = |name: &str| format!("{name}, round {} of {rounds}", round + 1);
        for rung in Rung::ALL {
            let climbed = progress.run_step(of(rung.name()), climb::climb_rung(rung, jobs)).await?;
            report.add_round(rung.name(), climbed);
        }
        let climbed = progress.run_step(of(report::ENGINE), climb::climb_engine(jobs)).await?;
        report.add_round(report::ENGINE, climbed);
    }
    Ok(report)
}
