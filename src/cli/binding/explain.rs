//! `dispatchq binding explain`.

use model::binding::BindingId;

use super::with_cure;
use crate::cli::output::{self, format_time, or_dash};
use dispatch::{
    app::App,
    bindings::explain::{self, BindingExplanation, JobPlace, NextStep, SlotUse},
};

pub(super) async fn run(app: &App, id: &BindingId, json: bool) -> anyhow::Result<()> {
    let explained = explain::gather::explain_binding(app, id).await.map_err(with_cure)?;
    if json {
        output::print_json(&explained)?;
    } else {
        output::print_text(&output::join_escaped(&format_explanation(&explained)));
    }
    Ok(())
}

fn format_explanation(e: &BindingExplanation) -> Vec<String> {
    let b = &e.binding;
    let reason = b.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    let mut lines = vec![
        format!("{} is {}{reason}, {}. {}", b.id, b.state, b.phase, e.why),
        format!("Account {} at {}, server {}.", b.account_id, e.server.provider, b.server_id),
    ];
    lines.push("\nNext".to_owned());
    lines.push(e.next.as_ref().map_or_else(|| "  nothing by itself".to_owned(), format_next));
    if let Some(error) = &e.redis_error {
        lines.push(format!("  Redis cannot be asked: {error}"));
    }

    lines.push("\nClaim and slots".to_owned());
    match &e.claim {
        Some(claim) => lines.push(format!(
            "  call {} ({} of {}) is claimed by {} since {}, until {}",
            claim.call_no,
            claim.action,
            or_dash(claim.trx_id.as_ref()),
            or_dash(claim.owner.as_ref()),
            format_time(claim.claimed_at),
            format_time(claim.call_until)
        )),
        None => lines.push("  no call is open".to_owned()),
    }
    lines.extend(e.slots.iter().map(|held| {
        let how = if held.reserved { "are reserved for" } else { "are held by" };
        format!("  its slots {how} {} until {}", held.job, format_time(held.until))
    }));

    lines.push("\nServer".to_owned());
    let enabled = if e.server.enabled { "enabled" } else { "DISABLED" };
    let slots = e.server.slots.as_ref().map(|slots| format!(", {}", format_use(slots))).unwrap_or_default();
    lines.push(format!(
        "  {} is {enabled}{slots}; of all servers: {}",
        e.server.id,
        or_dash(e.all_calls.as_ref().map(format_use))
    ));
    lines.push(match e.server.paused_until {
        Some(until) => format!("  not called before {}: {} failures in a row", format_time(until), e.server.failures),
        None => format!("  called as usual; failures in a row: {}", e.server.failures),
    });
    lines.push(format!("  UNRESOLVED transactions of this binding: {}", b.unresolved));

    lines.push("\nTo do".to_owned());
    if e.to_do.is_empty() {
        lines.push("  nothing: it goes on by itself".to_owned());
    }
    lines.extend(e.to_do.iter().map(|advice| match &advice.command {
        Some(command) => format!("  {}: {command}", advice.text),
        None => format!("  {}", advice.text),
    }));

    lines.push("\nLatest events".to_owned());
    lines.extend(e.events.iter().map(|event| {
        let reason = event.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let cycle = event.cycle.map(|cycle| format!(", cycle {cycle}")).unwrap_or_default();
        let detail = event.detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default();
        format!("  {}  {}{reason} by {}{cycle}{detail}", format_time(event.at), event.kind, event.actor)
    }));
    lines
}

fn format_use(slots: &SlotUse) -> String {
    format!("{} of {} slots in use, {} jobs in line", slots.in_use, slots.limit, slots.waiting)
}

fn format_next(next: &NextStep) -> String {
    let place = match &next.place {
        None => String::new(),
        Some(JobPlace::Waiting { due }) if *due == next.at => String::new(),
        Some(JobPlace::Waiting { due }) => format!("; in its queue for {}", format_time(*due)),
        Some(JobPlace::Parked { since, before, first_before, behind }) => {
            let first = if first_before.is_empty() { String::new() } else { format!(" ({})", first_before.join(", ")) };
            let own = behind.as_ref().map(|job| format!(", behind {job} of the same binding")).unwrap_or_default();
            format!("; parked in its server's line since {}, {before} before it{first}{own}", format_time(*since))
        }
        Some(JobPlace::Running { worker: Some(worker), .. }) => format!("; running now on {worker}"),
        Some(JobPlace::Running { worker: None, lease_ends }) => {
            format!("; running on a worker that is gone, free again at {}", format_time(*lease_ends))
        }
        Some(JobPlace::Dead { error }) => format!("; DEAD: {error}"),
        Some(JobPlace::Missing) => "; MISSING in Redis".to_owned(),
    };
    format!("  {}  {}  {}{place}", format_time(next.at), next.job, next.does)
}
