//! Circuit breakers shared by the fleet: when a peer fails, everybody stays away from it, and comes back with care.
//!
//! A breaker opens after so many failures in a row, of any worker. When its time is over it is half open: one success
//! closes it, one failure opens it again for twice as long. Losing Redis' data closes every breaker: the next failures
//! open it again.

use std::time::Duration;

use super::{client::Store, error::StoreError, script::BREAKER};
use crate::job::round_up_ms;

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerPolicy {
    /// Failures in a row that open it.
    pub failures: u32,
    /// How long it stays open the first time; twice as long each time it opens again.
    pub open: Duration,
    pub max_open: Duration,
}

/// How a breaker stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BreakerState {
    /// No call is made for so long; zero when it is closed or half open.
    pub open_for: Duration,
    /// Failures since the last success.
    pub failures: u32,
    /// Times it opened since it was last closed: above 0 and not open any more, it is half open.
    pub opens: u32,
    /// Time since it closed; `None` when it never opened, or long ago.
    pub closed_for: Option<Duration>,
    /// The last failure.
    pub why: String,
}

impl BreakerState {
    pub fn is_open(&self) -> bool {
        !self.open_for.is_zero()
    }

    /// Its time is over, and whether the peer is back is not known yet.
    pub fn is_half_open(&self) -> bool {
        !self.is_open() && self.opens > 0
    }

    /// Has anything happened that a success would change?
    pub fn is_disturbed(&self) -> bool {
        self.failures > 0 || self.opens > 0
    }
}

impl Store {
    /// How this breaker stands.
    pub async fn breaker_state(&self, name: &str) -> Result<BreakerState, StoreError> {
        self.call_breaker(name, "read", "", None).await
    }

    /// A call failed.
    pub async fn breaker_failed(
        &self,
        name: &str,
        policy: &BreakerPolicy,
        why: &str,
    ) -> Result<BreakerState, StoreError> {
        self.call_breaker(name, "fail", why, Some(*policy)).await
    }

    /// A call failed in a way that will not pass by itself soon: opens at once.
    pub async fn breaker_tripped(
        &self,
        name: &str,
        policy: &BreakerPolicy,
        why: &str,
    ) -> Result<BreakerState, StoreError> {
        self.call_breaker(name, "trip", why, Some(*policy)).await
    }

    /// A call succeeded. Only needed when [`BreakerState::is_disturbed`].
    pub async fn breaker_succeeded(&self, name: &str) -> Result<BreakerState, StoreError> {
        self.call_breaker(name, "ok", "", None).await
    }

    /// The peer asked to be left alone for a while. No failure: afterwards it is as before.
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
