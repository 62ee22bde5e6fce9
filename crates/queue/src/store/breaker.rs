//! Circuit breakers shared by the fleet: when a peer fails, all workers stop calling it for a time.
//!
//! A breaker opens after a number of failed calls in a row, counted over all workers. When its open time is over, it is
//! half open: one success closes it, one failure opens it again for twice as long. A loss of Redis' data closes every
//! breaker; the next failures open it again.

use std::time::Duration;

use super::{client::Store, error::StoreError, script::BREAKER};
use crate::job::round_up_ms;

/// Conditions under which a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Failures in a row that open the breaker.
    pub failures: u32,
    /// Time that the breaker stays open the first time. It doubles each time the breaker opens again, up to `max_open`.
    pub open: Duration,
    pub max_open: Duration,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BreakerState {
    /// Remaining time during which calls must not be made. Zero when the breaker is closed or half open.
    pub open_for: Duration,
    /// Failures since the last success.
    pub failures: u32,
    /// Number of times that the breaker opened since it was last closed. If this is above 0 and the breaker is not
    /// open, it is half open.
    pub opens: u32,
    /// Time since the breaker closed. `None` if it never opened, or closed long ago.
    pub closed_for: Option<Duration>,
    /// Reason of the last failure.
    pub why: String,
}

impl BreakerState {
    pub fn is_open(&self) -> bool {
        !self.open_for.is_zero()
    }

    /// Returns whether the open time is over and the peer has not answered yet.
    pub fn is_half_open(&self) -> bool {
        !self.is_open() && self.opens > 0
    }

    /// Returns whether a success would change the state.
    pub fn is_disturbed(&self) -> bool {
        self.failures > 0 || self.opens > 0
    }
}

impl Store {
    pub async fn breaker_state(&self, name: &str) -> Result<BreakerState, StoreError> {
        self.call_breaker(name, "read", "", None).await
    }

    /// Records a failed call.
    pub async fn breaker_failed(
        &self,
        name: &str,
        policy: &BreakerPolicy,
        why: &str,
    ) -> Result<BreakerState, StoreError> {
        self.call_breaker(name, "fail", why, Some(*policy)).await
    }

    /// Records a failed call that will not recover soon. The breaker opens at once.
    pub async fn breaker_tripped(
        &self,
        name: &str,
        policy: &BreakerPolicy,
        why: &str,
    ) -> Result<BreakerState, StoreError> {
        self.call_breaker(name, "trip", why, Some(*policy)).await
    }

    /// Records a successful call. Needed only when [`BreakerState::is_disturbed`].
    pub async fn breaker_succeeded(&self, name: &str) -> Result<BreakerState, StoreError> {
        self.call_breaker(name, "ok", "", None).await
    }

    /// Stops calls for a time because the peer asked for it. This does not count as a failure.
    pub async fn breaker_paused(&self, name: &str, pause: Duration, why: &str) -> Result<BreakerState, StoreError> {
        let policy = BreakerPolicy { failures: 0, open: pause, max_open: pause };
        self.call_breaker(name, "pause", why, Some(policy)).await
    }

    async fn call_breaker(
        &self,
        name: &str,
        what: &str,
        why: &str,
        policy: Option<BreakerPolicy>,
    ) -> Result<BreakerState, StoreError> {
        let mut call = BREAKER.with_keys(&[self.keys.breaker(name)]);
        call.push_arg(self.now_arg()).push_arg(what).push_arg(why);
        if let Some(BreakerPolicy { failures, open, max_open }) = policy {
            call.push_arg(failures).push_arg(round_up_ms(open)).push_arg(round_up_ms(max_open));
        }
        let (open_ms, failures, opens, closed_ms, why): (u64, u32, u32, i64, String) =
            self.run_idempotent(&call).await?;
        Ok(BreakerState {
            open_for: Duration::from_millis(open_ms),
            failures,
            opens,
            closed_for: u64::try_from(closed_ms).ok().map(Duration::from_millis),
            why,
        })
    }
}
