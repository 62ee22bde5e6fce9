//! `dispatchq binding transactions`.

use anyhow::Context;
use model::binding::{BindingId, TransactionStatus, TrxId};

use crate::cli::{
    output::{self, format_time, or_dash, shorten_text},
    words::parse_word,
};
use dispatch::{
    app::App,
    bindings::list::{self, ShownTransaction},
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TransactionsArgs {
    id: BindingId,
    /// Only of this status: STARTED, PROCESSING, WAITING_OTP, SUKSES, GAGAL or UNRESOLVED
    #[arg(long, value_parser = parse_status)]
    status: Option<TransactionStatus>,
    /// Only cycles before this one
    #[arg(long, value_name = "CYCLE")]
    before: Option<i64>,
    /// This transaction alone, with its calls
    #[arg(long, value_name = "N", conflicts_with_all = ["status", "before", "limit"],
          value_parser = clap::value_parser!(i64).range(1..))]
    cycle: Option<i64>,
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[arg(long)]
    json: bool,
}

fn parse_status(text: &str) -> Result<TransactionStatus, String> {
    parse_word(text, &TransactionStatus::ALL)
}

impl TransactionsArgs {
    pub(super) async fn run(self, app: &App) -> anyhow::Result<()> {
        if let Some(cycle) = self.cycle {
            let trx_id = TrxId::new(&self.id, cycle);
            let no_such = || format!("no transaction {trx_id}; see: dispatchq binding transactions {}", self.id);
            let shown = list::find_transaction(app, &trx_id).await?.with_context(no_such)?;
            return print_transaction(&shown, self.json);
        }
        // One that was deleted still has transactions.
        let known = app.bindings.load_binding(&self.id).await?;
        known.with_context(|| format!("no binding {}; see: dispatchq binding list", self.id))?;
        let limit = i64::from(self.limit);
        let headers = list::list_transactions(app, &self.id, self.status, self.before, limit).await?;
        if self.json {
            return output::print_json(&headers);
        }
        let rows = headers.into_iter().map(|t| {
            [
                t.trx_id.to_string(),
                t.status.to_string(),
                or_dash(t.reason),
                t.server_id.to_string(),
                or_dash(t.provider_ref),
                format_time(t.started_at),
                or_dash(t.ended_at.map(format_time)),
            ]
        });
        let headings = ["TRANSACTION", "STATUS", "REASON", "SERVER", "PROVIDER REF", "STARTED", "ENDED"];
        output::print_rows(&headings, rows, "No such transactions.");
        Ok(())
    }
}

fn print_transaction(shown: &ShownTransaction, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::print_json(shown);
    }
    let t = &shown.header;
    let reason = t.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    output::print_escaped(&format!("{} on {} for {}: {}{reason}", t.trx_id, t.server_id, t.account_id, t.status));
    let rows = shown.calls.iter().map(|call| {
        [
            call.call_no.to_string(),
            call.action.to_string(),
            or_dash(call.result.as_ref()),
            or_dash(call.http_status),
            format_time(call.claimed_at),
            call.latency_us.map_or_else(|| "-".to_owned(), |us| format!("{} ms", us / 1000)),
            call.response.as_deref().map_or_else(|| "-".to_owned(), |text| shorten_text(text, 80)),
        ]
    });
    output::print_rows(&["CALL", "ACTION", "RESULT", "HTTP", "CLAIMED", "TOOK", "ANSWER"], rows, "No calls.");
    Ok(())
}
