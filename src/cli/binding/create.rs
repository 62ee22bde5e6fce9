//! `dispatchq binding create`.

use anyhow::{Context, anyhow, ensure};
use model::{
    binding::{AccountId, BindingConfig, BindingId, ServerId},
    json_words::plain_error,
};
use serde_json::{Value, json};

use super::print_binding;
use crate::cli::{
    output,
    remote::{ApiClient, fields::show_field},
    server::no_such_server,
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct CreateArgs {
    id: BindingId,
    /// Server that receives its calls; see `dispatchq server list`
    #[arg(long, value_name = "ID")]
    server: ServerId,
    /// Account at the provider
    #[arg(long, value_name = "ID")]
    account: AccountId,
    /// Setting, such as max_failures=5; may be repeated. Other settings get their defaults
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    #[arg(long)]
    json: bool,
}

impl CreateArgs {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let new = json!({
            "id": self.id,
            "server_id": self.server,
            "account_id": self.account,
            "config": read_settings(&self.settings)?,
        });
        match api.post(&["bindings"], &new).await {
            Err(error) if error.is_refusal("SERVER_NOT_FOUND") => Err(no_such_server(&self.server)),
            made => print_created(&made?, self.json),
        }
    }
}

fn print_created(made: &Value, as_json: bool) -> anyhow::Result<()> {
    print_binding(made, as_json)?;
    if !as_json {
        output::print_note(&format!("Start it: dispatchq binding start {}", show_field(made, "id")));
    }
    Ok(())
}

/// Returns the default settings with the given changes.
fn read_settings(named: &[String]) -> anyhow::Result<BindingConfig> {
    let mut settings = json!(BindingConfig::default());
    for setting in named {
        let (name, text) = setting.split_once('=').with_context(|| format!("--set {setting}: expected NAME=VALUE"))?;
        let known = settings.as_object().is_some_and(|fields| fields.contains_key(name));
        let names = || settings.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
        ensure!(known, "--set {setting}: unknown setting {name}; settings are {}", names().join(", "));
        settings[name] = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        // Each setting is checked alone, so that the error names it.
        let read = serde_json::from_value::<BindingConfig>(settings.clone());
        read.map_err(|error| anyhow!("--set {setting}: {}", plain_error(&error.to_string())))?;
    }
    let config: BindingConfig = serde_json::from_value(settings)?;
    config.check_bounds()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use model::binding::IntervalFrom;

    use super::*;

    #[test]
    fn invalid_settings_are_named_in_errors() {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let config = read_settings(&texts(&["max_failures=5", "interval_ms=[0,1]", "on_otp_timeout=stop"])).unwrap();
        assert_eq!((config.max_failures, config.interval_ms.most), (5, 1));
        let paced = read_settings(&texts(&["interval_from=begin"])).unwrap();
        assert_eq!(paced.interval_from, IntervalFrom::Begin);
        assert_eq!(json!(config.on_otp_timeout), "stop");
        let bad = ["max_failures", "max_failurs=5", "max_failures=many", "max_failures=0", "interval_ms=5"];
        for bad in bad.into_iter().chain(["interval_from=start"]) {
            let error = format!("{:#}", read_settings(&texts(&[bad])).unwrap_err());
            assert!(error.contains(bad.split('=').next().unwrap()), "{bad}: {error}");
            assert!(!error.contains("invalid type") && !error.contains("variant"), "{bad}: {error}");
        }
    }
}
