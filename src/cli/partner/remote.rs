//! `dispatchq partner` over the API.

use std::process::ExitCode;

use serde_json::json;

use super::{Command, check_change, print_partners, print_share};
use crate::cli::remote::{ApiClient, given_reason};

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => print_partners(&api.get(&["partners"], &[]).await?["partners"], json)?,
            Self::Set { partner, polling_percent, as_configured, reason } => {
                check_change(polling_percent, as_configured)?;
                let change = json!({ "polling_percent": polling_percent, "reason": given_reason(reason)? });
                let changed = api.patch(&["partners", &partner], &change).await?;
                print_share(&partner, changed["polling_percent"].as_u64().unwrap_or_default());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
