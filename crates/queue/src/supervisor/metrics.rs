//! Metric handles of the engine, created once per run, because a look-up by labels costs more than recording a value.
//!
//! All series exist from the start of the run, so that the first failure is an increase and not a new series.

use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};

use crate::{job::Delivery, outcome::Outcome, registry::Registry};

pub(crate) struct EngineMetrics {
    /// Counters by queue. There are few, so a linear search is faster than hashing.
    outcomes: Vec<(&'static str, OutcomeCounters)>,
    /// Histograms by kind of job.
    durations: Vec<(&'static str, Histogram)>,
    lateness: Histogram,
    refused: Counter,
}

/// `dispatchq_jobs_total` of one queue.
struct OutcomeCounters {
    done: Counter,
    snooze: Counter,
    park: Counter,
    retry: Counter,
    dead: Counter,
    lost: Counter,
}

impl EngineMetrics {
    /// Creates the handles with the recorder that is installed now.
    pub(crate) fn new(queues: impl IntoIterator<Item = &'static str>, registry: &Registry) -> Self {
        let kinds = registry.kinds().into_iter();
        Self {
            outcomes: queues.into_iter().map(|queue| (queue, OutcomeCounters::new(queue))).collect(),
            durations: kinds.map(|(kind, _)| (kind, duration_histogram(kind.to_owned()))).collect(),
            lateness: histogram!("dispatchq_job_lateness_seconds"),
            refused: counter!("dispatchq_settles_refused_total"),
        }
    }

    pub(crate) fn record_taken(&self, delivery: &Delivery) {
        #[expect(clippy::cast_precision_loss, reason = "a histogram needs no more than 52 bits")]
        self.lateness.record(delivery.lateness_ms as f64 / 1000.0);
    }

    pub(crate) fn record_performed(&self, delivery: &Delivery, outcome: &Outcome, took: Duration) {
        let kind = delivery.id.kind();
        match self.durations.iter().find(|(known, _)| *known == kind) {
            Some((_, histogram)) => histogram.record(took),
            // A kind of a newer producer. Such a job arrives at most once a minute.
            None => duration_histogram(kind.to_owned()).record(took),
        }
        let Some(outcomes) = self.queue_outcomes(delivery.queue) else { return };
        let counter = match outcome {
            Outcome::Done { .. } => &outcomes.done,
            Outcome::Snooze { .. } => &outcomes.snooze,
            Outcome::Park(_) => &outcomes.park,
            Outcome::Retry(_) => &outcomes.retry,
            Outcome::Dead(_) => &outcomes.dead,
        };
        counter.increment(1);
    }

    /// Counts a job that died of lost deliveries and so has no outcome.
    pub(crate) fn record_lost(&self, queue: &str) {
        if let Some(outcomes) = self.queue_outcomes(queue) {
            outcomes.lost.increment(1);
        }
    }

    pub(crate) fn record_refused(&self, settles: usize) {
        self.refused.increment(settles as u64);
    }

    fn queue_outcomes(&self, queue: &str) -> Option<&OutcomeCounters> {
        self.outcomes.iter().find(|(known, _)| *known == queue).map(|(_, outcomes)| outcomes)
    }
}

impl OutcomeCounters {
    fn new(queue: &'static str) -> Self {
        let of = |outcome: &'static str| counter!("dispatchq_jobs_total", "queue" => queue, "outcome" => outcome);
        Self {
            done: of("done"),
            snooze: of("snooze"),
            park: of("park"),
            retry: of("retry"),
            dead: of("dead"),
            lost: of("lost"),
        }
    }
}

fn duration_histogram(kind: String) -> Histogram {
    histogram!("dispatchq_job_duration_seconds", "kind" => kind)
}
