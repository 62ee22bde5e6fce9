//! Page of workers, for operators: their use of memory and processor, and their drains.

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};

use super::{
    roles::OPERATORS,
    rows::{Deed, ReasonForm},
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, given_text, read_form, read_query},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, describe_bytes, describe_ms, describe_share, escape},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use app::App;
use foundation::{
    staff_actions::ActionAuthor,
    worker_drains::{self, DrainState, WorkerDrain, WorkerStatus},
};
use queue::store::WorkerEntry;

const REFRESH_S: u32 = 5;

const HEADINGS: [Words; 6] = [
    tr("workers.worker"),
    tr("common.state"),
    tr("workers.running_jobs"),
    tr("workers.memory"),
    tr("workers.processor"),
    tr("common.queues"),
];

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let Deed { did } = read_query(query)?;
    let app = app.showing();
    let workers = worker_drains::list_workers(&app.core).await?;
    let rows = workers.iter().map(|worker| show_worker(worker, &workers)).collect();
    let shell = Shell::for_person(&app.config, &person, "/workers", tr("common.workers"), did.as_deref());
    let page = TablePage {
        note: tr("workers.note").into(),
        if_empty: (tr("workers.no_worker_running"), tr("workers.no_order_dispatched_until")),
        ..TablePage::new(shell.live(REFRESH_S), "/workers", &HEADINGS, rows)
    };
    render(&page)
}

fn show_worker(worker: &WorkerStatus, all: &[WorkerStatus]) -> TableRow {
    let (entry, info) = (&worker.entry, &worker.entry.info);
    let share = |percent: u32| describe_share(f64::from(percent) / 100.0);
    let row = TableRow::plain(vec![
        Cell::html(show_process(entry)),
        Cell::html(show_state(worker)),
        Cell::number(info.in_hand),
        Cell::number(info.resident_bytes.map(describe_bytes).unwrap_or_default()),
        Cell::number(info.cpu_percent.map(share).unwrap_or_default()),
        Cell::text(info.queues.join(", ")),
    ]);
    row.with_actions(vec![offer_action(worker, all)])
}

/// Returns HTML with the name of a worker, and with its id, host, process id and version.
fn show_process(WorkerEntry { boot, replica, info, .. }: &WorkerEntry) -> String {
    let process = escape(&format!("{boot}: {} {}, {}", info.host, info.pid, info.version));
    format!("<span class=\"id\">{}</span><br><span class=\"id quiet small\">{process}</span>", escape(replica))
}

/// Returns HTML with the state, the start of the process and its last heartbeat, and with author, time and reason of a
/// drain.
fn show_state(worker: &WorkerStatus) -> String {
    let chip = match worker.state {
        DrainState::Running => Chip::new("good", tr("common.running")),
        DrainState::Draining => Chip::new("warn", tr("workers.draining")),
        DrainState::Drained => Chip::new("warn", tr("workers.drained")),
    };
    let drain = worker.drain.as_ref().map(describe_drain).unwrap_or_default();
    let (started, age) = (Moment::of_ms(worker.entry.info.started_ms), describe_ms(worker.entry.seen_ms_ago));
    let life = fill!("workers.started", at = started, age);
    format!("{chip}{drain}<br><span class=\"quiet small\">{life}</span>")
}

fn describe_drain(WorkerDrain { drained_by, drained_at, reason, .. }: &WorkerDrain) -> String {
    let author = fill!("common.at_by", at = Moment(*drained_at), by = escape(drained_by));
    let reason = reason.as_ref().map(|reason| format!("<br>{}", escape(reason))).unwrap_or_default();
    format!(" <span class=\"quiet small\">{author}{reason}</span>")
}

fn offer_action(worker: &WorkerStatus, all: &[WorkerStatus]) -> Action {
    let boot = &worker.entry.boot;
    let path = |word: &str| format!("/workers/{}/{word}", encode_component(boot));
    if worker.state != DrainState::Running {
        return Action::new(tr("workers.resume_worker"), path("resume"), vec![Field::reason()]);
    }
    let drain = Action::new(tr("workers.drain_worker"), path("drain"), vec![Field::reason()]).danger();
    match worker_drains::find_unserved(all, boot).join(", ") {
        queues if queues.is_empty() => drain.hint(tr("workers.drain_hint")),
        queues => drain.hint(fill!("workers.no_other_worker", queues)),
    }
}

/// Drains or resumes a worker.
pub(crate) async fn set_worker(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let reason = given_text(tr("common.reason"), &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let (done, deed) = match word.as_str() {
        "drain" => (worker_drains::drain_worker(&app.core, &id, by).await?, "worker-drain"),
        "resume" => (worker_drains::resume_worker(&app.core, &id, by).await?, "worker-resume"),
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    let change = done.ok_or(PageError::NotFound(tr("workers.no_worker_id")))?;
    // Another person may have drained the other workers since this one opened the form.
    let deed = if change.unserved_queues.is_empty() { deed } else { "worker-drain-last" };
    Ok(go_back(&app.config, "/workers", deed).into_response())
}
