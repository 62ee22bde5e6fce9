//! Advice, creations and burst, one after the other.

use std::{sync::Arc, time::Duration};

use anyhow::bail;

use super::{advice, creations, options::Options, report::Report, stage::Stage};
use crate::{
    bench::machine::{Machine, Versions},
    testbed::{print, signals::interrupted},
};

/// Measures, prints, and answers whether nothing was overshot and every creation and request of the burst answered.
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
    let stage = Arc::new(Stage::start().await?);
    Ok(Report {
        machine,
        versions,
        lookup_ns: advice::lookup(&stage),
        advice: advice::steady(&stage, Duration::from_secs(options.seconds.get().into())).await,
        creations: creations::measure(&stage, options.creations.get()).await?,
        burst: advice::burst(&stage, options.burst.get()).await,
    })
}
