//! Configuration: the shipped `config.toml`, over it a file, over it the environment.
//!
//! The shipped file is compiled in as the defaults, so it documents every field and cannot go stale. Unknown keys are
//! errors: a misspelt setting must not be a silent default.

mod bounds;
mod channels;
mod environment;
pub(crate) mod secret;
mod slip;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{
    admission::limits::{AreaLimits, LoyaltyLevel},
    fleet::{
        policy::{DispatchPolicy, ExhaustionAction},
        ranking::RankingWeights,
    },
    notifications::{ChannelRoutes, MessageChannels, routes::LOG},
    partner::{PartnerConfig, PartnerRegistry},
    periodic::schedule::{ScheduledTask, TaskSchedule},
};

use environment::EnvironmentVariables;

pub use model::duration;

pub use channels::{ChannelConfig, EmailConfig, SlackConfig, TicketConfig, VoiceConfig, WebhookConfig};

/// The shipped file: every setting with its default.
pub const DEFAULTS: &str = include_str!("../../../../config.toml");

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub redis: RedisServerConfig,
    pub database: DatabaseConfig,
    pub http: HttpConfig,
    pub worker: WorkerConfig,
    pub dispatch: DispatchConfig,
    pub service_types: BTreeMap<String, DispatchOverrides>,
    pub admission: AdmissionConfig,
    pub notifications: ChannelRoutes,
    #[serde(default)]
    pub channels: BTreeMap<String, ChannelConfig>,
    #[serde(default)]
    pub partners: BTreeMap<String, PartnerConfig>,
    pub schedules: BTreeMap<ScheduledTask, TaskSchedule>,
    pub retention: RetentionConfig,
    pub log: LogConfig,
    /// Names of variables that begin with `DISPATCHQ_` and are no settings.
    #[serde(skip)]
    pub other_variables: Vec<String>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RedisServerConfig {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Empty: the public authorities are trusted.
    pub root_certificate: PathBuf,
}

impl RedisServerConfig {
    /// What the queue connects with. Reads the certificate; opens no connection.
    pub fn to_store_config(&self) -> anyhow::Result<workers::RedisConfig> {
        let mut config = workers::RedisConfig::new(&self.url);
        let file = &self.root_certificate;
        if !file.as_os_str().is_empty() {
            let pem = std::fs::read(file)
                .with_context(|| format!("redis.root_certificate: cannot read the file {}", file.display()))?;
            config.root_certificate = Some(pem);
        }
        config.check()?;
        Ok(config)
    }
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseConfig {
    pub url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_file: Option<PathBuf>,
    /// Login of the history's owner. Empty: workers add and drop no days of it.
    pub maintenance_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_url_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maintenance_url_file: Option<PathBuf>,
    pub max_connections: u32,
    #[serde(with = "duration")]
    pub statement_timeout: Duration,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HttpConfig {
    pub bind: String,
    pub admin_bind: String,
    #[serde(with = "duration")]
    pub keep_alive: Duration,
    /// Every producer reads and changes every order, as one domain.
    pub producers_share_orders: bool,
    #[serde(with = "duration")]
    pub first_head: Duration,
    #[serde(with = "duration")]
    pub write: Duration,
    pub max_connections: u32,
    pub max_connections_per_address: u32,
    pub requests_per_s_per_key: u32,
    pub failures_per_min_per_address: u32,
    pub trusted_proxies: Vec<String>,
}

impl HttpConfig {
    /// The networks whose word about a client's address is believed.
    pub fn trusted_networks(&self) -> anyhow::Result<Vec<IpNet>> {
        let network = |text: &String| {
            let network = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network.with_context(|| format!("http.trusted_proxies: '{text}' is no address and no network"))
        };
        self.trusted_proxies.iter().map(network).collect()
    }
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerConfig {
    pub name: String,
    #[serde(with = "duration")]
    pub drain: Duration,
    pub admin_bind: String,
    /// Queue -> jobs at the same time.
    pub concurrency: BTreeMap<String, usize>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DispatchConfig {
    #[serde(with = "duration")]
    pub attempt: Duration,
    #[serde(with = "duration::list")]
    pub retry: Vec<Duration>,
    #[serde(with = "duration")]
    pub lifetime: Duration,
    pub radius_m: f64,
    pub candidates: u16,
    pub ask_at_once: u16,
    pub offers_per_driver: u16,
    #[serde(with = "duration")]
    pub cool_down: Duration,
    pub idle_minute_m: f64,
    pub live_offer_m: f64,
    pub exhausted: ExhaustionAction,
    pub pending_keeps_lifetime: bool,
    #[serde(with = "duration")]
    pub pickup_within: Duration,
    #[serde(with = "duration")]
    pub completion_within: Duration,
}

/// What a service type does otherwise than `[dispatch]`.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct DispatchOverrides {
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Duration>,
    #[serde(with = "duration::option_list", skip_serializing_if = "Option::is_none")]
    pub retry: Option<Vec<Duration>>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub lifetime: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub radius_m: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ask_at_once: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offers_per_driver: Option<u16>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub cool_down: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_minute_m: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live_offer_m: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exhausted: Option<ExhaustionAction>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending_keeps_lifetime: Option<bool>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub pickup_within: Option<Duration>,
    #[serde(with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub completion_within: Option<Duration>,
    /// Who finds the driver; without it the own fleet does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partner: Option<String>,
    /// Channels that reach its drivers, instead of `notifications.driver`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_channels: Option<Vec<String>>,
}

/// Limits of areas that have none of their own.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AdmissionConfig {
    pub max_waiting_orders: i64,
    #[serde(with = "duration")]
    pub cooldown: Duration,
    pub low_water_percentage: i64,
    #[serde(with = "duration")]
    pub busy_retry: Duration,
    pub bypass_enabled: bool,
    pub bypass_loyalty_levels: Vec<LoyaltyLevel>,
    pub max_bypass_percentage: i64,
}

impl AdmissionConfig {
    pub fn default_limits(&self) -> AreaLimits {
        AreaLimits {
            max_waiting: self.max_waiting_orders,
            cooldown: self.cooldown,
            low_water_percentage: self.low_water_percentage,
            busy_retry: self.busy_retry,
            bypass_enabled: self.bypass_enabled,
            bypass_levels: self.bypass_loyalty_levels.clone(),
            max_bypass_percentage: self.max_bypass_percentage,
            enabled: true,
        }
    }
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Config::defaults().admission
    }
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    #[serde(with = "duration")]
    pub orders: Duration,
    #[serde(with = "duration")]
    pub events: Duration,
    #[serde(with = "duration")]
    pub messages: Duration,
    #[serde(with = "duration")]
    pub records: Duration,
    #[serde(with = "duration")]
    pub dead_jobs: Duration,
    #[serde(with = "duration")]
    pub erasures: Duration,
}

impl RetentionConfig {
    /// Promised to producers, so not a setting.
    pub const IDEMPOTENCY_KEYS: Duration = Duration::from_secs(24 * 3600);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    pub format: LogFormat,
    pub filter: String,
}

impl Config {
    /// Reads defaults, file and environment, and checks what the types do not.
    ///
    /// `file` must exist; without it `./config.toml` is read if there is one.
    pub fn load(file: Option<&Path>) -> anyhow::Result<Self> {
        let file = match file {
            Some(path) => Some(path.to_owned()),
            None => Some(PathBuf::from("config.toml")).filter(|path| path.exists()),
        };
        Self::from_sources(file.as_deref(), std::env::vars_os())
    }

    /// The defaults alone.
    pub fn defaults() -> Self {
        Self::from_sources(None, std::iter::empty()).expect("the shipped config.toml is valid")
    }

    fn from_sources(
        file: Option<&Path>,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> anyhow::Result<Self> {
        let EnvironmentVariables { settings, others } = EnvironmentVariables::new(variables)?;
        let mut sources =
            config::Config::builder().add_source(config::File::from_str(DEFAULTS, config::FileFormat::Toml));
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
            if let Err(error) = text.parse::<toml::Table>() {
                bail!("{} is not valid TOML: {}", path.display(), slip::describe_syntax_error(&text, &error));
            }
            sources = sources.add_source(config::File::from_str(&text, config::FileFormat::Toml));
        }
        let origin =
            file.map_or_else(|| "the environment".to_owned(), |p| format!("{} or the environment", p.display()));
        let environment = config::Environment::with_prefix(environment::PREFIX.trim_end_matches('_'))
            .prefix_separator("_")
            .separator("__")
            .source(Some(settings));
        let mut config: Self =
            sources.add_source(environment).build().and_then(config::Config::try_deserialize).map_err(|error| {
                anyhow::anyhow!(slip::describe_value_error(&error)).context(format!(
                    "the configuration is not valid; look at {origin} (dispatchq config show lists all settings)"
                ))
            })?;
        config.other_variables = others;
        let (redis, database) = (&mut config.redis, &mut config.database);
        secret::replace_secret("url", &mut redis.url, &mut redis.url_env, &mut redis.url_file).context("redis")?;
        secret::replace_secret("url", &mut database.url, &mut database.url_env, &mut database.url_file)
            .context("database")?;
        let (url_env, url_file) = (&mut database.maintenance_url_env, &mut database.maintenance_url_file);
        secret::replace_secret("maintenance_url", &mut database.maintenance_url, url_env, url_file)
            .context("database")?;
        let own_channels =
            |(name, own): (&String, &DispatchOverrides)| Some((name.clone(), own.driver_channels.clone()?));
        config.notifications.driver_by_service_type = config.service_types.iter().filter_map(own_channels).collect();
        config.check_settings()?;
        Ok(config)
    }

    fn check_settings(&self) -> anyhow::Result<()> {
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
        PartnerRegistry::new(&self.partners)?;
        self.build_channels().map(drop)
    }

    /// Warns of variables that begin as settings do and are none.
    pub fn warn_of_other_variables(&self) {
        if !self.other_variables.is_empty() {
            let variables = self.other_variables.join(", ");
            tracing::warn!(
                variables,
                "Variables without two underscores are no settings and are ignored; write DISPATCHQ_REDIS__URL."
            );
        }
    }

    /// Returns the ignored variables that were probably meant as settings.
    pub fn misspelt_variables(&self) -> Vec<&str> {
        self.other_variables.iter().map(String::as_str).filter(|name| environment::looks_like_a_setting(name)).collect()
    }

    /// Who finds the driver for this service type; `None`: the own fleet.
    pub fn partner_of(&self, service_type: &str) -> Option<&str> {
        self.service_types.get(service_type)?.partner.as_deref()
    }

    /// Is this a service type orders may have?
    pub fn knows_service_type(&self, service_type: &str) -> bool {
        self.service_types.contains_key(service_type)
    }

    /// The durations and choices of a service type. An order of a type no longer configured follows the defaults.
    pub fn policy_for_type(&self, service_type: &str) -> DispatchPolicy {
        let base = &self.dispatch;
        let own = self.service_types.get(service_type).cloned().unwrap_or_default();
        DispatchPolicy {
            attempt: own.attempt.unwrap_or(base.attempt),
            retry: own.retry.unwrap_or_else(|| base.retry.clone()),
            lifetime: own.lifetime.unwrap_or(base.lifetime),
            radius_m: own.radius_m.unwrap_or(base.radius_m),
            candidates: own.candidates.unwrap_or(base.candidates),
            ask_at_once: own.ask_at_once.unwrap_or(base.ask_at_once),
            offers_per_driver: own.offers_per_driver.unwrap_or(base.offers_per_driver),
            cool_down: own.cool_down.unwrap_or(base.cool_down),
            weights: RankingWeights {
                idle_minute_m: own.idle_minute_m.unwrap_or(base.idle_minute_m),
                live_offer_m: own.live_offer_m.unwrap_or(base.live_offer_m),
            },
            exhausted: own.exhausted.unwrap_or(base.exhausted),
            pending_keeps_lifetime: own.pending_keeps_lifetime.unwrap_or(base.pending_keeps_lifetime),
            pickup_within: own.pickup_within.unwrap_or(base.pickup_within),
            completion_within: own.completion_within.unwrap_or(base.completion_within),
        }
    }

    /// The channels messages travel by.
    pub fn build_channels(&self) -> anyhow::Result<MessageChannels> {
        let by_name = channels::build_channels(&self.channels)?;
        let notify = self.worker.concurrency.get(jobs::queues::NOTIFY).copied().unwrap_or(1);
        Ok(MessageChannels::new(by_name, notify, self.notifications.escalate.after)?)
    }

    /// The configuration without its secrets, for people's eyes.
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        shown.redis.url = without_password(&shown.redis.url);
        shown.database.url = without_password(&shown.database.url);
        if !shown.database.maintenance_url.is_empty() {
            shown.database.maintenance_url = without_password(&shown.database.maintenance_url);
        }
        for partner in shown.partners.values_mut() {
            for secret in [&mut partner.api_key, &mut partner.callback_secret, &mut partner.callback_secret_previous] {
                if !secret.is_empty() {
                    "***".clone_into(secret);
                }
            }
            partner.url = without_password(&partner.url);
        }
        shown.channels.values_mut().for_each(ChannelConfig::redact_secrets);
        shown
    }
}

/// A URL fit for logs.
pub fn without_password(url: &str) -> String {
    if url.contains("+sentinel://") {
        return without_sentinel_passwords(url);
    }
    match url.parse::<reqwest::Url>() {
        Ok(mut parsed) => {
            // Of a server the user is worth knowing; in front of a web address it may be a token.
            let is_web = matches!(parsed.scheme(), "http" | "https");
            if is_web && !parsed.username().is_empty() {
                let _ = parsed.set_username("***");
                let _ = parsed.set_password(None);
            }
            if parsed.password().is_some() {
                let _ = parsed.set_password(Some("***"));
            }
            parsed.set_query(None);
            parsed.to_string()
        }
        Err(_) => "(not a URL)".to_owned(),
    }
}

/// Such a URL names several hosts, which no parser of URLs accepts. The login, and the sentinels' own login in the
/// query, are left out.
fn without_sentinel_passwords(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (servers, query) = rest.split_once('?').unwrap_or((rest, ""));
    let shown = match servers.rsplit_once('@') {
        // One of the passwords holds a '?' or an '@', and it is not for us to guess which.
        _ if query.contains('@') => "***".to_owned(),
        Some((_, hosts)) => format!("***@{hosts}"),
        None => servers.to_owned(),
    };
    format!("{scheme}://{shown}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn with_file(text: &str) -> anyhow::Result<Config> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        Config::from_sources(Some(file.path()), std::iter::empty())
    }

    fn variables(of: &[(&str, &str)]) -> std::vec::IntoIter<(OsString, OsString)> {
        of.iter().map(|(name, value)| (name.into(), value.into())).collect::<Vec<_>>().into_iter()
    }

    fn error(text: &str) -> String {
        format!("{:#}", with_file(text).unwrap_err())
    }

    #[test]
    fn the_shipped_file_is_complete_and_names_the_seeds_durations() {
        let policy = Config::defaults().policy_for_type("RIDE");
        assert_eq!((policy.attempt.as_secs(), policy.lifetime.as_secs()), (120, 1800));
        assert_eq!(policy.retry, [Duration::from_secs(15)]);
    }

    #[test]
    fn every_queue_is_served() {
        let concurrency = Config::defaults().worker.concurrency;
        for queue in jobs::queues::ALL {
            assert!(concurrency.contains_key(queue), "config.toml: worker.concurrency lacks {queue}");
        }
    }

    #[test]
    fn a_service_type_overrides_the_defaults() {
        let config = with_file("[service_types.TOW]\nattempt = \"5m\"\nexhausted = \"alert\"").unwrap();
        assert_eq!(config.policy_for_type("TOW").attempt.as_secs(), 300);
        assert_eq!(config.policy_for_type("TOW").lifetime.as_secs(), 1800);
        assert_eq!(config.policy_for_type("RIDE").attempt.as_secs(), 120);
    }

    #[test]
    fn the_environment_wins() {
        let env = [("DISPATCHQ_REDIS__URL", "redis://elsewhere:1"), ("DISPATCHQ_DISPATCH__ATTEMPT", "400ms")];
        let config = Config::from_sources(None, variables(&env)).unwrap();
        assert_eq!(config.redis.url, "redis://elsewhere:1");
        assert_eq!(config.dispatch.attempt, Duration::from_millis(400));
    }

    #[test]
    fn an_unknown_key_is_an_error_that_names_it() {
        assert!(error("[dispatch]\natempt = \"1s\"").contains("atempt"));
        assert!(error("[dispach]\nattempt = \"1s\"").contains("dispach"));
    }

    #[test]
    fn nonsense_is_refused_with_its_place() {
        assert!(error("[dispatch]\nattempt = \"fast\"").contains("fast"));
        assert!(error("[worker.concurrency]\nmail-queue = 3").contains("mail-queue"));
        assert!(error("[notifications]\nsupport = [\"pager\"]").contains("[channels.pager]"));
        assert!(error("[service_types.RIDE]\nlifetime = \"0s\"").contains("lifetime"));
        assert!(error("[retention]\norders = \"0s\"").contains("retention.orders must be 1day to"));
        assert!(error("[retention]\ndead_jobs = \"30m\"").contains("retention.dead_jobs must be 1day to"));
    }

    const CHANNELS: &str = "
        [channels.app]
        type = \"webhook\"
        url = \"https://h/T0/SECRET\"
        secret = \"whsec_c2VjcmV0SECRETc2VjcmV0SECRETc2Vj\"
        [channels.slack]
        type = \"slack\"
        url = \"https://hooks.example.com/services/SECRET\"
        [channels.mail]
        type = \"email\"
        from = \"dispatchq@example.com\"
        to = [\"desk@example.com\"]
        host = \"mail.example.com\"
        username = \"dispatchq\"
        password = \"SECRET\"
        [channels.desk]
        type = \"ticket\"
        url = \"https://desk.example.com/SECRET\"
        token = \"SECRET\"
        [channels.lines]
        type = \"log\"
        [notifications]
        support = [\"slack\", \"mail\", \"desk\", \"lines\"]
        producer = [\"app\"]";

    #[test]
    fn a_redis_address_is_checked_without_asking_redis() {
        for good in ["rediss://h:1", "redis+sentinel://u:p@a:1,b:2/main", "rediss+sentinel://a:1,b/main/2?password=x"] {
            with_file(&format!("[redis]\nurl = {good:?}")).unwrap();
        }
        assert!(error("[redis]\nurl = \"localhost:6379\"").contains("redis.url is no Redis address"));
        assert!(error("[redis]\nurl = \"redis+sentinel://a:1\"").contains("the primary's name is missing"));
        assert!(error("[redis]\nroot_certificate = \"nowhere.pem\"").contains("cannot read the file nowhere.pem"));
        let file = tempfile::NamedTempFile::new().unwrap();
        let certificate = |url: &str| error(&format!("[redis]\nurl = {url:?}\nroot_certificate = {:?}", file.path()));
        assert!(certificate("rediss://h:1").contains("it holds no certificate"));
        assert!(certificate("redis://h:1").contains("redis.url asks for no encryption"));
    }

    #[test]
    fn a_sentinel_address_is_shown_without_its_passwords() {
        for (url, shown) in [
            ("redis+sentinel://a:1,b:2/main", "redis+sentinel://a:1,b:2/main"),
            ("rediss+sentinel://u:hun@ter2@a:1/main/2?password=hunter2", "rediss+sentinel://***@a:1/main/2"),
            ("redis+sentinel://a:1/main?password=hun@ter2", "redis+sentinel://***"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn the_partner_the_shipped_file_shows_has_the_defaults() {
        let shown: String = DEFAULTS
            .lines()
            .skip_while(|line| !line.starts_with("# [partners.bbd]"))
            .take_while(|line| line.starts_with('#'))
            .filter_map(|line| line.strip_prefix("# ").filter(|line| !line.starts_with('#')))
            .map(|line| format!("{line}\n"))
            .collect();
        let shown = with_file(&shown).unwrap().partners.remove("bbd").unwrap();
        let least = "[partners.bbd]\nurl = \"https://dispatch.example.com/api\"";
        let least = with_file(least).unwrap().partners.remove("bbd").unwrap();
        assert_eq!(serde_json::to_value(shown).unwrap(), serde_json::to_value(least).unwrap());
    }

    #[test]
    fn a_partner_is_checked_and_its_secrets_come_from_the_environment() {
        assert!(error("[service_types.TAXI]\npartner = \"bbd\"").contains("[partners.bbd]"));
        assert!(error("[partners.bbd]\nurl = \"ftp://p\"").contains("http"));
        assert!(error("[partners.bbd]\nurl = \"http://p\"\ncallback_secret = \"whsec_?\"").contains("base64"));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"[partners.bbd]\nurl = \"http://p\"").unwrap();
        let env = variables(&[("DISPATCHQ_PARTNERS__BBD__API_KEY", "hunter2")]);
        let config = Config::from_sources(Some(file.path()), env).unwrap();
        assert_eq!(config.partners["bbd"].api_key, "hunter2");
        assert!(!serde_json::to_string(&config.without_secrets()).unwrap().contains("hunter2"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let config = with_file(&format!("[database]\nurl = \"postgres://u:hunter2@h/db\"\n{CHANNELS}")).unwrap();
        let shown = config.without_secrets();
        for text in [
            serde_json::to_string(&shown).unwrap(),
            toml::to_string(&shown).unwrap(),
            format!("{:?}", config.channels),
            format!("{:?}", config.build_channels().unwrap()),
        ] {
            assert!(!text.contains("hunter2") && !text.contains("SECRET"), "{text}");
        }
    }

    #[test]
    fn a_secret_may_lie_in_the_environment_or_in_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "s3cret\n").unwrap();
        let ticket = |how: &str| format!("[channels.x]\ntype = \"ticket\"\nurl = \"http://h\"\n{how}");
        with_file(&ticket(&format!("token_file = {file:?}"))).unwrap();
        // Whatever runs this has it.
        with_file(&ticket("token_env = \"PATH\"")).unwrap();
        let missing = error(&ticket("token_env = \"NOT_SET_ANYWHERE\""));
        assert!(missing.contains("channels.x") && missing.contains("NOT_SET_ANYWHERE"), "{missing}");
        assert!(error(&ticket("token_file = \"/no/such/file\"")).contains("/no/such/file"));
        assert!(error(&ticket("token = \"a\"\ntoken_env = \"PATH\"")).contains("only one of"));
    }

    #[test]
    fn a_channel_that_cannot_work_is_refused_with_its_place() {
        let of = |text: &str| error(&format!("[channels.x]\n{text}"));
        for (text, said) in [
            ("type = \"pager\"", "pager"),
            ("type = \"webhook\"", "url is missing"),
            ("type = \"webhook\"\nurl = \"ftp://h\"", "http or https"),
            ("type = \"webhook\"\nurl = \"http://h\"\nsecrets = \"x\"", "secrets"),
            ("type = \"webhook\"\nurl = \"http://h\"\nsecret = \"short\"", "24 bytes"),
            ("type = \"webhook\"\nurl = \"http://h\"\nsecret = \"!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!\"", "base64"),
            (
                "type = \"email\"\nhost = \"h\"\nfrom = \"no address\"\nto = [\"a@b.c\"]",
                "'no address' is no e-mail address",
            ),
            ("type = \"email\"\nhost = \"h\"\nfrom = \"a@b.c\"\nto = []", "to names no one"),
            ("type = \"email\"\nhost = \"h\"\nfrom = \"a@b.c\"\nto = [\"a@b.c\"]\nusername = \"u\"", "go together"),
            (
                "type = \"email\"\nhost = \"h\"\nfrom = \"a@b.c\"\nto = [\"a@b.c\"]\ntls = \"none\"\nusername = \"u\"\npassword = \"p\"",
                "starttls",
            ),
        ] {
            let error = of(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(error("[channels.\"a b\"]\ntype = \"log\"").contains("letters, digits"));
        assert!(error("[notifications]\nproducer = [\"app\"]").contains("notifications.producer"));
        assert!(error("[notifications.escalate]\nafter = \"0s\"").contains("notifications.escalate"));
    }
}
