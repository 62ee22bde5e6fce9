//! `dispatchq partner list|set`.

use std::process::ExitCode;

use anyhow::ensure;
use serde_json::{Value, json};

use super::{
    output::{self, shorten_text},
    remote::{ApiClient, fields::show_field},
};
use model::ids::PartnerName;
use model::input::parse_reason;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List partners: whether calls are allowed, and how many orders wait for them
    List {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Change settings that can be changed at run time
    #[command(after_help = "Examples:\n  dispatchq partner set bbd --polling-percent 50\n  \
                            dispatchq partner set bbd --as-configured")]
    Set {
        /// Name of the partner, as in the configuration: [partners.NAME]
        partner: PartnerName,
        /// Share of orders whose job id is polled; the other orders wait for the callback. The order id decides, so
        /// that a higher share only adds orders. Applies to new bookings on all replicas
        #[arg(long, value_name = "0-100", value_parser = clap::value_parser!(u8).range(0..=100))]
        polling_percent: Option<u8>,
        /// Restore the value from the configuration
        #[arg(long, conflicts_with = "polling_percent")]
        as_configured: bool,
        /// Reason, kept in the record; required with --api
        #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
        reason: Option<String>,
    },
}

impl Command {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_partners(&api.get(&["partners"], &[]).await?["partners"], json)?,
            Self::Set { partner, polling_percent, as_configured, reason } => {
                check_change(polling_percent, as_configured)?;
                let change = json!({ "polling_percent": polling_percent, "reason": api.reason_of_change(reason)? });
                let changed = api.patch(&["partners", &partner], &change).await?;
                print_share(&partner, changed["polling_percent"].as_u64().unwrap_or_default());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn check_change(polling_percent: Option<u8>, as_configured: bool) -> anyhow::Result<()> {
    ensure!(polling_percent.is_some() || as_configured, "specify --polling-percent N or --as-configured");
    Ok(())
}

fn print_share(partner: &str, percent: u64) {
    output::print_escaped(&format!("{partner}: the job id is polled for {percent} % of orders."));
}

/// Prints partners in the format of the API.
fn print_partners(partners: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(partners);
    }
    let rows = partners.as_array().into_iter().flatten().map(|partner| {
        let calls = show_field(partner, "calls");
        let open_ms = partner["open_for_ms"].as_u64().unwrap_or_default();
        let set = if partner["polling_percent_set_at_run_time"] == true { " (set)" } else { "" };
        [
            show_field(partner, "partner"),
            show_field(partner, "url"),
            if open_ms > 0 { format!("{calls} for {} s", open_ms.div_ceil(1000)) } else { calls },
            format!("{} %{set}", show_field(partner, "polling_percent")),
            show_field(partner, "searching"),
            show_field(partner, "cancels_open"),
            shorten_text(&show_field(partner, "last_failure"), 60),
        ]
    });
    let headings = ["PARTNER", "AT", "CALLS", "POLLED", "SEARCHING", "CANCELS OPEN", "LAST FAILURE"];
    output::print_rows(&headings, rows, "No partner is configured; add [partners.NAME] to config.toml.");
    Ok(())
}
