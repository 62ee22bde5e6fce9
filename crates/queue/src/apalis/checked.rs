//! Decodes the arguments of tasks, and keeps tasks that cannot be decoded from ending the worker.

use std::{
    fmt::Display,
    marker::PhantomData,
    task::{Context, Poll, ready},
    time::Duration,
};

use apalis_core::{
    backend::{Backend, BackendConfig, WireFormatBackend, codec::Codec, finalize::FinalizeBackend},
    task::Task,
    worker::context::WorkerContext,
};

use super::settle_layer::Delivered;
use crate::outcome::Outcome;

/// Kind of a [`QueueStorage`](super::QueueStorage).
///
/// apalis' kind `Durable` ends the worker when the arguments of a task cannot be decoded, and the next worker, too. With
/// this kind such a task is dead at once, with the reason.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checked;

impl<B, Args> FinalizeBackend<B, Args> for Checked
where
    B: BackendConfig + WireFormatBackend,
{
    type Backend = CheckedBackend<B, Args>;

    fn finalize(current: B) -> Self::Backend {
        CheckedBackend { backend: current, args: PhantomData }
    }
}

/// Backend that decodes the arguments of tasks.
#[derive(Debug)]
pub struct CheckedBackend<B, Args> {
    backend: B,
    args: PhantomData<fn() -> Args>,
}

impl<B, Args> Backend for CheckedBackend<B, Args>
where
    B: Backend<Task = Task<B::Compact>> + WireFormatBackend,
    B::Codec: Codec<Args, Compact = B::Compact>,
    <B::Codec as Codec<Args>>::Error: Display,
{
    type Task = Task<Args>;
    type Error = B::Error;

    fn poll_ready(&mut self, cx: &mut Context<'_>, worker: &WorkerContext) -> Poll<Result<(), B::Error>> {
        self.backend.poll_ready(cx, worker)
    }

    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
        worker: &WorkerContext,
    ) -> Poll<Option<Result<Self::Task, Self::Error>>> {
        loop {
            let task = match ready!(self.backend.poll_next(cx, worker)) {
                Some(Ok(task)) => task,
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            };
            let ctx = task.ctx().clone();
            match task.try_map_args(|args| self.backend.codec().decode(&args)) {
                Ok(task) => return Poll::Ready(Some(Ok(task))),
                Err(error) => {
                    if let Some(delivered) = ctx.data().get::<Delivered>().cloned() {
                        let reason = format!("the arguments cannot be decoded: {error}");
                        delivered.settle(Outcome::Dead(reason), None, Duration::ZERO);
                    }
                }
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, worker: &WorkerContext) -> Poll<Result<(), B::Error>> {
        self.backend.poll_close(cx, worker)
    }
}

impl<B: BackendConfig, Args> BackendConfig for CheckedBackend<B, Args> {
    type Args = Args;
    type Id = B::Id;
    type Kind = Checked;
    type Config = B::Config;
    type Layer = B::Layer;

    fn config(&self) -> &B::Config {
        self.backend.config()
    }

    fn middleware(&mut self, worker: &mut WorkerContext) -> B::Layer {
        self.backend.middleware(worker)
    }
}
