//! How many replicas of `work` are wanted a minute from now.
//! Design: docs/design/metrics-and-traces.md.
//!
//! A queue's load is the number of its jobs that run at the same time:
//! * what falls due in the minute around then, or what runs now, whichever is more: the first jobs of an order are due at once, and no
//!   due time tells of them beforehand;
//! * and what waits already, spread over a minute;
//! * but no more than partners let through: jobs that wait for a partner's rate do not run sooner with more replicas.
//!
//! Loads are counted in thousandths of a job, in whole numbers, so that no rounding breaks the order of two loads.

use serde::Serialize;

/// The duration of jobs that no worker has measured yet, in microseconds.
pub const ASSUMED_MEAN_US: u64 = 50_000;

/// What a minute of jobs, each of a microsecond, is as a load: one thousandth for so many.
const US_PER_MILLI: u64 = 60_000;

/// What is known of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLoad {
    pub queue: &'static str,
    /// Jobs that are due and wait.
    pub due: u64,
    /// Jobs that fall due from 30 s to 90 s from now.
    pub falling_due: u64,
    /// Jobs that run at the same time, in thousandths.
    pub busy_milli: u64,
    /// Mean duration of a run, in microseconds.
    pub mean_us: u64,
    /// Jobs of this queue that one replica runs at the same time. 0: replicas of this group do not serve it.
    pub places: u64,
    /// Of a queue whose jobs call partners.
    pub calls: Option<CallLimit>,
}

/// What all partners together let through at present. Zero while each has its breaker open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallLimit {
    pub per_s: u64,
    pub at_once: u64,
}

/// `[scale]` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleLimits {
    pub min: u64,
    pub max: u64,
    /// The share of its places that a replica is to use, in percent.
    pub target_percent: u64,
    /// Jobs that one replica runs at the same time, in all its queues.
    pub per_worker: u64,
}

/// Why it is this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleBound {
    /// The load asks for it.
    Load,
    /// The load asks for fewer, and this is the least.
    Min,
    /// The load asks for more, and this is the most.
    Max,
}

/// The answer, with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScaleAdvice {
    /// Replicas wanted a minute from now.
    pub replicas: u64,
    pub bound: ScaleBound,
    /// What the load alone asks for.
    pub by_load: u64,
    pub queues: Vec<QueueNeed>,
}

/// What one queue asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueNeed {
    pub queue: &'static str,
    pub due: u64,
    pub falling_due: u64,
    pub mean_us: u64,
    pub busy_milli: u64,
    /// Jobs that are to run at the same time, in thousandths.
    pub load_milli: u64,
    /// Partners let no more through.
    pub capped: bool,
    /// Replicas that this queue alone asks for.
    pub replicas: u64,
}

/// Returns the replicas wanted a minute from now: those of the queue that asks for most, or of all queues together where their jobs
/// are more than `per_worker`.
pub fn advise_scale(loads: &[QueueLoad], limits: &ScaleLimits) -> ScaleAdvice {
    let queues: Vec<QueueNeed> = loads.iter().map(|load| load.need(limits)).collect();
    let total_milli = queues.iter().map(|need| need.load_milli).fold(0, u64::saturating_add);
    let together = replicas_for(total_milli, limits.per_worker, limits.target_percent);
    let by_load = queues.iter().map(|need| need.replicas).fold(together, u64::max);
    let (replicas, bound) = match by_load {
        n if n < limits.min => (limits.min, ScaleBound::Min),
        n if n > limits.max => (limits.max, ScaleBound::Max),
        n => (n, ScaleBound::Load),
    };
    ScaleAdvice { replicas, bound, by_load, queues }
}

impl QueueLoad {
    fn need(&self, limits: &ScaleLimits) -> QueueNeed {
        let of_jobs = |jobs: u64| jobs.saturating_mul(self.mean_us).div_ceil(US_PER_MILLI);
        let wanted = of_jobs(self.falling_due).max(self.busy_milli).saturating_add(of_jobs(self.due));
        let most = self.calls.map_or(u64::MAX, |calls| calls.most_milli(self.mean_us));
        let served = if self.places == 0 { 0 } else { wanted };
        let load_milli = served.min(most);
        QueueNeed {
            queue: self.queue,
            due: self.due,
            falling_due: self.falling_due,
            mean_us: self.mean_us,
            busy_milli: self.busy_milli,
            load_milli,
            capped: load_milli < served,
            replicas: replicas_for(load_milli, self.places, limits.target_percent),
        }
    }
}

impl CallLimit {
    /// Adds what one more partner lets through.
    #[must_use]
    pub fn with(self, per_s: u32, at_once: u32) -> Self {
        Self {
            per_s: self.per_s.saturating_add(u64::from(per_s)),
            at_once: self.at_once.saturating_add(u64::from(at_once)),
        }
    }

    /// Returns how many jobs of this duration run at the same time at most, in thousandths.
    fn most_milli(self, mean_us: u64) -> u64 {
        let by_rate = self.per_s.saturating_mul(mean_us).div_ceil(1_000);
        by_rate.min(self.at_once.saturating_mul(1_000))
    }
}

/// Returns the replicas with so many places each of which this load uses the target share.
fn replicas_for(load_milli: u64, places: u64, target_percent: u64) -> u64 {
    // A place at the target takes `10 * target_percent` thousandths.
    let of_one = places.saturating_mul(target_percent).saturating_mul(10).max(1);
    if places == 0 { 0 } else { load_milli.div_ceil(of_one) }
}
