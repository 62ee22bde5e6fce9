//! The worker's side of the storage. It never fails, because an error of the backend would end the worker: the loops
//! retry instead.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use apalis_core::{backend::Backend, task::Task, worker::context::WorkerContext};
use serde_json::Value;

use super::{
    error::StorageError,
    run::StorageRun,
    storage::{QueueStorage, Stored},
    task::task_to_run,
};
use crate::{outcome::Outcome, supervisor::FinishedJob};

impl<Args> QueueStorage<Args> {
    fn run_for(&mut self, worker: &WorkerContext) -> &mut StorageRun {
        let (shards, config) = (&self.shards, &self.config);
        self.run.get_or_insert_with(|| StorageRun::start(shards, config, worker))
    }
}

impl<Args> Backend for QueueStorage<Args> {
    type Task = Task<Value>;
    type Error = StorageError;

    fn poll_ready(&mut self, _: &mut Context<'_>, worker: &WorkerContext) -> Poll<Stored<()>> {
        self.run_for(worker);
        Poll::Ready(Ok(()))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, worker: &WorkerContext) -> Poll<Option<Stored<Task<Value>>>> {
        let run = self.run_for(worker);
        loop {
            let work = match ready!(run.jobs.poll_recv(cx)) {
                Some(work) if run.supervisor.in_flight.mark_running(work.ticket) => work,
                // A drain has handed this job back.
                Some(_) => continue,
                // The worker is stopping, and ends by itself.
                None => return Poll::Pending,
            };
            match task_to_run(work, worker.name(), &run.results) {
                Ok(task) => return Poll::Ready(Some(Ok(task))),
                Err(unreadable) => {
                    let (work, error) = *unreadable;
                    let outcome = Outcome::Dead(error.to_string());
                    run.results.send(FinishedJob { work, outcome, duration: Duration::ZERO, retry: None });
                }
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, _: &WorkerContext) -> Poll<Stored<()>> {
        if let Some(run) = &mut self.run {
            ready!(run.poll_stopped(cx));
            self.run = None;
        }
        Poll::Ready(Ok(()))
    }
}
