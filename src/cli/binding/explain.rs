//! `dispatchq binding explain`.

use serde_json::Value;

use crate::cli::{
    output,
    remote::fields::{list_items, read_time, show_field, show_time},
};

/// Prints an explanation in the format of the API.
pub(super) fn print_explanation(explained: &Value, json: bool) -> anyhow::Result<()> {
    if json {
        return output::print_json(explained);
    }
    output::print_text(&output::join_escaped(&format_explanation(explained)));
    Ok(())
}

fn format_explanation(e: &Value) -> Vec<String> {
    let (b, server, claim) = (&e["binding"], &e["server"], &e["claim"]);
    let reason = in_parentheses(b, "reason");
    let (id, state, phase) = (show_field(b, "id"), show_field(b, "state"), show_field(b, "phase"));
    let mut lines = vec![
        format!("{id} is {state}{reason}, {phase}. {}", show_field(e, "why")),
        format!(
            "Account {} at {}, server {}.",
            show_field(b, "account_id"),
            show_field(server, "provider"),
            show_field(b, "server_id")
        ),
    ];
    lines.push("\nNext".to_owned());
    lines.push(if e["next"].is_null() { "  nothing by itself".to_owned() } else { format_next(&e["next"]) });
    lines.extend(e["redis_error"].as_str().map(|error| format!("  Redis cannot be read: {error}")));

    lines.push("\nClaim and slots".to_owned());
    lines.push(if claim.is_null() {
        "  no call is open".to_owned()
    } else {
        format!(
            "  call {} ({} of {}) is claimed by {} since {}, until {}",
            show_field(claim, "call_no"),
            show_field(claim, "action"),
            show_field(claim, "trx_id"),
            show_field(claim, "owner"),
            show_time(claim, "claimed_at"),
            show_time(claim, "call_until")
        )
    });
    lines.extend(list_items(e, "slots").iter().map(|held| {
        let how = if held["reserved"] == true { "are reserved for" } else { "are held by" };
        format!("  its slots {how} {} until {}", show_field(held, "job"), show_time(held, "until"))
    }));

    lines.push("\nServer".to_owned());
    lines.extend(format_server(server, &e["all_calls"]));
    lines.push(format!("  UNRESOLVED transactions of this binding: {}", show_field(b, "unresolved")));

    lines.push("\nTo do".to_owned());
    let to_do = list_items(e, "to_do");
    if to_do.is_empty() {
        lines.push("  nothing: it continues by itself".to_owned());
    }
    lines.extend(to_do.iter().map(|advice| match advice["command"].as_str() {
        Some(command) => format!("  {}: {command}", show_field(advice, "text")),
        None => format!("  {}", show_field(advice, "text")),
    }));

    lines.push("\nLatest events".to_owned());
    lines.extend(list_items(e, "events").iter().map(|event| {
        let reason = in_parentheses(event, "reason");
        let cycle = event["cycle"].as_i64().map(|cycle| format!(", cycle {cycle}")).unwrap_or_default();
        let detail = event["detail"].as_str().map(|detail| format!(": {detail}")).unwrap_or_default();
        let (kind, actor) = (show_field(event, "kind"), show_field(event, "actor"));
        format!("  {}  {kind}{reason} by {actor}{cycle}{detail}", show_time(event, "at"))
    }));
    lines
}

/// Formats the state of the server, and the calls of all servers.
fn format_server(server: &Value, all_calls: &Value) -> [String; 2] {
    let enabled = if server["enabled"] == true { "enabled" } else { "DISABLED" };
    let slots = if server["slots"].is_null() { String::new() } else { format!(", {}", format_use(&server["slots"])) };
    let all = if all_calls.is_null() { "-".to_owned() } else { format_use(all_calls) };
    let failures = show_field(server, "failures");
    let pause = if server["paused_until"].is_null() {
        format!("  called as usual; failures in a row: {failures}")
    } else {
        format!("  not called before {}: {failures} failures in a row", show_time(server, "paused_until"))
    };
    [format!("  {} is {enabled}{slots}; of all servers: {all}", show_field(server, "id")), pause]
}

fn in_parentheses(value: &Value, name: &str) -> String {
    value[name].as_str().map(|text| format!(" ({text})")).unwrap_or_default()
}

fn format_use(slots: &Value) -> String {
    let [in_use, limit, waiting] = ["in_use", "limit", "waiting"].map(|name| show_field(slots, name));
    format!("{in_use} of {limit} slots in use, {waiting} jobs in line")
}

fn format_next(next: &Value) -> String {
    let place = &next["place"];
    let place = match place["state"].as_str() {
        Some("waiting") if read_time(place, "due") == read_time(next, "at") => String::new(),
        Some("waiting") => format!("; in its queue for {}", show_time(place, "due")),
        Some("parked") => format_line(place),
        Some("running") if place["worker"].is_null() => {
            format!("; running on a worker that is gone, free again at {}", show_time(place, "lease_ends"))
        }
        Some("running") => format!("; running now on {}", show_field(place, "worker")),
        Some("dead") => format!("; DEAD: {}", show_field(place, "error")),
        Some("missing") => "; MISSING in Redis".to_owned(),
        _ => String::new(),
    };
    format!("  {}  {}  {}{place}", show_time(next, "at"), show_field(next, "job"), show_field(next, "does"))
}

/// Formats the place of a parked job in its server's line.
fn format_line(place: &Value) -> String {
    let first = list_items(place, "first_before").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", ");
    let first = if first.is_empty() { first } else { format!(" ({first})") };
    let behind = place["behind"].as_str().map(|job| format!(", behind {job} of the same binding")).unwrap_or_default();
    let (since, before) = (show_time(place, "since"), show_field(place, "before"));
    format!("; parked in its server's line since {since}, {before} before it{first}{behind}")
}
