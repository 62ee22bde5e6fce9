//! `dispatchq server list|set|limit`.

use std::process::ExitCode;

use anyhow::bail;
use model::binding::ServerId;
use serde_json::json;
use workers::store::GroupSlots;

use super::{
    binding::with_cure,
    consent::parse_reason,
    order::cli_operator,
    output::{self, format_time, or_dash},
};
use dispatch::{
    accounts::staff_actions::ActionAuthor,
    app::App,
    binding_store::servers::{self as rows, ProviderServer, ServerSettings},
    bindings::{change::BindingError, servers},
    ids::ProviderName,
};

/// Servers read at a time; as many groups of slots can be asked for at once.
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
        #[arg(value_name = "N", value_parser = clap::value_parser!(i32).range(1..=100_000))]
        limit: Option<i32>,
        /// Go back to what the configuration says
        #[arg(long, conflicts_with = "limit")]
        default: bool,
        /// Why; for the audit
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
    /// Why; for the audit
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    reason: Option<String>,
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_servers(&app, json).await?,
            Self::Set(args) => args.run(&app).await?,
            Self::Limit { limit, default, reason, json } => {
                let holds = if limit.is_some() || default {
                    let by = ActionAuthor { actor: &cli_operator(), reason: reason.as_deref() };
                    servers::change_total_limit(&app, limit, by).await.map_err(with_cure)?
                } else {
                    servers::total_limit(&app).await?
                };
                if json {
                    output::print_json(&holds)?;
                } else {
                    let source = if holds.set_by_operator { "set by an operator" } else { "as configured" };
                    println!("At most {} calls may be open, {source}.", holds.max_concurrent_calls);
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl ServerSetArgs {
    async fn run(self, app: &App) -> anyhow::Result<()> {
        let settings = ServerSettings {
            provider: self.provider,
            base_url: self.url,
            max_concurrent: self.max_concurrent,
            enabled: self.enabled,
            repeats_are_safe: self.repeats_are_safe,
        };
        let by = ActionAuthor { actor: &cli_operator(), reason: self.reason.as_deref() };
        let server = if settings == ServerSettings::default() {
            bail!("say what to set, such as --max-concurrent 4; see: dispatchq server set --help");
        } else if rows::find_server(&app.db, &self.id).await?.is_some() {
            servers::change_server(app, &self.id, &settings, by).await
        } else if settings.provider.is_some() && settings.base_url.is_some() {
            match servers::create_server(app, &self.id, &settings, by).await {
                // Another was quicker.
                Err(BindingError::ServerExists(id)) => servers::change_server(app, &id, &settings, by).await,
                made => made,
            }
        } else {
            Err(BindingError::NoServer(self.id))
        };
        let server = server.map_err(with_cure)?;
        if self.json {
            return output::print_json(&server);
        }
        let enabled = if server.enabled { "enabled" } else { "disabled" };
        output::print_escaped(&format!(
            "{} is {enabled}: {} at {}, at most {} calls at a time.",
            server.id, server.provider, server.base_url, server.max_concurrent
        ));
        Ok(())
    }
}

async fn print_servers(app: &App, as_json: bool) -> anyhow::Result<()> {
    let mut servers: Vec<(ProviderServer, Option<GroupSlots>)> = Vec::new();
    loop {
        let after = servers.last().map(|(server, _)| server.id.clone());
        let page = rows::list_servers(&app.db, after.as_ref(), PAGE).await?;
        if page.is_empty() {
            break;
        }
        let names: Vec<&str> = page.iter().map(|server| server.id.as_str()).collect();
        let mut slots = app.store.slot_stats(&names).await?.groups.into_iter();
        servers.extend(page.into_iter().map(|server| (server, slots.next())));
    }
    if as_json {
        let values: Vec<_> = servers
            .iter()
            .map(|(server, slots)| {
                let mut value = json!(server);
                value["in_use"] = json!(slots.as_ref().map(|slots| slots.in_use));
                value["waiting"] = json!(slots.as_ref().map(|slots| slots.waiting));
                value
            })
            .collect();
        return output::print_json(&values);
    }
    let now = app.rules.database_now();
    let rows = servers.into_iter().map(|(s, slots)| {
        [
            s.id.to_string(),
            s.provider.to_string(),
            s.base_url,
            if s.enabled { "yes" } else { "no" }.to_owned(),
            format!("{} of {}", or_dash(slots.as_ref().map(|slots| slots.in_use)), s.max_concurrent),
            or_dash(slots.map(|slots| slots.waiting)),
            s.failures.to_string(),
            or_dash(s.paused_until.filter(|until| *until > now).map(format_time)),
        ]
    });
    let headings = ["SERVER", "PROVIDER", "AT", "ENABLED", "CALLS", "IN LINE", "FAILURES", "PAUSED UNTIL"];
    output::print_rows(&headings, rows, "No servers. Add one: dispatchq server set ID --provider NAME --url URL");
    Ok(())
}
