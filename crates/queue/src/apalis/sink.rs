//! Pushing tasks. All tasks of one flush are sent in calls of up to 500 jobs.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use apalis_core::{
    backend::{TaskSink, TaskSinkError, codec::Codec, future::BoxSyncFuture},
    task::Task,
};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    checked::Checked,
    error::StorageError,
    storage::{QueueStorage, Stored},
    task::job_to_push,
    task_id::task_of,
};
use crate::{shards::Shards, store::EnqueueVerdict};

/// Number of tasks after which a sink flushes by itself.
const FULL: usize = 500;

/// Enqueues tasks. A task whose id is dead is reported after all others are written.
pub(super) async fn push_tasks(shards: Shards, queue: &'static str, tasks: Vec<Task<Value>>) -> Stored<()> {
    let now_ms = if tasks.iter().any(|task| task.run_at().is_some()) { shards.control().now_ms().await? } else { 0 };
    let jobs = tasks.iter().map(|task| job_to_push(queue, task, now_ms)).collect::<Result<Vec<_>, _>>()?;
    let verdicts = shards.enqueue(&jobs).await?;
    match jobs.iter().zip(verdicts).find(|(_, verdict)| *verdict == EnqueueVerdict::Dead) {
        Some((job, _)) => Err(StorageError::Dead(task_of(queue, &job.id))),
        None => Ok(()),
    }
}

impl<Args> Sink<Task<Value>> for QueueStorage<Args> {
    type Error = StorageError;

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Stored<()>> {
        if self.pushes.waiting.len() < FULL { Poll::Ready(Ok(())) } else { Sink::poll_flush(self, cx) }
    }

    fn start_send(mut self: Pin<&mut Self>, task: Task<Value>) -> Stored<()> {
        self.pushes.waiting.push(task);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Stored<()>> {
        loop {
            if let Some(sending) = &mut self.pushes.sending {
                let sent = ready!(sending.poll_unpin(cx));
                self.pushes.sending = None;
                sent?;
            }
            if self.pushes.waiting.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let tasks = std::mem::take(&mut self.pushes.waiting);
            let sending = push_tasks(self.shards.clone(), self.config.queue, tasks);
            self.pushes.sending = Some(BoxSyncFuture::new(Box::pin(sending)));
        }
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Stored<()>> {
        Sink::poll_flush(self, cx)
    }
}

type Pushed = Result<(), TaskSinkError<StorageError>>;

/// apalis implements this trait for its own kinds of backends only.
impl<Args> TaskSink<Args, Checked> for QueueStorage<Args>
where
    Args: Serialize + DeserializeOwned + Send,
{
    fn start_send(self: Pin<&mut Self>, task: Task<Args>) -> Pushed {
        let encoded = encode(task)?;
        Ok(Sink::start_send(self, encoded)?)
    }

    fn poll_ready(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Pushed> {
        Sink::poll_ready(self, cx).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Pushed> {
        Sink::poll_flush(self, cx).map_err(Into::into)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Pushed> {
        Sink::poll_close(self, cx).map_err(Into::into)
    }

    async fn push(&mut self, args: Args) -> Pushed {
        self.push_task(Task::new(args)).await
    }

    async fn push_bulk(&mut self, tasks: Vec<Args>) -> Pushed {
        let encoded: Result<Vec<_>, _> = tasks.into_iter().map(Task::new).map(encode).collect();
        for task in encoded? {
            self.feed(task).await?;
        }
        Ok(self.flush().await?)
    }

    async fn push_stream(&mut self, tasks: impl Stream<Item = Args> + Unpin + Send) -> Pushed {
        self.push_all(tasks.map(Task::new)).await
    }

    async fn push_task(&mut self, task: Task<Args>) -> Pushed {
        let encoded = encode(task)?;
        Ok(self.send(encoded).await?)
    }

    async fn push_all(&mut self, mut tasks: impl Stream<Item = Task<Args>> + Unpin + Send) -> Pushed {
        while let Some(task) = tasks.next().await {
            self.feed(encode(task)?).await?;
        }
        Ok(self.flush().await?)
    }
}

fn encode<Args: Serialize + DeserializeOwned>(task: Task<Args>) -> Result<Task<Value>, TaskSinkError<StorageError>> {
    let codec = apalis_codec::json::JsonCodec::<Value>::default();
    task.try_map_args(|args| codec.encode(&args).map_err(|error| TaskSinkError::CodecError(error.into())))
}
