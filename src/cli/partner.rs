//! `dispatchq partner list|set`.

use std::process::ExitCode;

use anyhow::{bail, ensure};
use serde_json::json;

use super::{
    order::cli_operator,
    output::{self, shorten_text},
};
use dispatch::{
    accounts::staff_actions::ActionAuthor,
    app::App,
    ids::PartnerName,
    partner_client::{ConfiguredPartner, settings},
};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// All partners: whether they are called, and how many orders wait for them
    List {
        #[arg(long)]
        json: bool,
    },
    /// Change what may be changed at run time
    #[command(after_help = "Examples:\n  dispatchq partner set bbd --polling-percent 50\n  \
                            dispatchq partner set bbd --as-configured")]
    Set {
        partner: PartnerName,
        /// Share of orders whose job id is asked for; the others wait for the callback. By order id, so that raising it
        /// only adds orders. Holds for every booking made from now on, on all replicas
        #[arg(long, value_name = "0-100", value_parser = clap::value_parser!(u8).range(0..=100))]
        polling_percent: Option<u8>,
        /// Go back to what the configuration says
        #[arg(long, conflicts_with = "polling_percent")]
        as_configured: bool,
    },
}

impl Command {
    pub(super) async fn run(self, app: App) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_partners(&app, json).await?,
            Self::Set { partner, polling_percent, as_configured } => {
                ensure!(
                    polling_percent.is_some() || as_configured,
                    "say what to set: --polling-percent N, or --as-configured"
                );
                let Some(known) = app.partners.get(&partner) else {
                    let names: Vec<_> = app.partners.iter().map(|p| p.name.to_string()).collect();
                    if names.is_empty() {
                        bail!("no partner is configured; add [partners.{partner}] to config.toml");
                    }
                    bail!("no partner '{partner}'; partners are {}", names.join(", "));
                };
                let by = ActionAuthor { actor: &cli_operator(), reason: None };
                settings::set_percent(&app.db, &partner, polling_percent, by).await?;
                let percent = polling_percent.unwrap_or(known.config.poll.percent);
                println!("{partner}: the job id of {percent} % of orders is asked for.");
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn print_partners(app: &App, as_json: bool) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let mut values = Vec::new();
    for partner in app.partners.iter() {
        let breaker = partner.breaker_state(&app.store).await?;
        let percent = settings::run_time_percent(&app.db, &partner.name).await?;
        let waiting = settings::count_waiting(&app.db, &partner.name).await?;
        let calls = call_state(&breaker);
        values.push(json!({
            "partner": partner.name,
            "url": host_of(partner),
            "calls": calls,
            "open_for_ms": u64::try_from(breaker.open_for.as_millis()).unwrap_or(u64::MAX),
            "failures_in_a_row": breaker.failures,
            "last_failure": breaker.why,
            "polling_percent": percent.unwrap_or(partner.config.poll.percent),
            "polling_percent_set_at_run_time": percent.is_some(),
            "searching": waiting.searching,
            "cancels_open": waiting.cancels,
        }));
        rows.push([
            partner.name.to_string(),
            host_of(partner),
            if breaker.is_open() {
                format!("{calls} for {:.0} s", breaker.open_for.as_secs_f64().ceil())
            } else {
                calls.to_owned()
            },
            format!(
                "{} %{}",
                percent.unwrap_or(partner.config.poll.percent),
                if percent.is_some() { " (set)" } else { "" }
            ),
            waiting.searching.to_string(),
            waiting.cancels.to_string(),
            shorten_text(&breaker.why, 60),
        ]);
    }
    if as_json {
        return output::print_json(&values);
    }
    let headings = ["PARTNER", "AT", "CALLS", "POLLED", "SEARCHING", "CANCELS OPEN", "LAST FAILURE"];
    output::print_rows(&headings, rows, "No partner is configured; add [partners.NAME] to config.toml.");
    Ok(())
}

/// Whether the partner is called.
fn call_state(breaker: &workers::store::BreakerState) -> &'static str {
    if breaker.is_open() {
        "stopped"
    } else if breaker.is_half_open() {
        "trying"
    } else {
        "normal"
    }
}

fn host_of(partner: &ConfiguredPartner) -> String {
    dispatch::config::without_password(&partner.config.url)
}
