//! `dispatchq dead show`.

use std::{process::ExitCode, time::Duration};

use anyhow::bail;
use serde_json::Value;

use crate::cli::{
    job::parse_job_id,
    output::{self, format_time, format_time_ms},
    remote::{
        ApiClient,
        fields::{list_items, show_field, show_time, show_time_ms},
    },
};
use app::App;
use desk::dead_letters::explain::{self, ExplainedJob};
use foundation::{
    db,
    dead_letter_rows::{self, DeadLetterRow},
};
use queue::JobId;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  dispatchq dead show dispatch:ORD-1:1")]
pub(in crate::cli) struct Args {
    /// For example dispatch:ORD-1:1
    #[arg(value_parser = parse_job_id)]
    id: JobId,
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(self, app: &App) -> anyhow::Result<ExitCode> {
        let Some(explained) = explain::explain_job(&app.core, &self.id).await? else {
            return refuse_not_dead(app, &self.id).await;
        };
        if self.json {
            output::print_json(&explained)?;
        } else {
            let now_ms = db::database_now(&app.core.db).await?.timestamp_millis().unsigned_abs();
            output::print_text(&format_dead_job(&explained, now_ms));
        }
        Ok(ExitCode::SUCCESS)
    }

    pub(super) async fn run_over_api(self, api: &ApiClient) -> anyhow::Result<ExitCode> {
        let explained = api.get(&["admin", "dead", self.id.as_str()], &[]).await?;
        if self.json {
            output::print_json(&explained)?;
        } else {
            output::print_text(&format_answer(&explained));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// A dead job as the API explains it.
fn format_answer(explained: &Value) -> String {
    let id = show_field(explained, "id");
    let tries =
        format!("{} failed, {} lost with their worker", show_field(explained, "failed"), show_field(explained, "lost"));
    let mut rows = vec![
        ("job", id.clone()),
        ("queue", show_field(explained, "queue")),
        ("died", show_time_ms(explained, "died_ms")),
        ("was due", show_time_ms(explained, "due_ms")),
        ("error", show_field(explained, "error")),
        ("tries", tries),
    ];
    rows.extend(list_items(explained, "tries").iter().map(|t| {
        let end = t["error"].as_str().unwrap_or("delivered");
        ("", format!("try {} at {}: {end}", show_field(t, "attempt_no"), show_time(t, "at")))
    }));
    rows.extend(list_items(explained, "earlier").iter().map(|death| {
        let story = format!("died at {} ({})", show_time(death, "died_at"), show_field(death, "error"));
        ("before", story)
    }));
    rows.push(("payload", show_field(explained, "payload")));
    rows.extend(explained["order"]["text"].as_str().map(|text| ("order", text.to_owned())));
    rows.extend(explained["message"].as_str().map(|text| ("message", text.to_owned())));
    rows.extend(explained["note"].as_str().map(|text| ("note", text.to_owned())));
    join_rows(rows, &id, explained["can_requeue"] == true)
}

/// Joins what is known of a job, and what to do about it.
fn join_rows(mut rows: Vec<(&str, String)>, id: &str, can_requeue: bool) -> String {
    if can_requeue {
        rows.push(("to do", format!("dispatchq dead requeue {id} --reason TEXT    give it another life")));
    }
    let label = if can_requeue { "" } else { "to do" };
    rows.push((label, format!("dispatchq dead discard {id} --reason TEXT    forget it")));
    output::join_escaped(&rows.into_iter().map(|(label, value)| format!("{label:<10} {value}")).collect::<Vec<_>>())
}

/// What is no longer dead has a story all the same.
async fn refuse_not_dead(app: &App, id: &JobId) -> anyhow::Result<ExitCode> {
    let deaths = dead_letter_rows::list_deaths(&app.core.db, id.as_str()).await?;
    let Some(last) = deaths.first() else {
        bail!("{id} is not dead; see: dispatchq job show {id}, dispatchq dead list");
    };
    bail!("{id} is not dead any more: it {}; see: dispatchq job show {id}", tell_story(last));
}

fn tell_story(death: &DeadLetterRow) -> String {
    let mut story = format!("died at {} ({})", format_time(death.died_at), death.error);
    if let (Some(how), Some(by), Some(at)) = (death.resolved_how, &death.resolved_by, death.resolved_at) {
        story += &format!(", {} by {by} at {}", how.as_str(), format_time(at));
        if let Some(why) = &death.resolved_why {
            story += &format!(": {why}");
        }
    }
    story
}

fn format_dead_job(explained: &ExplainedJob, now_ms: u64) -> String {
    let id = &explained.entry.id;
    let dead = &explained.entry.record;
    let ago = Duration::from_secs(now_ms.saturating_sub(dead.died_ms) / 1000);
    let mut rows = vec![
        ("job", id.clone()),
        ("queue", dead.queue.clone()),
        ("died", format!("{} ({} ago)", format_time_ms(dead.died_ms), humantime::format_duration(ago))),
        ("was due", format_time_ms(dead.due_ms)),
        ("error", dead.error.clone()),
        ("tries", format!("{} failed, {} lost with their worker", dead.failed, dead.lost)),
    ];
    rows.extend(explained.tries.iter().map(|t| {
        let end = t.error.as_deref().unwrap_or("delivered");
        ("", format!("try {} at {}: {end}", t.attempt_no, format_time(t.at)))
    }));
    rows.extend(explained.earlier.iter().map(|death| ("before", tell_story(death))));
    rows.push((
        "payload",
        match &dead.envelope {
            Some(envelope) => envelope.clone(),
            None => "none: the id says everything".to_owned(),
        },
    ));
    rows.extend(explained.order.as_ref().map(|order| ("order", order.text.clone())));
    rows.extend(explained.message.as_ref().map(|message| ("message", message.clone())));
    rows.extend(explained.note.as_ref().map(|note| ("note", note.clone())));
    join_rows(rows, id, explained.can_requeue)
}
