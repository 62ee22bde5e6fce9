//! Advice, creations and burst, one after the other.

use std::{sync::Arc, time::Duration};

use anyhow::bail;

use super::{
    advice, creations,
    options::AdmissionOptions,
    report::AdmissionReport,
    stage::{AdmissionStage, AskedAreas},
};
use crate::{
    bench::machine::{MachineInfo, SoftwareVersions},
    testbed::{print, signals::wait_for_interrupt},
};

/// Measures, prints, and answers whether nothing was overshot and every creation and request of the burst answered.
pub async fn run(options: AdmissionOptions) -> anyhow::Result<bool> {
    let report = tokio::select! {
        report = measure_admission(&options) => report?,
        name = wait_for_interrupt() => bail!("the measurement was interrupted by {name}"),
    };
    print::print_report(&report.to_text(), &report.to_json(), options.json)?;
    Ok(report.is_good())
}

async fn measure_admission(options: &AdmissionOptions) -> anyhow::Result<AdmissionReport> {
    let (machine, versions) = (MachineInfo::read_system(), SoftwareVersions::read_versions().await?);
    let stage = Arc::new(AdmissionStage::start().await?);
    let seconds = Duration::from_secs(options.seconds.get().into());
    let lookup_ns = advice::measure_area_lookup(&stage);
    let with_room = advice::measure_steady_advice(&stage, AskedAreas::WithRoom, seconds).await;
    stage.fill_asked_areas().await?;
    Ok(AdmissionReport {
        machine,
        versions,
        lookup_ns,
        with_room,
        full: advice::measure_steady_advice(&stage, AskedAreas::Full, seconds).await,
        creations: creations::measure_creations(&stage, options.creations.get()).await?,
        burst: advice::measure_burst_advice(&stage, options.burst.get()).await,
    })
}
