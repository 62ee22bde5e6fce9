//! Several stores as one queue: each shard is a [`Store`] with its own keys, epoch and wake channel. Design:
//! docs/design/redis-and-shards.md.
//!
//! A job's id determines its shard. All jobs of one order are in one shard, so a handler's result and its follow-ups
//! are written in one atomic step. Some kinds must be in one shard whatever their ids, such as jobs whose slots one
//! script hands over. They are in the control shard, number 0.
//!
//! Every worker takes from every shard. When it has few free permits, it prefers some shards, chosen by rendezvous
//! hashing of its boot id and the shard's number. So no process owns a shard, and no shard waits for an owner.
//!
//! * `operators`: all shards as one queue, for operators.

mod operators;

use std::{fmt, sync::Arc};

use crate::{
    job::{JobAddress, JobId, NewJob},
    store::{EnqueueVerdict, RedisConfig, RepairVerdict, SettleRequest, SettleVerdict, Store, StoreError, key_slot},
};

/// Number of shards: a power of two, so that doubling it splits each shard in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardCount(u16);

/// Error for an invalid number of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a valid number of shards: it must be a power of two, at most 64")]
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

    /// Returns the shard of a subject, such as an order's id: CRC-16/XMODEM of the subject, modulo the number of
    /// shards.
    ///
    /// This function never changes, because stored timers depend on it and producers may compute it.
    pub fn shard_of(self, subject: &str) -> u16 {
        // A subject has no hash tag. The number of cluster slots is a larger power of two, so this equals the CRC
        // modulo the number of shards.
        key_slot(subject.as_bytes()) % self.0
    }
}

/// Converts from the Postgres column type.
impl TryFrom<i16> for ShardCount {
    type Error = InvalidShardCount;

    fn try_from(count: i16) -> Result<Self, InvalidShardCount> {
        Self::new(u16::try_from(count).unwrap_or_default())
    }
}

/// Shards of a queue. Cheap to clone.
#[derive(Clone)]
pub struct Shards {
    /// All shards that were opened so far, by number. A shard that is opened again still has its connection.
    opened: Arc<[Store]>,
    /// Number of open shards. New jobs go to the first `count` of them.
    open: usize,
    count: ShardCount,
    control_kinds: Arc<[&'static str]>,
}

impl fmt::Debug for Shards {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("open", &self.open).field("count", &self.count).finish_non_exhaustive()
    }
}

/// One shard with all jobs.
impl From<Store> for Shards {
    fn from(store: Store) -> Self {
        Self { opened: [store].into(), open: 1, count: ShardCount::ONE, control_kinds: [].into() }
    }
}

impl Shards {
    /// Sets up the shards of one Redis or one cluster, without connecting. Jobs of `control_kinds` are in the control
    /// shard.
    pub fn connect_lazy(
        config: &RedisConfig,
        count: ShardCount,
        control_kinds: &[&'static str],
    ) -> Result<Self, StoreError> {
        Self::connect_lazy_after(config, count, count, control_kinds)
    }

    /// Sets up shards as [`connect_lazy`](Self::connect_lazy) does, while their number changes. New jobs are placed
    /// according to the new number. Workers take from the shards of both numbers, so a job in an old shard still runs;
    /// its handler finds that the row has moved on. Jobs are not copied.
    pub fn connect_lazy_after(
        config: &RedisConfig,
        count: ShardCount,
        before: ShardCount,
        control_kinds: &[&'static str],
    ) -> Result<Self, StoreError> {
        Self::from(Store::with_config(config.clone())?).with_control_kinds(control_kinds).resize(count, before)
    }

    /// Returns the same shards, with jobs of these kinds in the control shard.
    #[must_use]
    pub fn with_control_kinds(self, control_kinds: &[&'static str]) -> Self {
        Self { control_kinds: control_kinds.into(), ..self }
    }

    /// Returns these shards with another shard count, without connecting. `before` has the same meaning as in
    /// [`connect_lazy_after`](Self::connect_lazy_after). Shards that were opened before keep their connections.
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

    /// Returns the number of shards that determines where jobs are placed.
    pub fn count(&self) -> ShardCount {
        self.count
    }

    /// Returns all open shards, by number.
    pub fn stores(&self) -> &[Store] {
        &self.opened[..self.open]
    }

    /// Returns the shards in which jobs are placed, by number.
    pub fn homes(&self) -> &[Store] {
        &self.opened[..usize::from(self.count.get())]
    }

    /// Returns the open shards above the current number. New jobs are not placed there, but the jobs in them still run.
    pub fn left_over(&self) -> &[Store] {
        &self.opened[usize::from(self.count.get())..self.open]
    }

    /// Returns a shard that is or was open.
    pub(crate) fn opened_store(&self, shard: usize) -> &Store {
        &self.opened[shard]
    }

    /// Returns the control shard, which has the limits, breakers, pauses and heartbeats.
    pub fn control(&self) -> &Store {
        &self.opened[0]
    }

    /// Returns the number of a job's shard.
    pub fn shard_of(&self, id: &JobId) -> u16 {
        if self.count == ShardCount::ONE || self.control_kinds.contains(&id.kind()) {
            return 0;
        }
        self.count.shard_of(subject_of(id))
    }

    /// Enqueues as [`Store::enqueue`] does, each job in its shard. After an error some of the jobs may be inserted:
    /// repeat the call.
    pub async fn enqueue(&self, jobs: &[NewJob]) -> Result<Vec<EnqueueVerdict>, StoreError> {
        self.enqueue_superseding(jobs, &[]).await
    }

    /// Enqueues as [`Store::enqueue_superseding`] does, with one atomic call per shard. After an error some shards may
    /// have been changed: repeat the call.
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

    /// Repairs as [`Store::repair`] does, each job in its shard.
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

    /// Previews as [`Store::preview_repair`] does, each job in its shard.
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

    /// Splits jobs by shard. Returns each shard that has any, with the jobs' positions in the input and the jobs.
    pub fn split_jobs(&self, jobs: &[NewJob]) -> Vec<(&Store, Vec<usize>, Vec<NewJob>)> {
        self.split(jobs, |job| self.shard_of(&job.id))
    }

    /// Splits items by shard. Returns each shard that has any, with the items' positions in the input and the items.
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

    /// Settles leases of this shard as [`Store::settle`] does. Follow-ups and superseded jobs in other shards are
    /// written first, because inserting a follow-up twice is harmless but losing it is not.
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

    /// Returns all open shards, the job's own shard first.
    fn home_first(&self, id: &JobId) -> impl Iterator<Item = &Store> {
        let home = usize::from(self.shard_of(id));
        let others = self.stores().iter().enumerate().filter(move |(shard, _)| *shard != home).map(|(_, store)| store);
        std::iter::once(&self.opened[home]).chain(others)
    }
}

/// Sorts answers into the order of the input.
fn in_order<V>(mut answers: Vec<(usize, V)>) -> Vec<V> {
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns the subject of a job: the part of its id between the first two colons. `timeout:ORD-1:3` and
/// `lifetime:ORD-1` have the same subject, the order.
fn subject_of(id: &JobId) -> &str {
    id.key().split(':').next().unwrap_or_default()
}

/// Returns the rank of each shard for a worker, from 0, by a hash of both. Workers rank the shards differently, and
/// each worker always in the same way.
pub(crate) fn rank_shards(worker: &str, shards: usize) -> Vec<usize> {
    let mut by_weight: Vec<usize> = (0..shards).collect();
    by_weight.sort_by_key(|shard| std::cmp::Reverse((weight(worker, *shard), *shard)));
    let mut ranks = vec![0; shards];
    for (rank, shard) in by_weight.into_iter().enumerate() {
        ranks[shard] = rank;
    }
    ranks
}

/// FNV-1a followed by a mixing step, so that the weights of adjacent numbers are independent.
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
    fn shard_count_is_a_power_of_two() {
        for count in [1, 2, 4, 8, 16, 32, 64] {
            assert_eq!(ShardCount::new(count).unwrap().get(), count);
        }
        for wrong in [0, 3, 12, 65, 128] {
            assert_eq!(ShardCount::new(wrong), Err(InvalidShardCount(wrong)));
        }
    }

    #[test]
    fn jobs_of_an_order_share_its_subject() {
        for text in ["timeout:ORD-1:3", "lifetime:ORD-1", "notify:ORD-1:77:2"] {
            assert_eq!(subject_of(&id(text)), "ORD-1", "{text}");
        }
    }

    /// Stored timers depend on these shards.
    #[test]
    fn order_shard_never_changes() {
        let four = ShardCount::new(4).unwrap();
        let shards: Vec<u16> = (1..=8).map(|n| four.shard_of(&format!("ORD-{n}"))).collect();
        assert_eq!(shards, PINNED);
        assert_eq!(ShardCount::ONE.shard_of("ORD-1"), 0);
    }

    const PINNED: [u16; 8] = [3, 0, 1, 2, 3, 0, 1, 2];

    #[test]
    fn doubling_splits_each_shard_evenly() {
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
    fn workers_rank_shards_differently() {
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
