//! Keys this process knows, so that few requests ask Postgres and a flood of wrong keys hardly any.
//! Design: docs/design/keys-and-secrets.md.
//!
//! One statement at a time asks about all keys that wait for an answer, however many requests wait: so look-ups take one
//! connection of the pool, however large the flood. What is no key by its form is refused at once. Unknown keys are remembered for a
//! while, too. A key in use is looked up again before its time is over, so its requests do not wait.
//!
//! One number in Postgres is raised when any key changes or ends. While a process sees that it stays as it was, the keys looked
//! up since the latest change are believed without another look-up: a driver who presses accept after a minute of silence does
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

/// Between two looks at the number of the latest change.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// A key is looked up again after this, even if no key has changed.
const KEPT: Duration = Duration::from_secs(300);
/// A key is believed for so long after Postgres said that it is good, of itself or by the number of the latest change: a key that
/// is revoked is good for no longer than this.
const BELIEVED: Duration = Duration::from_secs(1);
/// A key in use is looked up again after this.
const REFRESHED: Duration = Duration::from_millis(500);
/// A key is believed for so long while Postgres does not answer. Short: Postgres may hang for this process alone, and the key
/// be revoked meanwhile.
const BELIEVED_IN_NEED: Duration = Duration::from_secs(10);
/// A key that is not valid is remembered for so long: its driver may be let in again.
const REFUSED: Duration = Duration::from_secs(1);
/// So many known keys are kept; then all are forgotten.
const MOST_KNOWN: usize = 50_000;
/// So many unknown keys are kept; then all are forgotten.
const MOST_REFUSED: usize = 10_000;
/// So many unknown keys may wait for a look-up; more are told to come again.
const MOST_WAITING: usize = 1_000;
/// Keys of one statement.
const MOST_AT_ONCE: usize = 500;
/// Between two statements, so that a flood is asked about in large groups.
const PAUSE: Duration = Duration::from_millis(5);
/// Ends a look-up on a connection that died without a word; the next one takes another. Longer than a place in the pool and
/// a statement may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(16);
/// A request waits so long for a look-up.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Why it could not be found out whose a key is.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LookupError {
    #[error("too many unknown keys wait for a look-up")]
    Overrun,
    #[error("the database does not say whose the key is: {0}")]
    Unanswered(Arc<str>),
}

/// Cheap to clone; clones share what they know.
#[derive(Debug, Clone, Default)]
pub struct KnownKeys(Arc<Mutex<KnownOwners>>);

type Hash = Vec<u8>;
type Answer = Result<Option<ApiKey>, LookupError>;
type FoundKeys = HashMap<Hash, FoundKey>;
type Waiting = HashMap<Hash, Vec<oneshot::Sender<Answer>>>;

#[derive(Debug, Default)]
struct KnownOwners {
    owners: HashMap<Hash, KnownKey>,
    /// The latest look at the number of changes that Postgres answered.
    revision: Option<SeenRevision>,
    /// Keys that do not exist, and when they were looked up.
    refused: HashMap<Hash, Instant>,
    /// Keys to look up, with the requests that wait for each.
    waiting: Waiting,
    /// A task looks them up.
    is_asking: bool,
    /// The latest statement failed.
    is_failing: bool,
}

#[derive(Debug)]
struct KnownKey {
    looked_up_at: Instant,
    /// The number of the latest change, as it was seen before the look-up.
    revision: Option<i64>,
    expires_at: Option<DateTime<Utc>>,
    owner: ApiKey,
}

#[derive(Debug, Clone, Copy)]
struct SeenRevision {
    number: i64,
    /// When Postgres was asked.
    at: Instant,
    /// The time by Postgres' clock.
    now: DateTime<Utc>,
}

impl KnownKeys {
    /// Returns the key's owner, unless it is unknown or revoked.
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
            // In need the first request finds out; the others need not wait as long.
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
            // A key that was good lately never stands behind a flood of bad ones.
            if owner.is_none() && known.waiting.len() >= MOST_WAITING && !known.waiting.contains_key(&hash) {
                return Err(LookupError::Overrun);
            }
            self.enqueue_lookup(&mut known, db, &hash)
        };
        self.await_answer(hash, answer).await
    }

    /// Asks Postgres for the key's owner, whatever this process knows. For requests that have waited: their key may have been revoked
    /// since.
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
            Ok(Err(_)) => Err(LookupError::Unanswered("the look-up was given up".into())),
            // The statement is not given up, or the next one would take another connection.
            Err(_) => {
                let mut known = self.lock_owners();
                known.is_failing = true;
                let error = || LookupError::Unanswered(format!("no answer within {LOOKUP_TIMEOUT:?}").into());
                known.believed_in_need(&hash).map(Some).ok_or_else(error)
            }
        }
    }

    /// Asks Postgres for the number of the latest change. Keys that were looked up since are believed for a second more.
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

    /// Asks for that number until told to stop. While Postgres does not answer, keys are looked up one by one again.
    pub async fn watch_revision(self, db: Pool, loops: LoopRegistry, stop: CancellationToken) {
        let turns = loops.register_loop("keys");
        while !stop.is_cancelled() {
            if let Some(Err(error)) = turns.run_turn(self.check_revision(&db)).await {
                tracing::debug!(%error, "Whether keys have changed could not be asked.");
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

    /// Looks up what waits, until nothing does.
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

    /// Returns the keys to look up next; `None` when none waits, and the asking ends.
    fn take_waiting(&self) -> Option<Waiting> {
        let mut known = self.lock_owners();
        if known.waiting.is_empty() {
            known.is_asking = false;
            return None;
        }
        // Known keys first: they are few, and good requests wait for them.
        let mut hashes: Vec<Hash> = known.waiting.keys().cloned().collect();
        hashes.sort_by_key(|hash| !known.owners.contains_key(hash));
        hashes.truncate(MOST_AT_ONCE);
        Some(hashes.into_iter().filter_map(|hash| known.waiting.remove_entry(&hash)).collect())
    }

    /// `asked` is when Postgres was asked, and the number of the latest change then.
    fn answer_waiting(&self, group: Waiting, asked: (Instant, Option<i64>), found: &Result<FoundKeys, LookupError>) {
        let mut known = self.lock_owners();
        known.is_failing = found.is_err();
        for (hash, requests) in group {
            let answer = match found {
                Ok(owners) => Ok(known.learn_owner(hash, asked, owners)),
                Err(error) => known.believed_in_need(&hash).map(Some).ok_or_else(|| error.clone()),
            };
            for request in requests {
                // A client that hung up waits no more.
                let _ = request.send(answer.clone());
            }
        }
    }
}

impl KnownOwners {
    /// Remembers what Postgres said about a key.
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

    /// When Postgres last said that this key is good: of itself, or by saying that no key has changed since.
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
