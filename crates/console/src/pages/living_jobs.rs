//! Page of jobs: the jobs of a queue, earliest first, and the state of one job.

use axum::{
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use chrono::{DateTime, Utc};
use model::decide::timers;
use serde::Deserialize;
use serde_json::Value;

use super::{job_actions::list_actions, roles::OPERATORS};
use crate::{
    catalogue::{Words, fill, tr},
    form::{encode_component, optional_text, read_query, write_query},
    page::{Shell, render},
    page_error::PageError,
    session::SignedIn,
    shown::{Chip, Countdown, Moment, draw_json},
    table::{Action, Cell, Field, TablePage, TableRow},
};
use app::App;
use foundation::db;
use queue::{
    JobId,
    store::{JobDetail, JobEntry, JobState, WorkerEntry},
};

const REFRESH_S: u32 = 5;
const PAGE: usize = 50;
/// Maximum offset. Redis reads the skipped jobs, too.
const LARGEST_OFFSET: usize = 100_000;

const HEADINGS: [Words; 8] = [
    tr("common.job"),
    tr("common.order"),
    tr("common.queue"),
    tr("common.state"),
    tr("common.time"),
    tr("common.failed_runs"),
    tr("jobs.lost_runs"),
    tr("common.details"),
];

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobQuery {
    /// Id of one job. Without it the jobs of a queue are listed.
    id: String,
    queue: String,
    state: String,
    offset: usize,
    did: Option<String>,
}

/// States with their codes in addresses.
const STATES: [(&str, JobState, Words); 5] = [
    ("due", JobState::Due, tr("jobs.due_scheduled")),
    ("leased", JobState::Leased, tr("common.running")),
    ("parked", JobState::Parked, tr("common.waiting_slots")),
    ("suspect", JobState::Suspect, tr("jobs.lost_several_times")),
    ("dead", JobState::Dead, tr("common.dead")),
];

/// Returns the cell of a job's id. For operators it links to the job's page.
pub(super) fn job_cell(person: &SignedIn, base: &str, job: &str) -> Cell {
    if person.may(&OPERATORS) {
        Cell::link(&format!("{base}/jobs{}", write_query(&[("id", job)])), job)
    } else {
        Cell::id(job)
    }
}

/// Returns the page and id of the order that a job belongs to; `None` if it belongs to no order.
pub(super) fn order_of_job(base: &str, job: &str) -> Option<(String, String)> {
    let order = JobId::parse(job.to_owned()).ok().and_then(|id| timers::order_of(&id))?;
    Some((format!("{base}/orders/{}", encode_component(order.as_str())), order.to_string()))
}

/// Returns the cell for [`order_of_job`].
pub(super) fn order_cell(base: &str, job: &str) -> Cell {
    order_of_job(base, job).map_or_else(|| Cell::text(""), |(page, order)| Cell::link(&page, &order))
}

impl JobQuery {
    fn queue(&self) -> Result<&'static str, PageError> {
        if self.queue.is_empty() {
            return Ok(jobs::queues::ALL[0]);
        }
        let known = jobs::queues::ALL.into_iter().find(|known| *known == self.queue);
        known.ok_or(PageError::NotFound(tr("jobs.no_queue_name")))
    }

    fn state(&self) -> Result<JobState, PageError> {
        if self.state.is_empty() {
            return Ok(JobState::Due);
        }
        let found = STATES.into_iter().find(|(word, ..)| *word == self.state);
        found.map(|(_, state, _)| state).ok_or_else(|| PageError::Invalid(tr("jobs.state_not_exist_jobs").into()))
    }

    fn address(&self, offset: usize) -> String {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        write_query(&[("id", &self.id), ("queue", &self.queue), ("state", &self.state), ("offset", &offset)])
    }
}

/// Data of a job's row.
struct JobLine {
    id: String,
    queue: String,
    state: JobState,
    at_ms: u64,
    failed: u32,
    lost: u32,
    more: String,
    /// Actions; only on the page of the job.
    actions: Vec<Action>,
}

impl JobLine {
    fn of_entry(entry: JobEntry, queue: &str, state: JobState) -> Self {
        let JobEntry { id, at_ms, failed, lost, error } = entry;
        Self {
            id,
            queue: queue.to_owned(),
            state,
            at_ms,
            failed,
            lost,
            more: error.unwrap_or_default(),
            actions: Vec::new(),
        }
    }

    fn of_detail(job: JobDetail, workers: &[WorkerEntry]) -> Self {
        // A token has the form `boot:sequence`.
        let boot = job.token.as_deref().and_then(|token| token.rsplit_once(':')).map(|(boot, _)| boot);
        let holder = boot.and_then(|boot| workers.iter().find(|worker| worker.boot == boot));
        let held = holder.map(|worker| {
            let worker = &worker.replica;
            fill!("common.runs_on", worker)
        });
        let actions = list_actions(&job);
        let in_line = job.parked.map(|place| {
            let before = place.before;
            fill!("jobs.jobs_before_it", before)
        });
        let died_of = job.dead.map(|dead| dead.error);
        let more = held.or(in_line).or(died_of).unwrap_or_default();
        Self {
            id: job.id,
            queue: job.queue,
            state: job.state,
            at_ms: job.at_ms,
            failed: job.failed,
            lost: job.lost,
            more,
            actions,
        }
    }

    fn into_row(self, person: &SignedIn, base: &str, now: DateTime<Utc>) -> TableRow {
        let at = Moment::of_ms(self.at_ms);
        let countdown = Countdown { to: at.0, now };
        let (chip, when) = match self.state {
            JobState::Due | JobState::Suspect if at.0 <= now => {
                (Chip::new("wait", tr("common.due")), countdown.to_string())
            }
            JobState::Due | JobState::Suspect => (Chip::new("plain", tr("common.scheduled")), countdown.to_string()),
            JobState::Parked => (Chip::new("wait", tr("common.waits_slot")), fill!("jobs.waits_since", at)),
            JobState::Leased => (Chip::new("busy", tr("common.running")), fill!("jobs.lease_ends_at", at = countdown)),
            JobState::Dead => (Chip::new("bad", tr("common.dead")), fill!("jobs.dead_since_at", at)),
        };
        let cells = vec![
            job_cell(person, base, &self.id),
            order_cell(base, &self.id),
            Cell::text(&self.queue),
            Cell::html(chip),
            Cell::html(when),
            Cell::number(self.failed),
            Cell::number(self.lost),
            Cell::text(&self.more),
        ];
        let row = TableRow::plain(cells).with_actions(self.actions);
        match order_of_job(base, &self.id) {
            Some((page, _)) => row.open(page),
            None => row,
        }
    }
}

/// Returns HTML of a job's payload. Returns an empty text for a job without one, such as most timers, whose ids have all data.
fn draw_payload(job: &JobDetail) -> String {
    let envelope = match (&job.envelope, &job.dead) {
        (Some(envelope), _) => serde_json::from_str(envelope).unwrap_or_else(|_| Value::String(envelope.clone())),
        (None, Some(dead)) => dead.payload.clone(),
        (None, None) => Value::Null,
    };
    if envelope.is_null() { String::new() } else { format!("<h2>{}</h2>{}", tr("jobs.payload"), draw_json(&envelope)) }
}

pub(crate) async fn show_page(
    State(app): State<App>,
    person: SignedIn,
    query: Result<Query<JobQuery>, QueryRejection>,
) -> Result<Response, PageError> {
    person.require_role(&OPERATORS)?;
    let app = app.showing();
    let query: JobQuery = read_query(query)?;
    let (queue, state) = (query.queue()?, query.state()?);
    // Each shard is read from its start.
    let most = LARGEST_OFFSET / app.core.queue().stores().len().max(1);
    if query.offset > most {
        let text = tr("jobs.console_not_list_jobs");
        return Err(PageError::Invalid(text.into()));
    }
    let now = db::database_now(&app.core.db).await?;
    let mut next = None;
    let mut figure = String::new();
    let lines: Vec<JobLine> = match optional_text(tr("common.id"), Some(&query.id))? {
        Some(id) => {
            let id = JobId::parse(id).map_err(|error| PageError::Invalid(error.to_string()))?;
            let found = app.core.queue().find_job(&id, &jobs::queues::ALL).await?;
            let is_held = found.as_ref().is_some_and(|job| job.token.is_some());
            let workers = if is_held { app.core.store.list_workers().await? } else { Vec::new() };
            figure = found.as_ref().map(draw_payload).unwrap_or_default();
            found.into_iter().map(|job| JobLine::of_detail(job, &workers)).collect()
        }
        None => {
            let found = app.core.queue().list_jobs(queue, state, query.offset, PAGE).await?;
            next = (found.len() == PAGE && query.offset + PAGE <= most).then(|| query.address(query.offset + PAGE));
            found.into_iter().map(|entry| JobLine::of_entry(entry, queue, state)).collect()
        }
    };
    let base = app.config.console.path.as_str();
    let rows = lines.into_iter().map(|line| line.into_row(&person, base, now)).collect();
    let queues = jobs::queues::ALL.map(|queue| (queue, queue));
    let states = STATES.map(|(word, _, label)| (word, label.get()));
    let shell = Shell::for_person(&app.config, &person, "/jobs", tr("common.jobs"), query.did.as_deref());
    let page = TablePage {
        filters: vec![
            Field::text("id", tr("common.job_id"), &query.id),
            Field::choice("queue", tr("common.queue"), queue, &queues),
            Field::choice("state", tr("common.state"), &query.state, &states),
        ],
        if_empty: (
            if query.id.is_empty() { tr("jobs.no_jobs_state") } else { tr("jobs.no_such_job") },
            tr("jobs.finished_jobs_no_queue"),
        ),
        next,
        figure,
        ..TablePage::new(
            shell.live(if query.offset == 0 { REFRESH_S } else { 0 }).made_at(now),
            &format!("/jobs{}", query.address(query.offset)),
            &HEADINGS,
            rows,
        )
    };
    render(&page)
}
