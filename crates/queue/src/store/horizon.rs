//! The jobs that workers may take, depending on the epoch and on a rebuild.

use super::{client::Store, error::StoreError};

/// Jobs that a take may lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeable {
    /// No jobs: Redis has lost them, or a rebuild has no horizon yet.
    Nothing,
    /// Jobs due up to this time, in ms. A rebuild is running and has inserted all of them.
    UpTo(u64),
    /// All jobs: the epoch exists.
    All,
}

impl Takeable {
    /// Decides from the epoch or, if it is missing, from the horizon of the current rebuild. Same as `find_horizon` in
    /// horizon.lua.
    pub fn decide(has_epoch: bool, horizon_ms: Option<u64>) -> Self {
        if has_epoch {
            return Self::All;
        }
        horizon_ms.map_or(Self::Nothing, Self::UpTo)
    }

    /// Returns the latest due time that may be leased now. `None` if no job may be leased.
    pub fn latest_due(self, now_ms: u64) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::UpTo(horizon_ms) => Some(horizon_ms.min(now_ms)),
            Self::All => Some(now_ms),
        }
    }
}

impl Store {
    /// Reads which jobs a take may lease now.
    pub async fn takeable(&self) -> Result<Takeable, StoreError> {
        let mut read = redis::cmd("MGET");
        read.arg(self.keys.epoch()).arg(self.keys.rebuild_marker());
        let (epoch, rebuilding): (Option<String>, Option<String>) = self.run_query("takeable", &read).await?;
        let horizon_ms: Option<u64> = rebuilding.as_deref().and_then(|text| text.split_once(' ')?.1.parse().ok());
        Ok(Takeable::decide(epoch.is_some(), horizon_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takeable_jobs_follow_epoch_and_horizon() {
        assert_eq!(Takeable::decide(false, None), Takeable::Nothing);
        assert_eq!(Takeable::decide(false, Some(5)), Takeable::UpTo(5));
        for horizon in [None, Some(0), Some(5)] {
            assert_eq!(Takeable::decide(true, horizon), Takeable::All);
        }
    }

    #[test]
    fn latest_due_respects_clock_and_horizon() {
        assert_eq!(Takeable::Nothing.latest_due(7), None);
        for now in 0..10 {
            assert_eq!(Takeable::All.latest_due(now), Some(now));
            for horizon in 0..10 {
                let latest = Takeable::UpTo(horizon).latest_due(now).unwrap();
                assert!(latest <= now && latest <= horizon && (latest == now || latest == horizon));
            }
        }
    }
}
