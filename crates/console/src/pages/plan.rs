//! Page of one plan: its items, its refusals and their reasons, and its progress.

use std::fmt::Write as _;

use axum::{
    extract::{Path, Query, State, rejection::QueryRejection},
    response::Response,
};
use model::plan::{PlanItem, PlanItemState, PlanState};
use serde::Deserialize;

use super::{
    control::{actions_on, describe_action, describe_progress, parse_plan, state_chip},
    roles::STAFF,
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{optional_text, read_query, write_query},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, escape},
    table::{Cell, Field, TablePage, TableRow},
};
use app::App;
use desk::plans::store::{self, LoadedPlan, RefusalCount};

const PAGE: i64 = 100;
const REFRESH_S: u32 = 3;

const HEADINGS: [Words; 5] =
    [tr("plans.item"), tr("common.state"), tr("plans.refusal_code"), tr("common.details"), tr("common.time")];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct PlanQuery {
    state: String,
    after: String,
    did: Option<String>,
}

impl PlanQuery {
    fn to_query(&self, after: &str) -> String {
        write_query(&[("state", &self.state), ("after", after)])
    }
}

fn item_chip(state: PlanItemState) -> Chip {
    let tone = match state {
        PlanItemState::Pending => "wait",
        PlanItemState::Changed => "good",
        PlanItemState::Unchanged => "plain",
        PlanItemState::Refused => "warn",
    };
    Chip::new(tone, item_words(state))
}

fn item_words(state: PlanItemState) -> Words {
    match state {
        PlanItemState::Pending => tr("common.waiting"),
        PlanItemState::Changed => tr("plans.changed"),
        PlanItemState::Unchanged => tr("plans.unchanged"),
        PlanItemState::Refused => tr("common.refused"),
    }
}

fn parse_state(word: &str) -> Result<Option<PlanItemState>, PageError> {
    if word.is_empty() {
        return Ok(None);
    }
    let found = PlanItemState::ALL.into_iter().find(|state| state.as_str() == word);
    let unknown = tr("plans.state_not_exist_items");
    found.map(Some).ok_or_else(|| PageError::Invalid(unknown.into()))
}

fn row_of(item: PlanItem) -> TableRow {
    TableRow::plain(vec![
        Cell::id(&item.subject_id),
        Cell::html(item_chip(item.state)),
        Cell::id(item.refusal.unwrap_or_default()),
        Cell::text(item.note.unwrap_or_default()),
        item.done_at.map_or_else(|| Cell::text(""), |at| Cell::html(Moment(at))),
    ])
}

/// Returns HTML with the plan and its refusals by reason.
fn draw_summary(loaded: &LoadedPlan, refusals: &[RefusalCount]) -> String {
    let plan = &loaded.plan;
    let (action, filter) = (plan.action.to_string(), plan.filter.to_string());
    let is_all = filter == "{}";
    let mut facts = vec![
        (tr("common.state"), state_chip(plan.state).to_string()),
        (tr("plans.progress"), escape(&describe_progress(plan.counts))),
        (tr("common.action"), describe_action(plan.kind, action.trim_matches('"'))),
        (tr("plans.selection"), if is_all { tr("plans.all").into() } else { escape(&filter) }),
        (tr("common.reason"), escape(plan.reason.as_deref().unwrap_or("–"))),
    ];
    let by = |at, by: &str| {
        let (at, by) = (Moment(at), escape(by));
        fill!("common.at_by", at, by)
    };
    facts.push((tr("common.created"), by(plan.created_at, &plan.created_by)));
    if let (Some(at), Some(runner)) = (plan.started_at, &plan.run_by) {
        facts.push((tr("common.started"), by(at, runner)));
    }
    if let Some(at) = plan.ended_at {
        let ended = plan.cancelled_by.as_ref().map_or_else(|| Moment(at).to_string(), |person| by(at, person));
        facts.push((tr("common.ended"), ended));
    }
    let mut html = String::from("<dl class=\"facts\">");
    for (name, value) in facts {
        let _ = write!(html, "<dt>{name}</dt><dd>{value}</dd>");
    }
    html.push_str("</dl>");
    if !refusals.is_empty() {
        let _ = write!(html, "<h2>{}</h2><ul>", tr("common.refused"));
        for RefusalCount { refusal, count, example } in refusals {
            let (refusal, example) = (escape(refusal), escape(example.as_deref().unwrap_or_default()));
            let _ = write!(html, "<li><b>{count}</b> <span class=\"id\">{refusal}</span> {example}</li>");
        }
        html.push_str("</ul>");
    }
    html
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    query: Result<Query<PlanQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let id = parse_plan(&id)?;
    let query: PlanQuery = read_query(query)?;
    let state = parse_state(&query.state)?;
    let after = optional_text(tr("common.page_position"), Some(&query.after))?.unwrap_or_default();
    let loaded = store::load_plan(&app.core.db, id).await?.ok_or(PageError::NotFound(tr("plans.no_plan_id")))?;
    let refusals = store::count_refusals(&app.core.db, id).await?;
    let items = store::list_items(&app.core.db, id, state, &after, PAGE).await?;
    let is_full = i64::try_from(items.len()).is_ok_and(|n| n == PAGE);
    let next = items.last().filter(|_| is_full).map(|item| query.to_query(&item.subject_id));
    let rows = items.into_iter().map(row_of).collect();
    let mut states = vec![("", tr("common.any").get())];
    states.extend(PlanItemState::ALL.map(|state| (state.as_str(), item_words(state).get())));
    let refresh = if matches!(loaded.plan.state, PlanState::Done | PlanState::Cancelled) { 0 } else { REFRESH_S };
    let title = fill!("plans.title", id);
    let shell = Shell::for_person(&app.config, &person, "/plans", title, query.did.as_deref());
    let page = TablePage {
        figure: draw_summary(&loaded, &refusals),
        filters: vec![Field::choice("state", tr("plans.item_state"), &query.state, &states)],
        actions: actions_on(&person, &loaded.plan),
        if_empty: (tr("plans.no_items_found"), tr("plans.plan_no_items_state")),
        next,
        ..TablePage::new(
            shell.live(refresh).made_at(loaded.now),
            &format!("/plans/{id}{}", query.to_query(&query.after)),
            &HEADINGS,
            rows,
        )
    };
    render(&page)
}
