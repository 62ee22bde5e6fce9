//! Limits for every call to a partner: breaker, rate and concurrency, shared by all processes, and the concurrency of
//! this process.
//!
//! An open breaker costs almost nothing: a process caches its state for a moment, or for as long as the breaker is
//! open. After an outage calls resume slowly: one probe a second while the breaker is half open, then an increasing
//! rate up to the full rate.
//!
//! Rejected jobs retry after delays that are spread over the time needed to clear the backlog. 10,000 waiting orders
//! thus neither overload the partner nor cause many useless retries.

use std::time::{Duration, Instant};

use metrics::counter;
use model::{chance::Rng, ids::PartnerName, partner::answer::CallError};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::http::PartnerCall;
use queue::{
    run_within_limits,
    store::{AcquireVerdict, BreakerPolicy, BreakerState, Limit, Store, StoreError},
};
use settings::{BreakerConfig, PartnerConfig};

/// Time for which the breaker's state is cached.
const FRESH: Duration = Duration::from_millis(250);
/// Maximum delay of a rejected job; the breaker's maximum open time also limits it. A job that waits for more than 60 s
/// counts as lost, so an order of an unavailable partner is retried before that.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Maximum pause that a partner can request.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Minimum time between attempts while the breaker is half open.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// Delay until the next try if this process has reached its limit of concurrent calls. Most calls end sooner.
const PLACE_PAUSE: Duration = Duration::from_millis(500);
/// Share of the full rate at which calls resume.
const FIRST_SHARE: f64 = 0.05;

#[derive(Debug)]
pub(crate) struct PartnerThrottle {
    partner: PartnerName,
    /// Name of the partner's limits and breaker in Redis.
    name: String,
    breaker: BreakerConfig,
    rate_per_s: u32,
    slots: Limit,
    /// Permits for the concurrent calls of this process. Each process has its own.
    places: Semaphore,
    view: Mutex<Option<BreakerView>>,
    crowd: Mutex<CrowdEstimate>,
}

#[derive(Debug, Clone)]
struct BreakerView {
    state: BreakerState,
    at: Instant,
}

impl BreakerView {
    fn open_for(&self) -> Duration {
        self.state.open_for.saturating_sub(self.at.elapsed())
    }

    fn is_fresh(&self) -> bool {
        self.at.elapsed() < FRESH || !self.open_for().is_zero()
    }
}

impl PartnerThrottle {
    pub(crate) fn new(partner: &PartnerName, config: &PartnerConfig) -> Self {
        let name = format!("partner:{partner}");
        Self {
            partner: partner.clone(),
            breaker: config.breaker.clone(),
            rate_per_s: config.rate_per_s,
            slots: Limit::slots(&name, config.max_concurrent),
            places: Semaphore::new(config.max_concurrent_per_process as usize),
            view: Mutex::new(None),
            crowd: Mutex::new(CrowdEstimate::new(max_delay(&config.breaker))),
            name,
        }
    }

    fn remember_state(&self, state: BreakerState) -> BreakerView {
        let view = BreakerView { state, at: Instant::now() };
        *self.view.lock() = Some(view.clone());
        view
    }

    async fn current_view(&self, store: &Store) -> Result<BreakerView, StoreError> {
        let seen = self.view.lock().clone();
        match seen {
            Some(view) if view.is_fresh() => Ok(view),
            _ => Ok(self.remember_state(store.breaker_state(&self.name).await?)),
        }
    }

    fn call_limits(&self, state: &BreakerState) -> [Limit; 2] {
        let rate = |count: u32| {
            let burst = (count / 10).max(1);
            Limit::rate(&self.name, count, Duration::from_secs(1)).with_burst(burst)
        };
        let count =
            if state.is_half_open() { 1 } else { ramped_rate(self.rate_per_s, state.closed_for, self.breaker.ramp_up) };
        [self.slots.clone(), rate(count)]
    }

    fn breaker_policy(&self) -> BreakerPolicy {
        let BreakerConfig { failures, open, max_open, ramp_up: _ } = self.breaker;
        BreakerPolicy { failures, open, max_open }
    }

    /// Returns the delay for a rejected job, at least `least`. `random` is in 0..1.
    fn retry_delay(&self, least: Duration, random: f64) -> Duration {
        let spread = self.crowd.lock().count_turned_away();
        (least + spread.mul_f64(random)).min(max_delay(&self.breaker))
    }
}

fn max_delay(breaker: &BreakerConfig) -> Duration {
    breaker.max_open.min(MAX_DELAY)
}

/// Returns the rate of calls after the breaker has been closed for `closed_for`.
fn ramped_rate(full: u32, closed_for: Option<Duration>, ramp_up: Duration) -> u32 {
    let Some(since) = closed_for.filter(|since| *since < ramp_up) else { return full };
    let share = (since.as_secs_f64() / ramp_up.as_secs_f64()).max(FIRST_SHARE);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u32, rounded")]
    let rate = (f64::from(full) * share).round() as u32;
    rate.max(1)
}

/// Estimates the number of waiting jobs from the rejected ones, and spreads them so that about half of the retries are
/// admitted.
#[derive(Debug)]
struct CrowdEstimate {
    spread: Duration,
    most: Duration,
    admitted: u32,
    turned_away: u32,
    since: Instant,
}

impl CrowdEstimate {
    const LEAST: Duration = Duration::from_millis(200);
    const WINDOW: Duration = Duration::from_millis(500);

    fn new(most: Duration) -> Self {
        Self { spread: Self::LEAST.min(most), most, admitted: 0, turned_away: 0, since: Instant::now() }
    }

    fn count_admitted(&mut self) {
        self.admitted += 1;
        self.adjust_spread();
    }

    fn count_turned_away(&mut self) -> Duration {
        self.turned_away += 1;
        self.adjust_spread();
        self.spread
    }

    fn adjust_spread(&mut self) {
        if self.since.elapsed() < Self::WINDOW {
            return;
        }
        let came = f64::from(self.admitted + self.turned_away);
        let factor = (came / (2.0 * f64::from(self.admitted.max(1)))).clamp(0.25, 4.0);
        self.spread = self.spread.mul_f64(factor).max(Self::LEAST).min(self.most);
        (self.admitted, self.turned_away, self.since) = (0, 0, Instant::now());
    }
}

#[derive(Debug)]
pub enum CallOutcome<T> {
    Answered(T),
    Failed(CallError),
    /// The call was not made: a limit is reached, or the breaker is open.
    RateLimited {
        retry_in: Duration,
    },
}

impl PartnerThrottle {
    /// Runs `work`, which calls the partner, unless the breaker or a limit prevents it.
    pub(super) async fn call<T, F>(
        &self,
        store: &Store,
        rng: &dyn Rng,
        call: PartnerCall,
        work: impl FnOnce() -> F,
    ) -> CallOutcome<T>
    where
        F: Future<Output = Result<T, CallError>>,
    {
        let Ok(view) = self.current_view(store).await else {
            return CallOutcome::RateLimited { retry_in: Duration::from_secs(1) };
        };
        if !view.open_for().is_zero() {
            return CallOutcome::RateLimited { retry_in: self.retry_delay(view.open_for(), rng.next_unit()) };
        }
        let Ok(_place) = self.places.try_acquire() else {
            return CallOutcome::RateLimited { retry_in: self.retry_delay(PLACE_PAUSE, rng.next_unit()) };
        };
        let limits = self.call_limits(&view.state);
        let answer = match run_within_limits(store, &limits, work).await {
            Ok(answer) => answer,
            Err(retry_after) => {
                return CallOutcome::RateLimited { retry_in: self.retry_delay(retry_after, rng.next_unit()) };
            }
        };
        self.crowd.lock().count_admitted();
        let result = answer.as_ref().err().map_or("ok", CallError::as_label);
        let labels = [("partner", self.partner.to_string()), ("call", call.as_str().into()), ("result", result.into())];
        counter!("dispatchq_partner_calls_total", &labels).increment(1);
        self.report_result(store, &view, answer.as_ref().err()).await;
        answer.map_or_else(CallOutcome::Failed, CallOutcome::Answered)
    }

    /// Returns the state of the breaker in Redis.
    pub(super) async fn breaker_state(&self, store: &Store) -> Result<BreakerState, StoreError> {
        store.breaker_state(&self.name).await
    }

    /// Returns how long the breaker remains open, as far as this process knows without a query. Zero means that a call
    /// may succeed.
    pub(super) fn known_open_for(&self) -> Duration {
        let view = self.view.lock();
        view.as_ref().map_or(Duration::ZERO, BreakerView::open_for).min(MAX_DELAY)
    }

    /// Returns how long to wait before an attempt may start at this partner. Zero means that an attempt may start now.
    /// While the breaker is half open, one attempt a second may start as a probe; the others do not wait for its
    /// result.
    pub(super) async fn closed_to_attempts_for(&self, store: &Store) -> Duration {
        let Ok(view) = self.current_view(store).await else { return self.known_open_for() };
        let open_for = view.open_for().min(MAX_DELAY);
        if !open_for.is_zero() || view.state.opens == 0 {
            return open_for;
        }
        let probe = Limit::rate(format!("{}:attempts", self.name), 1, PROBE_PAUSE);
        match store.acquire(&[probe]).await {
            Ok(AcquireVerdict::Permit(_)) => Duration::ZERO,
            Ok(AcquireVerdict::Busy { retry_after }) => retry_after.max(Duration::from_millis(1)),
            Err(_) => PROBE_PAUSE,
        }
    }

    async fn report_result(&self, store: &Store, view: &BreakerView, error: Option<&CallError>) {
        let name = &self.name;
        let told = match error {
            Some(CallError::Transient(why)) => store.breaker_failed(name, &self.breaker_policy(), why).await,
            Some(error @ CallError::Unauthorized(_)) => {
                store.breaker_tripped(name, &self.breaker_policy(), &error.to_string()).await
            }
            Some(error @ CallError::TooMany(pause)) => {
                store.breaker_paused(name, (*pause).min(MAX_PAUSE), &error.to_string()).await
            }
            // The partner responds, even if it refuses the request.
            None | Some(CallError::NotFound | CallError::UnderWay(_) | CallError::Refused(_)) => {
                if !view.state.is_disturbed() {
                    return;
                }
                store.breaker_succeeded(name).await
            }
        };
        match told {
            Ok(state) => {
                if state.is_open() && !view.state.is_open() {
                    tracing::warn!(
                        partner = %self.partner,
                        open_ms = u64::try_from(state.open_for.as_millis()).unwrap_or(u64::MAX),
                        why = state.why,
                        "Calls to the partner are paused."
                    );
                }
                self.remember_state(state);
            }
            Err(error) => {
                tracing::warn!(partner = %self.partner, %error, "The result of a call could not be reported to the breaker.");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_rate_ramps_up_after_breaker_closes() {
        let secs = Duration::from_secs;
        let rate = |since: Option<u64>| ramped_rate(200, since.map(secs), secs(30));
        assert_eq!([rate(Some(0)), rate(Some(15)), rate(Some(30)), rate(None)], [10, 100, 200, 200]);
        assert_eq!(ramped_rate(3, Some(secs(0)), secs(30)), 1);
    }

    #[test]
    fn rejections_increase_the_retry_spread() {
        let mut crowd = CrowdEstimate::new(MAX_DELAY);
        (crowd.admitted, crowd.turned_away) = (10, 1_000);
        crowd.since -= CrowdEstimate::WINDOW;
        crowd.adjust_spread();
        assert_eq!(crowd.spread, CrowdEstimate::LEAST * 4);
        (crowd.admitted, crowd.turned_away) = (100, 0);
        crowd.since -= CrowdEstimate::WINDOW;
        crowd.adjust_spread();
        assert_eq!(crowd.spread, CrowdEstimate::LEAST * 2);
        crowd.most = Duration::from_millis(10);
        crowd.since -= CrowdEstimate::WINDOW;
        crowd.adjust_spread();
        assert_eq!(crowd.spread, crowd.most, "the maximum wins over the minimum");
    }
}
