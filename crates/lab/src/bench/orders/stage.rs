//! The installation of a run: the partner, the receiver of alerts, the testbed, and what observes them.

use super::{
    desk::{self, AlertDesk},
    options::OrdersOptions,
};
use crate::{
    bench::{collector::TraceCollector, prometheus::RunPrometheus},
    testbed::{
        Testbed, TestbedSettings, partner,
        producer::OrderProducer,
        settings::{ServedBy, WebhookTarget, free_port},
    },
};
use dispatch::{
    accounts::{api_keys::AccountRole, key_admin},
    config::{Config, PartnerConfig},
};
use partner_sim::{PartnerSim, PartnerSimOptions as PartnerOptions};

/// Everything that a run needs. Dropping it stops it.
pub(super) struct Stage {
    pub(super) sim: PartnerSim,
    pub(super) desk: AlertDesk,
    pub(super) collector: Option<TraceCollector>,
    pub(super) testbed: Testbed,
    pub(super) producer: OrderProducer,
    pub(super) prometheus: Option<RunPrometheus>,
}

impl Stage {
    /// Starts the partner, the receiver of alerts, the testbed and, where they are asked for, the collector and Prometheus.
    pub(super) async fn start(options: &OrdersOptions) -> anyhow::Result<Self> {
        let (sim, served) = partner_of(options).await?;
        let desk = AlertDesk::start_listening().await?;
        let settings = TestbedSettings {
            speed: options.speed,
            serves: 1,
            workers: options.workers.get(),
            for_faults: false,
            offers: None,
            alerts: Some(WebhookTarget { name: desk::CHANNEL, url: desk.url() }),
            partner: Some(served),
            durable: true,
        };
        let collector = TraceCollector::start(options.trace_sampling).await?;
        let configure = |config: &mut Config| {
            if let Some(collector) = &collector {
                collector.configure(config);
            }
            if options.prometheus {
                config.http.admin_bind = format!("127.0.0.1:{}", free_port());
                // Each worker has an address of its own in place of this.
                config.worker.admin_bind = "127.0.0.1:0".to_owned();
            }
        };
        let testbed = Testbed::start_with(&settings, configure).await?;
        partner::call_back(&sim, testbed.api.base_url())?;
        let (_, key) = key_admin::create_permanent_key(&testbed.app.db, "bench", AccountRole::Producer, None).await?;
        let producer = OrderProducer::new(testbed.api.clone(), key);
        let prometheus = start_prometheus(options, &testbed).await?;
        Ok(Self { sim, desk, collector, testbed, producer, prometheus })
    }
}

/// Starts the Prometheus that was asked for.
async fn start_prometheus(options: &OrdersOptions, testbed: &Testbed) -> anyhow::Result<Option<RunPrometheus>> {
    if !options.prometheus {
        return Ok(None);
    }
    let mut targets = vec![testbed.app.config.http.admin_bind.clone()];
    targets.extend(testbed.processes.worker_metrics().into_iter().map(|(_, address)| address));
    Ok(Some(RunPrometheus::start(targets).await?))
}

/// Starts the partner, and returns it with its settings. The partner enforces the rate limit that dispatchq is configured to keep. Its
/// burst is that of dispatchq and the requests that dispatchq may have in flight.
async fn partner_of(options: &OrdersOptions) -> anyhow::Result<(PartnerSim, ServedBy)> {
    let limit = options.partner_limit();
    let mut knobs = options.scenario.partner_knobs();
    knobs.rate_limit = Some(limit.into());
    knobs.rate_burst = Some((limit / 10 + PartnerConfig::with_url("").max_concurrent).into());
    let sim_options = PartnerOptions { seed: options.seed, speed: options.speed, knobs, ..PartnerOptions::default() };
    let sim = partner::start(&sim_options).await?;
    let mut served = partner::served_by(&sim, &sim_options);
    served.config.rate_per_s = limit;
    Ok((sim, served))
}
