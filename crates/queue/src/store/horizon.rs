//! What workers may take, by what Redis says of its own data.

use super::{client::Store, error::StoreError};

/// Which jobs a take may lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Takeable {
    /// None: Redis does not hold our data, or a rebuild has only begun.
    Nothing,
    /// A rebuild is under way, and each job due up to this time, in ms, is in.
    UpTo(u64),
    /// All: the epoch stands.
    All,
}

impl Takeable {
    /// Decides by whether the epoch stands, and by the horizon beside the marker of the rebuild under way. As `find_horizon` in
    /// horizon.lua.
    pub fn decide(has_epoch: bool, horizon_ms: Option<u64>) -> Self {
        if has_epoch {
            return Self::All;
        }
        horizon_ms.map_or(Self::Nothing, Self::UpTo)
    }

    /// The latest due that is leased at this moment; `None`: nothing is.
    pub fn latest_due(self, now_ms: u64) -> Option<u64> {
        match self {
            Self::Nothing => None,
            Self::UpTo(horizon_ms) => Some(horizon_ms.min(now_ms)),
            Self::All => Some(now_ms),
        }
    }
}

impl Store {
    /// Returns what a take may lease at present.
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
    fn nothing_is_ever_leased_early_nor_beyond_the_horizon() {
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
