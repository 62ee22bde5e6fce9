//! Pages of plans and of sessions.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use model::plan::{Plan, PlanCounts, PlanKind, PlanState};
use uuid::Uuid;

use super::{
    roles::{ADMINS, OPERATORS, STAFF},
    rows::{Deed, ReasonForm},
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{given_text, read_form, read_query},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Code, Moment, escape, role_word, sentence},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use accounts::sessions;
use app::App;
use desk::plans::{control, error::PlanError, store};
use foundation::staff_actions::ActionAuthor;
use model::ids::PlanId;

const PAGE: i64 = 100;
const REFRESH_S: u32 = 5;
const SESSIONS_REFRESH_S: u32 = 15;

const PLAN_HEADINGS: [Words; 7] = [
    tr("plans.plan"),
    tr("common.state"),
    tr("common.action"),
    tr("plans.selection"),
    tr("plans.progress"),
    tr("common.created"),
    tr("common.reason"),
];

/// Returns HTML with the kind and the action of a plan.
pub(super) fn describe_action(kind: PlanKind, action: &str) -> String {
    format!("{}: {}", Code::new("plan_kind", kind.as_str()), Code::new("plan_action", action))
}

pub(super) fn state_chip(state: PlanState) -> Chip {
    let (tone, word) = match state {
        PlanState::Planned => ("wait", tr("plans.planned")),
        PlanState::Running => ("busy", tr("common.running")),
        PlanState::Done => ("good", tr("plans.done")),
        PlanState::Cancelled => ("plain", tr("plans.cancelled")),
    };
    Chip::new(tone, word)
}

pub(super) fn describe_progress(counts: PlanCounts) -> String {
    let left = counts.left();
    let PlanCounts { total, changed, unchanged, refused } = counts;
    fill!("plans.total_changed_unchanged_refused", total, changed, unchanged, refused, left)
}

/// Returns the actions that this person may take in the current state of the plan. The services check again.
pub(super) fn actions_on(person: &SignedIn, plan: &Plan) -> Vec<Action> {
    if !person.may(&OPERATORS) {
        return Vec::new();
    }
    let action = |label, word: &str| Action::new(label, format!("/plans/{}/{word}", plan.id), Vec::new());
    match plan.state {
        PlanState::Planned => vec![action(tr("plans.run_plan"), "run"), action(tr("plans.cancel_plan"), "cancel")],
        PlanState::Running => vec![action(tr("plans.cancel_plan"), "cancel")],
        PlanState::Done | PlanState::Cancelled => Vec::new(),
    }
}

pub(super) fn parse_plan(id: &str) -> Result<PlanId, PageError> {
    id.parse().map_err(|_| PageError::NotFound(tr("plans.no_plan_id")))
}

pub(crate) async fn show_plans(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let Deed { did } = read_query(query)?;
    let plans = store::list_plans(&app.core.db, None, None, PAGE).await?;
    let base = &app.config.console.path;
    let rows = plans.into_iter().map(|plan| {
        let actions = actions_on(&person, &plan);
        let href = format!("{base}/plans/{}", plan.id);
        let (at, by) = (Moment(plan.created_at), escape(&plan.created_by));
        TableRow {
            cells: vec![
                Cell::link(&href, &plan.id.to_string()),
                Cell::html(state_chip(plan.state)),
                Cell::html(describe_action(plan.kind, plan.action.to_string().trim_matches('"'))),
                Cell::id(&plan.filter),
                Cell::text(describe_progress(plan.counts)),
                Cell::html(fill!("common.at_by", at, by)),
                Cell::text(plan.reason.unwrap_or_default()),
            ],
            actions,
            href,
        }
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app.config, &person, "/plans", tr("common.plans"), did.as_deref()).live(REFRESH_S);
    let page = TablePage {
        note: tr("plans.plan_stores_bulk_action").into(),
        if_empty: (tr("plans.no_plans"), tr("plans.plans_created_on_page")),
        ..TablePage::new(shell, "/plans", &PLAN_HEADINGS, rows)
    };
    render(&page)
}

/// Returns the page for an error.
pub(super) fn plan_error(error: PlanError) -> PageError {
    match error {
        PlanError::NotFound(_) => PageError::NotFound(tr("plans.no_plan_id")),
        PlanError::Database(error) => error.into(),
        PlanError::Service(error) => error.into(),
        error => PageError::Conflict(sentence(&error.to_string())),
    }
}

/// Runs a plan once, or cancels it.
pub(crate) async fn change_plan(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let id = parse_plan(&id)?;
    let (changed, deed) = match word.as_str() {
        "run" => (control::run_plan(&app.core, id, &person.actor()).await, "plan-run"),
        "cancel" => (control::cancel_plan(&app.core, id, &person.actor()).await, "plan-cancel"),
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    changed.map_err(plan_error)?;
    Ok(go_back(&app.config, "/plans", deed).into_response())
}

const SESSION_HEADINGS: [Words; 5] =
    [tr("common.key"), tr("common.role"), tr("plans.address"), tr("plans.signed"), tr("common.last_used")];

pub(crate) async fn show_sessions(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let app = app.showing();
    let Deed { did } = read_query(query)?;
    let rows = sessions::list_sessions(&app.core.db).await?.into_iter().map(|session| TableRow {
        cells: vec![
            Cell::text(&session.name),
            Cell::text(role_word(session.role)),
            Cell::id(session.address.unwrap_or_default()),
            Cell::html(Moment(session.created_at)),
            Cell::html(Moment(session.last_seen_at)),
        ],
        actions: vec![
            Action::new(tr("plans.end_session"), format!("/sessions/{}/end", session.id), vec![Field::reason()])
                .danger(),
        ],
        href: String::new(),
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app.config, &person, "/sessions", tr("common.sessions"), did.as_deref())
        .live(SESSIONS_REFRESH_S);
    let page = TablePage {
        note: tr("plans.these_people_signed_console").into(),
        ..TablePage::new(shell, "/sessions", &SESSION_HEADINGS, rows)
    };
    render(&page)
}

/// Ends a session.
pub(crate) async fn end_session(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let missing = || {
        let text = tr("plans.no_such_session_it");
        PageError::NotFound(text)
    };
    let id: Uuid = id.parse().map_err(|_| missing())?;
    let reason = given_text(tr("common.reason"), &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    if !sessions::close_session(&app.core.db, id, by).await? {
        return Err(missing());
    }
    Ok(go_back(&app.config, "/sessions", "session-ended").into_response())
}
