//! Pages of queues and dead jobs, for operators.

use std::fmt::Write as _;

use axum::{
    extract::{
        Form, Path, Query, State,
        rejection::{FormRejection, QueryRejection},
    },
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use uuid::Uuid;

use super::{
    control::plan_error,
    living_jobs::{job_cell, order_cell, order_of_job},
    roles::OPERATORS,
    rows::{Deed, ReasonForm},
};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, given_text, optional_text, read_form, read_query, write_query},
    page::{Shell, go_back, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Moment, describe_ms, escape, group_digits, sentence},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use app::App;
use desk::{
    dead_letters::{
        decide::{self, DecisionAuthor, DecisionOutcome},
        walk::{self, DeadListPlace, DeadSelection},
    },
    plans::{
        create::{self, PlanMode},
        dead_plans::{self, DeadJobFilter, DeadJobVerb},
    },
};
use foundation::{
    dead_letter_rows::{self, DeadErrorGroup},
    queue_pauses,
    staff_actions::ActionAuthor,
};
use model::ids::PlanId;
use queue::{JobId, store::WorkerEntry};

const REFRESH_S: u32 = 5;
const PAGE: u32 = 50;
/// Number of error groups above the list of dead jobs.
const GROUPS: u32 = 10;

const QUEUE_HEADINGS: [Words; 9] = [
    tr("common.queue"),
    tr("common.state"),
    tr("queues.runs_per_minute"),
    tr("common.due"),
    tr("queues.oldest_due_job"),
    tr("common.scheduled"),
    tr("common.running"),
    tr("common.waiting_slots"),
    tr("common.dead"),
];

pub(crate) async fn show_queues(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<Deed>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let Deed { did } = read_query(query)?;
    let queues = app.core.queue().queue_stats(&jobs::queues::ALL).await?;
    let lateness = app.core.store.read_lateness().await?;
    let workers = app.core.store.list_workers().await?;
    let base = app.config.console.path.as_str();
    let rows = queues.into_iter().map(|queue| {
        let (label, word) =
            if queue.paused { (tr("queues.resume_queue"), "resume") } else { (tr("queues.pause_queue"), "pause") };
        let action = Action::new(label, format!("/queues/{}/{word}", queue.queue), vec![Field::reason()]);
        let state =
            if queue.paused { Chip::new("warn", tr("queues.paused")) } else { Chip::new("good", tr("common.running")) };
        TableRow {
            cells: vec![
                Cell::link(&format!("{base}/jobs{}", write_query(&[("queue", &queue.queue)])), &queue.queue),
                Cell::html(state),
                Cell::number(runs_a_minute(&workers, &queue.queue)),
                Cell::number(queue.due),
                Cell::text(queue.oldest_due_ms.map(describe_ms).unwrap_or_default()),
                Cell::number(queue.scheduled),
                Cell::number(queue.leased),
                Cell::number(queue.parked),
                Cell::number(queue.dead),
            ],
            actions: vec![if queue.paused { action } else { action.danger() }],
            href: String::new(),
        }
    });
    let rows = rows.collect();
    let shell = Shell::for_person(&app.config, &person, "/queues", tr("common.queues"), did.as_deref()).live(REFRESH_S);
    let (p99, half) = (describe_ms(lateness.p99_ms), describe_ms(lateness.p50_ms));
    let most = describe_ms(lateness.max_ms);
    let page = TablePage {
        note: fill!("queues.delay_note", p99, half, most),
        ..TablePage::new(shell, "/queues", &QUEUE_HEADINGS, rows)
    };
    render(&page)
}

/// Returns the recent number of runs per minute of a queue over all workers, or a dash if none reports it.
fn runs_a_minute(workers: &[WorkerEntry], queue: &str) -> String {
    let paces: Vec<u64> = workers.iter().filter_map(|worker| Some(worker.info.runs.get(queue)?.per_ks)).collect();
    match paces.iter().sum::<u64>() * 60 / 1_000 {
        _ if paces.is_empty() => String::new(),
        0 if paces.iter().any(|pace| *pace > 0) => "< 1".to_owned(),
        pace => group_digits(pace),
    }
}

/// Pauses or resumes a queue.
pub(crate) async fn set_queue(
    State(app): State<App>,
    person: SignedIn,
    Path((queue, word)): Path<(String, String)>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let missing = PageError::NotFound(tr("jobs.no_queue_name"));
    let queue = jobs::queues::ALL.into_iter().find(|known| *known == queue).ok_or(missing)?;
    let reason = given_text(tr("common.reason"), &read_form(form)?.reason)?;
    let by = ActionAuthor { actor: &person.actor(), reason: Some(&reason) };
    let deed = match word.as_str() {
        "pause" => queue_pauses::pause_queue(&app.core, queue, by).await.map(|_| "pause")?,
        "resume" => queue_pauses::resume_queue(&app.core, queue, by).await.map(|_| "queue-resume")?,
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    Ok(go_back(&app.config, "/queues", deed).into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct DeadQuery {
    queue: String,
    error: String,
    cursor: String,
    did: Option<String>,
}

const DEAD_HEADINGS: [Words; 6] = [
    tr("common.job"),
    tr("common.order"),
    tr("common.queue"),
    tr("queues.error"),
    tr("common.failed_runs"),
    tr("queues.dead_since"),
];

/// Returns HTML with the errors of dead jobs and their counts, as links to the jobs. Returns an empty text for fewer
/// than two groups.
fn draw_groups(base: &str, queue: &str, groups: &[DeadErrorGroup]) -> String {
    if groups.len() < 2 {
        return String::new();
    }
    let mut html = format!("<h2>{}</h2><ul>", tr("queues.dead_jobs_error"));
    for DeadErrorGroup { error, jobs, latest } in groups {
        let address = escape(&format!("{base}/dead{}", write_query(&[("queue", queue), ("error", error)])));
        let (error, latest) = (escape(error), Moment(*latest));
        let latest = fill!("queues.latest_at", at = latest);
        let _ = write!(
            html,
            "<li><b>{jobs}</b> <a href=\"{address}\">{error}</a> <span class=\"quiet small\">{latest}</span></li>"
        );
    }
    html.push_str("</ul>");
    html
}

/// Returns the dead jobs that match a filter.
fn select_dead(queue: &str, error: &str) -> Result<(DeadJobFilter, DeadSelection), PageError> {
    let filter = DeadJobFilter {
        queue: optional_text(tr("common.queue"), Some(queue))?,
        error: optional_text(tr("queues.error"), Some(error))?,
        older_than_sec: None,
    };
    let selection = filter.to_selection().ok_or(PageError::NotFound(tr("jobs.no_queue_name")))?;
    Ok((filter, selection))
}

pub(crate) async fn show_dead(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<DeadQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let query: DeadQuery = read_query(query)?;
    let (_, selection) = select_dead(&query.queue, &query.error)?;
    let after = match query.cursor.as_str() {
        "" => None,
        cursor => Some(cursor.parse::<DeadListPlace>().map_err(|error| PageError::Invalid(error.to_string()))?),
    };
    let found = walk::list_page(&app.core, &selection, after, PAGE as usize).await?;
    let groups = dead_letter_rows::group_by_error(&app.core.pages, selection.queue, GROUPS).await?;
    let address = |cursor: &str| write_query(&[("queue", &query.queue), ("error", &query.error), ("cursor", cursor)]);
    let base = app.config.console.path.as_str();
    let rows: Vec<TableRow> = found
        .entries
        .into_iter()
        .map(|job| {
            let path = |word: &str| format!("/dead/{}/{word}", encode_component(&job.id));
            let actions = vec![
                Action::new(tr("queues.requeue_job"), path("requeue"), vec![Field::reason()]),
                Action::new(tr("queues.discard_job"), path("discard"), vec![Field::reason()]).danger(),
            ];
            TableRow {
                cells: vec![
                    job_cell(&person, base, &job.id),
                    order_cell(base, &job.id),
                    Cell::text(&job.record.queue),
                    Cell::text(&job.record.error),
                    Cell::number(job.record.failed),
                    Cell::html(Moment::of_ms(job.record.died_ms)),
                ],
                actions,
                href: order_of_job(base, &job.id).map(|(page, _)| page).unwrap_or_default(),
            }
        })
        .collect();
    let plan = |label, verb| {
        let fields = vec![
            Field::hidden("queue", &query.queue),
            Field::hidden("error", &query.error),
            Field::hidden("verb", verb),
            Field::reason(),
        ];
        Action::new(label, "/dead/plan".to_owned(), fields)
    };
    let figure = draw_groups(base, &query.queue, &groups);
    let mut queues = vec![("", tr("common.any").get())];
    queues.extend(jobs::queues::ALL.map(|queue| (queue, queue)));
    let shell = Shell::for_person(&app.config, &person, "/dead", tr("common.dead_jobs"), query.did.as_deref());
    let shell = shell.live(if query.cursor.is_empty() { REFRESH_S } else { 0 });
    let page = TablePage {
        figure,
        filters: vec![
            Field::text("error", tr("queues.error_contains"), &query.error),
            Field::choice("queue", tr("common.queue"), &query.queue, &queues),
        ],
        actions: if rows.is_empty() {
            Vec::new()
        } else {
            vec![
                plan(tr("queues.plan_requeue_all_matching"), "requeue"),
                plan(tr("queues.plan_discard_all_matching"), "discard").danger(),
            ]
        },
        if_empty: (tr("queues.no_dead_jobs"), tr("queues.job_failed_too_often")),
        next: found.next.map(|place| address(&place.to_string())),
        ..TablePage::new(shell, &format!("/dead{}", address(&query.cursor)), &DEAD_HEADINGS, rows)
    };
    render(&page)
}

/// Requeues or discards a dead job.
pub(crate) async fn decide_dead(
    State(app): State<App>,
    person: SignedIn,
    Path((id, word)): Path<(String, String)>,
    form: Result<Form<ReasonForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let id = JobId::parse(id).map_err(|error| PageError::Invalid(error.to_string()))?;
    let by =
        DecisionAuthor { who: person.actor(), why: Some(given_text(tr("common.reason"), &read_form(form)?.reason)?) };
    let (outcome, deed) = match word.as_str() {
        "requeue" => (decide::requeue_job(&app.desk, &id, &by).await?, "requeue"),
        "discard" => (decide::discard_job(&app.core, &id, &by).await?, "discard"),
        _ => return Err(PageError::NotFound(tr("problem.action_not_exist"))),
    };
    match outcome {
        DecisionOutcome::Done => Ok(go_back(&app.config, "/dead", deed).into_response()),
        DecisionOutcome::NotDead => {
            let text = tr("queues.job_not_dead");
            Err(PageError::Conflict(text.into()))
        }
        DecisionOutcome::Refused(refusal) => Err(PageError::Conflict(sentence(&refusal.to_string()))),
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct DeadPlanForm {
    #[serde(default)]
    queue: String,
    #[serde(default)]
    error: String,
    verb: DeadJobVerb,
    #[serde(default)]
    reason: String,
}

/// Stores a plan for all matching dead jobs. The plan does nothing until a person runs it by its id.
pub(crate) async fn plan_dead(
    State(app): State<App>,
    person: SignedIn,
    form: Result<Form<DeadPlanForm>, FormRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let DeadPlanForm { queue, error, verb, reason } = read_form(form)?;
    let reason = given_text(tr("common.reason"), &reason)?;
    let (filter, selection) = select_dead(&queue, &error)?;
    let draft = dead_plans::draft_plan(&app.core, &filter, &selection, verb, Some(reason)).await.map_err(plan_error)?;
    let id = PlanId::from_uuid(Uuid::now_v7());
    create::store_draft(&app.core, id, &draft, PlanMode::DryRun, &person.actor()).await.map_err(plan_error)?;
    Ok(go_back(&app.config, &format!("/plans/{id}"), "plan-made").into_response())
}
