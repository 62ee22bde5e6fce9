//! Names and labels of the metrics, and proof that counting needs no look-up per job.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::{
    runtime::Worker,
    support::{Letter, OTHER, QUEUE, Tick, due_now, eventually, raw, rebuild},
};
use queue::{NewJob, Outcome, Registry, Runtime, Store};

/// Recorder that stores the counts and the number of look-ups.
#[derive(Default)]
struct Counted {
    series: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    look_ups: AtomicU64,
}

struct Samples(Arc<AtomicU64>);

impl HistogramFn for Samples {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counted {
    fn look_up(&self, key: &Key) -> Arc<AtomicU64> {
        self.look_ups.fetch_add(1, Ordering::SeqCst);
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        self.series.lock().unwrap().entry(name).or_default().clone()
    }

    /// Returns the series with a value above zero.
    fn read(&self) -> Vec<String> {
        let series = self.series.lock().unwrap();
        let counts = series.iter().map(|(name, count)| (name, count.load(Ordering::SeqCst)));
        counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect()
    }
}

impl Recorder for Counted {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.look_up(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        panic!("the engine has no gauge such as {key}")
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Samples(self.look_up(key))))
    }
}

#[tokio::test]
async fn metrics_keep_names_without_lookups_per_job() {
    let counted = Counted::default();
    // This test has one thread, so the recorder receives everything from the worker.
    let _guard = metrics::set_default_local_recorder(&counted);
    let redis = servers::RedisServer::start().await.unwrap();
    let store = Store::connect(&redis.url()).await.unwrap();
    rebuild(&store).await;
    let registry = Registry::new()
        .register::<Tick, _, _>(|tick, delivery| async move {
            match tick.0 {
                0 if delivery.failed == 0 => Outcome::Retry("once more".to_owned()),
                1 => Outcome::Dead("never".to_owned()),
                _ => Outcome::done(),
            }
        })
        .register::<Letter, _, _>(|_, _| async { Outcome::done() });
    // The job has lost four deliveries, and its fifth lease has expired.
    raw::<()>(&redis.url(), &["ZADD", "{dq:0}:leased:others", "1", "letter:1"]).await;
    raw::<()>(&redis.url(), &["HSET", "{dq:0}:leases", "letter:1", "gone:1 1 -"]).await;
    raw::<()>(&redis.url(), &["HSET", "{dq:0}:tries", "letter:1", "0 4"]).await;
    store.enqueue(&[due_now("novelty:1")]).await.unwrap();

    let worker = Worker::start(Runtime::new(store.clone(), registry).queues([(QUEUE, 16), (OTHER, 4)]));
    eventually("it runs", async || !store.list_workers().await.unwrap().is_empty()).await;
    eventually("the novelty waits", async || store.queue_stats(&[QUEUE]).await.unwrap()[0].scheduled == 1).await;
    let before = counted.look_ups.load(Ordering::SeqCst);
    let jobs: Vec<NewJob> = (0..1_000).map(|n| NewJob::now(&Tick(n))).collect();
    store.enqueue(&jobs).await.unwrap();
    eventually("all ended", async || {
        let stats = &store.queue_stats(&[QUEUE]).await.unwrap()[0];
        (stats.due + stats.leased, stats.scheduled, stats.dead) == (0, 1, 1)
    })
    .await;
    assert_eq!(counted.look_ups.load(Ordering::SeqCst), before, "no look-up for a thousand jobs");
    worker.drain().await;
    assert_eq!(
        counted.read(),
        [
            "dispatchq_job_duration_seconds{kind=novelty} 1",
            "dispatchq_job_duration_seconds{kind=tick} 1001",
            "dispatchq_job_lateness_seconds{} 1002",
            "dispatchq_jobs_total{queue=others,outcome=lost} 1",
            "dispatchq_jobs_total{queue=timers,outcome=dead} 1",
            "dispatchq_jobs_total{queue=timers,outcome=done} 999",
            "dispatchq_jobs_total{queue=timers,outcome=retry} 1",
            "dispatchq_jobs_total{queue=timers,outcome=snooze} 1",
        ]
    );
}
