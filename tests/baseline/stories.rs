//! The recorded form of a run: for each life the distinct stories, with the number of orders for each.

use std::collections::BTreeMap;

use sqlx::{AssertSqlSafe, Row};

use crate::{placeholders, stubs::Received, world::World};

/// Queries for the rows of an order, in output order. `$1` is its id; each row is one line.
const ORDER_ROWS: [(&str, &str); 6] = [
    (
        "order",
        "SELECT service_type, area_id, status, payment_status, driver_id, held_for_review, lifetime_deadline - created_at AS lifetime, \
               closed_at IS NOT NULL AS closed, paid_at IS NOT NULL AS paid FROM audit_orders WHERE order_id = $1",
    ),
    (
        "event",
        "SELECT e.from_status, e.to_status, e.reason, e.actor, e.attempt_no, k.key_id IS NOT NULL AS has_key FROM audit_events e \
               LEFT JOIN audit_event_keys k ON k.order_id = e.order_id AND k.seq = e.seq WHERE e.order_id = $1 ORDER BY e.seq",
    ),
    (
        "offer",
        "SELECT attempt_no, driver_id, state, expires_at - offered_at AS time, responded_at IS NOT NULL AS answered FROM audit_offers \
               WHERE order_id = $1 ORDER BY attempt_no, driver_id",
    ),
    (
        "booking",
        "SELECT attempt_no, partner, booking_id, job_id, state, closed_at IS NOT NULL AS closed FROM audit_bookings WHERE order_id = $1 ORDER BY attempt_no",
    ),
    (
        "message",
        "SELECT kind, channel, state, attempts FROM audit_notifications WHERE order_id = $1 ORDER BY kind, channel, state, id",
    ),
    (
        "shadow",
        "SELECT source, area_id, service_type, waiting, threshold, channel FROM audit_shadow_refusals WHERE order_id = $1 ORDER BY id",
    ),
];

/// Like [`ORDER_ROWS`], for a binding. Status calls for UNRESOLVED transactions are left out, because their number
/// depends on the machine.
const BINDING_ROWS: [(&str, &str); 5] = [
    (
        "binding",
        "SELECT state, reason, phase, cycle, unresolved, otp_stored, deleted_at IS NOT NULL AS deleted FROM audit_bindings WHERE binding_id = $1",
    ),
    (
        "event",
        "SELECT kind, reason, actor, cycle, key_id IS NOT NULL AS has_key FROM audit_binding_events WHERE binding_id = $1 ORDER BY seq",
    ),
    (
        "transaction",
        "SELECT cycle, server_id, account_id, status, reason, provider_ref, ended_at IS NOT NULL AS ended FROM audit_transactions \
                     WHERE binding_id = $1 ORDER BY cycle",
    ),
    (
        "call",
        "SELECT cycle, max(action) AS action, max(result) AS result, max(http_status) AS http_status, count(*) AS parts FROM audit_provider_calls \
              WHERE binding_id = $1 AND call_no NOT IN \
              (SELECT call_no FROM audit_provider_calls WHERE binding_id = $1 AND action = 'settle') GROUP BY cycle, call_no ORDER BY cycle, call_no",
    ),
    (
        "message",
        "SELECT kind, channel, state, attempts FROM audit_binding_notifications WHERE binding_id = $1 ORDER BY id",
    ),
];

/// Returns the stories of all orders.
pub async fn of_orders(world: &World) -> String {
    let ids = world.rows("SELECT order_id FROM audit_orders WHERE $1 = $1 ORDER BY order_id", "").await;
    told(world, &ids, &ORDER_ROWS).await
}

/// Returns the stories of all bindings.
pub async fn of_bindings(world: &World) -> String {
    let ids = world.rows("SELECT binding_id FROM audit_bindings WHERE $1 = $1 ORDER BY binding_id", "").await;
    told(world, &ids, &BINDING_ROWS).await
}

async fn told(world: &World, ids: &[String], rows: &[(&str, &str)]) -> String {
    let requests = by_subject(&world.stubs.received());
    let mut lives: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for id in ids {
        let mut story = String::new();
        for (name, query) in rows {
            for line in lines(world, query, id).await {
                story.push_str(&format!("{name:12}{line}\n"));
            }
        }
        for request in requests.get(id).into_iter().flatten() {
            story.push_str(&format!("{:12}{request}\n", "sent"));
        }
        let life = placeholders::in_text(id);
        *lives.entry(life).or_default().entry(once(&story)).or_default() += 1;
    }
    let mut text = String::new();
    for (life, stories) in lives {
        for (story, count) in stories {
            text.push_str(&format!("##### {life}: {count}\n{story}\n"));
        }
    }
    text
}

/// Returns the rows of a query as `column=value` with placeholders, without columns that are null.
async fn lines(world: &World, query: &str, id: &str) -> Vec<String> {
    let query = format!("SELECT row_to_json(q)::text FROM ({query}) q");
    let rows = sqlx::query(AssertSqlSafe(query)).bind(id).fetch_all(&world.db).await.expect("the query is valid");
    let rows = rows.iter().map(|row| {
        let fields: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&row.get::<String, _>(0)).expect("a row is an object");
        let shown = fields.iter().filter(|(_, value)| !value.is_null());
        let shown = shown.map(|(name, value)| (name, placeholders::in_field(name, value)));
        let shown = shown
            .map(|(name, value)| format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned)));
        shown.collect::<Vec<_>>().join(" ")
    });
    rows.collect()
}

/// Removes repeated consecutive lines. The number of provider calls depends on the machine's speed.
fn once(story: &str) -> String {
    let mut lines: Vec<&str> = story.lines().collect();
    lines.dedup();
    lines.join("\n") + "\n"
}

/// Returns the distinct requests that dispatchq sent for each order or binding, sorted.
fn by_subject(requests: &[Received]) -> BTreeMap<String, Vec<String>> {
    let id = regex_lite::Regex::new(r"\b[a-z][a-z-]*-[0-9]{3}\b").expect("a valid pattern");
    let mut subjects: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for request in requests {
        let whole = format!("{} {}", request.path, request.body);
        let Some(found) = id.find_iter(&whole).map(|found| found.as_str()).max_by_key(|found| found.len()) else {
            continue;
        };
        let message = request.headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        // A repeated message has the same id.
        let key = if message.is_empty() {
            format!("{whole}{:?}", request.headers.get("idempotency-key"))
        } else {
            message.to_owned()
        };
        subjects.entry(found.to_owned()).or_default().push((key, as_line(request)));
    }
    let distinct = |mut sent: Vec<(String, String)>| {
        sent.sort();
        sent.dedup();
        let mut lines: Vec<_> = sent.into_iter().map(|(_, line)| line).collect();
        lines.sort();
        lines
    };
    subjects.into_iter().map(|(id, sent)| (id, distinct(sent))).collect()
}

/// Returns the path, the relevant headers and the body.
fn as_line(request: &Received) -> String {
    let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    let mut line = placeholders::in_text(&request.path);
    for name in ["authorization", "idempotency-key", "fence", "call-until", "content-type"] {
        if let Some(value) = header(name).filter(|value| *value != "application/json") {
            let value = if name == "fence" { "N".to_owned() } else { placeholders::in_text(value) };
            line.push_str(&format!(" {name}={value}"));
        }
    }
    if header("webhook-signature").is_some() {
        line.push_str(&format!(" {}", if request.signed { "signed" } else { "WRONGLY SIGNED" }));
    }
    format!("{line} {}", placeholders::in_body(&request.body))
}

/// Returns the columns of all `audit_` views, and the rows that do not belong to one order or binding.
pub async fn of_views(world: &World) -> String {
    let columns = "SELECT table_name || ': ' || string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position) \
                   FROM information_schema.columns WHERE table_name LIKE 'audit\\_%' AND table_name IN \
                   (SELECT table_name FROM information_schema.views) AND $1 = $1 GROUP BY table_name ORDER BY table_name";
    let mut text = world.rows(columns, "").await.join("\n") + "\n";
    for view in ["audit_staff_actions", "audit_staff_requests", "audit_plans", "audit_shadow_refusals"] {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for row in lines(world, &format!("SELECT * FROM {view} WHERE $1::text IS NOT NULL"), "").await {
            *counts.entry(placeholders::of_any_life(&row)).or_default() += 1;
        }
        text.push_str(&format!("\n##### {view}\n"));
        for (row, count) in counts {
            text.push_str(&format!("{count} x {row}\n"));
        }
    }
    text
}

/// Returns the name, the type and the labels of each metric.
pub fn of_metrics(text: &str) -> String {
    let mut metrics: BTreeMap<String, (String, BTreeMap<String, ()>)> = BTreeMap::new();
    for line in text.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').expect("a type");
            metrics.insert(name.to_owned(), (kind.to_owned(), BTreeMap::new()));
        }
    }
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, labels)) = line.split_once('{') else { continue };
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .filter(|base| metrics.contains_key(*base));
        let Some((_, known)) = metrics.get_mut(base.unwrap_or(name)) else { continue };
        let labels = labels.rsplit_once('}').map_or(labels, |(labels, _)| labels);
        known.extend(
            labels.split("\",").filter_map(|label| label.split_once('=')).map(|(label, _)| (label.to_owned(), ())),
        );
    }
    let lines = metrics.into_iter().map(|(name, (kind, labels))| {
        format!("{name} {kind} {}", labels.into_keys().collect::<Vec<_>>().join(" ")).trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n") + "\n"
}
