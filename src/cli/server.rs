//! `dispatchq server list|set|limit`.

mod remote;

use std::process::ExitCode;

use anyhow::ensure;
use model::{binding::ServerId, input::parse_reason};
use serde_json::Value;

use super::{
    binding::with_cure,
    order::cli_operator,
    output,
    remote::fields::{show_field, show_time},
};
use app::App;
use bindings::{
    error::BindingError,
    servers::{self, ListedServer},
    store::servers::{self as rows, ServerSettings},
};
use foundation::staff_actions::ActionAuthor;
use model::ids::ProviderName;

/// Servers read at a time.
const PAGE: i64 = 500;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Providers' servers, and how each fares
    List {
        #[arg(long)]
        json: bool,
    },
    /// Create a server, or change it; what is not named stays
    #[command(after_help = "Examples:\n  \
        dispatchq server set S1 --provider acme --url https://s1.acme.example/api\n  \
        dispatchq server set S1 --max-concurrent 4 --reason 'acme allows more'\n  dispatchq server set S1 --enabled false")]
    Set(ServerSetArgs),
    /// How many calls may be open on all servers together; without an option it is shown
    #[command(after_help = "Examples:\n  dispatchq server limit\n  dispatchq server limit 80\n  \
        dispatchq server limit --default")]
    Limit {
        /// Most calls that may be open; left out, the limit is shown
        #[arg(value_name = "N", value_parser = clap::value_parser!(i32).range(1..=100_000))]
        limit: Option<i32>,
        /// Go back to what the configuration says
        #[arg(long, conflicts_with = "limit")]
        default: bool,
        /// Why; kept in the record. Required with --api
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct ServerSetArgs {
    id: ServerId,
    /// As in the configuration: [providers.NAME]
    #[arg(long, value_name = "NAME")]
    provider: Option<ProviderName>,
    /// The base of its API
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Calls that may be open at the same time [default of a new one: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1000))]
    max_concurrent: Option<i32>,
    /// May cycles begin on it? Where not, its bindings stop
    #[arg(long)]
    enabled: Option<bool>,
    /// May a start be repeated under its key when its answer was lost? Where not, the server is asked first
    #[arg(long)]
    repeats_are_safe: Option<bool>,
    /// Why; kept in the record. Required with --api
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_servers(&serde_json::to_value(list_servers(&app).await?)?, json)?,
            Self::Set(args) => args.run(&app).await?,
            Self::Limit { limit, default, reason, json } => {
                let holds = if limit.is_some() || default {
                    let by = ActionAuthor { actor: &cli_operator(), reason: reason.as_deref() };
                    servers::change_total_limit(&app.bindings, limit, by).await.map_err(with_cure)?
                } else {
                    servers::total_limit(&app.bindings).await?
                };
                print_limit(&serde_json::to_value(holds)?, json)?;
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
            "say what to set, such as --max-concurrent 4; see: dispatchq server set --help"
        );
        Ok(settings)
    }

    async fn run(self, app: &App) -> anyhow::Result<()> {
        let settings = self.settings()?;
        let by = ActionAuthor { actor: &cli_operator(), reason: self.reason.as_deref() };
        let server = if rows::find_server(&app.core.db, &self.id).await?.is_some() {
            servers::change_server(&app.bindings, &self.id, &settings, by).await
        } else if settings.provider.is_some() && settings.base_url.is_some() {
            match servers::create_server(&app.bindings, &self.id, &settings, by).await {
                // Another was quicker.
                Err(BindingError::ServerExists(id)) => servers::change_server(&app.bindings, &id, &settings, by).await,
                made => made,
            }
        } else {
            Err(BindingError::NoServer(self.id))
        };
        print_server(&serde_json::to_value(server.map_err(with_cure)?)?, self.json)
    }
}

async fn list_servers(app: &App) -> anyhow::Result<Vec<ListedServer>> {
    let mut listed: Vec<ListedServer> = Vec::new();
    loop {
        let after = listed.last().map(|last| last.server.id.clone());
        let page = servers::list_with_calls(&app.bindings, after.as_ref(), PAGE).await?;
        if page.is_empty() {
            return Ok(listed);
        }
        listed.extend(page);
    }
}

/// Prints a server as the API writes it.
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

/// Prints the limit of all calls as the API writes it.
fn print_limit(limit: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(limit);
    }
    let source = if limit["set_by_operator"] == true { "set by an operator" } else { "as configured" };
    let most = show_field(limit, "max_concurrent_calls");
    output::print_escaped(&format!("At most {most} calls may be open, {source}."));
    Ok(())
}

/// Prints servers as the API writes them.
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
