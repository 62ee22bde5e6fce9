//! In-memory cache of API keys. It keeps most requests, and nearly all requests with wrong keys, away from Postgres.
//! Design: docs/design/keys-and-secrets.md.
//!
//! At most one lookup statement runs at a time, and it covers up to 500 waiting keys. Lookups therefore take one
//! connection of the pool, even during a flood. Malformed keys are rejected without a lookup. Unknown keys are cached
//! for a short time. A key in use is refreshed before its entry becomes too old, so its requests do not wait.
//!
//! A revision number in Postgres increases when any key changes or ends. While it does not change, keys looked up since
//! the latest change stay valid without another lookup. A driver who accepts an offer after a minute of silence does
//! not wait for Postgres.

use std::{
    collections::HashMap,
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::api_keys::{self, ApiKey, FoundKey};
use foundation::{db::Pool, loops::LoopRegistry};

/// Interval between two reads of the revision number.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// Maximum time between two lookups of a key, even if the revision does not change.
const KEPT: Duration = Duration::from_secs(300);
/// Time that a key is trusted after Postgres last confirmed it, by a lookup or by an unchanged revision. This is also
/// the longest time that a revoked key still works.
const BELIEVED: Duration = Duration::from_secs(1);
/// Age at which a key in use is looked up again in the background.
const REFRESHED: Duration = Duration::from_millis(500);
/// Time that a key is trusted while Postgres does not respond. It is short because Postgres may be unreachable only for
/// this process while the key is revoked.
const BELIEVED_IN_NEED: Duration = Duration::from_secs(10);
/// Time that a rejected key is cached. It is short because the key may become valid again.
const REFUSED: Duration = Duration::from_secs(1);
/// Maximum cached valid keys. When it is reached, the cache is cleared.
const MOST_KNOWN: usize = 50_000;
/// Maximum cached rejected keys. When it is reached, the cache is cleared.
const MOST_REFUSED: usize = 10_000;
/// Maximum keys that wait for a lookup. Further unknown keys are rejected as overload.
const MOST_WAITING: usize = 1_000;
/// Maximum keys in one statement.
const MOST_AT_ONCE: usize = 500;
/// Pause between two statements, so that each statement covers more keys of a flood.
const PAUSE: Duration = Duration::from_millis(5);
/// Timeout for a lookup on a connection that died silently; the next lookup takes another connection. It is longer than
/// the pool's wait and the statement timeout together.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(16);
/// Timeout for a request that waits for a lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Reason that the owner of a key could not be determined.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LookupError {
    #[error("too many unknown keys are waiting for a lookup")]
    Overrun,
    #[error("the database did not return the key's owner: {0}")]
    Unanswered(Arc<str>),
}

/// Cache of keys and their owners. Cheap to clone; clones share the cache.
#[derive(Debug, Clone, Default)]
pub struct KnownKeys(Arc<Mutex<KnownOwners>>);

type Hash = Vec<u8>;
type Answer = Result<Option<ApiKey>, LookupError>;
type FoundKeys = HashMap<Hash, FoundKey>;
type Waiting = HashMap<Hash, Vec<oneshot::Sender<Answer>>>;

#[derive(Debug, Default)]
struct KnownOwners {
    owners: HashMap<Hash, KnownKey>,
    /// The latest revision number that Postgres returned.
    revision: Option<SeenRevision>,
    /// Rejected keys with the time of their lookup.
    refused: HashMap<Hash, Instant>,
    /// Keys to look up, with the requests that wait for each.
    waiting: Waiting,
    /// Whether a lookup task is running.
    is_asking: bool,
    /// Whether the latest lookup failed.
    is_failing: bool,
}

#[derive(Debug)]
struct KnownKey {
    looked_up_at: Instant,
    /// Revision number that was known before the lookup.
    revision: Option<i64>,
    expires_at: Option<DateTime<Utc>>,
    owner: ApiKey,
}

#[derive(Debug, Clone, Copy)]
struct SeenRevision {
    number: i64,
    /// Time of the request to Postgres.
    at: Instant,
    /// Time on Postgres' clock.
    now: DateTime<Utc>,
}

impl KnownKeys {
    /// Returns the key's owner, or `None` if the key is unknown or revoked.
    pub async fn find_owner(&self, db: &Pool, key: &str) -> Answer {
        if !api_keys::is_well_formed(key) {
            return Ok(None);
        }
        let hash = api_keys::hash_key(key);
        let answer = {
            let mut known = self.lock_owners();
            if known.refused.get(&hash).is_some_and(|at| at.elapsed() < REFUSED) {
                return Ok(None);
            }
            let owner = known.owners.get(&hash);
            // After a failed lookup, cached keys are trusted longer, so their requests do not wait for the next lookup
            // to time out.
            let believed = if known.is_failing { BELIEVED_IN_NEED } else { BELIEVED };
            let seen = owner.and_then(|key| {
                let age = known.confirmed_at(key).elapsed();
                let is_old = age >= REFRESHED || key.looked_up_at.elapsed() >= KEPT / 2;
                (age < believed).then(|| (is_old, key.owner.clone()))
            });
            if let Some((is_old, owner)) = seen {
                if is_old && !known.waiting.contains_key(&hash) {
                    known.waiting.insert(hash, Vec::new());
                    self.ask_soon(&mut known, db);
                }
                return Ok(Some(owner));
            }
            // A flood of unknown keys does not block the lookup of a cached key.
            if owner.is_none() && known.waiting.len() >= MOST_WAITING && !known.waiting.contains_key(&hash) {
                return Err(LookupError::Overrun);
            }
            self.enqueue_lookup(&mut known, db, &hash)
        };
        self.await_answer(hash, answer).await
    }

    /// Looks up the key's owner in Postgres, regardless of the cache. For requests that waited a long time: their key
    /// may have been revoked in between.
    pub async fn confirm_owner(&self, db: &Pool, key: &str) -> Answer {
        let hash = api_keys::hash_key(key);
        let answer = self.enqueue_lookup(&mut self.lock_owners(), db, &hash);
        self.await_answer(hash, answer).await
    }

    fn enqueue_lookup(&self, known: &mut KnownOwners, db: &Pool, hash: &Hash) -> oneshot::Receiver<Answer> {
        let (sender, answer) = oneshot::channel();
        known.waiting.entry(hash.clone()).or_default().push(sender);
        self.ask_soon(known, db);
        answer
    }

    async fn await_answer(&self, hash: Hash, answer: oneshot::Receiver<Answer>) -> Answer {
        match timeout(LOOKUP_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(LookupError::Unanswered("the lookup was cancelled".into())),
            // The statement keeps running. If it were cancelled, the next lookup would take another connection.
            Err(_) => {
                let mut known = self.lock_owners();
                known.is_failing = true;
                let error = || LookupError::Unanswered(format!("no answer within {LOOKUP_TIMEOUT:?}").into());
                known.believed_in_need(&hash).map(Some).ok_or_else(error)
            }
        }
    }

    /// Reads the revision number. Keys looked up since the latest change are trusted for one more second.
    pub async fn check_revision(&self, db: &Pool) -> Result<(), sqlx::Error> {
        let at = Instant::now();
        let (number, now): (i64, DateTime<Utc>) = sqlx::query_as(
            "-- key revision
             SELECT number, dispatchq_now() FROM key_revision",
        )
        .fetch_one(db)
        .await?;
        self.lock_owners().revision = Some(SeenRevision { number, at, now });
        Ok(())
    }

    /// Reads the revision number periodically until `stop` is cancelled. While Postgres does not respond, keys are
    /// looked up individually.
    pub async fn watch_revision(self, db: Pool, loops: LoopRegistry, stop: CancellationToken) {
        let turns = loops.register_loop("keys");
        while !stop.is_cancelled() {
            if let Some(Err(error)) = turns.run_turn(self.check_revision(&db)).await {
                tracing::debug!(%error, "The key revision could not be read.");
            }
            stop.run_until_cancelled(sleep(LOOK_EVERY)).await;
        }
    }

    fn lock_owners(&self) -> MutexGuard<'_, KnownOwners> {
        self.0.lock()
    }

    fn ask_soon(&self, known: &mut KnownOwners, db: &Pool) {
        if !mem::replace(&mut known.is_asking, true) {
            tokio::spawn(self.clone().look_up_waiting(db.clone()));
        }
    }

    /// Looks up waiting keys until none are left.
    async fn look_up_waiting(self, db: Pool) {
        loop {
            let Some(group) = self.take_waiting() else { return };
            let hashes: Vec<Hash> = group.keys().cloned().collect();
            let revision = self.lock_owners().revision.map(|seen| seen.number);
            let asked_at = Instant::now();
            let asked = timeout(STATEMENT_TIMEOUT, api_keys::find_all(&db, &hashes)).await;
            let found = asked.unwrap_or(Err(sqlx::Error::PoolTimedOut));
            let found: Result<FoundKeys, LookupError> = found
                .map(|keys| keys.into_iter().map(|key| (key.sha256.clone(), key)).collect())
                .map_err(|e| LookupError::Unanswered(e.to_string().into()));
            self.answer_waiting(group, (asked_at, revision), &found);
            sleep(PAUSE).await;
        }
    }

    /// Returns the next keys to look up. Returns `None` and marks the task as stopped when none are waiting.
    fn take_waiting(&self) -> Option<Waiting> {
        let mut known = self.lock_owners();
        if known.waiting.is_empty() {
            known.is_asking = false;
            return None;
        }
        // Cached keys come first: they are few, and valid requests wait for them.
        let mut hashes: Vec<Hash> = known.waiting.keys().cloned().collect();
        hashes.sort_by_key(|hash| !known.owners.contains_key(hash));
        hashes.truncate(MOST_AT_ONCE);
        Some(hashes.into_iter().filter_map(|hash| known.waiting.remove_entry(&hash)).collect())
    }

    /// Sends the lookup's result to the waiting requests. `asked` is the time of the lookup and the revision known
    /// then.
    fn answer_waiting(&self, group: Waiting, asked: (Instant, Option<i64>), found: &Result<FoundKeys, LookupError>) {
        let mut known = self.lock_owners();
        known.is_failing = found.is_err();
        for (hash, requests) in group {
            let answer = match found {
                Ok(owners) => Ok(known.learn_owner(hash, asked, owners)),
                Err(error) => known.believed_in_need(&hash).map(Some).ok_or_else(|| error.clone()),
            };
            for request in requests {
                // The send fails if the client has disconnected.
                let _ = request.send(answer.clone());
            }
        }
    }
}

impl KnownOwners {
    /// Stores the result of a lookup in the cache.
    fn learn_owner(
        &mut self,
        hash: Hash,
        (looked_up_at, revision): (Instant, Option<i64>),
        found: &FoundKeys,
    ) -> Option<ApiKey> {
        let Some(FoundKey { key: owner, expires_at, .. }) = found.get(&hash) else {
            self.owners.remove(&hash);
            if self.refused.len() >= MOST_REFUSED {
                self.refused.clear();
            }
            self.refused.insert(hash, looked_up_at);
            return None;
        };
        if self.owners.len() >= MOST_KNOWN && !self.owners.contains_key(&hash) {
            self.owners.clear();
        }
        let known = KnownKey { looked_up_at, revision, expires_at: *expires_at, owner: owner.clone() };
        self.owners.insert(hash, known);
        Some(owner.clone())
    }

    /// Returns when Postgres last confirmed the key, by a lookup or by an unchanged revision.
    fn confirmed_at(&self, key: &KnownKey) -> Instant {
        let unchanged = |seen: &SeenRevision| {
            key.revision == Some(seen.number)
                && key.looked_up_at.elapsed() < KEPT
                && key.expires_at.is_none_or(|end| end > seen.now)
        };
        let seen = self.revision.filter(unchanged);
        seen.map_or(key.looked_up_at, |seen| seen.at.max(key.looked_up_at))
    }

    fn believed_in_need(&self, hash: &Hash) -> Option<ApiKey> {
        let key = self.owners.get(hash)?;
        (self.confirmed_at(key).elapsed() < BELIEVED_IN_NEED).then(|| key.owner.clone())
    }
}
