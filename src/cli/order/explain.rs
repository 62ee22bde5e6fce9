//! `dispatchq order explain`.

use std::process::ExitCode;

use anyhow::Context;
use jobs::OrderId;

use crate::cli::output::{self, format_time};
use dispatch::{
    app::App,
    explain::{JobStanding, LatestRanking, NextJob, OrderExplanation, gather},
    fleet::ranking::DriverRanking,
};

/// Drivers of each sort.
const SHOWN: usize = 10;

pub(super) async fn run(app: &App, id: &OrderId, json: bool) -> anyhow::Result<ExitCode> {
    let explained = gather::explain_order(app, id).await?.with_context(|| super::no_such_order(id))?;
    if json {
        output::print_json(&explained)?;
    } else {
        output::print_text(&format_explanation(&explained));
    }
    Ok(ExitCode::SUCCESS)
}

fn format_explanation(e: &OrderExplanation) -> String {
    let mut lines = vec![format!("{} is {}. {}", e.order.order_id, e.order.status, e.why)];
    let payment = match (e.order.amount_minor, &e.order.currency) {
        (Some(amount), Some(currency)) => format!("{} ({amount} {currency}, smallest unit)", e.order.payment_status),
        _ => e.order.payment_status.to_string(),
    };
    lines.push(format!("Payment {payment}. Lifetime ends {}.", format_time(e.order.lifetime_deadline)));

    lines.push("\nNext".to_owned());
    if e.next.is_empty() {
        lines.push("  nothing by itself".to_owned());
    }
    lines.extend(e.next.iter().map(format_next_job));

    lines.push("\nTo do".to_owned());
    if e.to_do.is_empty() {
        let nothing = if e.next.is_empty() { "nothing: it is over" } else { "nothing: it goes on by itself" };
        lines.push(format!("  {nothing}"));
    }
    lines.extend(e.to_do.iter().map(|advice| match &advice.command {
        Some(command) => format!("  {}: {command}", advice.text),
        None => format!("  {}", advice.text),
    }));

    if let Some(latest) = &e.ranking {
        lines.extend(ranking_lines(latest));
    }

    lines.push("\nTimeline".to_owned());
    lines.extend(e.timeline.iter().map(|event| {
        let step = match event.from_status {
            Some(from) if from != event.to_status => format!("{from} -> {}", event.to_status),
            _ => event.to_status.to_string(),
        };
        let attempt = event.attempt_no.map(|n| format!(" (attempt {n})")).unwrap_or_default();
        let detail = event.detail.as_ref().map(|d| format!(": {d}")).unwrap_or_default();
        format!("  {}  {step}  {}{attempt} by {}{detail}", format_time(event.at), event.reason, event.actor)
    }));
    output::join_escaped(&lines)
}

/// Why this driver and not that one.
fn ranking_lines(latest: &LatestRanking) -> Vec<String> {
    let mut lines = vec![format!("\nDrivers for attempt {}, looked at {}", latest.attempt_no, format_time(latest.at))];
    let DriverRanking { ranked, excluded } = &latest.candidates;
    if ranked.is_empty() && excluded.is_empty() {
        lines.push("  no available driver of this service type is within the radius".to_owned());
    }
    lines.extend(ranked.iter().take(SHOWN).enumerate().map(|(n, r)| {
        let offers = if r.live_offers > 0 { format!(", {} other offers", r.live_offers) } else { String::new() };
        format!(
            "  {}. {}  score {:.0}: {:.0} m away, idle {:.0} min{offers}",
            n + 1,
            r.driver_id,
            r.score,
            r.distance_m,
            r.idle_min
        )
    }));
    lines.extend(
        excluded
            .iter()
            .take(SHOWN)
            .map(|x| format!("  -  {}  {:.0} m away: {}", x.driver_id, x.distance_m, x.why.reason_text())),
    );
    lines
}

fn format_next_job(job: &NextJob) -> String {
    let state = match &job.state {
        JobStanding::Waiting { due } if *due == job.at => String::new(),
        JobStanding::Waiting { due } => format!("; in its queue for {}", format_time(*due)),
        JobStanding::Parked { since } => format!("; in line for slots since {}", format_time(*since)),
        JobStanding::Running { worker: Some(worker), .. } => format!("; running now on {worker}"),
        JobStanding::Running { worker: None, lease_ends } => {
            format!("; running on a worker that is gone, free again at {}", format_time(*lease_ends))
        }
        JobStanding::Dead { error } => format!("; DEAD: {error}"),
        JobStanding::Missing => "; MISSING in Redis".to_owned(),
    };
    format!("  {}  {}  {} ({}){state}", format_time(job.at), job.job, job.does, job.queue)
}
