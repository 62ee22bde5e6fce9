//! Page of webhook endpoints, which admins create, test, pause, rotate, replay and delete. Only the page that creates an
//! endpoint or rotates its secret shows the secret.

use std::time::Duration;

use ::api::{
    error::ApiError,
    webhook_endpoints::actions::{self, WantedEndpoint},
};
use app::App;
use askama::Template;
use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Redirect, Response},
};
use foundation::{db, staff_actions::ActionAuthor};
use notify::endpoints::{
    Endpoint, EndpointOwner, EndpointSecret, EndpointState,
    deliveries::{self, DeliveryCursor},
    list,
};
use orders::feed::FeedCursor;
use serde::Deserialize;
use uuid::Uuid;

use super::{roles::ADMINS, rows::ReasonForm};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, given_text, optional_text, read_form, read_query, split_names, write_query},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, sentence},
    table::{Action, Cell, Field, TablePage, TableRow},
};

const PAGE: i64 = 100;
const REFRESH_S: u32 = 15;
/// Time that an old secret also signs after a rotation on this page.
const OVERLAP: Duration = Duration::from_hours(24);

const HEADINGS: [Words; 6] = [
    tr("webhooks.endpoint"),
    tr("webhooks.producer"),
    tr("webhooks.url"),
    tr("webhooks.events"),
    tr("common.state"),
    tr("webhooks.paused_after"),
];
const DELIVERY_HEADINGS: [Words; 6] = [
    tr("webhooks.time"),
    tr("webhooks.event"),
    tr("webhooks.event_id"),
    tr("webhooks.try"),
    tr("webhooks.answer"),
    tr("common.state"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointQuery {
    producer: String,
    after: String,
    did: Option<String>,
}

fn state_chip(endpoint: &Endpoint) -> Chip {
    match (endpoint.declared, endpoint.state) {
        (true, _) => Chip::new("plain", tr("webhooks.declared")),
        (_, EndpointState::Active) => Chip::new("good", tr("webhooks.active")),
        (_, EndpointState::Paused) => Chip::new("wait", tr("webhooks.paused")),
    }
}

/// Returns the actions on an endpoint that was created by API.
fn actions_on(endpoint: &Endpoint) -> Vec<Action> {
    let path = |action: &str| format!("/webhooks/{}/{action}", encode_component(&endpoint.id));
    let change = match endpoint.state {
        EndpointState::Active => Action::new(tr("webhooks.pause"), path("pause"), vec![Field::reason()]),
        EndpointState::Paused => Action::new(tr("webhooks.resume"), path("resume"), vec![Field::reason()]),
    };
    let after = endpoint.paused_after.clone().unwrap_or_default();
    let cursor = Field { required: true, ..Field::text("after", tr("webhooks.cursor"), &after) };
    vec![
        Action::new(tr("webhooks.test"), path("test"), vec![Field::reason()]),
        change,
        Action::new(tr("webhooks.replay"), path("replay"), vec![cursor, Field::reason()])
            .hint(tr("webhooks.replay_hint")),
        Action::new(tr("webhooks.rotate"), path("rotate"), vec![Field::reason()]).hint(tr("webhooks.rotate_hint")),
        Action::new(tr("webhooks.delete"), path("delete"), vec![Field::reason()])
            .hint(tr("webhooks.delete_hint"))
            .danger(),
    ]
}

fn row_of(base: &str, endpoint: &Endpoint) -> TableRow {
    let events = if endpoint.events.is_empty() { tr("webhooks.all").into() } else { endpoint.events.join(", ") };
    let address = format!("{base}/webhooks/{}", encode_component(&endpoint.id));
    let id = if endpoint.declared { Cell::id(&endpoint.id) } else { Cell::link(&address, &endpoint.id) };
    let row = TableRow::plain(vec![
        id,
        Cell::text(&endpoint.producer),
        Cell::text(&endpoint.url),
        Cell::text(events),
        Cell::html(state_chip(endpoint)),
        Cell::id(endpoint.paused_after.as_deref().unwrap_or_default()),
    ]);
    if endpoint.declared { row } else { row.with_actions(actions_on(endpoint)).open(address) }
}

pub(crate) async fn show_endpoints(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<EndpointQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let app = app.showing();
    let EndpointQuery { producer, after, did } = read_query(query)?;
    let name = optional_text(tr("webhooks.producer"), Some(&producer))?;
    let owner = name.as_deref().map_or(EndpointOwner::All, EndpointOwner::Producer);
    let cursor: Option<Uuid> = match after.as_str() {
        "" => None,
        id => Some(id.parse().map_err(|_| PageError::Invalid(tr("webhooks.no_endpoint").into()))?),
    };
    let mut endpoints = Vec::new();
    if cursor.is_none() {
        endpoints = list::list_declared(&app.config, &app.notify.channels, owner);
    }
    let created = list::list_page(&app.core.db, owner, cursor, PAGE).await?;
    let is_full = i64::try_from(created.len()).is_ok_and(|n| n == PAGE);
    let address = |after: &str| write_query(&[("producer", &producer), ("after", after)]);
    let next = created.last().filter(|_| is_full).map(|endpoint| address(&endpoint.id));
    endpoints.extend(created);
    let now = db::database_now(&app.core.db).await?;
    let rows = endpoints.iter().map(|endpoint| row_of(&app.config.console.path, endpoint)).collect();
    let shell = Shell::for_person(&app.config, &person, "/webhooks", tr("webhooks.title"), did.as_deref()).made_at(now);
    let page = TablePage {
        note: tr("webhooks.note").into(),
        filters: vec![Field::text("producer", tr("webhooks.producer"), &producer)],
        actions: vec![form_for_new_endpoint()],
        if_empty: (tr("webhooks.none"), tr("webhooks.create_above")),
        next,
        ..TablePage::new(shell.live(REFRESH_S), &format!("/webhooks{}", address(&after)), &HEADINGS, rows)
    };
    render(&page)
}

fn form_for_new_endpoint() -> Action {
    let fields = vec![
        Field::required("url", tr("webhooks.url")),
        Field::required("producer", tr("webhooks.producer")),
        Field::text("events", tr("webhooks.events_field"), ""),
        Field::reason(),
    ];
    Action::new(tr("webhooks.create"), "/webhooks/create".to_owned(), fields)
}

/// Redirects to the list, because the addresses of the forms that answer with a secret have no page.
pub(crate) async fn to_endpoints(State(app): State<App>) -> Redirect {
    Redirect::to(&format!("{}/webhooks", app.config.console.path))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NewEndpointForm {
    url: String,
    producer: String,
    /// Types of events with commas; empty: all.
    events: String,
    reason: String,
}

/// Has no `Debug`, so that the secret appears in no log.
#[derive(Template)]
#[template(path = "new_secret.html")]
struct NewSecretPage {
    shell: Shell,
    id: String,
    producer: String,
    url: String,
    secret: String,
}

/// Shows a secret. The page is the answer to the form, so that no address, cookie or log contains the secret.
fn show_secret(
    app: &App,
    person: &SignedIn,
    (endpoint, secret): (Endpoint, EndpointSecret),
) -> Result<Response, PageError> {
    render(&NewSecretPage {
        shell: Shell::for_person(&app.config, person, "/webhooks", tr("webhooks.new_secret"), None),
        id: endpoint.id,
        producer: endpoint.producer,
        url: endpoint.url,
        secret: secret.expose().to_owned(),
    })
}

pub(crate) async fn create_endpoint(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<NewEndpointForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let NewEndpointForm { url, producer, events, reason } = read_form(form)?;
    let producer = given_text(tr("webhooks.producer"), &producer)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let events = split_names(&events).map(str::to_owned).collect();
    let wanted = WantedEndpoint { url: url.trim().to_owned(), events, producer: Some(producer) };
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let made = actions::create(&app, wanted, EndpointOwner::All, by).await.map_err(refuse)?;
    show_secret(&app, &person, made)
}

pub(crate) async fn rotate_secret(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let reason = given_text(tr("common.reason"), &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let rotated = actions::rotate(&app, &id, EndpointOwner::All, OVERLAP, by).await.map_err(refuse)?;
    show_secret(&app, &person, rotated)
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct EndpointForm {
    /// Cursor of a replay.
    after: String,
    reason: String,
}

/// Tests, pauses, resumes, replays or deletes an endpoint.
pub(crate) async fn change_endpoint(
    State(app): State<App>,
    person: SignedIn,
    Path((id, action)): Path<(String, String)>,
    form: Result<Form<EndpointForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let EndpointForm { after, reason } = read_form(form)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let (owner, by) = (EndpointOwner::All, ActionAuthor { actor: &person.actor(), reason: Some(&reason) });
    let done = match action.as_str() {
        "test" => actions::test(&app, &id, owner, by).await.map(|_| "webhook-tested"),
        "pause" => actions::set_state(&app, &id, owner, EndpointState::Paused, by).await.map(|_| "webhook-paused"),
        "resume" => actions::set_state(&app, &id, owner, EndpointState::Active, by).await.map(|_| "webhook-resumed"),
        "replay" => {
            let after: FeedCursor =
                after.trim().parse().map_err(|_| PageError::Invalid(tr("webhooks.cursor_form").into()))?;
            actions::replay(&app, &id, owner, after, by).await.map(|()| "webhook-replayed")
        }
        "delete" => actions::delete(&app, &id, owner, by).await.map(|()| "webhook-deleted"),
        _ => return Err(PageError::NotFound(tr("webhooks.no_endpoint"))),
    };
    Ok(go_back(&app.config, "/webhooks", done.map_err(refuse)?).into_response())
}

/// Returns the page for an error.
fn refuse(error: ApiError) -> PageError {
    match error {
        ApiError::Database(error) => error.into(),
        error if error.error_code() == "ENDPOINT_NOT_FOUND" => PageError::NotFound(tr("webhooks.no_endpoint")),
        error if error.error_code() == "INVALID" => PageError::Invalid(sentence(&error.to_string())),
        error => PageError::Conflict(sentence(&error.to_string())),
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TriesQuery {
    after: String,
}

/// Lists the tries to deliver events to an endpoint.
pub(crate) async fn show_deliveries(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    query: Result<Query<TriesQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let app = app.showing();
    let TriesQuery { after } = read_query(query)?;
    let cursor =
        Some(&after).filter(|after| !after.is_empty()).map(|after| after.parse::<DeliveryCursor>()).transpose();
    let cursor = cursor.map_err(|_| PageError::Invalid(tr("webhooks.cursor_form").into()))?;
    let (endpoint_id, endpoint) = actions::find(&app, &id, EndpointOwner::All).await.map_err(refuse)?;
    let tries = deliveries::list_page(&app.core.db, endpoint_id, cursor, PAGE).await?;
    let is_full = i64::try_from(tries.len()).is_ok_and(|n| n == PAGE);
    let next = tries.last().filter(|_| is_full);
    let next = next.map(|last| write_query(&[("after", &last.cursor().to_string())]));
    let rows = tries.iter().map(|delivery| {
        let answer = match &delivery.error {
            None => Cell::html(Chip::new("good", tr("webhooks.accepted"))),
            Some(error) => Cell::text(error),
        };
        TableRow::plain(vec![
            Cell::html(Moment(delivery.at)),
            Cell::text(delivery.event_type()),
            Cell::id(delivery.message_id),
            Cell::number(delivery.attempt_no),
            answer,
            Cell::text(delivery.state),
        ])
    });
    let rows = rows.collect();
    let now = db::database_now(&app.core.db).await?;
    let title = fill!("webhooks.deliveries_to", url = endpoint.url);
    let shell = Shell::for_person(&app.config, &person, "/webhooks", title, None).made_at(now);
    let here = format!("/webhooks/{}{}", encode_component(&id), write_query(&[("after", &after)]));
    let page = TablePage {
        note: tr("webhooks.deliveries_note").into(),
        if_empty: (tr("webhooks.no_deliveries"), tr("webhooks.test_it")),
        next,
        ..TablePage::new(shell.live(REFRESH_S), &here, &DELIVERY_HEADINGS, rows)
    };
    render(&page)
}
