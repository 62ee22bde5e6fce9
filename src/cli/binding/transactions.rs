//! `dispatchq binding transactions`.

use model::binding::{BindingId, TransactionStatus, TrxId};
use serde_json::Value;

use crate::cli::{
    output::{self, shorten_text},
    remote::{
        ApiClient, PageNames,
        fields::{list_items, show_field, show_time},
    },
    words::parse_word,
};

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct TransactionsArgs {
    id: BindingId,
    /// Only transactions with this status: STARTED, PROCESSING, WAITING_OTP, SUKSES, GAGAL or UNRESOLVED
    #[arg(long, value_parser = parse_status)]
    status: Option<TransactionStatus>,
    /// Only cycles before this one
    #[arg(long, value_name = "CYCLE")]
    before: Option<i64>,
    /// Show only the transaction of this cycle, with its calls
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
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<()> {
        if let Some(cycle) = self.cycle {
            let trx_id = TrxId::new(&self.id, cycle);
            let mut answer = api.get(&["transactions", trx_id.as_str()], &[]).await?;
            let mut shown = answer["transaction"].take();
            shown["calls"] = answer["calls"].take();
            return print_transaction(&shown, self.json);
        }
        let mut query = Vec::new();
        query.extend(self.status.map(|status| ("status", status.to_string())));
        query.extend(self.before.map(|before| ("cursor", before.to_string())));
        let (names, most) = (PageNames::of("transactions"), usize::try_from(self.limit)?);
        let path = ["bindings", self.id.as_str(), "transactions"];
        print_headers(&api.list(&path, &query, names, most).await?.items, self.json)
    }
}

fn print_headers(headers: &[Value], as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::print_json(&headers);
    }
    let rows = headers.iter().map(|t| {
        [
            show_field(t, "trx_id"),
            show_field(t, "status"),
            show_field(t, "reason"),
            show_field(t, "server_id"),
            show_field(t, "provider_ref"),
            show_time(t, "started_at"),
            show_time(t, "ended_at"),
        ]
    });
    let headings = ["TRANSACTION", "STATUS", "REASON", "SERVER", "PROVIDER REF", "STARTED", "ENDED"];
    output::print_rows(&headings, rows, "No such transactions.");
    Ok(())
}

/// Prints a transaction and its calls.
fn print_transaction(shown: &Value, as_json: bool) -> anyhow::Result<()> {
    if as_json {
        return output::print_json(shown);
    }
    let reason = shown["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
    output::print_escaped(&format!(
        "{} on {} for {}: {}{reason}",
        show_field(shown, "trx_id"),
        show_field(shown, "server_id"),
        show_field(shown, "account_id"),
        show_field(shown, "status")
    ));
    let rows = list_items(shown, "calls").iter().map(|call| {
        [
            show_field(call, "call_no"),
            show_field(call, "action"),
            show_field(call, "result"),
            show_field(call, "http_status"),
            show_time(call, "claimed_at"),
            call["latency_us"].as_i64().map_or_else(|| "-".to_owned(), |us| format!("{} ms", us / 1000)),
            call["response"].as_str().map_or_else(|| "-".to_owned(), |text| shorten_text(text, 80)),
        ]
    });
    output::print_rows(&["CALL", "ACTION", "RESULT", "HTTP", "CLAIMED", "TOOK", "ANSWER"], rows, "No calls.");
    Ok(())
}
