//! The epoch: proof that this Redis still holds our data. The end of a rebuild writes it.

use super::{client::Store, error::StoreError};

/// Which rebuild Redis' data come from, and which server process it was done on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// `run_id` of the server at the rebuild. Another one now means that it restarted and may have lost the last second.
    pub run_id: String,
    /// Random, new with each rebuild.
    pub id: String,
}

impl Store {
    /// The epoch, or `None` when Redis does not hold our data.
    pub async fn epoch(&self) -> Result<Option<Epoch>, StoreError> {
        let text: Option<String> = self.run_query("epoch", redis::cmd("GET").arg(self.keys.epoch())).await?;
        let Some(text) = text else { return Ok(None) };
        let (run_id, id) = text.split_once(' ').ok_or_else(|| StoreError::invalid_answer("epoch", "not two words"))?;
        Ok(Some(Epoch { run_id: run_id.to_owned(), id: id.to_owned() }))
    }

    /// The server's `run_id`: another one after each start.
    pub async fn run_id(&self) -> Result<String, StoreError> {
        let info: String = self.run_query("info", redis::cmd("INFO").arg("server")).await?;
        let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        run_id.map(|run_id| run_id.trim().to_owned()).ok_or_else(|| StoreError::invalid_answer("info", "no run_id"))
    }
}
