//! Audit page: actions of staff with person, time, address, object and reason.

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use model::messages::TRANSACTION_UNRESOLVED;
use serde::Deserialize;

use super::roles::OPERATORS;
use crate::{
    catalogue::{Words, tr},
    form::{encode_component, optional_text, parse_time, read_query, write_query},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Code, Moment, escape, sentence},
    table::{Cell, Field, TablePage, TableRow},
};
use app::App;
use foundation::db;
use maintenance::audit::trail::{self, TrailEntry, TrailFilter, TrailPlace, TrailSource, TrailSpan};

const PAGE: u32 = 50;
const REFRESH_S: u32 = 15;
const HEADINGS: [Words; 6] = [
    tr("common.time"),
    tr("audit.person"),
    tr("common.action"),
    tr("audit.object"),
    tr("common.reason"),
    tr("audit.address_request"),
];

/// Filter in the address. An empty value matches everything.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AuditQuery {
    who: String,
    source: String,
    subject: String,
    from: String,
    to: String,
    cursor: String,
}

impl AuditQuery {
    fn to_query(&self, cursor: &str) -> String {
        write_query(&[
            ("who", &self.who),
            ("source", &self.source),
            ("subject", &self.subject),
            ("from", &self.from),
            ("to", &self.to),
            ("cursor", cursor),
        ])
    }

    fn to_filter(&self) -> Result<TrailFilter, PageError> {
        let source = match self.source.as_str() {
            "" => None,
            word => Some(TrailSource::parse(word).ok_or_else(|| {
                let text = tr("audit.kind_object_not_exist");
                PageError::Invalid(text.into())
            })?),
        };
        Ok(TrailFilter {
            source,
            who: optional_text(tr("common.name"), Some(&self.who))?,
            subject: optional_text(tr("common.id"), Some(&self.subject))?,
        })
    }
}

/// Returns the label of a source.
fn source_label(source: TrailSource) -> &'static str {
    let label = match source {
        TrailSource::Order => tr("common.orders"),
        TrailSource::Binding => tr("common.bindings"),
        TrailSource::Area => tr("common.areas"),
        TrailSource::Alert => tr("common.alerts"),
        TrailSource::Plan => tr("common.plans"),
        TrailSource::DeadJob => tr("common.dead_jobs"),
        TrailSource::System => tr("audit.queues_drivers_keys_users"),
        TrailSource::Erasure => tr("audit.data_erasures"),
    };
    label.get()
}

/// Returns the page of the changed object; empty if it has none.
fn subject_page(base: &str, entry: &TrailEntry) -> String {
    match entry.source.as_str() {
        "alert" if entry.action.ends_with(TRANSACTION_UNRESOLVED) => {
            format!("{base}/bindings/{}", encode_component(&entry.subject))
        }
        "order" | "alert" => format!("{base}/orders/{}", encode_component(&entry.subject)),
        "binding" => format!("{base}/bindings/{}", encode_component(&entry.subject)),
        _ => String::new(),
    }
}

/// Returns the code of an action. The catalogue has the actions of each source in a group of their own.
fn describe_action(entry: &TrailEntry) -> Code {
    if let Some(kind) = entry.action.strip_prefix("ACKNOWLEDGED_") {
        return Code::new("message_kind", kind);
    }
    match entry.source.as_str() {
        "order" => Code::new("order_event", entry.action.as_str()),
        "binding" => Code::new("binding_event", entry.action.to_lowercase()),
        _ => Code::new("staff_action", entry.action.as_str()),
    }
}

fn row_of(base: &str, entry: TrailEntry) -> TableRow {
    let href = subject_page(base, &entry);
    let address = entry.address.as_deref().unwrap_or(tr("audit.not_over_http").get());
    let request = entry.request.as_deref().unwrap_or_default();
    let origin = format!("{} <span class=\"quiet small\">{}</span>", escape(address), escape(request));
    let cells = vec![
        Cell::html(Moment(entry.at)),
        Cell::text(&entry.actor),
        Cell::html(describe_action(&entry)),
        if href.is_empty() { Cell::id(&entry.subject) } else { Cell::link(&href, &entry.subject) },
        Cell::text(entry.reason.unwrap_or_default()),
        Cell::html(origin),
    ];
    TableRow::plain(cells).open(href)
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<AuditQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let app = app.showing();
    let query: AuditQuery = read_query(query)?;
    let filter = query.to_filter()?;
    let (from, to) = (parse_time(tr("audit.from_utc"), &query.from)?, parse_time(tr("common.to_utc"), &query.to)?);
    let now = db::database_now(&app.core.db).await?;
    let span = TrailSpan::new(from, to, now);
    let span = span.map_err(|error| PageError::Invalid(sentence(&error.to_string())))?;
    let after = match query.cursor.as_str() {
        "" => None,
        cursor => Some(cursor.parse::<TrailPlace>().map_err(|error| PageError::Invalid(sentence(&error.to_string())))?),
    };
    let entries = trail::list_trail(&app.core.db, &filter, span, after.as_ref(), PAGE).await?;
    let is_full = u32::try_from(entries.len()).is_ok_and(|n| n == PAGE);
    let next = entries.last().filter(|_| is_full).map(|entry| query.to_query(&TrailPlace::from(entry).to_string()));
    let base = &app.config.console.path;
    let rows = entries.into_iter().map(|entry| row_of(base, entry)).collect();
    let mut sources = vec![("", tr("common.any").get())];
    sources.extend(TrailSource::ALL.map(|source| (source.as_str(), source_label(source))));
    let note = match (from, to) {
        (None, None) => tr("audit.changes_staff_last_seven"),
        _ => tr("audit.changes_staff_time_newest"),
    };
    let shell = Shell::for_person(&app.config, &person, "/audit", tr("common.audit"), None).made_at(now);
    let shell = shell.live(if query.cursor.is_empty() { REFRESH_S } else { 0 });
    let page = TablePage {
        note: note.into(),
        filters: vec![
            Field::text("who", tr("audit.person_such_as_anna"), &query.who),
            Field::choice("source", tr("audit.kind_object"), &query.source, &sources),
            Field::text("subject", tr("audit.id_object"), &query.subject),
            Field::time("from", tr("audit.from_utc"), &query.from),
            Field::time("to", tr("common.to_utc"), &query.to),
        ],
        if_empty: (tr("audit.no_changes_found"), tr("audit.no_change_staff_matches")),
        next,
        ..TablePage::new(shell, &format!("/audit{}", query.to_query(&query.cursor)), &HEADINGS, rows)
    };
    render(&page)
}
