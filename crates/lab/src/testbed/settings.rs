//! Configuration of a testbed: the defaults, with the durations of orders divided by the speed.
//!
//! Nothing is read from the environment or a file, so that a testbed never touches another installation.

use foundation::db::UPKEEP_CONNECTIONS;
use model::{ids::PartnerName, policy::DispatchPolicy};
pub(crate) use servers::free_port;
use settings::divide_time;
pub use settings::{ChannelConfig, Config, PartnerConfig};
use toml::Table;

/// Search radius, somewhat larger than the default: rides are spread over a city and drivers do not move.
const RADIUS_M: f64 = 6_000.0;
/// Connections that all processes share. The private Postgres allows 200.
const CONNECTIONS: usize = 180;

/// Settings of a testbed. Everything else has its default.
#[derive(Debug, Clone)]
pub(crate) struct TestbedSettings {
    /// Divides the durations of orders.
    pub(crate) speed: f64,
    /// Number of API processes, and of worker processes. With 0 workers the API processes perform the jobs.
    pub(crate) serves: usize,
    pub(crate) workers: usize,
    /// Whether processes reach Redis and Postgres through proxies that can be slow or stuck, and every worker serves
    /// metrics.
    pub(crate) for_faults: bool,
    /// Receivers of messages to drivers, and to support and dispatchers, instead of the log.
    pub(crate) offers: Option<WebhookTarget>,
    pub(crate) alerts: Option<WebhookTarget>,
    /// A partner with its service type. The speed also divides its durations.
    pub(crate) partner: Option<ServedBy>,
    /// Whether Postgres uses fsync, full_page_writes and synchronous_commit, as in production.
    pub(crate) durable: bool,
    /// Whether the work of Postgres can be counted.
    pub(crate) counts_work: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct WebhookTarget {
    /// Name of the channel.
    pub(crate) name: &'static str,
    pub(crate) url: String,
}

#[derive(Debug, Clone)]
pub struct ServedBy {
    pub name: &'static str,
    pub service_type: &'static str,
    pub config: PartnerConfig,
}

impl Default for TestbedSettings {
    /// Returns one process of each kind at real speed, with messages to the log.
    fn default() -> Self {
        Self {
            speed: 1.0,
            serves: 1,
            workers: 1,
            for_faults: false,
            offers: None,
            alerts: None,
            partner: None,
            durable: false,
            counts_work: false,
        }
    }
}

impl TestbedSettings {
    /// Returns the configuration for these URLs.
    pub(crate) fn build_config(&self, redis: &str, postgres: &str) -> Config {
        let mut config = Config::defaults();
        redis.clone_into(&mut config.redis.url);
        postgres.clone_into(&mut config.database.url);
        postgres.clone_into(&mut config.database.maintenance_url);
        let share = u32::try_from(CONNECTIONS / (self.workers + self.serves + 1)).unwrap_or(u32::MAX);
        let share = share.saturating_sub(UPKEEP_CONNECTIONS);
        config.database.max_connections = share.clamp(2, config.database.max_connections);
        config.http.bind = format!("127.0.0.1:{}", free_port());
        config.http.admin_bind = String::new();
        config.worker.admin_bind = String::new();
        let scaled = |duration| divide_time(duration, self.speed);
        let dispatch = &mut config.dispatch;
        dispatch.attempt = scaled(dispatch.attempt);
        dispatch.retry.iter_mut().for_each(|pause| *pause = scaled(*pause));
        dispatch.lifetime = scaled(dispatch.lifetime);
        dispatch.cool_down = scaled(dispatch.cool_down);
        dispatch.radius_m = RADIUS_M;
        let admission = &mut config.admission;
        admission.cooldown = scaled(admission.cooldown);
        admission.busy_retry = scaled(admission.busy_retry);
        if let Some(offers) = &self.offers {
            config.notifications.driver = offers.add_to(&mut config.channels);
        }
        if let Some(alerts) = &self.alerts {
            config.notifications.support = alerts.add_to(&mut config.channels);
            config.notifications.dispatchers.clone_from(&config.notifications.support);
        }
        if let Some(mut served) = self.partner.clone() {
            served.config.divide_times(self.speed);
            served.add_to(&mut config);
        }
        config
    }
}

impl ServedBy {
    /// Assigns the service type to the partner.
    pub fn add_to(self, config: &mut Config) {
        let name = PartnerName::from(self.name);
        config.service_types.entry(self.service_type.into()).or_default().partner = Some(name.clone());
        config.partners.insert(name, self.config);
    }
}

impl WebhookTarget {
    fn add_to(&self, channels: &mut std::collections::BTreeMap<String, ChannelConfig>) -> Vec<String> {
        channels.insert(self.name.to_owned(), ChannelConfig::unsigned_webhook(&self.url));
        vec![self.name.to_owned()]
    }
}

/// Parses a number from `least` to `most`, for an option of the command line.
pub(crate) fn parse_number(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("expected a number from {least} to {most}"))
    }
}

/// Returns the policy with unscaled durations.
pub(crate) fn real_policy(service_type: &str) -> DispatchPolicy {
    Config::defaults().policy_for_type(&service_type.into())
}

/// Renders the configuration as a file for the processes.
pub(crate) fn render_toml(config: &Config) -> anyhow::Result<String> {
    Ok(format!("# Written by dispatchq for one run.\n{}", toml::to_string(config)?))
}

/// Renders the differences from the defaults, as an operator writes them. A binary of another version must know each
/// setting of the file.
pub(crate) fn render_differences(config: &Config) -> anyhow::Result<String> {
    let mut plain = Config::defaults();
    for name in config.partners.keys() {
        plain.partners.insert(name.clone(), PartnerConfig::with_url(""));
    }
    let mut differences = Table::try_from(config)?;
    keep_differences(&mut differences, &Table::try_from(&plain)?);
    Ok(format!("# Written by dispatchq for one run.\n{differences}"))
}

fn keep_differences(table: &mut Table, plain: &Table) {
    table.retain(|key, value| match (value, plain.get(key)) {
        (toml::Value::Table(inner), Some(toml::Value::Table(plain))) => {
            keep_differences(inner, plain);
            !inner.is_empty()
        }
        (value, Some(plain)) => *value != *plain,
        (_, None) => true,
    });
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use super::{super::run_dir::RunDir, *};

    fn config(speed: f64, workers: usize) -> Config {
        let offers = WebhookTarget { name: "drivers", url: "http://127.0.0.1:1/offers".to_owned() };
        let alerts = WebhookTarget { name: "desk", url: "http://127.0.0.1:1/alerts".to_owned() };
        let partner =
            ServedBy { name: "sim", service_type: "TAXI", config: PartnerConfig::with_url("http://127.0.0.1:4") };
        let settings = TestbedSettings {
            speed,
            workers,
            offers: Some(offers),
            alerts: Some(alerts),
            partner: Some(partner),
            ..TestbedSettings::default()
        };
        settings.build_config("redis://127.0.0.1:2/", "postgres://dispatchq@127.0.0.1:3/dispatchq")
    }

    #[test]
    fn settings_file_round_trips() {
        let dir = RunDir::create_unique().unwrap();
        let config = config(300.0, 2);
        fs::write(dir.config_file(), render_toml(&config).unwrap()).unwrap();
        let read = app::settings::load_config(Some(&dir.config_file())).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), serde_json::to_value(config).unwrap());
    }

    #[test]
    fn settings_file_holds_only_differences() {
        let dir = RunDir::create_unique().unwrap();
        let config = config(300.0, 2);
        let text = render_differences(&config).unwrap();
        for setting in ["keep_alive", "statement_timeout", "[retention]", "rate_per_s"] {
            assert!(!text.contains(setting), "{text}");
        }
        fs::write(dir.config_file(), text).unwrap();
        let read = app::settings::load_config(Some(&dir.config_file())).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), serde_json::to_value(config).unwrap());
    }

    #[test]
    fn speed_divides_only_durations_of_orders() {
        let (fast, defaults) = (config(300.0, 2), Config::defaults());
        assert_eq!(fast.dispatch.attempt, Duration::from_millis(400));
        assert_eq!(fast.dispatch.retry, [Duration::from_millis(50)]);
        assert_eq!(fast.dispatch.lifetime, Duration::from_secs(6));
        assert_eq!(
            (fast.admission.cooldown, fast.admission.busy_retry),
            (Duration::from_millis(200), Duration::from_millis(200))
        );
        assert_eq!(fast.worker.drain, defaults.worker.drain);
        assert_eq!(fast.database.statement_timeout, defaults.database.statement_timeout);
        assert_eq!(config(1e9, 2).dispatch.retry, [Duration::from_millis(1)]);
    }
}
