//! Pages of bindings: the list, one binding, and the form for OTPs.

use askama::Template;
use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use model::binding::{
    Binding, BindingCommand, BindingId, BindingPhase, BindingState, ServerId, StopReason, TransactionHeader,
    TransactionStatus, TrxId,
};
use serde::Deserialize;

use super::{
    living_jobs::job_cell,
    roles::{OPERATORS, STAFF},
    rows::Deed,
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, given_text, optional_text, read_form, read_query, write_query},
    page::{Shell, go_back, render, safe_path},
    page_error::PageError,
    reasons::{describe_binding, describe_binding_step},
    session::SignedIn,
    shown::{Chip, Code, Countdown, Moment, sentence},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use accounts::api_keys::AccountRole;
use app::App;
use bindings::{
    commands,
    error::BindingError,
    explain::{BindingAdvice, BindingExplanation, JobPlace, NextStep, SlotUse, gather},
    list::{self, BindingEventRow, BindingFilter},
    otp_seal::PlainOtp,
    registry::RedisWorkerRegistry,
    store::load::UnreadableBinding,
};
use desk::reports::page_changes::ChangeTopic;
use foundation::db;

const PAGE: i64 = 100;
const REFRESH_S: u32 = 5;
/// Number of transactions on the page of a binding.
const TRANSACTIONS: i64 = 20;
/// Roles that submit OTPs. Support is included because the account's owner gives the OTP to support.
const OTP_WRITERS: [AccountRole; 2] = [AccountRole::Operator, AccountRole::Support];
const OTP_EVENT: &str = "otp_submitted";

const HEADINGS: [Words; 7] = [
    tr("bindings.binding"),
    tr("common.state"),
    tr("bindings.phase"),
    tr("bindings.server"),
    tr("bindings.account"),
    tr("bindings.cycle"),
    tr("bindings.transaction"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct BindingQuery {
    state: String,
    server: String,
    after: String,
    did: Option<String>,
}

impl BindingQuery {
    fn to_query(&self, after: &str) -> String {
        write_query(&[("state", &self.state), ("server", &self.server), ("after", after)])
    }

    fn to_filter(&self) -> Result<BindingFilter, PageError> {
        let unknown = tr("bindings.state_not_exist_bindings");
        let state = match self.state.as_str() {
            "" => None,
            word => Some(
                BindingState::ALL
                    .into_iter()
                    .find(|state| state.as_str() == word)
                    .ok_or_else(|| PageError::Invalid(unknown.into()))?,
            ),
        };
        let server =
            optional_text(tr("bindings.server"), Some(&self.server))?.map(|id| id.parse::<ServerId>()).transpose();
        let no_id = tr("bindings.not_valid_server_id");
        let server_id = server.map_err(|_| PageError::Invalid(no_id.into()))?;
        Ok(BindingFilter { server_id, account_id: None, state })
    }
}

/// Returns the state, with the reason if the binding stopped.
fn state_chip(binding: &Binding) -> Chip {
    let tone = match binding.state {
        BindingState::Running => "good",
        BindingState::Paused | BindingState::Stopping => "wait",
        BindingState::Stopped => "plain",
    };
    let state = Code::new("binding_state", binding.state.as_str());
    match binding.reason {
        Some(reason) => {
            Chip::new(tone, format!("{}: {}", state.text(), Code::new("stop_reason", reason.as_str()).text()))
        }
        None => Chip::of_code(tone, state),
    }
}

fn phase_code(binding: &Binding) -> Code {
    Code::new("binding_phase", binding.phase.as_str())
}

/// Returns the transaction that waits for an OTP, if the OTP was not submitted yet.
fn wanted_otp(binding: &Binding) -> Option<&TrxId> {
    let waits = binding.phase == BindingPhase::WaitingOtp && binding.otp_value.is_none();
    binding.trx_id.as_ref().filter(|_| waits)
}

/// Returns the actions that this person may take in the current state. The services check again. The forms return to
/// `back`.
fn actions_on(person: &SignedIn, binding: &Binding, back: &str) -> Vec<Action> {
    let verbs: &[(Words, &'static str)] = match binding.state {
        BindingState::Running => &[(tr("bindings.pause_binding"), "pause"), (tr("bindings.stop_binding"), "stop")],
        BindingState::Paused => &[(tr("bindings.resume_binding"), "resume"), (tr("bindings.stop_binding"), "stop")],
        BindingState::Stopping => &[],
        BindingState::Stopped => &[(tr("bindings.start_binding"), "start")],
    };
    let mut actions = Vec::new();
    if let Some(trx_id) = wanted_otp(binding).filter(|_| person.may(&OTP_WRITERS)) {
        let otp = Field::required("otp", tr("bindings.otp"));
        let fields = vec![Field::hidden("trx_id", trx_id.as_str()), Field::hidden("back", back), otp];
        actions.push(Action::new(tr("bindings.submit_otp"), format!("/bindings/{}/otp", binding.id), fields));
    }
    if person.may(&OPERATORS) {
        actions.extend(verbs.iter().map(|&(label, word)| {
            let fields = vec![Field::hidden("back", back), Field::reason()];
            let action = Action::new(label, format!("/bindings/{}/{word}", binding.id), fields);
            if word == "stop" { action.danger() } else { action }
        }));
    }
    actions
}

/// Returns the row of a binding that another version wrote.
fn unreadable_row(row: &UnreadableBinding) -> TableRow {
    let chip = Chip::new("bad", tr("bindings.unreadable"));
    let mut cells = vec![Cell::id(&row.id), Cell::html(chip), Cell::text(&row.error)];
    cells.resize_with(HEADINGS.len(), || Cell::text(""));
    TableRow::plain(cells)
}

pub(crate) async fn show_bindings(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<BindingQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let query: BindingQuery = read_query(query)?;
    let filter = query.to_filter()?;
    let after: Option<BindingId> = match optional_text(tr("common.page_position"), Some(&query.after))? {
        Some(after) => Some(after.parse().map_err(|_| PageError::Invalid(tr("bindings.not_valid_binding_id").into()))?),
        None => None,
    };
    let bindings = list::list_bindings(&app.core, &filter, after.as_ref().map(BindingId::as_str), PAGE).await?;
    let next = bindings.next.as_deref().map(|last| query.to_query(last));
    let base = &app.config.console.path;
    let back = format!("/bindings{}", query.to_query(&query.after));
    let rows = bindings.rows.iter().map(|binding| {
        let href = format!("{base}/bindings/{}", binding.id);
        let cells = vec![
            Cell::link(&href, binding.id.as_str()),
            Cell::html(state_chip(binding)),
            if wanted_otp(binding).is_some() {
                Cell::html(Chip::new("warn", tr("bindings.waits_otp")))
            } else {
                Cell::html(phase_code(binding))
            },
            Cell::id(&binding.server_id),
            Cell::id(&binding.account_id),
            Cell::number(binding.cycle),
            Cell::id(binding.trx_id.as_ref().map(ToString::to_string).unwrap_or_default()),
        ];
        TableRow::plain(cells).with_actions(actions_on(&person, binding, &back)).open(href)
    });
    let rows = rows.chain(bindings.unreadable.iter().map(unreadable_row)).collect();
    let mut states = vec![("", tr("common.any").get())];
    let labels = BindingState::ALL.map(|state| (state.as_str(), Code::new("binding_state", state.as_str()).text()));
    states.extend(labels.iter().map(|(word, label)| (*word, label.as_str())));
    let shell = Shell::for_person(&app.config, &person, "/bindings", tr("common.bindings"), query.did.as_deref());
    let shell = shell.live(REFRESH_S).follow(ChangeTopic::Bindings);
    let page = TablePage {
        filters: vec![
            Field::text("server", tr("bindings.server"), &query.server),
            Field::choice("state", tr("common.state"), &query.state, &states),
        ],
        if_empty: (tr("bindings.no_bindings"), tr("bindings.create_binding_dispatchq_binding")),
        next,
        ..TablePage::new(shell, &back, &HEADINGS, rows)
    };
    render(&page)
}

/// The next job of a binding.
struct NextPart {
    what: Words,
    when: Countdown,
    job: Cell,
    place: String,
}

impl NextPart {
    fn new(person: &SignedIn, base: &str, next: NextStep, binding: &Binding, now: DateTime<Utc>) -> Self {
        let place: String = match next.place {
            Some(JobPlace::Waiting { .. }) => tr("bindings.waiting").into(),
            Some(JobPlace::Parked { before, .. }) => {
                fill!("bindings.waits_slot_jobs_before", before)
            }
            Some(JobPlace::Running { worker, .. }) => {
                let runs = tr("bindings.running");
                worker.map_or_else(|| runs.into(), |worker| fill!("common.runs_on", worker))
            }
            Some(JobPlace::Dead { error }) => fill!("bindings.dead", error),
            Some(JobPlace::Missing) => tr("bindings.missing_it_restored_within").into(),
            None => String::new(),
        };
        Self {
            what: describe_binding_step(binding),
            when: Countdown { to: next.at, now },
            job: job_cell(person, base, &next.job),
            place,
        }
    }
}

struct EventRow {
    at: Moment,
    what: Code,
    actor: String,
    detail: String,
}

impl EventRow {
    fn new(event: BindingEventRow) -> Self {
        // The detail of an OTP event is a digest, so it is not shown.
        let detail = event.detail.filter(|_| event.kind != OTP_EVENT).or(event.reason);
        Self {
            at: Moment(event.at),
            what: Code::new("binding_event", event.kind),
            actor: event.actor,
            detail: detail.unwrap_or_default(),
        }
    }
}

struct TransactionRow {
    id: String,
    status: Chip,
    reason: String,
    started: Moment,
    ended: Option<Moment>,
}

impl TransactionRow {
    fn new(header: TransactionHeader) -> Self {
        let tone = match header.status {
            TransactionStatus::Started | TransactionStatus::Processing => "busy",
            TransactionStatus::WaitingOtp | TransactionStatus::Unresolved => "warn",
            TransactionStatus::Sukses => "good",
            TransactionStatus::Gagal => "bad",
        };
        Self {
            id: header.trx_id.to_string(),
            status: Chip::of_code(tone, Code::new("transaction_state", header.status.as_str())),
            reason: header.reason.unwrap_or_default(),
            started: Moment(header.started_at),
            ended: header.ended_at.map(Moment),
        }
    }
}

#[derive(Template)]
#[template(path = "binding.html")]
struct BindingDetailPage {
    shell: Shell,
    id: String,
    state: Chip,
    phase: Code,
    why: String,
    to_do: Vec<BindingAdvice>,
    next: Option<NextPart>,
    /// Deadline for an OTP.
    otp_until: Option<Countdown>,
    redis_problem: Option<String>,
    transactions: Vec<TransactionRow>,
    events: Vec<EventRow>,
    actions: Vec<Action>,
    facts: Vec<(Words, String)>,
}

/// Returns the page for an error.
fn binding_error(error: BindingError) -> PageError {
    match error {
        BindingError::NotFound(_) => PageError::NotFound(tr("bindings.no_binding_id")),
        BindingError::Database(error) => error.into(),
        BindingError::Batch(error) => PageError::Unavailable(error.to_string()),
        error => PageError::Conflict(sentence(&error.to_string())),
    }
}

fn parse_binding(id: &str) -> Result<BindingId, PageError> {
    id.parse().map_err(|_| PageError::NotFound(tr("bindings.no_binding_id")))
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&STAFF)?;
    let app = app.showing();
    let id = parse_binding(&id)?;
    let Deed { did } = read_query(query)?;
    let explained = gather::explain_binding(&app.bindings, &id).await.map_err(binding_error)?;
    if explained.binding.deleted_at.is_some() {
        return Err(PageError::NotFound(tr("bindings.binding_deleted")));
    }
    let transactions = list::list_transactions(&app.core, &id, None, None, TRANSACTIONS).await?;
    let now = db::database_now(&app.core.db).await?;
    render(&build_page((&app, &person, now), explained, transactions, did.as_deref()))
}

/// Returns whether the page has no button for the command of this advice.
fn has_no_button(advice: &BindingAdvice) -> bool {
    let verbs = ["start", "pause", "resume", "stop", "otp"].map(|verb| format!("dispatchq binding {verb} "));
    let has_button = |command: &str| verbs.iter().any(|verb| command.starts_with(verb.as_str()));
    !advice.command.as_deref().is_some_and(has_button)
}

fn build_page(
    (app, person, now): (&App, &SignedIn, DateTime<Utc>),
    explained: BindingExplanation,
    transactions: Vec<TransactionHeader>,
    did: Option<&str>,
) -> BindingDetailPage {
    let BindingExplanation { binding, next, slots, server, all_calls, to_do, events, redis_error, .. } = explained;
    let of_limit = |used: Option<SlotUse>| {
        used.map_or_else(
            || "–".to_owned(),
            |SlotUse { in_use, limit, waiting }| fill!("bindings.use_waiting", in_use, limit, waiting),
        )
    };
    let mut facts = vec![
        (tr("bindings.server"), format!("{} ({})", server.id, server.provider)),
        (tr("bindings.account"), binding.account_id.to_string()),
        (tr("bindings.cycle"), binding.cycle.to_string()),
        (tr("bindings.consecutive_failures"), binding.failures.to_string()),
        (tr("bindings.unresolved_transactions"), binding.unresolved.to_string()),
        (tr("bindings.otp_tries_used"), binding.otp_tries.to_string()),
        (tr("bindings.slots_use"), slots.len().to_string()),
        (tr("bindings.calls_server"), of_limit(server.slots)),
        (tr("bindings.calls_all_servers"), of_limit(all_calls)),
    ];
    if !server.enabled {
        facts.push((tr("bindings.server_state"), tr("common.disabled").into()));
    }
    let back = format!("/bindings/{}", encode_component(binding.id.as_str()));
    let shell =
        Shell::for_person(&app.config, person, "/bindings", format!("{} {}", tr("bindings.binding"), binding.id), did);
    BindingDetailPage {
        shell: shell.live(REFRESH_S).follow(ChangeTopic::Bindings).made_at(now),
        state: state_chip(&binding),
        phase: phase_code(&binding),
        why: describe_binding(&binding, now),
        to_do: to_do.into_iter().filter(has_no_button).collect(),
        next: next.map(|next| NextPart::new(person, &app.config.console.path, next, &binding, now)),
        otp_until: wanted_otp(&binding).and(binding.otp_deadline).map(|to| Countdown { to, now }),
        redis_problem: redis_error,
        transactions: transactions.into_iter().map(TransactionRow::new).collect(),
        events: events.into_iter().map(EventRow::new).collect(),
        actions: actions_on(person, &binding, &back),
        facts,
        id: binding.id.to_string(),
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct CommandForm {
    #[serde(default)]
    reason: String,
    back: Option<String>,
}

/// Starts, pauses, resumes or stops a binding.
pub(crate) async fn command_binding(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
    form: Result<Form<CommandForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let id = parse_binding(&id)?;
    let command = match word.as_str() {
        "start" => BindingCommand::Start,
        "pause" => BindingCommand::Pause,
        "resume" => BindingCommand::Resume,
        "stop" => BindingCommand::Stop { reason: StopReason::ManualStop },
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    let CommandForm { reason, back } = read_form(form)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let registry = RedisWorkerRegistry::new(app.bindings.clone(), person.actor()).with_reason(Some(reason));
    registry.command(&id, &command).await.map_err(binding_error)?;
    Ok(go_back(&app.config, safe_path(back.as_deref(), "/bindings"), "binding").into_response())
}

/// Has no `Debug`, so that the OTP appears in no log.
#[derive(Deserialize)]
pub(crate) struct OtpForm {
    #[serde(default)]
    trx_id: String,
    #[serde(default)]
    otp: String,
    back: Option<String>,
}

/// Submits an OTP. It is stored encrypted and sent to the provider immediately.
pub(crate) async fn submit_otp(
    State(app): State<App>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Result<Form<OtpForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OTP_WRITERS)?;
    let id = parse_binding(&id)?;
    let OtpForm { trx_id, otp, back } = read_form(form)?;
    let no_id = tr("bindings.not_valid_transaction_id");
    let trx_id = TrxId::try_from(trx_id).map_err(|_| PageError::Invalid(no_id.into()))?;
    let otp = PlainOtp::parse(otp.trim().to_owned());
    let otp = otp.map_err(|error| PageError::Invalid(sentence(&error.to_string())))?;
    commands::submit_otp(&app.bindings, &id, &trx_id, &otp, &person.actor()).await.map_err(binding_error)?;
    Ok(go_back(&app.config, safe_path(back.as_deref(), "/bindings"), "otp").into_response())
}
