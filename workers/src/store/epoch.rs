//! The epoch: proof that this Redis still holds our data.
//!
//! It is written after a rebuild, and only if the marker set at the rebuild's start still stands: a flush in between
//! takes the marker along, so a half-lost rebuild never counts as whole.

use rand::RngExt;

use super::{Store, StoreError, script::FINISH_REBUILD};

/// Which rebuild Redis' data come from, and which server process it was done on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// `run_id` of the server at the rebuild. Another one now means that it restarted and may have lost the last second.
    pub run_id: String,
    /// Random, new with each rebuild.
    pub id: String,
}

/// A rebuild under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RebuildMarker(String);

/// A rebuild that takes longer has failed.
const MARKER_SECS: u64 = 3600;

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

    /// Begins a rebuild. The latest begun is the only one that can finish.
    pub async fn begin_rebuild(&self) -> Result<RebuildMarker, StoreError> {
        let marker = random_id();
        let mut set = redis::cmd("SET");
        set.arg(self.keys.rebuild_marker()).arg(&marker).arg("EX").arg(MARKER_SECS);
        let _: () = self.run_query("begin_rebuild", &set).await?;
        Ok(RebuildMarker(marker))
    }

    /// Writes the epoch. `false`: something was flushed since the rebuild began, or another began; rebuild again.
    ///
    /// `run_id` is the server's as read *before* the rebuild.
    pub async fn finish_rebuild(&self, marker: &RebuildMarker, run_id: &str) -> Result<bool, StoreError> {
        let mut call = FINISH_REBUILD.with_keys(&[self.keys.rebuild_marker(), self.keys.epoch()]);
        call.push_arg(&marker.0).push_arg(format!("{run_id} {}", random_id()));
        let is_written: bool = self.run_script(&call).await?;
        if is_written && let Err(error) = self.hand_out_slots().await {
            // The next take does it, too.
            tracing::debug!(%error, "Slots are not handed out yet.");
        }
        Ok(is_written)
    }
}

/// 128 random bits as text.
fn random_id() -> String {
    format!("{:032x}", rand::rng().random::<u128>())
}
