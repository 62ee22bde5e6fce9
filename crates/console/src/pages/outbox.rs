//! Page of outbox messages, and replay of dead ones.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use model::messages::{ENDPOINT_ORDER, MessageSubject};
use serde::Deserialize;

use super::{roles::OPERATORS, rows::ReasonForm};
use crate::{
    catalogue::{Words, tr},
    form::{given_text, optional_text, read_form, read_query, write_query},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Code, Moment},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use app::App;
use desk::dead_letters::{
    decide::DecisionAuthor,
    redeliver::{self, OutboxFilter, OutboxMessage},
};
use model::messages::OutboxState;

const PAGE: u32 = 50;
const REFRESH_S: u32 = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct OutboxQuery {
    state: String,
    kind: String,
    before: Option<i64>,
    did: Option<String>,
}

const OUTBOX_HEADINGS: [Words; 7] = [
    tr("outbox.message"),
    tr("common.kind"),
    tr("common.order_binding"),
    tr("common.channel"),
    tr("common.state"),
    tr("outbox.tries"),
    tr("common.created"),
];

fn parse_state(word: &str) -> Result<Option<OutboxState>, PageError> {
    match word {
        "" => Ok(None),
        "pending" => Ok(Some(OutboxState::Pending)),
        "delivered" => Ok(Some(OutboxState::Delivered)),
        "expired" => Ok(Some(OutboxState::Expired)),
        "dead" => Ok(Some(OutboxState::Dead)),
        _ => {
            let text = tr("outbox.choose_pending_delivered_expired");
            Err(PageError::Invalid(text.into()))
        }
    }
}

pub(crate) async fn show_outbox(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<OutboxQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let app = app.showing();
    let query: OutboxQuery = read_query(query)?;
    let filter = OutboxFilter {
        state: parse_state(&query.state)?,
        kind: optional_text(tr("common.kind"), Some(&query.kind))?,
        before: query.before,
        limit: PAGE,
        ..OutboxFilter::default()
    };
    let messages = redeliver::list_messages(&app.core.db, &filter).await?;
    let is_full = u32::try_from(messages.len()).is_ok_and(|n| n == PAGE);
    let address = |before: Option<i64>| {
        let before = before.map(|id| id.to_string()).unwrap_or_default();
        write_query(&[("state", &query.state), ("kind", &query.kind), ("before", &before)])
    };
    let next = messages.last().filter(|_| is_full).map(|message| address(Some(message.id)));
    let base = &app.config.console.path;
    let rows = messages.into_iter().map(|message| row_of_message(base, message)).collect();
    let shell = Shell::for_person(&app.config, &person, "/outbox", tr("common.outbox"), query.did.as_deref());
    let shell = shell.live(if query.before.is_none() { REFRESH_S } else { 0 });
    let states = [
        ("", tr("common.any").get()),
        ("pending", tr("outbox.pending").get()),
        ("delivered", tr("outbox.delivered").get()),
        ("expired", tr("common.expired").get()),
        ("dead", tr("common.dead").get()),
    ];
    let page = TablePage {
        filters: vec![
            Field::text("kind", tr("outbox.kind_such_as_offer"), &query.kind),
            Field::choice("state", tr("common.state"), &query.state, &states),
        ],
        if_empty: (tr("outbox.no_messages_found"), tr("outbox.messages_drivers_staff_customers")),
        next,
        ..TablePage::new(shell, &format!("/outbox{}", address(query.before)), &OUTBOX_HEADINGS, rows)
    };
    render(&page)
}

/// Returns the row of a message, with its actions. `base` is the console's path.
pub(super) fn row_of_message(base: &str, message: OutboxMessage) -> TableRow {
    let state = match message.state {
        OutboxState::Pending => Chip::new("wait", tr("outbox.pending")),
        OutboxState::Delivered => Chip::new("good", tr("outbox.delivered")),
        OutboxState::Expired => Chip::new("warn", tr("common.expired")),
        OutboxState::Dead => Chip::new("bad", tr("common.dead")),
    };
    let (href, subject) = match &message.subject {
        // A test of a webhook endpoint is about no order.
        MessageSubject::Order(order) if order.as_str() == ENDPOINT_ORDER => {
            (format!("{base}/outbox/{}", message.id), message.kind.as_str())
        }
        MessageSubject::Order(order) => (format!("{base}/orders/{order}"), order.as_str()),
        MessageSubject::Binding(binding) => (format!("{base}/bindings/{binding}"), binding.as_str()),
    };
    let about = Cell::link(&href, subject);
    let again =
        Action::new(tr("outbox.send_message_again"), format!("/outbox/{}/replay", message.id), vec![Field::reason()]);
    let error = message.last_error.map(|error| format!(", {error}")).unwrap_or_default();
    TableRow {
        cells: vec![
            Cell::link(&format!("{base}/outbox/{}", message.id), &message.id.to_string()),
            Cell::html(Code::new("message_kind", message.kind.as_str())),
            about,
            Cell::text(&message.channel),
            Cell::html(state),
            Cell::text(format!("{}{error}", message.attempts)),
            Cell::html(Moment(message.created_at)),
        ],
        actions: if message.state == OutboxState::Dead { vec![again] } else { Vec::new() },
        href,
    }
}

/// Sends a dead message again.
pub(crate) async fn replay_message(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let missing = || PageError::NotFound(tr("outbox.no_message_id"));
    let id: i64 = id.parse().map_err(|_| missing())?;
    let by =
        DecisionAuthor { who: person.actor(), why: Some(given_text(tr("common.reason"), &read_form(form)?.reason)?) };
    let filter = OutboxFilter { ids: Some(vec![id]), limit: 1, ..OutboxFilter::default() };
    let found = redeliver::list_messages(&app.core.db, &filter).await?;
    let message = found.into_iter().next().ok_or_else(missing)?;
    if redeliver::replay_message(&app.desk, &message, &by).await? {
        return Ok(go_back(&app.config, "/outbox", "replay").into_response());
    }
    let text = tr("outbox.message_not_dead");
    Err(PageError::Conflict(text.into()))
}
