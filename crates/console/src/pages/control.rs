//! Pages of plans and of sessions.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use model::plan::{Plan, PlanCounts, PlanState};
use uuid::Uuid;

use super::{
    roles::{ADMINS, OPERATORS, STAFF},
    rows::{Deed, ReasonForm},
};
use crate::{
    form::{REASON, given_text, read_form, read_query},
    language::{Words, both, say},
    page::{Shell, go_back, render},
    page_error::{NO_ACTION, PageError},
    session::SignedIn,
    shown::{Chip, Moment, escape, role_word, sentence},
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

const CANCEL: Words = both("Cancel", "Batalkan");
const PLAN_HEADINGS: [Words; 7] = [
    both("Plan", "Rencana"),
    both("State", "Status"),
    both("What", "Apa"),
    both("Of which", "Dari yang mana"),
    both("Progress", "Kemajuan"),
    both("Made", "Dibuat"),
    both("Why", "Mengapa"),
];

pub(super) fn state_chip(state: PlanState) -> Chip {
    let (tone, word) = match state {
        PlanState::Planned => ("wait", both("planned", "direncanakan")),
        PlanState::Running => ("busy", both("running", "berjalan")),
        PlanState::Done => ("good", both("done", "selesai")),
        PlanState::Cancelled => ("plain", both("cancelled", "dibatalkan")),
    };
    Chip::new(tone, word)
}

pub(super) fn describe_progress(counts: PlanCounts) -> String {
    let left = counts.left();
    let PlanCounts { total, changed, unchanged, refused } = counts;
    say!(
        "{total} in all: {changed} changed, {unchanged} unchanged, {refused} refused, {left} left",
        "{total} seluruhnya: {changed} berubah, {unchanged} tetap, {refused} ditolak, {left} tersisa"
    )
}

/// Returns the actions that this person may take in the current state of the plan. The services check again.
pub(super) fn actions_on(person: &SignedIn, plan: &Plan) -> Vec<Action> {
    if !person.may(&OPERATORS) {
        return Vec::new();
    }
    let action = |label, word: &str| Action::new(label, format!("/plans/{}/{word}", plan.id), Vec::new());
    match plan.state {
        PlanState::Planned => vec![action(both("Run", "Jalankan"), "run"), action(CANCEL, "cancel")],
        PlanState::Running => vec![action(CANCEL, "cancel")],
        PlanState::Done | PlanState::Cancelled => Vec::new(),
    }
}

pub(super) fn parse_plan(id: &str) -> Result<PlanId, PageError> {
    id.parse().map_err(|_| PageError::NotFound(NO_PLAN))
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
                Cell::text(format!("{} {}", plan.kind.as_str(), plan.action)),
                Cell::id(&plan.filter),
                Cell::text(describe_progress(plan.counts)),
                Cell::html(say!("{at} by {by}", "{at} oleh {by}")),
                Cell::text(plan.reason.unwrap_or_default()),
            ],
            actions,
            href,
        }
    });
    let rows = rows.collect();
    let shell =
        Shell::for_person(&app.config, &person, "/plans", both("Plans", "Rencana"), did.as_deref()).live(REFRESH_S);
    let page = TablePage {
        note: both(
            "What is done to many is stored first, with its exact ids, and run once by its id. The newest first.",
            "Yang dilakukan pada banyak hal disimpan dahulu, dengan id yang tepat, lalu dijalankan sekali menurut id-nya. Yang terbaru lebih dulu.",
        )
        .into(),
        if_empty: (
            both("No plans", "Tidak ada rencana"),
            both("Dead letters and bindings make them.", "Pekerjaan mati dan binding membuatnya."),
        ),
        ..TablePage::new(shell, "/plans", &PLAN_HEADINGS, rows)
    };
    render(&page)
}

pub(super) const NO_PLAN: Words = both("There is no plan of this id.", "Tidak ada rencana dengan id ini.");

/// Returns the page for an error.
pub(super) fn plan_error(error: PlanError) -> PageError {
    match error {
        PlanError::NotFound(_) => PageError::NotFound(NO_PLAN),
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
        _ => return Err(PageError::NotFound(NO_ACTION)),
    };
    changed.map_err(plan_error)?;
    Ok(go_back(&app.config, "/plans", deed).into_response())
}

const SESSION_HEADINGS: [Words; 5] = [
    both("Key", "Kunci"),
    both("Role", "Peran"),
    both("From", "Dari"),
    both("Signed in", "Masuk sejak"),
    both("Last used", "Terakhir dipakai"),
];

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
            Action::new(both("End", "Akhiri"), format!("/sessions/{}/end", session.id), vec![Field::reason()]).danger(),
        ],
        href: String::new(),
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app.config, &person, "/sessions", both("Sessions", "Sesi"), did.as_deref())
        .live(SESSIONS_REFRESH_S);
    let page = TablePage {
        note: both(
            "Who is signed in to the console. A session also ends with its key.",
            "Siapa yang masuk ke konsol. Sesi juga berakhir bersama kuncinya.",
        )
        .into(),
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
        let text = both("There is no such session, or it has ended.", "Sesi ini tidak ada, atau sudah berakhir.");
        PageError::NotFound(text)
    };
    let id: Uuid = id.parse().map_err(|_| missing())?;
    let reason = given_text(REASON, &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    if !sessions::close_session(&app.core.db, id, by).await? {
        return Err(missing());
    }
    Ok(go_back(&app.config, "/sessions", "session-ended").into_response())
}
