//! The queue as a backend of apalis.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use apalis::prelude::*;
use apalis_core::{
    backend::{Vacuum, queue::Queue},
    worker::service::task_fn_validator::{check_fn_2, check_fn_3},
};
use futures_util::StreamExt;
use queue::{
    Delivery, NewJob, QueueStorage, RetryPolicy, RunAfter, StorageError, Store,
    apalis::Checked,
    store::{EnqueueVerdict, JobState},
};
use serde_json::{Value, json};
use servers::RedisServer;
use tokio::{sync::Notify, task::JoinHandle};

use crate::support::{eventually, id, millis, raw, secs};

const EMAILS: &str = "emails";
const QUICK: RetryPolicy =
    RetryPolicy { max_tries: 3, initial: Duration::from_millis(10), jitter: 0.0, ..RetryPolicy::DEFAULT };

async fn redis_and_storage<Args>() -> (RedisServer, QueueStorage<Args>) {
    let redis = RedisServer::start().await.unwrap();
    let storage = QueueStorage::connect(&redis.url(), EMAILS).await.unwrap();
    (redis, storage)
}

fn task<Args>(id: &str, args: Args) -> TaskBuilder<Args> {
    TaskBuilder::new(args).task_id(id.parse().unwrap())
}

fn in_an_hour<Args>(id: &str, args: Args) -> Task<Args> {
    task(id, args).data(RunAfter(secs(3600))).build()
}

async fn state_of<Args>(storage: &QueueStorage<Args>, job: &str) -> Option<JobState> {
    storage.shards().find_job(&id(job), &[EMAILS]).await.unwrap().map(|found| found.state)
}

fn filter(status: Option<Status>, page: u32, size: u32) -> Filter {
    Filter { status, page, page_size: Some(size) }
}

fn ids(tasks: &[Task<Value>]) -> Vec<String> {
    tasks.iter().map(|task| task.task_id().unwrap().to_string()).collect()
}

/// A worker that counts its tasks, and holds each for a permit of `go_on`.
struct Worker {
    context: WorkerContext,
    task: JoinHandle<Result<(), WorkerError>>,
    begun: Arc<AtomicUsize>,
    go_on: Arc<Notify>,
}

impl Worker {
    fn start(storage: QueueStorage<u32>) -> Self {
        let (begun, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (count, wait) = (begun.clone(), go_on.clone());
        let context = WorkerContext::new("worker-1");
        let worker = WorkerBuilder::new(context.clone()).backend(storage).build(move |_: u32| {
            count.fetch_add(1, Ordering::SeqCst);
            let wait = wait.clone();
            async move { wait.notified().await }
        });
        Self { context, task: tokio::spawn(worker.run()), begun, go_on }
    }

    async fn has_begun(&self, tasks: usize) {
        eventually("the tasks have begun", async || self.begun.load(Ordering::SeqCst) == tasks).await;
    }
}

/// apalis-board and other interfaces ask for this.
#[test]
fn storage_implements_the_traits_of_interfaces() {
    fn exposes<B: Expose<Args, Checked> + FetchById + Reschedule + Vacuum + WaitForCompletion<u64>, Args>() {}
    fn is_shared<B: Send + Sync + Clone + 'static>() {}
    exposes::<QueueStorage<String>, String>();
    is_shared::<QueueStorage<std::cell::Cell<u32>>>();
}

/// The checks of apalis-core's feature `test-utils`. `check_fn_1` of version 1.0.0 accepts no function: it looks for a
/// tuple as the argument.
#[test]
fn task_functions_fit_the_storage() {
    async fn remind(_: u32, _: Data<Delivery>, _: WorkerContext) {}
    async fn retried(_: u32, _: TaskId, _: Attempt, _: Queue) -> Result<u64, BoxDynError> {
        Ok(1)
    }
    check_fn_2::<_, QueueStorage<u32>, u32, Data<Delivery>, WorkerContext>(remind);
    check_fn_3::<_, QueueStorage<u32>, u32, TaskId, Attempt, Queue>(retried);
}

#[tokio::test]
async fn task_arrives_with_its_context() {
    let (_redis, mut storage) = redis_and_storage::<String>().await;
    let mut meta = MetadataStore::new();
    meta.insert("trace", "abc").unwrap();
    let pushed = task("7", "hello".to_owned()).with_metadata(meta).max_attempts(4).queue(Queue::from(EMAILS));
    storage.push_task(pushed.build()).await.unwrap();
    let seen = Arc::new(Mutex::new(None));
    let record = seen.clone();
    let handler = task_fn(move |args: String, id: TaskId, meta: MetadataStore, queue: Queue, worker: WorkerContext| {
        *record.lock().unwrap() =
            Some((args, id, meta.get("trace").map(str::to_owned), queue.to_string(), worker.name().to_owned()));
        async move { worker.stop().unwrap() }
    });
    WorkerBuilder::new("worker-1").backend(storage).build(handler).run().await.unwrap();
    let seen = seen.lock().unwrap().take().unwrap();
    let wanted = ("hello".to_owned(), TaskId::Int(7), Some("abc".to_owned()), EMAILS.to_owned(), "worker-1".to_owned());
    assert_eq!(seen, wanted);
}

#[tokio::test]
async fn delayed_task_is_never_early() {
    let (_redis, mut storage) = redis_and_storage::<u32>().await;
    let store = storage.shards().control().clone();
    let before_ms = store.now_ms().await.unwrap();
    storage.push_task(task("1", 1).data(RunAfter(millis(1_234))).build()).await.unwrap();
    // A whole second of the producer's clock, which is also Redis' here.
    storage.push_task(task("2", 2).run_at_timestamp(before_ms / 1000 + 2).build()).await.unwrap();
    let jobs = store.list_jobs(EMAILS, JobState::Due, 0, 10).await.unwrap();
    let due = |id: &str| jobs.iter().find(|job| job.id == id).unwrap().at_ms;
    assert!((before_ms + 1_234..before_ms + 2_234).contains(&due("emails:1")), "{before_ms} {jobs:?}");
    let second_ms = (before_ms / 1000 + 2) * 1000;
    assert!((second_ms..second_ms + 1_000).contains(&due("emails:2")), "{before_ms} {jobs:?}");
}

#[tokio::test]
async fn push_is_idempotent_by_id_or_key() {
    let (_redis, mut storage) = redis_and_storage::<u32>().await;
    storage.push_task(in_an_hour("1", 1)).await.unwrap();
    storage.push_task(in_an_hour("1", 2)).await.unwrap();
    let with_key = || TaskBuilder::new(3).idempotency_key("key").data(RunAfter(secs(3600))).build();
    storage.push_task(with_key()).await.unwrap();
    storage.push_task(with_key()).await.unwrap();
    let found = storage.list_tasks(&filter(None, 1, 10)).await.unwrap();
    let mut seen: Vec<_> = found.iter().map(|task| (task.task_id().unwrap().to_string(), task.args.clone())).collect();
    seen.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(seen, [("1".to_owned(), json!(1)), ("key".to_owned(), json!(3))]);

    let refused = storage.push_task(task("1", 1).idempotency_key("key").build()).await.unwrap_err();
    assert!(matches!(refused, TaskSinkError::PushError(StorageError::IdAndKey(_))), "{refused}");
    let refused = storage.push_task(task("4", 1).queue(Queue::from("letters")).build()).await.unwrap_err();
    assert!(matches!(refused, TaskSinkError::PushError(StorageError::OtherQueue { .. })), "{refused}");
    let refused = storage.push_task(task("a b", 1).build()).await.unwrap_err();
    assert!(matches!(refused, TaskSinkError::PushError(StorageError::Id(_))), "{refused}");
}

#[tokio::test]
async fn bulk_pushes_write_every_task() {
    let (_redis, mut storage) = redis_and_storage::<u32>().await;
    storage.push_bulk((0..1_200).collect()).await.unwrap();
    storage.push_stream(futures_util::stream::iter(0..5)).await.unwrap();
    assert_eq!(storage.shards().queue_stats(&[EMAILS]).await.unwrap()[0].due, 1_205);
}

#[tokio::test]
async fn unreadable_task_is_dead_and_the_worker_continues() {
    let (_redis, mut storage) = redis_and_storage::<u32>().await;
    let job = |text: &str, payload| NewJob { queue: EMAILS, id: id(text), delay: Duration::ZERO, payload, slots: None };
    let jobs = [job("emails:1", Some(json!({ "args": "no number" }))), job("emails:2", None)];
    assert_eq!(storage.shards().enqueue(&jobs).await.unwrap(), [EnqueueVerdict::Inserted; 2]);
    storage.push_task(task("3", 3).data(RunAfter(millis(50))).build()).await.unwrap();
    let worker = WorkerBuilder::new("worker-1")
        .backend(storage.clone())
        .build(async |_: u32, worker: WorkerContext| worker.stop().unwrap());
    worker.run().await.unwrap();
    let results: Vec<TaskResult<Value>> = storage.check_status([1, 2].map(TaskId::Int)).await.unwrap();
    let errors: Vec<String> = results.into_iter().map(|result| result.result.unwrap_err()).collect();
    assert!(errors[0].starts_with("the arguments cannot be decoded: invalid type"), "{errors:?}");
    assert!(errors[1].starts_with("job emails:2 cannot be read"), "{errors:?}");
}

#[tokio::test]
async fn errors_decide_when_a_task_runs_again() {
    let (_redis, storage) = redis_and_storage::<u32>().await;
    let mut storage = storage.retry(QUICK);
    for number in 1..=3 {
        storage.push_task(task(&number.to_string(), number).build()).await.unwrap();
    }
    let handler = async |number: u32| match number {
        1 => Err::<(), BoxDynError>(RetryAfterError::new("later", secs(3600)).into()),
        2 => Err(DeferredError::new("at once").into()),
        _ => Err(AbortError::new("never").into()),
    };
    let running = tokio::spawn(WorkerBuilder::new("worker-1").backend(storage.clone()).build(handler).run());
    eventually("two are dead", async || {
        state_of(&storage, "emails:2").await == Some(JobState::Dead)
            && state_of(&storage, "emails:3").await == Some(JobState::Dead)
            && storage.shards().find_job(&id("emails:1"), &[EMAILS]).await.unwrap().unwrap().failed == 1
    })
    .await;
    running.abort();
    let store = storage.shards().control();
    let later = store.find_job(&id("emails:1"), &[EMAILS]).await.unwrap().unwrap();
    assert!(later.at_ms > store.now_ms().await.unwrap() + 3_500_000, "{later:?}");
    let dead = store.find_job(&id("emails:2"), &[EMAILS]).await.unwrap().unwrap().dead.unwrap();
    assert_eq!((dead.failed, dead.error.as_str()), (3, "failed 3 tries; last: DeferredError: at once"));
}

#[tokio::test]
async fn stopped_worker_finishes_tasks_and_returns_the_rest() {
    let (_redis, storage) = redis_and_storage::<u32>().await;
    let mut storage = storage.concurrency(2);
    storage.push_bulk((0..5).collect()).await.unwrap();
    let worker = Worker::start(storage.clone());
    worker.has_begun(2).await;
    worker.context.stop().unwrap();
    worker.go_on.notify_waiters();
    worker.task.await.unwrap().unwrap();
    let stats = &storage.shards().queue_stats(&[EMAILS]).await.unwrap()[0];
    assert_eq!((stats.due, stats.leased, worker.begun.load(Ordering::SeqCst)), (3, 0, 2));
    let jobs = storage.shards().list_jobs(EMAILS, JobState::Due, 0, 10).await.unwrap();
    assert!(jobs.iter().all(|job| (job.failed, job.lost) == (0, 0)), "{jobs:?}");
    assert!(storage.list_workers().await.unwrap().is_empty());
}

#[tokio::test]
async fn dropped_worker_returns_its_tasks() {
    let (_redis, mut storage) = redis_and_storage::<u32>().await;
    storage.push_bulk(vec![1, 2]).await.unwrap();
    let worker = Worker::start(storage.clone());
    worker.has_begun(2).await;
    worker.task.abort();
    // Their leases would last for 8 s.
    eventually("the tasks are due", async || storage.shards().queue_stats(&[EMAILS]).await.unwrap()[0].due == 2).await;
    let jobs = storage.shards().list_jobs(EMAILS, JobState::Due, 0, 10).await.unwrap();
    assert!(jobs.iter().all(|job| job.lost == 0), "{jobs:?}");
}

#[tokio::test]
async fn paused_worker_leaves_tasks_to_others() {
    let (_redis, mut storage) = redis_and_storage::<u32>().await;
    let worker = Worker::start(storage.clone());
    eventually("the worker runs", async || worker.context.is_running()).await;
    worker.context.pause().unwrap();
    // The pause takes effect within 50 ms.
    tokio::time::sleep(millis(300)).await;
    storage.push(1).await.unwrap();
    tokio::time::sleep(millis(300)).await;
    assert_eq!(state_of_first(&storage).await, Some(JobState::Due));
    worker.context.resume().unwrap();
    worker.has_begun(1).await;
    worker.task.abort();
}

async fn state_of_first<Args>(storage: &QueueStorage<Args>) -> Option<JobState> {
    let stats = &storage.shards().queue_stats(&[EMAILS]).await.unwrap()[0];
    (stats.due > 0).then_some(JobState::Due).or((stats.leased > 0).then_some(JobState::Leased))
}

#[tokio::test]
async fn flushed_redis_is_a_new_queue_only_without_another_source() {
    let (redis, mut storage) = redis_and_storage::<u32>().await;
    let worker = Worker::start(storage.clone());
    storage.push(1).await.unwrap();
    worker.has_begun(1).await;
    worker.go_on.notify_waiters();
    let () = raw(&redis.url(), &["FLUSHALL"]).await;
    storage.push(2).await.unwrap();
    worker.has_begun(2).await;
    worker.task.abort();
    let _ = worker.task.await;
    let () = raw(&redis.url(), &["FLUSHALL"]).await;

    let store = Store::connect(&redis.url()).await.unwrap();
    let mut rebuilt = QueueStorage::new(store.clone(), EMAILS);
    let worker = Worker::start(rebuilt.clone());
    rebuilt.push(3).await.unwrap();
    tokio::time::sleep(millis(600)).await;
    assert_eq!((store.epoch().await.unwrap(), worker.begun.load(Ordering::SeqCst)), (None, 0));
    crate::support::rebuild(&store).await;
    worker.has_begun(1).await;
    worker.task.abort();
}

#[tokio::test]
async fn lists_show_tasks_of_each_state() {
    let (_redis, storage) = redis_and_storage::<u32>().await;
    let mut storage = storage.concurrency(1);
    let dead = task("dead", 1).max_attempts(1).build();
    storage.push_task(dead).await.unwrap();
    let fails = WorkerBuilder::new("worker-0").backend(storage.clone());
    fails
        .build(async |_: u32, worker: WorkerContext| {
            worker.stop().unwrap();
            Err::<(), BoxDynError>("no".into())
        })
        .run()
        .await
        .unwrap();
    storage.push_task(task("runs", 2).build()).await.unwrap();
    let worker = Worker::start(storage.clone());
    worker.has_begun(1).await;
    for id in ["a", "b", "c"] {
        storage.push_task(in_an_hour(id, 3)).await.unwrap();
    }
    // A job of another program in another queue.
    let other = NewJob { queue: "timers", id: id("tick:1"), delay: secs(3600), payload: None, slots: None };
    storage.shards().enqueue(&[other]).await.unwrap();

    let all = storage.list_tasks(&filter(None, 1, 10)).await.unwrap();
    assert_eq!(ids(&all), ["runs", "a", "b", "c", "dead"]);
    let found: Vec<_> = all.iter().map(|task| (task.status(), task.args.clone(), task.attempt())).collect();
    assert_eq!(found[0], (Status::Running, json!(2), 0));
    assert_eq!(found[1], (Status::Pending, json!(3), 0));
    assert_eq!(found[4], (Status::Failed, json!(1), 1));
    assert!(all.iter().all(|task| task.queue().unwrap().as_ref() == EMAILS));
    let pages = [
        ids(&storage.list_tasks(&filter(None, 2, 2)).await.unwrap()),
        ids(&storage.list_tasks(&filter(None, 3, 2)).await.unwrap()),
        ids(&storage.list_tasks(&filter(Some(Status::Pending), 2, 2)).await.unwrap()),
        ids(&storage.list_tasks(&filter(Some(Status::Done), 1, 2)).await.unwrap()),
        ids(&storage.list_tasks(&filter(Some(Status::Failed), 0, 2)).await.unwrap()),
    ];
    assert_eq!(pages.map(|page| page.join(" ")), ["b c", "dead", "c", "", "dead"]);
    let of_all = storage.list_all_tasks(&filter(Some(Status::Pending), 1, 10)).await.unwrap();
    assert_eq!(ids(&of_all), ["a", "b", "c", "tick:1"]);

    let queues = storage.list_queues().await.unwrap();
    assert_eq!(queues.iter().map(|queue| queue.name.as_str()).collect::<Vec<_>>(), [EMAILS, "timers"]);
    assert_eq!((queues[0].workers.clone(), queues[1].workers.clone()), (vec!["worker-1".to_owned()], Vec::new()));
    let value = |statistics: Vec<Statistic>, title: &str| {
        statistics.iter().find(|statistic| statistic.title == title).map(|statistic| statistic.value.clone()).unwrap()
    };
    assert_eq!(value(storage.fetch_by_queue().await.unwrap(), "PENDING_JOBS"), "3");
    assert_eq!(value(storage.fetch_by_queue().await.unwrap(), "RUNNING_JOBS"), "1");
    assert_eq!(value(storage.fetch_by_queue().await.unwrap(), "FAILED_JOBS"), "1");
    assert_eq!(value(storage.global().await.unwrap(), "TOTAL_JOBS"), "6");
    let workers = storage.list_workers().await.unwrap();
    assert_eq!((workers.len(), workers[0].id.as_str(), workers[0].queue.as_str()), (1, "worker-1", EMAILS));
    assert!(workers[0].started_at <= workers[0].last_heartbeat, "{workers:?}");
    worker.task.abort();
}

#[tokio::test]
async fn waiting_for_results_covers_each_end() {
    let (_redis, storage) = redis_and_storage::<u32>().await;
    let mut storage = storage.retry(QUICK).keep_results(secs(60));
    let handler = async |number: u32| if number == 2 { Err("two") } else { Ok(u64::from(number) * 10) };
    let running = tokio::spawn(WorkerBuilder::new("worker-1").backend(storage.clone()).build(handler).run());
    for number in 1..=2 {
        storage.push_task(task(&number.to_string(), number).build()).await.unwrap();
    }
    let waited: Vec<Result<TaskResult<u64>, StorageError>> =
        storage.wait_for([1, 2, 3].map(TaskId::Int)).collect().await;
    let mut ended: Vec<String> = waited
        .into_iter()
        .map(|result| match result {
            Ok(TaskResult { task_id, attempt, status, result }) => {
                format!("{task_id} {attempt} {status} {}", result.map_or_else(|error| error, |n| n.to_string()))
            }
            Err(error) => error.to_string(),
        })
        .collect();
    ended.sort();
    assert_eq!(ended[..2], ["1 1 Done 10", "2 3 Failed failed 3 tries; last: two"]);
    assert!(ended[2].starts_with("task 3 is unknown"), "{ended:?}");
    // A type that the stored result does not fit.
    let unfit: Result<Vec<TaskResult<String>>, StorageError> = storage.check_status([TaskId::Int(1)]).await;
    assert!(matches!(unfit, Err(StorageError::Result { .. })), "{unfit:?}");
    storage.push_task(in_an_hour("4", 4)).await.unwrap();
    let unfinished: Vec<TaskResult<u64>> = storage.check_status([TaskId::Int(4)]).await.unwrap();
    assert!(unfinished.is_empty(), "{unfinished:?}");
    running.abort();
}

#[tokio::test]
async fn results_are_kept_only_on_request_and_expire() {
    let (redis, storage) = redis_and_storage::<u32>().await;
    for keep in [false, true] {
        let mut storage = if keep { storage.clone().keep_results(secs(60)) } else { storage.clone() };
        storage.push_task(task("1", 1).build()).await.unwrap();
        let handler = async |_: u32, worker: WorkerContext| worker.stop().unwrap();
        WorkerBuilder::new("worker-1").backend(storage).build(handler).run().await.unwrap();
        let left_ms: i64 = raw(&redis.url(), &["PTTL", "{dq:0}:result:emails:1"]).await;
        // -2: the key does not exist.
        assert!(if keep { (1..=60_000).contains(&left_ms) } else { left_ms == -2 }, "{keep} {left_ms}");
    }
}

#[tokio::test]
async fn rescheduled_task_runs_whatever_its_state() {
    let (_redis, storage) = redis_and_storage::<u32>().await;
    let mut storage = storage.concurrency(1);
    let due_ms = async |storage: &QueueStorage<u32>| {
        let store = storage.shards().control();
        let found = store.find_job(&id("emails:1"), &[EMAILS]).await.unwrap().unwrap();
        (found.state, found.again_ms.unwrap_or(found.at_ms).saturating_sub(store.now_ms().await.unwrap()) / 60_000)
    };
    // Absent.
    let one = || task("1", json!(1)).build();
    storage.reschedule(one(), secs(7230)).await.unwrap();
    assert_eq!(due_ms(&storage).await, (JobState::Due, 120));
    // Due, later than before.
    storage.reschedule(one(), secs(10_830)).await.unwrap();
    assert_eq!(due_ms(&storage).await, (JobState::Due, 180));
    // Running: it runs again after this run.
    storage.reschedule(one(), Duration::ZERO).await.unwrap();
    let worker = Worker::start(storage.clone());
    worker.has_begun(1).await;
    storage.reschedule(one(), secs(3630)).await.unwrap();
    assert_eq!(due_ms(&storage).await, (JobState::Leased, 60));
    worker.go_on.notify_waiters();
    eventually("the task waits again", async || due_ms(&storage).await == (JobState::Due, 60)).await;
    worker.context.stop().unwrap();
    worker.task.await.unwrap().unwrap();
    // Dead.
    storage.reschedule(one(), Duration::ZERO).await.unwrap();
    let fails = async |_: u32, worker: WorkerContext| {
        worker.stop().unwrap();
        Err::<(), BoxDynError>(AbortError::new("no").into())
    };
    WorkerBuilder::new("worker-2").backend(storage.clone()).build(fails).run().await.unwrap();
    assert_eq!(state_of(&storage, "emails:1").await, Some(JobState::Dead));
    let refused = storage.push_task(task("1", 1).build()).await.unwrap_err();
    assert!(matches!(refused, TaskSinkError::PushError(StorageError::Dead(_))), "{refused}");
    storage.reschedule(one(), secs(3630)).await.unwrap();
    assert_eq!(due_ms(&storage).await, (JobState::Due, 60));
    let refused = storage.reschedule(Task::new(json!(1)), Duration::ZERO).await;
    assert!(matches!(refused, Err(StorageError::NoId)), "{refused:?}");
}

#[tokio::test]
async fn vacuum_deletes_dead_tasks_only() {
    let (_redis, mut storage) = redis_and_storage::<u32>().await;
    storage.push_bulk((0..600).collect()).await.unwrap();
    let left = Arc::new(AtomicUsize::new(600));
    let count = left.clone();
    let handler = move |_: u32, worker: WorkerContext| {
        let is_last = count.fetch_sub(1, Ordering::SeqCst) == 1;
        async move {
            if is_last {
                worker.stop().unwrap();
            }
            Err::<(), BoxDynError>(AbortError::new("no").into())
        }
    };
    WorkerBuilder::new("worker-1").backend(storage.clone()).build(handler).run().await.unwrap();
    storage.push_task(in_an_hour("1", 1)).await.unwrap();
    assert_eq!(storage.vacuum_before(secs(3600)).await.unwrap(), 0);
    assert_eq!(storage.vacuum().await.unwrap(), 600);
    let stats = &storage.shards().queue_stats(&[EMAILS]).await.unwrap()[0];
    assert_eq!((stats.dead, stats.scheduled), (0, 1));
}
