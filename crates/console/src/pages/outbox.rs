//! Page of outbox messages, and replay of dead ones.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use model::messages::MessageSubject;
use serde::Deserialize;

use super::{roles::OPERATORS, rows::ReasonForm};
use crate::{
    form::{REASON, given_text, optional_text, read_form, read_query, write_query},
    language::{Words, both},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, spaced},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use app::App;
use desk::dead_letters::{
    decide::DecisionAuthor,
    redeliver::{self, OutboxFilter},
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
    both("Message", "Pesan"),
    both("Kind", "Jenis"),
    both("About", "Tentang"),
    both("Channel", "Saluran"),
    both("State", "Status"),
    both("Tries", "Percobaan"),
    both("Created", "Dibuat"),
];

const PENDING: Words = both("pending", "menunggu");
const DELIVERED: Words = both("delivered", "terkirim");
const EXPIRED: Words = both("expired", "kedaluwarsa");
const DEAD: Words = both("dead", "mati");

fn parse_state(word: &str) -> Result<Option<OutboxState>, PageError> {
    match word {
        "" => Ok(None),
        "pending" => Ok(Some(OutboxState::Pending)),
        "delivered" => Ok(Some(OutboxState::Delivered)),
        "expired" => Ok(Some(OutboxState::Expired)),
        "dead" => Ok(Some(OutboxState::Dead)),
        _ => {
            let text = both(
                "A message is pending, delivered, expired or dead.",
                "Status pesan: pending, delivered, expired, atau dead.",
            );
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
        kind: optional_text(both("kind", "jenis"), Some(&query.kind))?,
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
    let rows = messages.into_iter().map(|message| {
        let state = match message.state {
            OutboxState::Pending => Chip::new("wait", PENDING),
            OutboxState::Delivered => Chip::new("good", DELIVERED),
            OutboxState::Expired => Chip::new("warn", EXPIRED),
            OutboxState::Dead => Chip::new("bad", DEAD),
        };
        let (href, subject) = match &message.subject {
            MessageSubject::Order(order) => (format!("{base}/orders/{order}"), order.as_str()),
            MessageSubject::Binding(binding) => (format!("{base}/bindings/{binding}"), binding.as_str()),
        };
        let about = Cell::link(&href, subject);
        let again = Action::new(
            both("Send again", "Kirim lagi"),
            format!("/outbox/{}/replay", message.id),
            vec![Field::reason()],
        );
        let error = message.last_error.map(|error| format!(", {error}")).unwrap_or_default();
        TableRow {
            cells: vec![
                Cell::id(message.id),
                Cell::text(spaced(&message.kind)),
                about,
                Cell::text(&message.channel),
                Cell::html(state),
                Cell::text(format!("{}{error}", message.attempts)),
                Cell::html(Moment(message.created_at)),
            ],
            actions: if message.state == OutboxState::Dead { vec![again] } else { Vec::new() },
            href,
        }
    });
    let rows = rows.collect();
    let shell =
        Shell::for_person(&app.config, &person, "/outbox", both("Outbox", "Kotak keluar"), query.did.as_deref());
    let shell = shell.live(if query.before.is_none() { REFRESH_S } else { 0 });
    let states = [
        ("", both("any", "semua").get()),
        ("pending", PENDING.get()),
        ("delivered", DELIVERED.get()),
        ("expired", EXPIRED.get()),
        ("dead", DEAD.get()),
    ];
    let page = TablePage {
        filters: vec![
            Field::text("kind", both("Kind, such as OFFER", "Jenis, misalnya OFFER"), &query.kind),
            Field::choice("state", both("State", "Status"), &query.state, &states),
        ],
        if_empty: (
            both("No message fits", "Tidak ada pesan yang cocok"),
            both(
                "Messages to drivers, staff, customers and producers are listed here.",
                "Pesan untuk pengemudi, staf, pelanggan, dan produsen ada di sini.",
            ),
        ),
        next,
        ..TablePage::new(shell, &format!("/outbox{}", address(query.before)), &OUTBOX_HEADINGS, rows)
    };
    render(&page)
}

/// Sends a dead message again.
pub(crate) async fn replay_message(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let missing = || PageError::NotFound(both("There is no message of this id.", "Tidak ada pesan dengan id ini."));
    let id: i64 = id.parse().map_err(|_| missing())?;
    let by = DecisionAuthor { who: person.actor(), why: Some(given_text(REASON, &read_form(form)?.reason)?) };
    let filter = OutboxFilter { ids: Some(vec![id]), limit: 1, ..OutboxFilter::default() };
    let found = redeliver::list_messages(&app.core.db, &filter).await?;
    let message = found.into_iter().next().ok_or_else(missing)?;
    if redeliver::replay_message(&app.desk, &message, &by).await? {
        return Ok(go_back(&app.config, "/outbox", "replay").into_response());
    }
    let text = both("This message is not dead, or no longer.", "Pesan ini tidak mati, atau tidak lagi.");
    Err(PageError::Conflict(text.into()))
}
