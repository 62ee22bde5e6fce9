//! `dispatchq binding start|pause|resume|stop` over the API, of bindings that are named.

use std::process::ExitCode;

use model::binding::BindingVerb;
use serde_json::{Value, json};

use super::{BulkArgs, BulkReport};
use crate::cli::remote::{ApiClient, CallError, needs_database};

impl BulkArgs {
    pub(in crate::cli::binding) async fn run_over_api(
        self,
        api: &ApiClient,
        verb: BindingVerb,
    ) -> anyhow::Result<ExitCode> {
        if self.dry_run {
            return Err(needs_database("--dry-run of binding"));
        }
        if self.ids.is_empty() {
            return Err(needs_database("a selection of bindings that are not named"));
        }
        let mut ids = self.ids.clone();
        ids.sort();
        ids.dedup();
        let total = ids.len();
        let mut report = BulkReport::default();
        for id in ids {
            let path = ["bindings", id.as_str(), verb.as_str()];
            match api.post(&path, &json!({})).await {
                Ok(answer) if answer["changed"] == true => {
                    let state = serde_json::from_value(answer["binding"]["state"].clone())?;
                    report.changed.push((id, state));
                }
                Ok(answer) => report.unchanged.push((id, describe_unchanged(&answer))),
                Err(CallError::Refused { status, message, .. }) if matches!(status.as_u16(), 404 | 409 | 410) => {
                    report.refused.push((id, message));
                }
                Err(error) => {
                    report.failed = Some(error.into());
                    break;
                }
            }
        }
        self.print_report(&report, total)?;
        if let Some(error) = report.failed {
            let (done, past) = (report.changed.len(), verb.past_form());
            return Err(error.context(format!("{done} of {total} were {past}; what is done stays done: run it again")));
        }
        Ok(if report.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn describe_unchanged(answer: &Value) -> String {
    let state = answer["binding"]["state"].as_str().unwrap_or_default();
    answer["note"].as_str().map_or_else(|| format!("{state} already"), str::to_owned)
}
