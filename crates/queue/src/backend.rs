//! Connects the supervisor to apalis: its jobs as a backend, the handlers' results as a layer.
//!
//! The backend never fails, because an error would end the worker. It is `Ephemeral`, because a `Durable` backend
//! decodes payloads itself and ends the worker when one does not decode. The layer is the outermost one, so it also
//! receives panics and aborts.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use apalis::layers::catch_panic::CatchPanicLayer;
use apalis_core::{
    backend::{Backend, BackendConfig, finalize::Ephemeral},
    error::{BoxDynError, WorkerError},
    task::{Task, into_response::IntoResponse, task_id::TaskId},
    worker::{builder::WorkerBuilder, context::WorkerContext, ext::parallelize::ParallelizeExt},
};
use tokio::{sync::mpsc, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    outcome::Outcome,
    supervisor::{FinishedJob, ResultSender, Supervisor, TicketedJob},
};

/// Jobs of one queue, received from the supervisor's channel.
pub(crate) struct QueueBackend {
    pub(crate) supervisor: Arc<Supervisor>,
    pub(crate) jobs: mpsc::UnboundedReceiver<TicketedJob>,
    pub(crate) results: ResultSender,
}

impl std::fmt::Debug for QueueBackend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueBackend").finish_non_exhaustive()
    }
}

impl Backend for QueueBackend {
    type Task = Task<TicketedJob>;
    type Error = Infallible;

    fn poll_ready(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, _: &WorkerContext) -> Poll<Option<Result<Self::Task, Self::Error>>> {
        loop {
            match ready!(self.jobs.poll_recv(cx)) {
                Some(work) if self.supervisor.in_flight.mark_running(work.ticket) => {
                    return Poll::Ready(Some(Ok(Task::new(work))));
                }
                // A drain has handed this job back.
                Some(_) => {}
                // A closed channel does not end a worker. `stop` does, and wakes the worker.
                None => return Poll::Pending,
            }
        }
    }

    fn poll_close(&mut self, _: &mut Context<'_>, _: &WorkerContext) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

impl BackendConfig for QueueBackend {
    type Args = TicketedJob;
    type Id = TaskId;
    type Kind = Ephemeral;
    type Config = ();
    type Layer = ResultLayer;

    fn config(&self) -> &() {
        &()
    }

    fn middleware(&mut self, _: &mut WorkerContext) -> ResultLayer {
        ResultLayer { results: self.results.clone() }
    }
}

/// Result of a handler, in the type that apalis requires.
#[derive(Debug)]
pub(crate) struct HandlerAnswer(Outcome);

impl IntoResponse for HandlerAnswer {
    type Output = Self;

    fn into_response(self) -> Result<Self, BoxDynError> {
        Ok(self)
    }
}

/// Sends every job's outcome to the supervisor.
#[derive(Debug, Clone)]
pub(crate) struct ResultLayer {
    results: ResultSender,
}

impl<S> Layer<S> for ResultLayer {
    type Service = ResultService<S>;

    fn layer(&self, inner: S) -> ResultService<S> {
        ResultService { inner, results: self.results.clone() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct ResultService<S> {
    inner: S,
    results: ResultSender,
}

impl<S> Service<Task<TicketedJob>> for ResultService<S>
where
    S: Service<Task<TicketedJob>, Response = HandlerAnswer>,
    S::Error: Into<BoxDynError>,
    S::Future: Send + 'static,
{
    type Response = ();
    type Error = BoxDynError;
    type Future = Pin<Box<dyn Future<Output = Result<(), BoxDynError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxDynError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, task: Task<TicketedJob>) -> Self::Future {
        let work = task.args.without_payload();
        let results = self.results.clone();
        let begun = Instant::now();
        let run = self.inner.call(task);
        Box::pin(async move {
            let outcome = match run.await {
                Ok(HandlerAnswer(outcome)) => outcome,
                Err(error) => {
                    let error = error.into();
                    if error.is::<HandlerAborted>() {
                        // The drain hands this job back.
                        return Ok(());
                    }
                    Outcome::Retry(error.to_string())
                }
            };
            // After the drain no task receives results. By then the drain has handed the job back.
            results.send(FinishedJob { work, outcome, duration: begun.elapsed(), retry: None });
            Ok(())
        })
    }
}

/// The drain aborted this handler.
#[derive(Debug, thiserror::Error)]
#[error("aborted by the drain")]
pub(crate) struct HandlerAborted;

#[derive(Debug, thiserror::Error)]
#[error("panicked: {0}")]
pub(crate) struct HandlerPanicked(String);

impl HandlerPanicked {
    pub(crate) fn new(payload: &Box<dyn std::any::Any + Send>) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(text.unwrap_or("without a message").to_owned())
    }
}

/// Runs each handler in its own task, and can abort all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandlerTasks {
    pub(crate) tasks: TaskTracker,
    pub(crate) abort: CancellationToken,
}

impl HandlerTasks {
    /// Spawns a handler. apalis' `parallelize` uses this as its executor.
    pub(crate) fn spawn<F>(&self, handler: F) -> impl Future<Output = Result<F::Output, BoxDynError>> + Send + use<F>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let task = self.tasks.spawn(self.abort.clone().run_until_cancelled_owned(handler));
        async move { task.await?.ok_or_else(|| HandlerAborted.into()) }
    }
}

/// Starts the apalis worker of one queue.
///
/// In apalis the layer added first is the outermost. So each handler runs in a spawned task, and its panic is caught
/// inside that task.
pub(crate) fn start_worker(
    supervisor: &Arc<Supervisor>,
    handlers: &HandlerTasks,
    queue: &'static str,
    jobs: mpsc::UnboundedReceiver<TicketedJob>,
    results: ResultSender,
    ending: mpsc::Sender<String>,
) -> (WorkerContext, JoinHandle<()>) {
    let context = WorkerContext::new(queue);
    let backend = QueueBackend { supervisor: supervisor.clone(), jobs, results };
    let registry = Arc::new(supervisor.registry.clone());
    let worker = WorkerBuilder::new(context.clone())
        .backend(backend)
        .parallelize(spawning_executor(handlers.clone()))
        .layer(CatchPanicLayer::with_panic_handler(
            HandlerPanicked::new as fn(&Box<dyn std::any::Any + Send>) -> HandlerPanicked,
        ))
        .build(move |work: TicketedJob| {
            let registry = registry.clone();
            async move { HandlerAnswer(registry.perform(work.leased.delivery).await) }
        });
    let run: Pin<Box<dyn Future<Output = Result<(), WorkerError>> + Send>> = Box::pin(worker.run());
    let task = tokio::spawn({
        let context = context.clone();
        async move {
            let ended = run.await;
            if !context.is_stopped() || ended.is_err() {
                let _ = ending.try_send(format!("{queue}: {ended:?}"));
            }
        }
    });
    (context, task)
}

type Spawned<T> = Pin<Box<dyn Future<Output = Result<T, BoxDynError>> + Send>>;

fn spawning_executor<F>(handlers: HandlerTasks) -> impl Fn(F) -> Spawned<F::Output> + Clone
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    move |handler| Box::pin(handlers.spawn(handler))
}
