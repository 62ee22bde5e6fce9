//! `dispatchq dead show`.

use std::{process::ExitCode, time::Duration};

use chrono::{DateTime, Utc};
use queue::JobId;
use serde_json::Value;

use crate::cli::{
    job::parse_job_id,
    output,
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time, show_time_ms},
    },
};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  dispatchq dead show dispatch:ORD-1:1")]
pub(in crate::cli) struct Args {
    /// Id of the job, for example dispatch:ORD-1:1
    #[arg(value_parser = parse_job_id)]
    id: JobId,
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        let explained = api.get(&["admin", "dead", self.id.as_str()], &[]).await?;
        if self.json {
            output::print_json(&explained)?;
        } else {
            output::print_text(&format_dead_job(&explained, Utc::now()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn format_dead_job(explained: &Value, now: DateTime<Utc>) -> String {
    let id = show_field(explained, "id");
    let now_ms = now.timestamp_millis().unsigned_abs();
    let died_ms = explained["died_ms"].as_u64().unwrap_or(now_ms);
    let ago = humantime::format_duration(Duration::from_secs(now_ms.saturating_sub(died_ms) / 1000));
    let tries =
        format!("{} failed, {} lost with their worker", show_field(explained, "failed"), show_field(explained, "lost"));
    let mut rows = vec![
        ("job", id.clone()),
        ("queue", show_field(explained, "queue")),
        ("died", format!("{} ({ago} ago)", show_time_ms(explained, "died_ms"))),
        ("was due", show_time_ms(explained, "due_ms")),
        ("error", show_field(explained, "error")),
        ("tries", tries),
    ];
    rows.extend(list_items(explained, "tries").iter().map(|t| {
        let end = t["error"].as_str().unwrap_or("delivered");
        ("", format!("try {} at {}: {end}", show_field(t, "attempt_no"), show_time(t, "at")))
    }));
    rows.extend(list_items(explained, "earlier").iter().map(|death| ("before", tell_story(death))));
    rows.push((
        "payload",
        if explained["payload"].is_null() {
            "none: the id contains everything".to_owned()
        } else {
            show_field(explained, "payload")
        },
    ));
    rows.extend(explained["order"]["text"].as_str().map(|text| ("order", text.to_owned())));
    rows.extend(explained["message"].as_str().map(|text| ("message", text.to_owned())));
    rows.extend(explained["note"].as_str().map(|text| ("note", text.to_owned())));
    let can_requeue = explained["can_requeue"] == true;
    if can_requeue {
        rows.push(("to do", format!("dispatchq dead requeue {id} --reason TEXT    requeue it")));
    }
    let label = if can_requeue { "" } else { "to do" };
    rows.push((label, format!("dispatchq dead discard {id} --reason TEXT    discard it")));
    output::join_escaped(&rows.into_iter().map(|(label, value)| format!("{label:<10} {value}")).collect::<Vec<_>>())
}

/// Describes an earlier death of a job and its resolution.
fn tell_story(death: &Value) -> String {
    let mut story = format!("died at {} ({})", show_time(death, "died_at"), show_field(death, "error"));
    if let (Some(how), Some(by)) = (death["resolved_how"].as_str(), death["resolved_by"].as_str()) {
        story += &format!(", {how} by {by} at {}", show_time(death, "resolved_at"));
        story += &death["resolved_why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
    }
    story
}
