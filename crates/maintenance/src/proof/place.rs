//! Place of the fold: the last step that it has proven, and its position in the walk. It is one row, so any worker
//! continues it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;

use super::walk::WalkPlace;
use foundation::db::Pool;

/// The stored place. It has ids and times, and no personal data.
#[derive(Debug, Clone)]
pub struct ProofPlace {
    /// Position and number of the last step in the feed.
    pub position: i64,
    pub seq: i64,
    /// Highest number of a proven step.
    pub event: i64,
    /// All steps that were committed before this time are proven.
    pub proven_at: DateTime<Utc>,
    /// Number of recorded slices. A slice is recorded only if no other slice was recorded since it read the place.
    pub slices: i64,
    pub walk: WalkPlace,
}

#[derive(sqlx::FromRow)]
struct PlaceRow {
    position: i64,
    seq: i64,
    event: i64,
    proven_at: DateTime<Utc>,
    slices: i64,
    walk: Json<StoredWalk>,
}

/// A walk as stored. Another version may have stored a walk that this version cannot read; the walk then starts again.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum StoredWalk {
    Known(Box<WalkPlace>),
    Other(serde_json::Value),
}

impl From<PlaceRow> for ProofPlace {
    fn from(row: PlaceRow) -> Self {
        let walk = match row.walk.0 {
            StoredWalk::Known(walk) => *walk,
            StoredWalk::Other(_) => WalkPlace::default(),
        };
        Self {
            position: row.position,
            seq: row.seq,
            event: row.event,
            proven_at: row.proven_at,
            slices: row.slices,
            walk,
        }
    }
}

impl ProofPlace {
    /// Returns the place before the first step.
    pub fn at_start(now: DateTime<Utc>) -> Self {
        Self { position: 0, seq: 0, event: 0, proven_at: now, slices: 0, walk: WalkPlace::default() }
    }

    /// Moves the place before the first step. Positions of a restored database start again, so a stored place may be
    /// above all of them.
    pub(super) fn restart(&mut self) {
        (self.position, self.seq) = (0, 0);
    }
}

/// Reads the place.
pub async fn load_place(db: &Pool) -> Result<ProofPlace, sqlx::Error> {
    let row: PlaceRow = sqlx::query_as(
        "-- place of proof
         SELECT position, seq, event, proven_at, slices, walk FROM proof_place",
    )
    .fetch_one(db)
    .await?;
    Ok(row.into())
}
