//! `dispatchq queue` over the API.

use std::process::ExitCode;

use serde_json::json;

use super::{Command, check_known_queue, print_paused, print_resumed, print_stats, print_table};
use crate::cli::{
    output,
    remote::{ApiClient, given_reason},
};

impl Command {
    pub(in crate::cli) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        match self {
            Self::List { json } => {
                let known = api.get(&["admin", "queues"], &[]).await?;
                let queues = known["queues"].clone();
                if json { output::print_json(&queues)? } else { print_table(serde_json::from_value(queues)?) }
            }
            Self::Stats { json } => {
                let stats = api.get(&["admin", "queues"], &[]).await?;
                if json {
                    output::print_json(&stats)?;
                } else {
                    let lateness = serde_json::from_value(stats["lateness"].clone())?;
                    print_stats(serde_json::from_value(stats["queues"].clone())?, &lateness);
                }
            }
            Self::Pause { queue, reason } => {
                print_paused(&queue, set_paused(api, &queue, "pause", reason).await?);
            }
            Self::Resume { queue, reason } => {
                print_resumed(&queue, set_paused(api, &queue, "resume", reason).await?);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Stops a queue, or lets it run again. Returns whether that changed anything.
async fn set_paused(api: &ApiClient, queue: &str, step: &str, reason: Option<String>) -> anyhow::Result<bool> {
    check_known_queue(queue)?;
    let answer = api.post(&["admin", "queues", queue, step], &json!({ "reason": given_reason(reason)? })).await?;
    Ok(answer["changed"] == true)
}
