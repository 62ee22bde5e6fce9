//! Alerts that a person must handle, and their acknowledgement.

use std::collections::BTreeSet;

use askama::Template;
use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use model::messages;
use serde::Deserialize;
use serde_json::Value;

use super::roles::STAFF;
use crate::{
    catalogue::{fill, tr},
    form::{encode_component, given_text, optional_text, read_form, read_query, write_query},
    page::{Shell, go_back, render, safe_path},
    page_error::PageError,
    session::SignedIn,
    shown::{Code, Countdown, Moment, describe_age, sentence},
    table::{Action, Field},
    ticket_link::TicketLink,
};
use accounts::api_keys::AccountRole;
use api::scope::retain_visible;
use app::App;
use desk::reports::page_changes::ChangeTopic;
use foundation::db;
use notify::alerts::{self, AlertFilter, AlertSelection, RaisedAlert};

const PAGE: u32 = 50;
const REFRESH_S: u32 = 10;
/// Roles that acknowledge alerts. Dispatchers acknowledge only the alerts for dispatchers.
const WRITERS: [AccountRole; 2] = [AccountRole::Support, AccountRole::Dispatcher];

/// Returns whether this person may acknowledge alerts of this kind. A dispatcher may acknowledge alerts about orders
/// that wait for a dispatcher.
pub(super) fn may_acknowledge(person: &SignedIn, kind: &str) -> bool {
    person.may(&WRITERS) && (person.role() != AccountRole::Dispatcher || messages::is_for_dispatchers(kind))
}

/// Returns the form that acknowledges an alert. It returns to `back`, or else to the list.
pub(super) fn form_to_acknowledge(alert: i64, back: Option<&str>) -> Action {
    let mut fields: Vec<Field> = back.map(|back| Field::hidden("back", back)).into_iter().collect();
    fields.push(Field::required("note", tr("alerts.what_done_will_done")));
    Action::new(tr("alerts.acknowledge_alert"), format!("/alerts/{alert}/ack"), fields)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AlertQuery {
    /// "all" includes acknowledged alerts.
    show: String,
    kind: String,
    before: Option<i64>,
    did: Option<String>,
}

struct AlertRow {
    id: i64,
    kind: Code,
    /// Why the alert was raised; empty if its kind says all.
    cause: String,
    /// The order or binding of the alert.
    subject: String,
    /// Path of the subject's page.
    page: String,
    raised: Moment,
    waits: String,
    told_again: i32,
    next: Option<Countdown>,
    is_open: bool,
    acked: String,
    acknowledge: Option<Action>,
    tickets: Vec<TicketLink>,
}

impl AlertRow {
    fn new(alert: RaisedAlert, person: &SignedIn, now: DateTime<Utc>) -> Self {
        let is_open = alert.acked_at.is_none();
        let subject = alert.subject().to_owned();
        let list = if alert.binding_id.is_some() { "bindings" } else { "orders" };
        let page = format!("/{list}/{}", encode_component(&subject));
        let acked = alert.acked_by.map(|by| format!("{by}: {}", alert.ack_note.unwrap_or_default()));
        Self {
            acknowledge: (is_open && may_acknowledge(person, &alert.kind)).then(|| form_to_acknowledge(alert.id, None)),
            id: alert.id,
            cause: describe_cause(&alert.payload),
            kind: Code::new("message_kind", alert.kind),
            page,
            subject,
            raised: Moment(alert.raised_at),
            waits: describe_age(Some(alert.raised_at), alert.acked_at.unwrap_or(now)),
            told_again: alert.escalations,
            next: alert.next_escalation_at.map(|to| Countdown { to, now }),
            is_open,
            acked: acked.unwrap_or_default(),
            tickets: TicketLink::link_all(alert.tickets),
        }
    }
}

/// Returns the cause in an alert's message: the text of the service, the number of attempts, or the transaction.
fn describe_cause(payload: &Value) -> String {
    let text = |name: &str| payload.get(name).and_then(Value::as_str);
    if let Some(cause) = text("reason").or_else(|| text("error")).filter(|cause| !cause.is_empty()) {
        return sentence(cause);
    }
    if let Some(attempts) = payload.get("attempts").and_then(Value::as_u64) {
        return fill!("alerts.after_attempts", attempts);
    }
    text("trx_id").map(|id| fill!("alerts.of_transaction", id)).unwrap_or_default()
}

#[derive(Template)]
#[template(path = "alerts.html")]
struct AlertsPage {
    shell: Shell,
    /// Whether this person may acknowledge alerts.
    may_acknowledge: bool,
    query: AlertQuery,
    here: String,
    rows: Vec<AlertRow>,
    next: Option<String>,
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<AlertQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = person.showing(app);
    let query: AlertQuery = read_query(query)?;
    let filter = AlertFilter {
        open: query.show != "all",
        kind: optional_text(tr("common.kind"), Some(&query.kind))?,
        order: None,
        binding: None,
        before: query.before,
        limit: PAGE,
    };
    let mut raised = alerts::list_alerts(&app.core.db, &filter).await?;
    retain_visible(&app, person.scope(), &mut raised, |alert| alert.order_id.as_deref()).await?;
    let now = db::database_now(&app.core.db).await?;
    let is_full = u32::try_from(raised.len()).is_ok_and(|n| n == PAGE);
    let address = |before: Option<i64>| {
        let before = before.map(|id| id.to_string()).unwrap_or_default();
        write_query(&[("show", &query.show), ("kind", &query.kind), ("before", &before)])
    };
    let shell = Shell::for_person(&app.config, &person, "/alerts", tr("common.alerts"), query.did.as_deref());
    let next = raised.last().filter(|_| is_full).map(|alert| address(Some(alert.id)));
    let linked = raised.into_iter().map(|alert| alert.link_tickets(&app.notify.channels));
    let rows = linked.map(|alert| AlertRow::new(alert, &person, now));
    let page = AlertsPage {
        shell: shell.live(if query.before.is_none() { REFRESH_S } else { 0 }).follow(ChangeTopic::Alerts).made_at(now),
        // The page that acknowledges several alerts is not limited to a scope.
        may_acknowledge: person.may(&WRITERS) && person.scope().is_none(),
        here: address(query.before),
        next,
        rows: rows.collect(),
        query,
    };
    render(&page)
}

#[derive(Debug, Deserialize)]
pub(crate) struct AcknowledgeForm {
    #[serde(default)]
    note: String,
    back: Option<String>,
}

/// Acknowledges several alerts with one note. If the person may not acknowledge one of them, none is changed.
pub(crate) async fn acknowledge_several(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<Vec<(String, String)>>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&WRITERS)?;
    let values = read_form(form)?;
    let of = |name: &'static str| values.iter().filter(move |(own, _)| own == name).map(|(_, value)| value.as_str());
    let note = given_text(tr("common.note"), of("note").next().unwrap_or_default())?;
    let ids: Result<BTreeSet<i64>, _> = of("id").map(str::parse).collect();
    let ids = ids.map_err(|_| PageError::NotFound(tr("alerts.no_alert_id")))?;
    if ids.is_empty() || ids.len() > PAGE as usize {
        return Err(PageError::Invalid(fill!("alerts.select_some", most = PAGE)));
    }
    for id in &ids {
        must_acknowledge(&app, &person, *id).await?;
    }
    for id in ids {
        alerts::acknowledge_alerts(&app.core.db, &AlertSelection::One(id), &person.actor(), &note).await?;
    }
    Ok(go_back(&app.config, "/alerts", "ack-several").into_response())
}

/// Refuses an alert that does not exist, or that this person may not acknowledge.
async fn must_acknowledge(app: &App, person: &SignedIn, id: i64) -> Result<(), PageError> {
    let missing = PageError::NotFound(tr("alerts.no_alert_id"));
    let alert = alerts::load_alert(&app.core.db, id).await?.ok_or(missing)?;
    let may = may_acknowledge(person, &alert.kind);
    if may { Ok(()) } else { Err(PageError::Forbidden(tr("alerts.only_support_can_acknowledge"))) }
}

/// Acknowledges an alert. An alert that was acknowledged before stays unchanged.
pub(crate) async fn acknowledge_alert(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<AcknowledgeForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&WRITERS)?;
    let id: i64 = id.parse().map_err(|_| PageError::NotFound(tr("alerts.no_alert_id")))?;
    let AcknowledgeForm { note, back } = read_form(form)?;
    let note = given_text(tr("common.note"), &note)?;
    must_acknowledge(&app, &person, id).await?;
    alerts::acknowledge_alerts(&app.core.db, &AlertSelection::One(id), &person.actor(), &note).await?;
    Ok(go_back(&app.config, safe_path(back.as_deref(), "/alerts"), "ack").into_response())
}
