//! Several stores as one queue: each shard is a [`Store`] with keys, an epoch and a wake channel of its own.
//! Design: docs/design/redis-and-shards.md.
//!
//! A job's shard follows from its id alone: all jobs of one order lie in one shard, so what one handler ends and enqueues
//! goes in one atomic step. Kinds that must lie together whatever their ids say, such as those whose slots one script hands over, are
//! kept in the control shard, number 0.
//!
//! Every worker takes from every shard. Which of them it prefers when it has few permits free is a matter of its boot and the shard's
//! number (rendezvous hashing), so no process owns a shard, and none waits for its owner.
//!
//! * `operators`: all shards as one queue, for those who look at it.

mod operators;

use std::{fmt, sync::Arc};

use crate::{
    job::{JobAddress, JobId, NewJob},
    store::{EnqueueVerdict, RedisConfig, RepairVerdict, SettleRequest, SettleVerdict, Store, StoreError, key_slot},
};

/// The number of shards: a power of two, so that doubling it splits each of them in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardCount(u16);

/// A number of shards that there cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no number of shards: it is a power of two, 64 at most")]
pub struct InvalidShardCount(pub u16);

impl ShardCount {
    pub const ONE: Self = Self(1);
    pub const MOST: u16 = 64;

    pub fn new(count: u16) -> Result<Self, InvalidShardCount> {
        if count.is_power_of_two() && count <= Self::MOST { Ok(Self(count)) } else { Err(InvalidShardCount(count)) }
    }

    pub fn get(self) -> u16 {
        self.0
    }

    /// Returns the shard of a subject, such as an order's id: CRC-16/XMODEM of it, modulo the number of shards.
    ///
    /// Stored timers depend on it, and producers may compute it: it never changes.
    pub fn shard_of(self, subject: &str) -> u16 {
        // A subject has no hash tag. The slots of a cluster are a power of two as well, and more of them.
        key_slot(subject.as_bytes()) % self.0
    }
}

/// As rows of Postgres hold it.
impl TryFrom<i16> for ShardCount {
    type Error = InvalidShardCount;

    fn try_from(count: i16) -> Result<Self, InvalidShardCount> {
        Self::new(u16::try_from(count).unwrap_or_default())
    }
}

/// The shards of a queue. Cheap to clone.
#[derive(Clone)]
pub struct Shards {
    /// All that were opened so far, by their numbers: a shard that is opened again has its connection still.
    opened: Arc<[Store]>,
    /// So many of them are open, and of these the first `count` hold new jobs.
    open: usize,
    count: ShardCount,
    control_kinds: Arc<[&'static str]>,
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("open", &self.open).field("count", &self.count).finish_non_exhaustive()
    }
}

/// One shard, which holds all jobs.
impl From<Store> for Shards {
    fn from(store: Store) -> Self {
        Self { opened: [store].into(), open: 1, count: ShardCount::ONE, control_kinds: [].into() }
    }
}

impl Shards {
    /// Sets up the shards of one Redis, or of one cluster, without connecting. Jobs of `control_kinds` lie in the control shard.
    pub fn connect_lazy(
        config: &RedisConfig,
        count: ShardCount,
        control_kinds: &[&'static str],
    ) -> Result<Self, StoreError> {
        Self::connect_lazy_after(config, count, count, control_kinds)
    }

    /// As [`connect_lazy`](Self::connect_lazy), while the number of shards changes. Jobs go by the new number; workers take from all shards
    /// of both, so what lies where it lay before is performed there, and finds that its row has moved on. Nothing is copied.
    pub fn connect_lazy_after(
        config: &RedisConfig,
        count: ShardCount,
        before: ShardCount,
        control_kinds: &[&'static str],
    ) -> Result<Self, StoreError> {
        Self::from(Store::with_config(config.clone())?).with_control_kinds(control_kinds).resize(count, before)
    }

    /// The same shards, with jobs of these kinds in the control shard.
    #[must_use]
    pub fn with_control_kinds(self, control_kinds: &[&'static str]) -> Self {
        Self { control_kinds: control_kinds.into(), ..self }
    }

    /// These shards under another number of them, without connecting; `before` as in [`connect_lazy_after`](Self::connect_lazy_after).
    /// Shards that are open, or were once, keep their connections.
    pub fn resize(&self, count: ShardCount, before: ShardCount) -> Result<Self, StoreError> {
        let open = usize::from(count.get().max(before.get()));
        let opened = if open <= self.opened.len() {
            self.opened.clone()
        } else {
            let mut opened = self.opened.to_vec();
            for shard in opened.len()..open {
                opened.push(self.control().other_shard(u16::try_from(shard).unwrap_or(u16::MAX))?);
            }
            opened.into()
        };
        Ok(Self { opened, open, count, control_kinds: self.control_kinds.clone() })
    }

    /// The number of shards by which jobs are placed.
    pub fn count(&self) -> ShardCount {
        self.count
    }

    /// All shards that are open, by their numbers.
    pub fn stores(&self) -> &[Store] {
        &self.opened[..self.open]
    }

    /// The shards in which jobs are placed, by their numbers.
    pub fn homes(&self) -> &[Store] {
        &self.opened[..usize::from(self.count.get())]
    }

    /// The shards that are open beyond the number there is now: nothing is placed there, and what lies there is performed.
    pub fn left_over(&self) -> &[Store] {
        &self.opened[usize::from(self.count.get())..self.open]
    }

    /// A shard that is open, or was once.
    pub(crate) fn opened_store(&self, shard: usize) -> &Store {
        &self.opened[shard]
    }

    /// The shard with limits, breakers, pauses and signs of life.
    pub fn control(&self) -> &Store {
        &self.opened[0]
    }

    /// The number of the shard in which a job lies.
    pub fn shard_of(&self, id: &JobId) -> u16 {
        if self.count == ShardCount::ONE || self.control_kinds.contains(&id.kind()) {
            return 0;
        }
        self.count.shard_of(subject_of(id))
    }

    /// As [`Store::enqueue`], each job in its shard. After an error some of them may be in: repeat the call.
    pub async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<EnqueueVerdict>, StoreError> {
        self.enqueue_superseding(jobs, &[]).await
    }

    /// As [`Store::enqueue_superseding`], each job in its shard: one call, and one step, for each shard. After an error some of it may
    /// have been done: repeat the call.
    pub async fn enqueue_superseding(
        &self,
        jobs: &[NewJob],
        superseded: &[JobAddress],
    ) -> Result<Vec<EnqueueVerdict>, StoreError> {
        if let [store] = self.homes() {
            return store.enqueue_superseding(jobs, superseded).await;
        }
        let mut answers = Vec::with_capacity(jobs.len());
        let mut ended = self.split(superseded, |job| self.shard_of(&job.id));
        for (store, places, of_shard) in self.split(jobs, |job| self.shard_of(&job.id)) {
            let here = ended.iter().position(|(other, ..)| other.shard() == store.shard());
            let ended_here = here.map(|here| ended.swap_remove(here).2).unwrap_or_default();
            answers.extend(places.into_iter().zip(store.enqueue_superseding(&of_shard, &ended_here).await?));
        }
        for (store, _, ended_here) in ended {
            store.enqueue_superseding(&[], &ended_here).await?;
        }
        Ok(in_order(answers))
    }

    /// As [`Store::repair`], each job in its shard.
    pub async fn repair(&self, jobs: &[NewJob]) -> Result<Vec<RepairVerdict>, StoreError> {
        if let [store] = self.homes() {
            return store.repair(jobs).await;
        }
        let mut answers = Vec::with_capacity(jobs.len());
        for (store, places, of_shard) in self.split_jobs(jobs) {
            answers.extend(places.into_iter().zip(store.repair(&of_shard).await?));
        }
        Ok(in_order(answers))
    }

    /// As [`Store::preview_repair`], each job in its shard.
    pub async fn preview_repair(&self, jobs: &[NewJob]) -> Result<Vec<RepairVerdict>, StoreError> {
        if let [store] = self.homes() {
            return store.preview_repair(jobs).await;
        }
        let mut answers = Vec::with_capacity(jobs.len());
        for (store, places, of_shard) in self.split_jobs(jobs) {
            answers.extend(places.into_iter().zip(store.preview_repair(&of_shard).await?));
        }
        Ok(in_order(answers))
    }

    /// The jobs of each shard that has any of them, and their places among all.
    pub fn split_jobs(&self, jobs: &[NewJob]) -> Vec<(&Store, Vec<usize>, Vec<NewJob>)> {
        self.split(jobs, |job| self.shard_of(&job.id))
    }

    /// The items of each shard that has any, and their places among all.
    fn split<T: Clone>(&self, items: &[T], shard_of: impl Fn(&T) -> u16) -> Vec<(&Store, Vec<usize>, Vec<T>)> {
        let mut parts: Vec<(&Store, Vec<usize>, Vec<T>)> =
            self.homes().iter().map(|store| (store, Vec::new(), Vec::new())).collect();
        for (place, item) in items.iter().enumerate() {
            let (_, places, of_shard) = &mut parts[usize::from(shard_of(item))];
            places.push(place);
            of_shard.push(item.clone());
        }
        parts.retain(|(_, places, _)| !places.is_empty());
        parts
    }

    /// As [`Store::settle`], leases of this shard. Follow-ups that lie in other shards, and what is superseded there, go first: they are
    /// hints as all jobs are, and one that comes twice is harmless, but not one that is lost.
    pub async fn settle(&self, store: &Store, settles: &[SettleRequest]) -> Result<Vec<SettleVerdict>, StoreError> {
        let is_here = |id: &JobId| self.shard_of(id) == store.shard();
        let all_here = |settle: &SettleRequest| {
            settle.then.iter().all(|job| is_here(&job.id)) && settle.superseded.iter().all(|job| is_here(&job.id))
        };
        let is_only = self.count == ShardCount::ONE && store.shard() == 0;
        if is_only || settles.iter().all(all_here) {
            return store.settle(settles).await;
        }
        let mut own = settles.to_vec();
        let mut dead_elsewhere = vec![Vec::new(); own.len()];
        for (settle, dead) in own.iter_mut().zip(&mut dead_elsewhere) {
            let (then, there): (Vec<_>, Vec<_>) =
                std::mem::take(&mut settle.then).into_iter().partition(|job| is_here(&job.id));
            let (superseded, ended): (Vec<_>, Vec<_>) =
                std::mem::take(&mut settle.superseded).into_iter().partition(|job| is_here(&job.id));
            (settle.then, settle.superseded) = (then, superseded);
            let verdicts = self.enqueue_superseding(&there, &ended).await?;
            let died = there.into_iter().zip(verdicts).filter(|(_, verdict)| *verdict == EnqueueVerdict::Dead);
            dead.extend(died.map(|(job, _)| job.id));
        }
        let mut verdicts = store.settle(&own).await?;
        for (verdict, dead) in verdicts.iter_mut().zip(dead_elsewhere) {
            if let SettleVerdict::Settled { dead_follow_ups } = verdict {
                dead_follow_ups.extend(dead);
            }
        }
        Ok(verdicts)
    }

    /// All shards, the one in which the job should lie first.
    fn home_first(&self, id: &JobId) -> impl Iterator<Item = &Store> {
        let home = usize::from(self.shard_of(id));
        let others = self.stores().iter().enumerate().filter(move |(shard, _)| *shard != home).map(|(_, store)| store);
        std::iter::once(&self.opened[home]).chain(others)
    }
}

/// Answers in the order of what was asked.
fn in_order<V>(mut answers: Vec<(usize, V)>) -> Vec<V> {
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// What a job is about: the part of its id between the first colon and the next. `timeout:ORD-1:3` and `lifetime:ORD-1` are about one
/// order.
fn subject_of(id: &JobId) -> &str {
    id.key().split(':').next().unwrap_or_default()
}

/// The rank of each shard for a worker, from 0: the order of a hash of both. Workers rank them differently, and each the same every time.
pub(crate) fn rank_shards(worker: &str, shards: usize) -> Vec<usize> {
    let mut by_weight: Vec<usize> = (0..shards).collect();
    by_weight.sort_by_key(|shard| std::cmp::Reverse((weight(worker, *shard), *shard)));
    let mut ranks = vec![0; shards];
    for (rank, shard) in by_weight.into_iter().enumerate() {
        ranks[shard] = rank;
    }
    ranks
}

/// FNV-1a, then mixed: neighbouring numbers must have weights that have nothing to do with each other.
fn weight(worker: &str, shard: usize) -> u64 {
    let bytes = worker.bytes().chain(shard.to_le_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> JobId {
        JobId::parse(text).unwrap()
    }

    #[test]
    fn a_number_of_shards_is_a_power_of_two() {
        for count in [1, 2, 4, 8, 16, 32, 64] {
            assert_eq!(ShardCount::new(count).unwrap().get(), count);
        }
        for wrong in [0, 3, 12, 65, 128] {
            assert_eq!(ShardCount::new(wrong), Err(InvalidShardCount(wrong)));
        }
    }

    #[test]
    fn all_jobs_of_an_order_are_about_it() {
        for text in ["timeout:ORD-1:3", "lifetime:ORD-1", "notify:ORD-1:77:2"] {
            assert_eq!(subject_of(&id(text)), "ORD-1", "{text}");
        }
    }

    /// Timers that are stored depend on these.
    #[test]
    fn the_shard_of_an_order_never_changes() {
        let four = ShardCount::new(4).unwrap();
        let shards: Vec<u16> = (1..=8).map(|n| four.shard_of(&format!("ORD-{n}"))).collect();
        assert_eq!(shards, PINNED);
        assert_eq!(ShardCount::ONE.shard_of("ORD-1"), 0);
    }

    const PINNED: [u16; 8] = [3, 0, 1, 2, 3, 0, 1, 2];

    #[test]
    fn doubling_splits_each_shard_in_two_even_halves() {
        let (eight, sixteen) = (ShardCount::new(8).unwrap(), ShardCount::new(16).unwrap());
        let mut counts = [0_u32; 16];
        for n in 0..16_000 {
            let order = format!("ORD-{n}");
            let (before, after) = (eight.shard_of(&order), sixteen.shard_of(&order));
            assert!(after == before || after == before + 8, "{order}: {before}, {after}");
            counts[usize::from(after)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    #[test]
    fn workers_rank_shards_each_in_their_own_way() {
        let mut firsts = [0_u32; 4];
        for worker in 0..400 {
            let ranks = rank_shards(&format!("worker-{worker}"), 4);
            assert_eq!(ranks, rank_shards(&format!("worker-{worker}"), 4));
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
            firsts[ranks.iter().position(|rank| *rank == 0).unwrap()] += 1;
        }
        assert!(firsts.iter().all(|count| (60..140).contains(count)), "{firsts:?}");
    }
}
