//! `dispatchq order explain`.

use serde_json::Value;

use crate::cli::{
    output,
    remote::fields::{list_items, read_time, show_field, show_time},
};
use model::ranking::DriverRanking;

/// Maximum number of offers, of ranked drivers, and of excluded drivers that are printed.
const SHOWN: usize = 10;

/// Prints an explanation in the format of the API.
pub(super) fn print_explanation(explained: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(explained);
    }
    output::print_text(&format_explanation(explained));
    Ok(())
}

fn format_explanation(e: &Value) -> String {
    let order = &e["order"];
    let mut lines =
        vec![format!("{} is {}. {}", show_field(order, "order_id"), show_field(order, "status"), show_field(e, "why"))];
    let status = show_field(order, "payment_status");
    let payment = match (order["amount_minor"].as_i64(), order["currency"].as_str()) {
        (Some(amount), Some(currency)) => format!("{status} ({amount} {currency}, smallest unit)"),
        _ => status,
    };
    lines.push(format!("Payment {payment}. Lifetime ends {}.", show_time(order, "lifetime_deadline")));

    lines.push("\nNext".to_owned());
    let next = list_items(e, "next");
    if next.is_empty() {
        lines.push("  nothing by itself".to_owned());
    }
    lines.extend(next.iter().map(format_next_job));

    lines.push("\nTo do".to_owned());
    let to_do = list_items(e, "to_do");
    if to_do.is_empty() {
        let nothing = if next.is_empty() { "nothing: the order is closed" } else { "nothing: it continues by itself" };
        lines.push(format!("  {nothing}"));
    }
    lines.extend(to_do.iter().map(|advice| match advice["command"].as_str() {
        Some(command) => format!("  {}: {command}", show_field(advice, "text")),
        None => format!("  {}", show_field(advice, "text")),
    }));

    let offers = list_items(e, "offers");
    if !offers.is_empty() {
        lines.push("\nOffers".to_owned());
        let latest = &offers[offers.len().saturating_sub(SHOWN)..];
        lines.extend(latest.iter().map(format_offer));
    }

    if e["ranking"].is_object() {
        lines.extend(ranking_lines(&e["ranking"]));
    }

    lines.push("\nTimeline".to_owned());
    lines.extend(list_items(e, "timeline").iter().map(|event| {
        let (at, reason, actor) = (show_time(event, "at"), show_field(event, "reason"), show_field(event, "actor"));
        let attempt = event["attempt_no"].as_i64().map(|n| format!(" (attempt {n})")).unwrap_or_default();
        let detail = event["detail"].as_str().map(|d| format!(": {d}")).unwrap_or_default();
        format!("  {at}  {}  {reason}{attempt} by {actor}{detail}", super::step_of(event))
    }));
    output::join_escaped(&lines)
}

/// Formats an offer, with the wave of its attempt.
fn format_offer(offer: &Value) -> String {
    let (attempt, wave) = (show_field(offer, "attempt_no"), show_field(offer, "wave"));
    let (driver, state) = (show_field(offer, "driver_id"), show_field(offer, "state"));
    format!("  attempt {attempt}, wave {wave}: {driver} until {}: {state}", show_time(offer, "expires_at"))
}

/// Formats the latest ranking of drivers.
fn ranking_lines(latest: &Value) -> Vec<String> {
    let (attempt, at) = (show_field(latest, "attempt_no"), show_time(latest, "at"));
    let mut lines = vec![format!("\nDrivers for attempt {attempt}, ranked at {at}")];
    // A newer API may send reasons that this build does not know.
    let Ok(DriverRanking { ranked, excluded }) = serde_json::from_value(latest["candidates"].clone()) else {
        lines.push("  this version of dispatchq cannot read them; see them with --json".to_owned());
        return lines;
    };
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
            .map(|x| format!("  -  {}  {:.0} m away: {}", x.driver_id, x.distance_m, x.describe())),
    );
    lines
}

fn format_next_job(job: &Value) -> String {
    let state = match job["state"].as_str() {
        Some("waiting") if read_time(job, "due") == read_time(job, "at") => String::new(),
        Some("waiting") => format!("; in its queue for {}", show_time(job, "due")),
        Some("parked") => format!("; in line for slots since {}", show_time(job, "since")),
        Some("running") => match job["worker"].as_str() {
            Some(worker) => format!("; running now on {worker}"),
            None => format!("; running on a worker that is gone, free again at {}", show_time(job, "lease_ends")),
        },
        Some("dead") => format!("; DEAD: {}", show_field(job, "error")),
        Some("missing") => "; MISSING in Redis".to_owned(),
        _ => format!("; {}", show_field(job, "state")),
    };
    let (at, id, does, queue) =
        (show_time(job, "at"), show_field(job, "job"), show_field(job, "does"), show_field(job, "queue"));
    format!("  {at}  {id}  {does} ({queue}){state}")
}
