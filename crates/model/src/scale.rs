//! Recommended number of `work` replicas one minute from now. Design: docs/design/metrics-and-traces.md.
//!
//! The load of a queue is the number of its jobs that run at the same time. It is computed in three steps:
//!
//! 1. The larger of the jobs that fall due around that minute and the jobs that run now. The current load counts
//!    because the first jobs of an order are due immediately, so no due time announces them.
//! 2. Plus the waiting jobs, spread over one minute.
//! 3. Capped by the partners' limits: more replicas do not speed up jobs that wait for a partner's rate limit.
//!
//! Loads are whole numbers in thousandths of a job, so that rounding cannot change the order of two loads.

use serde::Serialize;

/// Assumed mean run time of jobs that no worker has measured yet, in microseconds.
pub const ASSUMED_MEAN_US: u64 = 50_000;

/// Number of 1 µs runs per minute that make a load of one thousandth of a job.
const US_PER_MILLI: u64 = 60_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueLoad {
    pub queue: &'static str,
    /// Jobs that are due and wait.
    pub due: u64,
    /// Number of jobs that fall due between 30 s and 90 s from now.
    pub falling_due: u64,
    /// Jobs that run now, in thousandths.
    pub busy_milli: u64,
    /// Mean run time of a job, in microseconds.
    pub mean_us: u64,
    /// Number of jobs of this queue that one replica runs at the same time. 0: replicas of this group do not serve the
    /// queue.
    pub places: u64,
    /// Limits of the partners, for a queue whose jobs call partners.
    pub calls: Option<CallLimit>,
}

/// Current limits of all partners together. Zero while every partner's breaker is open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallLimit {
    pub per_s: u64,
    pub at_once: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleLimits {
    pub min: u64,
    pub max: u64,
    /// Target use of a replica's slots, in percent.
    pub target_percent: u64,
    /// Number of jobs that one replica runs at the same time, over all queues.
    pub per_worker: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ScaleBound {
    Load,
    /// The load needs fewer replicas than the minimum.
    Min,
    /// The load needs more replicas than the maximum.
    Max,
}

/// Recommended number of replicas, with the figures it follows from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ScaleAdvice {
    /// Replicas needed one minute from now.
    pub replicas: u64,
    pub bound: ScaleBound,
    /// Replicas that the load alone needs, before the limits apply.
    pub by_load: u64,
    pub queues: Vec<QueueNeed>,
}

/// Replicas that one queue needs, with its figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueNeed {
    pub queue: &'static str,
    pub due: u64,
    pub falling_due: u64,
    pub mean_us: u64,
    pub busy_milli: u64,
    /// Expected number of jobs that run at the same time, in thousandths.
    pub load_milli: u64,
    /// Whether the partners' limits reduce the load.
    pub capped: bool,
    /// Replicas that this queue alone needs.
    pub replicas: u64,
}

/// Returns the number of replicas needed one minute from now. It is the maximum over the single queues and over all
/// queues together; the latter is limited by `per_worker`.
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
    #[must_use]
    pub fn with(self, per_s: u32, at_once: u32) -> Self {
        Self {
            per_s: self.per_s.saturating_add(u64::from(per_s)),
            at_once: self.at_once.saturating_add(u64::from(at_once)),
        }
    }

    /// Returns the maximum number of jobs of this duration that run at the same time, in thousandths.
    fn most_milli(self, mean_us: u64) -> u64 {
        let by_rate = self.per_s.saturating_mul(mean_us).div_ceil(1_000);
        by_rate.min(self.at_once.saturating_mul(1_000))
    }
}

/// Returns the number of replicas with `places` slots each for which this load stays within the target.
fn replicas_for(load_milli: u64, places: u64, target_percent: u64) -> u64 {
    // A slot at its target takes `10 * target_percent` thousandths.
    let of_one = places.saturating_mul(target_percent).saturating_mul(10).max(1);
    if places == 0 { 0 } else { load_milli.div_ceil(of_one) }
}
