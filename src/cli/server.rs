//! `dispatchq server list|set|limit`.

use std::process::ExitCode;

use anyhow::{anyhow, ensure};
use model::{binding::ServerId, input::parse_reason};
use serde_json::{Value, json};

use super::{
    output,
    remote::{
        ApiClient, ListedItems, PageNames,
        fields::{show_field, show_time},
    },
};
use bindings::store::servers::ServerSettings;
use model::ids::ProviderName;

const SERVERS: &str = "provider-servers";
const LIMIT: &str = "provider-call-limit";

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List provider servers and their status
    List {
        #[arg(long)]
        json: bool,
    },
    /// Create or change a server; settings that are not given do not change
    #[command(after_help = "Examples:\n  \
        dispatchq server set S1 --provider acme --url https://s1.acme.example/api\n  \
        dispatchq server set S1 --max-concurrent 4 --reason 'acme allows more'\n  dispatchq server set S1 --enabled false")]
    Set(ServerSetArgs),
    /// Show or set the limit of open calls on all servers together
    #[command(after_help = "Examples:\n  dispatchq server limit\n  dispatchq server limit 80\n  \
        dispatchq server limit --default")]
    Limit {
        /// Maximum number of open calls [default: show the limit]
        #[arg(value_name = "N", value_parser = clap::value_parser!(i32).range(1..=100_000))]
        limit: Option<i32>,
        /// Restore the value from the configuration
        #[arg(long, conflicts_with = "limit")]
        default: bool,
        /// Reason, kept in the record; required with --api
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct ServerSetArgs {
    id: ServerId,
    /// Provider, as in the configuration: [providers.NAME]
    #[arg(long, value_name = "NAME")]
    provider: Option<ProviderName>,
    /// Base URL of the server's API
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Maximum number of calls open at the same time [default for a new server: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1000))]
    max_concurrent: Option<i32>,
    /// Enable or disable the server. Disabling it stops its bindings
    #[arg(long)]
    enabled: Option<bool>,
    /// Whether a start may be repeated under its key after its answer was lost. If not, the server is asked for the
    /// status first
    #[arg(long)]
    repeats_are_safe: Option<bool>,
    /// Reason, kept in the record; required with --api
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => {
                let ListedItems { items, .. } = api.list(&[SERVERS], &[], PageNames::of("servers"), usize::MAX).await?;
                print_servers(&Value::Array(items), json)?;
            }
            Self::Set(args) => args.run(api).await?,
            Self::Limit { limit, default, reason, json } => {
                let holds = if limit.is_some() || default {
                    let reason = api.reason_of_change(reason)?;
                    api.put(&[LIMIT], &json!({ "max_concurrent_calls": limit, "reason": reason })).await?
                } else {
                    api.get(&[LIMIT], &[]).await?
                };
                print_limit(&holds, json)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ServerSetArgs {
    fn settings(&self) -> anyhow::Result<ServerSettings> {
        let settings = ServerSettings {
            provider: self.provider.clone(),
            base_url: self.url.clone(),
            max_concurrent: self.max_concurrent,
            enabled: self.enabled,
            repeats_are_safe: self.repeats_are_safe,
        };
        ensure!(
            settings != ServerSettings::default(),
            "specify a setting, such as --max-concurrent 4; see: dispatchq server set --help"
        );
        Ok(settings)
    }

    async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        let settings = self.settings()?;
        let change = json!({
            "provider": settings.provider, "base_url": settings.base_url, "max_concurrent": settings.max_concurrent,
            "enabled": settings.enabled, "repeats_are_safe": settings.repeats_are_safe,
            "reason": api.reason_of_change(self.reason)?,
        });
        if settings.provider.is_some() && settings.base_url.is_some() {
            let mut server = change.clone();
            server["id"] = json!(self.id);
            match api.post(&[SERVERS], &server).await {
                Err(error) if error.is_refusal("SERVER_EXISTS") => {}
                made => return print_server(&made?, self.json),
            }
        }
        match api.patch(&[SERVERS, self.id.as_str()], &change).await {
            Err(error) if error.is_refusal("SERVER_NOT_FOUND") => Err(no_such_server(&self.id)),
            changed => print_server(&changed?, self.json),
        }
    }
}

/// Returns the error for a server that does not exist.
pub(super) fn no_such_server(id: &ServerId) -> anyhow::Error {
    anyhow!("no server {id}; create it: dispatchq server set {id} --provider NAME --url URL")
}

/// Prints a server in the format of the API.
fn print_server(server: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(server);
    }
    let field = |name| show_field(server, name);
    let enabled = if server["enabled"] == true { "enabled" } else { "disabled" };
    output::print_escaped(&format!(
        "{} is {enabled}: {} at {}, at most {} calls at a time.",
        field("id"),
        field("provider"),
        field("base_url"),
        field("max_concurrent")
    ));
    Ok(())
}

/// Prints the limit of all calls.
fn print_limit(limit: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(limit);
    }
    let source = if limit["set_by_operator"] == true { "set by an operator" } else { "as configured" };
    let most = show_field(limit, "max_concurrent_calls");
    output::print_escaped(&format!("At most {most} calls may be open, {source}."));
    Ok(())
}

/// Prints servers in the format of the API.
fn print_servers(servers: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(servers);
    }
    let rows = servers.as_array().into_iter().flatten().map(|server| {
        let field = |name| show_field(server, name);
        [
            field("id"),
            field("provider"),
            field("base_url"),
            if server["enabled"] == true { "yes" } else { "no" }.to_owned(),
            format!("{} of {}", field("in_use"), field("max_concurrent")),
            field("waiting"),
            field("failures"),
            if server["left_alone"] == true { show_time(server, "paused_until") } else { "-".to_owned() },
        ]
    });
    let headings = ["SERVER", "PROVIDER", "AT", "ENABLED", "CALLS", "IN LINE", "FAILURES", "PAUSED UNTIL"];
    output::print_rows(&headings, rows, "No servers. Add one: dispatchq server set ID --provider NAME --url URL");
    Ok(())
}
