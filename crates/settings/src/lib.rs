//! Configuration from three sources, in increasing precedence: the shipped `config.toml`, a file, the environment.
//! Design: docs/design/configuration.md.
//!
//! The shipped file is compiled in as the defaults, so it documents every setting and cannot become outdated. Unknown
//! keys are errors, because a misspelt setting must not silently use its default.

mod admission;
mod bindings;
mod channels;
mod console;
mod dispatch;
mod environment;
mod http;
mod ids;
mod links;
mod oidc;
mod partner;
mod payments;
mod plans;
mod producers;
mod proof;
mod push;
mod reading;
mod redact;
mod retention;
mod rules;
mod scale;
mod schedule;
mod slip;
mod speed;
mod worker;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use foundation::config::{
    database::DatabaseConfig, error::ConfigError, log::LogConfig, redis::RedisServerConfig, traces::TracesConfig,
};
use garde::Validate;
use model::{
    ids::{PartnerName, ProviderName, ServiceType},
    messages::{
        ChannelRoutes,
        subscriptions::{EndpointsByProducer, EventSubscription},
    },
    plain_text,
    texts::TextCatalog,
};
use serde::{Deserialize, Serialize};

use environment::EnvironmentVariables;
use reading::ReadSettings;

pub use admission::AdmissionConfig;
pub use bindings::{BindingsConfig, ProviderConfig, ServerBreakerConfig};
pub use channels::{ChannelConfig, EmailConfig, SlackConfig, TicketConfig, TlsMode, VoiceConfig, WebhookConfig};
pub use console::ConsoleConfig;
pub use dispatch::{DispatchConfig, DispatchOverrides, WaveConfig};
pub use http::HttpConfig;
pub use ids::IdsConfig;
pub use links::{ConsoleLinks, LinkTemplate, LinkValue};
pub use model::partner::{PollConfig, choice::ListedPartner};
pub use oidc::{OidcConfig, StaffRole};
pub use partner::{BreakerConfig, PartnerConfig};
pub use payments::PaymentsConfig;
pub use plans::PlansConfig;
pub use producers::ProducerConfig;
pub use proof::ProofConfig;
pub use push::PushConfig;
pub use retention::RetentionConfig;
pub use scale::ScaleConfig;
pub use schedule::{ScheduledTask, TaskSchedule, TaskScheduleError};
pub use speed::divide_time;
pub use worker::WorkerConfig;

/// The shipped file, with every setting and its default.
pub const DEFAULTS: &str = include_str!("../../../config.toml");

#[derive(Debug, Clone, Deserialize, Serialize, Validate)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[garde(skip)]
    pub redis: RedisServerConfig,
    #[garde(dive)]
    pub database: DatabaseConfig,
    #[garde(dive)]
    pub ids: IdsConfig,
    #[garde(dive)]
    pub http: HttpConfig,
    #[garde(dive)]
    pub console: ConsoleConfig,
    #[garde(dive)]
    pub worker: WorkerConfig,
    #[garde(dive)]
    pub scale: ScaleConfig,
    #[garde(dive)]
    pub dispatch: DispatchConfig,
    #[garde(dive)]
    pub service_types: BTreeMap<ServiceType, DispatchOverrides>,
    #[garde(dive)]
    pub admission: AdmissionConfig,
    #[garde(dive)]
    pub notifications: ChannelRoutes,
    #[garde(dive)]
    pub texts: TextCatalog,
    #[serde(default)]
    #[garde(dive)]
    pub channels: BTreeMap<String, ChannelConfig>,
    #[serde(default)]
    #[garde(dive)]
    pub partners: BTreeMap<PartnerName, PartnerConfig>,
    #[serde(default)]
    #[garde(dive)]
    pub producers: BTreeMap<String, ProducerConfig>,
    #[garde(dive)]
    pub push: PushConfig,
    #[garde(dive)]
    pub payments: PaymentsConfig,
    #[garde(dive)]
    pub bindings: BindingsConfig,
    #[serde(default)]
    #[garde(skip)]
    pub providers: BTreeMap<ProviderName, ProviderConfig>,
    #[garde(dive)]
    pub plans: PlansConfig,
    #[garde(skip)]
    pub schedules: BTreeMap<ScheduledTask, TaskSchedule>,
    #[garde(dive)]
    pub proof: ProofConfig,
    #[garde(dive)]
    pub retention: RetentionConfig,
    #[garde(dive)]
    pub log: LogConfig,
    #[garde(dive)]
    pub traces: TracesConfig,
    /// Names of variables that start with `DISPATCHQ_` and are not settings.
    #[serde(skip)]
    #[garde(skip)]
    pub other_variables: Vec<String>,
}

impl Config {
    /// Reads the defaults, the file and the environment, and checks the rules that the types do not express. Returns
    /// all problems at once. `settings::load_config`, which every command calls, also checks values that can only be
    /// checked by building the services that use them.
    ///
    /// If `file` is given, it must exist. Otherwise `./config.toml` is read if it exists.
    pub fn load(file: Option<&Path>) -> Result<ReadSettings, ConfigError> {
        let file = match file {
            Some(path) => Some(path.to_owned()),
            None => Some(PathBuf::from("config.toml")).filter(|path| path.exists()),
        };
        Self::read_sources(file.as_deref(), std::env::vars_os())
    }

    /// Returns the defaults. They are parsed once.
    pub fn defaults() -> Self {
        static SHIPPED: LazyLock<Config> =
            LazyLock::new(|| Config::from_sources(None, std::iter::empty()).expect("the shipped config.toml is valid"));
        SHIPPED.clone()
    }

    pub(crate) fn from_sources(
        file: Option<&Path>,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        Self::read_sources(file, variables)?.finish()
    }

    pub fn read_sources(
        file: Option<&Path>,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<ReadSettings, ConfigError> {
        let EnvironmentVariables { settings, others } = EnvironmentVariables::new(variables)?;
        let shipped = config::File::from_str(DEFAULTS, config::FileFormat::Toml);
        let defaults = read_tree(config::Config::builder().add_source(shipped.clone()))?;
        let mut sources = config::Config::builder().add_source(shipped);
        if let Some(path) = file {
            let text = std::fs::read_to_string(path)
                .map_err(|cause| ConfigError::Unreadable { file: path.to_owned(), cause })?;
            if let Err(error) = text.parse::<toml::Table>() {
                let slip = slip::describe_syntax_error(&text, &error);
                return Err(ConfigError::NotToml { file: path.to_owned(), slip });
            }
            sources = sources.add_source(config::File::from_str(&text, config::FileFormat::Toml));
        }
        let variables: BTreeSet<String> = settings.keys().cloned().collect();
        let environment = config::Environment::with_prefix(environment::PREFIX.trim_end_matches('_'))
            .prefix_separator("_")
            .separator("__")
            .source(Some(settings));
        let place_of = |path: &str| environment::find_place(path, &variables, file);
        let name_place = |error: ConfigError| error.with_place(&place_of);
        let mut read =
            reading::read_settings(read_tree(sources.add_source(environment))?, &defaults).map_err(name_place)?;
        let config = &mut read.config;
        config.other_variables = others;
        let redis = config.redis.read_secrets().map_err(|error| error.within("redis")).err();
        let database = config.database.read_secrets().map_err(|error| error.within("database")).err();
        let own_channels =
            |(name, own): (&ServiceType, &DispatchOverrides)| Some((name.clone(), own.driver_channels.clone()?));
        config.notifications.driver_by_service_type = config.service_types.iter().filter_map(own_channels).collect();
        config.notifications.texts = config.texts.clone();
        let rules = read.config.check_settings().err();
        read.add_problems(redis.into_iter().chain(database).chain(rules));
        read.problems = read.problems.into_iter().map(name_place).collect();
        Ok(read)
    }

    /// Warns of variables that start like settings but are not.
    pub fn warn_of_other_variables(&self) {
        if !self.other_variables.is_empty() {
            let variables = self.other_variables.join(", ");
            tracing::warn!(
                variables,
                "Variables without two underscores are ignored because they are not settings; write DISPATCHQ_REDIS__URL."
            );
        }
    }

    /// Describes each ignored variable, with the correct name if it was probably meant as a setting.
    pub fn describe_ignored_variables(&self) -> Vec<String> {
        let describe = |name: &String| match environment::suggest_setting(name) {
            Some(setting) => format!("{name} is ignored: write {setting}"),
            None => format!("{name} is ignored: a setting has two underscores between its levels"),
        };
        self.other_variables.iter().map(describe).collect()
    }

    /// Returns the ignored variables that were probably meant as settings.
    pub fn misspelt_variables(&self) -> Vec<&str> {
        self.other_variables.iter().map(String::as_str).filter(|name| environment::looks_like_a_setting(name)).collect()
    }

    /// Returns the endpoints that the configuration declares.
    pub fn declared_endpoints(&self) -> EndpointsByProducer {
        let subscribed = self.producers.iter().filter(|(_, producer)| producer.has_webhook());
        let endpoints = subscribed.map(|(name, producer)| {
            let events = producer.events.iter().copied().collect();
            (name.clone(), vec![EventSubscription { channel: Self::producer_channel(name), events }])
        });
        endpoints.collect()
    }

    /// Returns the channel of a producer. No name in `[channels]` can equal it.
    pub fn producer_channel(name: &str) -> String {
        format!("producer:{name}")
    }

    /// Returns the error for a service type that is not configured; `None` if it is.
    pub fn find_unknown_type(&self, service_type: &ServiceType) -> Option<String> {
        if self.knows_service_type(service_type) {
            return None;
        }
        let known: Vec<_> = self.service_types.keys().map(ServiceType::as_str).collect();
        let (name, known) = (plain_text::excerpt(service_type), known.join(", "));
        Some(format!("unknown service_type '{name}'; known are {known} (config.toml, [service_types])"))
    }

    /// Returns whether orders may have this service type.
    pub fn knows_service_type(&self, service_type: &ServiceType) -> bool {
        self.service_types.contains_key(service_type)
    }
}

/// Returns the merged settings of these sources.
fn read_tree(sources: config::ConfigBuilder<config::builder::DefaultState>) -> Result<serde_json::Value, ConfigError> {
    let built = sources.build().and_then(config::Config::try_deserialize);
    built.map_err(|error| {
        ConfigError::new(format!("the settings cannot be read: {}", slip::describe_value_error(&error)))
    })
}
