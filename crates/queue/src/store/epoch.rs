//! The epoch: proof that this Redis still has all jobs. A rebuild writes it at its end.

use super::{client::Store, error::StoreError};

/// Rebuild that produced Redis' data, and the server process it ran on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// `run_id` of the server at the rebuild. If the server now has another one, it restarted and may have lost the
    /// last second.
    pub run_id: String,
    /// Random id, new with each rebuild.
    pub id: String,
}

impl Store {
    /// Returns the epoch, or `None` if Redis has lost the jobs.
    pub async fn epoch(&self) -> Result<Option<Epoch>, StoreError> {
        let text: Option<String> = self.run_query("epoch", redis::cmd("GET").arg(self.keys.epoch())).await?;
        let Some(text) = text else { return Ok(None) };
        let (run_id, id) = text.split_once(' ').ok_or_else(|| StoreError::invalid_answer("epoch", "not two words"))?;
        Ok(Some(Epoch { run_id: run_id.to_owned(), id: id.to_owned() }))
    }

    /// Returns the server's `run_id`, which changes with each start.
    pub async fn run_id(&self) -> Result<String, StoreError> {
        let info: String = self.run_query("info", redis::cmd("INFO").arg("server")).await?;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        run_id.map(|run_id| run_id.trim().to_owned()).ok_or_else(|| StoreError::invalid_answer("info", "no run_id"))
    }
}
