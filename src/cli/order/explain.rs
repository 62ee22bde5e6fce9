//! `dispatchq order explain`.

use std::process::ExitCode;

use anyhow::Context;
use jobs::OrderId;

use crate::{
    app::App,
    cli::output::{self, time},
    explain::{Explanation, JobStanding, NextJob, gather},
};

pub(super) async fn run(app: &App, id: &OrderId, json: bool) -> anyhow::Result<ExitCode> {
    let explained = gather::explain(app, id).await?.with_context(|| super::no_such_order(id))?;
    if json {
        output::json(&explained)?;
    } else {
        output::print(&text(&explained));
    }
    Ok(ExitCode::SUCCESS)
}

fn text(e: &Explanation) -> String {
    let mut lines = vec![format!("{} is {}. {}", e.order.order_id, e.order.status, e.why)];
    let payment = match (e.order.amount_minor, &e.order.currency) {
        (Some(amount), Some(currency)) => format!("{} ({amount} {currency}, smallest unit)", e.order.payment_status),
        _ => e.order.payment_status.to_string(),
    };
    lines.push(format!("Payment {payment}. Lifetime ends {}.", time(e.order.lifetime_deadline)));

    lines.push("\nNext".to_owned());
    if e.next.is_empty() {
        lines.push("  nothing by itself".to_owned());
    }
    lines.extend(e.next.iter().map(next));

    lines.push("\nTo do".to_owned());
    if e.to_do.is_empty() {
        let nothing = if e.next.is_empty() { "nothing: it is over" } else { "nothing: it goes on by itself" };
        lines.push(format!("  {nothing}"));
    }
    lines.extend(e.to_do.iter().map(|advice| match &advice.command {
        Some(command) => format!("  {}: {command}", advice.text),
        None => format!("  {}", advice.text),
    }));

    lines.push("\nTimeline".to_owned());
    lines.extend(e.timeline.iter().map(|event| {
        let step = match event.from_status {
            Some(from) if from != event.to_status => format!("{from} -> {}", event.to_status),
            _ => event.to_status.to_string(),
        };
        let attempt = event.attempt_no.map(|n| format!(" (attempt {n})")).unwrap_or_default();
        let detail = event.detail.as_ref().map(|d| format!(": {d}")).unwrap_or_default();
        format!("  {}  {step}  {}{attempt} by {}{detail}", time(event.at), event.reason, event.actor)
    }));
    lines.join("\n")
}

fn next(job: &NextJob) -> String {
    let state = match &job.state {
        JobStanding::Waiting { due } if *due == job.at => String::new(),
        JobStanding::Waiting { due } => format!("; in its queue for {}", time(*due)),
        JobStanding::Running { worker: Some(worker), .. } => format!("; running now on {worker}"),
        JobStanding::Running { worker: None, lease_ends } => {
            format!("; running on a worker that is gone, free again at {}", time(*lease_ends))
        }
        JobStanding::Dead { error } => format!("; DEAD: {error}"),
        JobStanding::Missing => "; MISSING in Redis".to_owned(),
    };
    format!("  {}  {}  {} ({}){state}", time(job.at), job.job, job.does, job.queue)
}
