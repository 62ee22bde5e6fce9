//! Bindings, plans and sessions: what runs by itself, what is done to many at once, and who is signed in.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use dispatch::{
    accounts::{api_keys::AccountRole, sessions, staff_actions::ActionAuthor},
    app::App,
    bindings::{
        change::BindingError,
        commands,
        list::{self, BindingFilter},
    },
    ids::PlanId,
    plans::{control, create::PlanError, store},
};
use model::{
    binding::{BindingCommand, BindingId, BindingState, StopReason},
    plan::PlanState,
};
use serde::Deserialize;
use uuid::Uuid;

use super::{STAFF, desk::Deed, fleet::ReasonForm};
use crate::{
    form::{given_text, optional_text, read_form, read_query, write_query},
    page::{PageError, Shell, go_back, render},
    session::SignedIn,
    shown::{Chip, Moment, role_word, sentence, spaced},
    table::{Action, Cell, Field, TablePage, TableRow},
};

const PAGE: i64 = 100;
const REFRESH_S: u32 = 5;
const OPERATORS: [AccountRole; 1] = [AccountRole::Operator];
/// Admin alone.
const ADMINS: [AccountRole; 0] = [];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BindingQuery {
    after: String,
    did: Option<String>,
}

const BINDING_HEADINGS: [&str; 7] = ["Binding", "State", "Phase", "Server", "Account", "Cycle", "Transaction"];

pub(crate) async fn show_bindings(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<BindingQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = person.reading(app);
    let query: BindingQuery = read_query(query)?;
    let after: Option<BindingId> = match optional_text("cursor", Some(&query.after))? {
        Some(after) => Some(after.parse().map_err(|_| PageError::Invalid("That is no id of a binding.".to_owned()))?),
        None => None,
    };
    let bindings = list::list_bindings(&app, &BindingFilter::default(), after.as_ref(), PAGE).await?;
    let is_full = i64::try_from(bindings.len()).is_ok_and(|n| n == PAGE);
    let next = bindings.last().filter(|_| is_full).map(|binding| write_query(&[("after", binding.id.as_str())]));
    let may_act = person.may(&OPERATORS);
    let rows = bindings.into_iter().map(|binding| {
        let (tone, verbs): (&str, &[(&str, &str)]) = match binding.state {
            BindingState::Running => ("good", &[("Pause", "pause"), ("Stop", "stop")]),
            BindingState::Paused => ("wait", &[("Resume", "resume"), ("Stop", "stop")]),
            BindingState::Stopping => ("wait", &[]),
            BindingState::Stopped => ("plain", &[("Start", "start")]),
        };
        let action = |(label, word): &(&'static str, &'static str)| {
            Action::new(label, format!("/bindings/{}/{word}", binding.id), vec![Field::reason()])
        };
        let why = binding.reason.map(|reason| format!(", {}", spaced(reason.as_str()))).unwrap_or_default();
        TableRow {
            cells: vec![
                Cell::id(&binding.id),
                Cell::html(Chip::new(tone, format!("{}{why}", spaced(binding.state.as_str())))),
                Cell::text(spaced(binding.phase.as_str())),
                Cell::id(&binding.server_id),
                Cell::id(&binding.account_id),
                Cell::number(binding.cycle),
                Cell::id(binding.trx_id.as_ref().map(ToString::to_string).unwrap_or_default()),
            ],
            actions: if may_act { verbs.iter().map(action).collect() } else { Vec::new() },
        }
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app, &person, "/bindings", "Bindings", query.did.as_deref()).live(REFRESH_S);
    let page = TablePage {
        if_empty: ("No bindings", "Make one: dispatchq binding create, or POST /api/v1/bindings."),
        next,
        ..TablePage::new(
            shell,
            &format!("/bindings{}", write_query(&[("after", &query.after)])),
            &BINDING_HEADINGS,
            rows,
        )
    };
    render(&page)
}

/// Starts, pauses, resumes or stops a binding.
pub(crate) async fn command_binding(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let missing = || PageError::NotFound("There is no binding of this id.");
    let id: BindingId = id.parse().map_err(|_| missing())?;
    let command = match word.as_str() {
        "start" => BindingCommand::Start,
        "pause" => BindingCommand::Pause,
        "resume" => BindingCommand::Resume,
        "stop" => BindingCommand::Stop { reason: StopReason::ManualStop },
        _ => return Err(PageError::NotFound("There is no such action.")),
    };
    let reason = given_text("reason", &read_form(form)?.reason)?;
    match commands::command_with_note(&app, &id, &command, &person.actor(), Some(&reason)).await {
        Ok(_) => Ok(go_back(&app, "/bindings", "binding").into_response()),
        Err(BindingError::NotFound(_)) => Err(missing()),
        Err(BindingError::Database(error)) => Err(error.into()),
        Err(BindingError::Batch(error)) => Err(PageError::Unavailable(error.to_string())),
        Err(error) => Err(PageError::Conflict(sentence(&error.to_string()))),
    }
}

const PLAN_HEADINGS: [&str; 7] = ["Plan", "State", "What", "Of which", "Progress", "Made", "Why"];

pub(crate) async fn show_plans(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = person.reading(app);
    let Deed { did } = read_query(query)?;
    let plans = store::list_plans(&app.db, None, None, PAGE).await?;
    let may_act = person.may(&OPERATORS);
    let rows = plans.into_iter().map(|plan| {
        let (tone, word) = match plan.state {
            PlanState::Planned => ("wait", "planned"),
            PlanState::Running => ("busy", "running"),
            PlanState::Done => ("good", "done"),
            PlanState::Cancelled => ("plain", "cancelled"),
        };
        let action = |label, word: &str| Action::new(label, format!("/plans/{}/{word}", plan.id), Vec::new());
        let actions = match plan.state {
            PlanState::Planned => vec![action("Run", "run"), action("Cancel", "cancel")],
            PlanState::Running => vec![action("Cancel", "cancel")],
            PlanState::Done | PlanState::Cancelled => Vec::new(),
        };
        let counts = plan.counts;
        let progress = format!(
            "{} in all: {} changed, {} unchanged, {} refused, {} left",
            counts.total,
            counts.changed,
            counts.unchanged,
            counts.refused,
            counts.left()
        );
        TableRow {
            cells: vec![
                Cell::id(plan.id),
                Cell::html(Chip::new(tone, word)),
                Cell::text(format!("{} {}", plan.kind.as_str(), plan.action)),
                Cell::id(&plan.filter),
                Cell::text(progress),
                Cell::html(format!("{} by {}", Moment(plan.created_at), crate::shown::escape(&plan.created_by))),
                Cell::text(plan.reason.unwrap_or_default()),
            ],
            actions: if may_act { actions } else { Vec::new() },
            href: String::new(),
        }
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app, &person, "/plans", "Plans", did.as_deref()).live(REFRESH_S);
    let page = TablePage {
        note: "What is done to many is stored first, with its exact ids, and run once by its id. The newest first."
            .to_owned(),
        if_empty: ("No plans", "Dead letters and bindings make them."),
        ..TablePage::new(shell, "/plans", &PLAN_HEADINGS, rows)
    };
    render(&page)
}

/// As a page says it.
pub(super) fn plan_error(error: PlanError) -> PageError {
    match error {
        PlanError::NotFound(_) => PageError::NotFound("There is no plan of this id."),
        PlanError::Database(error) => error.into(),
        PlanError::Service(error) => error.into(),
        error => PageError::Conflict(sentence(&error.to_string())),
    }
}

/// Runs a plan, once, or cancels it.
pub(crate) async fn change_plan(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let id: Uuid = id.parse().map_err(|_| PageError::NotFound("There is no plan of this id."))?;
    let id = PlanId::from_uuid(id);
    let (changed, deed) = match word.as_str() {
        "run" => (control::run_plan(&app, id, &person.actor()).await, "plan-run"),
        "cancel" => (control::cancel_plan(&app, id, &person.actor()).await, "plan-cancel"),
        _ => return Err(PageError::NotFound("There is no such action.")),
    };
    changed.map_err(plan_error)?;
    Ok(go_back(&app, "/plans", deed).into_response())
}

const SESSION_HEADINGS: [&str; 5] = ["Key", "Role", "From", "Signed in", "Last used"];

pub(crate) async fn show_sessions(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let Deed { did } = read_query(query)?;
    let rows = sessions::list_sessions(&app.db).await?.into_iter().map(|session| TableRow {
        cells: vec![
            Cell::text(&session.name),
            Cell::text(role_word(session.role)),
            Cell::id(session.address.unwrap_or_default()),
            Cell::html(Moment(session.created_at)),
            Cell::html(Moment(session.last_seen_at)),
        ],
        actions: vec![Action::new("End", format!("/sessions/{}/end", session.id), vec![Field::reason()]).danger()],
        href: String::new(),
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app, &person, "/sessions", "Sessions", did.as_deref());
    let page = TablePage {
        note: "Who is signed in to the console. A session also ends with its key.".to_owned(),
        ..TablePage::new(shell, "/sessions", &SESSION_HEADINGS, rows)
    };
    render(&page)
}

/// Ends the session of a person.
pub(crate) async fn end_session(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&ADMINS)?;
    let missing = || PageError::NotFound("There is no such session, or it has ended.");
    let id: Uuid = id.parse().map_err(|_| missing())?;
    let reason = given_text("reason", &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    if !sessions::close_session(&app.db, id, by).await? {
        return Err(missing());
    }
    Ok(go_back(&app, "/sessions", "session-ended").into_response())
}
