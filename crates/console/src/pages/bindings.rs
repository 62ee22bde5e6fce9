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
    form::{REASON, encode_component, given_text, optional_text, read_form, read_query, write_query},
    language::{Words, both, say},
    page::{Shell, go_back, render, safe_path},
    page_error::{NO_ACTION, PageError},
    service_words::{describe_binding, describe_binding_step},
    session::SignedIn,
    shown::{Chip, Countdown, Moment, sentence, spaced},
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
    both("Binding", "Binding"),
    both("State", "Status"),
    both("Phase", "Fase"),
    both("Server", "Server"),
    both("Account", "Akun"),
    both("Cycle", "Siklus"),
    both("Transaction", "Transaksi"),
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
        let unknown = both("There is no such state of a binding.", "Tidak ada status binding seperti itu.");
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
            optional_text(both("server", "server"), Some(&self.server))?.map(|id| id.parse::<ServerId>()).transpose();
        let no_id = both("That is no id of a server.", "Itu bukan id server.");
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
    let why = binding.reason.map(|reason| format!(", {}", spaced(reason.as_str()))).unwrap_or_default();
    Chip::new(tone, format!("{}{why}", spaced(binding.state.as_str())))
}

/// Returns the transaction that waits for an OTP, if the OTP was not submitted yet.
fn wanted_otp(binding: &Binding) -> Option<&TrxId> {
    let waits = binding.phase == BindingPhase::WaitingOtp && binding.otp_value.is_none();
    binding.trx_id.as_ref().filter(|_| waits)
}

const START: Words = both("Start", "Mulai");
const PAUSE: Words = both("Pause", "Jeda");
const RESUME: Words = both("Resume", "Lanjutkan");
const STOP: Words = both("Stop", "Hentikan");

/// Returns the actions that this person may take in the current state. The services check again. The forms return to
/// `back`.
fn actions_on(person: &SignedIn, binding: &Binding, back: &str) -> Vec<Action> {
    let verbs: &[(Words, &'static str)] = match binding.state {
        BindingState::Running => &[(PAUSE, "pause"), (STOP, "stop")],
        BindingState::Paused => &[(RESUME, "resume"), (STOP, "stop")],
        BindingState::Stopping => &[],
        BindingState::Stopped => &[(START, "start")],
    };
    let mut actions = Vec::new();
    if let Some(trx_id) = wanted_otp(binding).filter(|_| person.may(&OTP_WRITERS)) {
        let otp = Field::required("otp", both("OTP", "OTP"));
        let fields = vec![Field::hidden("trx_id", trx_id.as_str()), Field::hidden("back", back), otp];
        actions.push(Action::new(
            both("Hand in the OTP", "Serahkan OTP"),
            format!("/bindings/{}/otp", binding.id),
            fields,
        ));
    }
    if person.may(&OPERATORS) {
        actions.extend(verbs.iter().map(|&(label, word)| {
            let fields = vec![Field::hidden("back", back), Field::reason()];
            Action::new(label, format!("/bindings/{}/{word}", binding.id), fields)
        }));
    }
    actions
}

/// Returns the row of a binding that another version wrote.
fn unreadable_row(row: &UnreadableBinding) -> TableRow {
    let chip = Chip::new("bad", both("cannot be read", "tidak dapat dibaca"));
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
    let after: Option<BindingId> =
        match optional_text(both("cursor", "penanda halaman"), Some(&query.after))? {
            Some(after) => Some(after.parse().map_err(|_| {
                PageError::Invalid(both("That is no id of a binding.", "Itu bukan id binding.").into())
            })?),
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
                Cell::html(Chip::new("warn", both("waits for an OTP", "menunggu OTP")))
            } else {
                Cell::text(spaced(binding.phase.as_str()))
            },
            Cell::id(&binding.server_id),
            Cell::id(&binding.account_id),
            Cell::number(binding.cycle),
            Cell::id(binding.trx_id.as_ref().map(ToString::to_string).unwrap_or_default()),
        ];
        TableRow::plain(cells).with_actions(actions_on(&person, binding, &back)).open(href)
    });
    let rows = rows.chain(bindings.unreadable.iter().map(unreadable_row)).collect();
    let mut states = vec![("", both("any", "semua").get())];
    states.extend(BindingState::ALL.map(|state| (state.as_str(), state.as_str())));
    let shell = Shell::for_person(&app.config, &person, "/bindings", both("Bindings", "Binding"), query.did.as_deref());
    let shell = shell.live(REFRESH_S).follow(ChangeTopic::Bindings);
    let page = TablePage {
        filters: vec![
            Field::text("server", both("Server", "Server"), &query.server),
            Field::choice("state", both("State", "Status"), &query.state, &states),
        ],
        if_empty: (
            both("No bindings", "Tidak ada binding"),
            both(
                "Make one: dispatchq binding create, or POST /api/v1/bindings.",
                "Buat satu: dispatchq binding create, atau POST /api/v1/bindings.",
            ),
        ),
        next,
        ..TablePage::new(shell, &back, &HEADINGS, rows)
    };
    render(&page)
}

/// The next job of a binding.
struct NextPart {
    what: &'static str,
    when: Countdown,
    job: Cell,
    place: String,
}

impl NextPart {
    fn new(person: &SignedIn, base: &str, next: NextStep, binding: &Binding, now: DateTime<Utc>) -> Self {
        let place: String = match next.place {
            Some(JobPlace::Waiting { .. }) => both("waits", "menunggu").into(),
            Some(JobPlace::Parked { before, .. }) => {
                say!("waits for a slot, {before} before it", "menunggu slot, {before} di depannya")
            }
            Some(JobPlace::Running { worker, .. }) => {
                let runs = both("runs", "berjalan");
                worker.map_or_else(|| runs.into(), |worker| say!("held by {worker}", "dipegang {worker}"))
            }
            Some(JobPlace::Dead { error }) => say!("dead: {error}", "mati: {error}"),
            Some(JobPlace::Missing) => {
                both("missing; the reconciler puts it back", "hilang; reconciler mengembalikannya").into()
            }
            None => String::new(),
        };
        Self {
            what: describe_binding_step(binding, next.does),
            when: Countdown { to: next.at, now },
            job: job_cell(person, base, &next.job),
            place,
        }
    }
}

struct EventRow {
    at: Moment,
    what: String,
    actor: String,
    detail: String,
}

impl EventRow {
    fn new(event: BindingEventRow) -> Self {
        // The detail of an OTP event is a digest, so it is not shown.
        let detail = event.detail.filter(|_| event.kind != OTP_EVENT).or(event.reason);
        Self { at: Moment(event.at), what: spaced(&event.kind), actor: event.actor, detail: detail.unwrap_or_default() }
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
            status: Chip::new(tone, spaced(header.status.as_str())),
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
    phase: String,
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

const NO_BINDING: Words = both("There is no binding of this id.", "Tidak ada binding dengan id ini.");

/// Returns the page for an error.
fn binding_error(error: BindingError) -> PageError {
    match error {
        BindingError::NotFound(_) => PageError::NotFound(NO_BINDING),
        BindingError::Database(error) => error.into(),
        BindingError::Batch(error) => PageError::Unavailable(error.to_string()),
        error => PageError::Conflict(sentence(&error.to_string())),
    }
}

fn parse_binding(id: &str) -> Result<BindingId, PageError> {
    id.parse().map_err(|_| PageError::NotFound(NO_BINDING))
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
        return Err(PageError::NotFound(both("This binding was deleted.", "Binding ini sudah dihapus.")));
    }
    let transactions = list::list_transactions(&app.core, &id, None, None, TRANSACTIONS).await?;
    let now = db::database_now(&app.core.db).await?;
    render(&build_page((&app, &person, now), explained, transactions, did.as_deref()))
}

fn build_page(
    (app, person, now): (&App, &SignedIn, DateTime<Utc>),
    explained: BindingExplanation,
    transactions: Vec<TransactionHeader>,
    did: Option<&str>,
) -> BindingDetailPage {
    let BindingExplanation { binding, why, next, slots, server, all_calls, to_do, events, redis_error, .. } = explained;
    let of_limit = |used: Option<SlotUse>| {
        used.map_or_else(
            || "–".to_owned(),
            |SlotUse { in_use, limit, waiting }| {
                say!("{in_use} of {limit}, {waiting} wait", "{in_use} dari {limit}, {waiting} menunggu")
            },
        )
    };
    let mut facts = vec![
        (both("Server", "Server"), format!("{} ({})", server.id, server.provider)),
        (both("Account", "Akun"), binding.account_id.to_string()),
        (both("Cycle", "Siklus"), binding.cycle.to_string()),
        (both("Failures in a row", "Kegagalan berturut-turut"), binding.failures.to_string()),
        (both("Unresolved", "Belum terselesaikan"), binding.unresolved.to_string()),
        (both("OTPs used up", "OTP terpakai"), binding.otp_tries.to_string()),
        (both("Slots held", "Slot yang dipegang"), slots.len().to_string()),
        (both("Calls of the server", "Panggilan server ini"), of_limit(server.slots)),
        (both("Calls of all servers", "Panggilan semua server"), of_limit(all_calls)),
    ];
    if !server.enabled {
        facts.push((both("Server is", "Server ini"), both("disabled", "dinonaktifkan").into()));
    }
    let back = format!("/bindings/{}", encode_component(binding.id.as_str()));
    let shell = Shell::for_person(&app.config, person, "/bindings", format!("Binding {}", binding.id), did);
    BindingDetailPage {
        shell: shell.live(REFRESH_S).follow(ChangeTopic::Bindings).made_at(now),
        state: state_chip(&binding),
        phase: spaced(binding.phase.as_str()),
        why: describe_binding(&binding, now, why),
        to_do,
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
        _ => return Err(PageError::NotFound(NO_ACTION)),
    };
    let CommandForm { reason, back } = read_form(form)?;
    let reason = given_text(REASON, &reason)?;
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
    let no_id = both("That is no id of a transaction.", "Itu bukan id transaksi.");
    let trx_id = TrxId::try_from(trx_id).map_err(|_| PageError::Invalid(no_id.into()))?;
    let otp = PlainOtp::parse(otp.trim().to_owned());
    let otp = otp.map_err(|error| PageError::Invalid(sentence(&error.to_string())))?;
    commands::submit_otp(&app.bindings, &id, &trx_id, &otp, &person.actor()).await.map_err(binding_error)?;
    Ok(go_back(&app.config, safe_path(back.as_deref(), "/bindings"), "otp").into_response())
}
