//! Rules that hold between settings.

use anyhow::{Context, bail, ensure};
use model::messages::routes::LOG;

use super::{Config, bounds};

impl Config {
    pub(super) fn check_settings(&self) -> anyhow::Result<()> {
        bounds::check_bounds(self)?;
        self.redis.to_store_config()?;
        self.http.trusted_networks()?;
        for name in self.service_types.keys() {
            let fits = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
            ensure!(
                fits,
                "service_types.{name}: names are capital letters, digits and '_'; set them in a file, not in the environment"
            );
            let policy = self.policy_for_type(name);
            let at = format!("service_types.{name}");
            ensure!(!policy.retry.is_empty(), "{at}: retry needs at least one duration");
            if let Some(partner) = self.partner_of(name) {
                ensure!(self.partners.contains_key(partner), "{at}: no partner '{partner}'; add [partners.{partner}]");
            }
        }
        for queue in self.worker.concurrency.keys() {
            if !jobs::queues::ALL.contains(&queue.as_str()) {
                bail!("worker.concurrency: no queue '{queue}'; queues are {}", jobs::queues::ALL.join(", "));
            }
        }
        tracing_subscriber::EnvFilter::try_new(&self.log.filter)
            .with_context(|| format!("log.filter '{}' is not valid", self.log.filter))?;
        for (name, route) in [
            ("driver", &self.notifications.driver),
            ("support", &self.notifications.support),
            ("dispatchers", &self.notifications.dispatchers),
        ] {
            ensure!(!route.is_empty(), "notifications.{name} is empty: no one would be told; use [\"log\"] at least");
        }
        let own = self.notifications.driver_by_service_type.iter();
        let routes =
            self.notifications.named_routes().map(|(name, channels)| (format!("notifications.{name}"), channels));
        let own = own.map(|(name, channels)| (format!("service_types.{name}.driver_channels"), channels));
        for (route, channels) in routes.into_iter().chain(own) {
            for name in channels {
                ensure!(
                    name == LOG || self.channels.contains_key(name),
                    "{route}: no channel '{name}'; add [channels.{name}] or use \"log\""
                );
            }
        }
        for (name, channels) in &self.notifications.driver_by_service_type {
            ensure!(!channels.is_empty(), "service_types.{name}.driver_channels is empty: no driver would be told");
        }
        for (task, schedule) in &self.schedules {
            schedule.next_after(chrono::Utc::now()).with_context(|| format!("schedules.{}", task.name()))?;
        }
        ensure!(
            self.retention.events >= self.retention.orders,
            "retention.events must not be shorter than retention.orders: no order outlives its history"
        );
        Ok(())
    }
}
