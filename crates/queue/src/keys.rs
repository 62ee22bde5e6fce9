//! Every Redis key of the engine, with its type and lifetime.
//!
//! All keys of a shard have the same hash tag, so one script may touch several queues atomically, also in a Redis
//! Cluster. The KEYS of a script do not contain the keys for slots: `slots.lua` builds them from the same names. A
//! job's id is in at most one of `due`, `suspects`, `parked`, `leased` and `dead` of its queue.

/// Names of the keys of one shard.
#[derive(Debug, Clone)]
pub struct Keys {
    tag: String,
}

impl Keys {
    /// Number of [`fixed_keys`](Self::fixed_keys). In the KEYS of a script, the queues' keys follow them.
    const FIXED: usize = 7;

    /// Returns the keys of shard 0, which is the only shard or the control shard.
    pub fn new() -> Self {
        Self::of_shard(0)
    }

    pub fn of_shard(shard: u16) -> Self {
        Self { tag: format!("{{dq:{shard}}}") }
    }

    fn full_key(&self, name: &str) -> String {
        [&self.tag, ":", name].concat()
    }

    /// Builds the key of one queue without `format!`: each take needs five of them per queue.
    fn queue_key(&self, set: &str, queue: &str) -> String {
        [&self.tag, ":", set, ":", queue].concat()
    }

    /// zset, job id -> due time in ms, of delayed and ready jobs alike. A member is removed when the job is leased.
    pub fn due_set(&self, queue: &str) -> String {
        self.queue_key("due", queue)
    }

    /// zset, job id -> due time in ms, of jobs whose last two deliveries were lost. Such a job runs alone in its
    /// process. A member is removed when the job is leased.
    pub fn suspect_set(&self, queue: &str) -> String {
        self.queue_key("suspects", queue)
    }

    /// zset, job id -> end of the lease in ms. A member is removed when the lease is settled, released or rescued.
    pub fn leased_set(&self, queue: &str) -> String {
        self.queue_key("leased", queue)
    }

    /// zset, job id -> time of death in ms. A member stays until an operator requeues or discards the job.
    pub fn dead_set(&self, queue: &str) -> String {
        self.queue_key("dead", queue)
    }

    /// zset, job id -> time it was parked in ms, of jobs that wait in line for slots. A member is removed when the job
    /// gets its slots or is cancelled.
    pub fn parked_set(&self, queue: &str) -> String {
        self.queue_key("parked", queue)
    }

    /// hash, leased job id -> `token due again`. `again` is `-` or the earliest due time requested during the lease. A
    /// field lives as long as the member of `leased`.
    pub fn lease_table(&self) -> String {
        self.full_key("leases")
    }

    /// hash, job id -> envelope `{"v":1,"slots":"group own hold_ms","payload":..}`. `slots` and `payload` are optional;
    /// a job with neither has no field. A field is removed with the job.
    pub fn job_envelopes(&self) -> String {
        self.full_key("jobs")
    }

    /// hash, job id -> `failed lost`: the number of failed runs and of lost deliveries. `0 0` marks a job that a snooze
    /// or an operator delayed. A field is removed with the job.
    pub fn job_tries(&self) -> String {
        self.full_key("tries")
    }

    /// hash, dead job id -> JSON `{queue,error,failed,lost,due_ms,died_ms,payload}`; `payload` is the envelope byte for
    /// byte. A field lives as long as the member of the queue's dead zset.
    pub fn dead_records(&self) -> String {
        self.full_key("dead")
    }

    /// set of paused queues. No expiry.
    pub fn paused_queues(&self) -> String {
        self.full_key("paused")
    }

    /// hash `boot`, `until`: the process that currently runs suspects, and the time in ms at which its turn ends unless
    /// it renews it. Removed at the end of the turn; expires a minute after the last renewal.
    pub fn suspect_turn(&self) -> String {
        self.full_key("suspect_turn")
    }

    /// hash, job id -> `queue group own hold_ms number since_ms lapses holder`; `holder` is `-` for a reservation. A
    /// field lives as long as the member of `slot_ends`.
    ///
    /// The hash `parked` has the same fields for parked jobs. Its last field is `-` for a job in its group's line,
    /// otherwise the own name that the job waits for. Only `slots.lua` uses that hash.
    pub fn slot_holds(&self) -> String {
        self.full_key("slot_holds")
    }

    /// zset, job id -> end of its slots in ms, of jobs that hold slots or have them reserved. A member is removed when
    /// the slots are freed or have ended.
    pub fn slot_ends(&self) -> String {
        self.full_key("slot_ends")
    }

    /// zset, due job id -> time of the reservation in ms, of jobs of a queue that have slots reserved. They are leased
    /// before all others. A member is removed when the job is leased or the reservation ends.
    pub fn slot_reserved(&self, queue: &str) -> String {
        self.queue_key("slot_reserved", queue)
    }

    /// hash, own name -> the job that holds it. After a restore that found a second holder, the value has both. A field
    /// is removed with the slots.
    pub fn slot_owns(&self) -> String {
        self.full_key("slot_owns")
    }

    /// hash, group -> its slots in use. A field is removed with the last of them.
    pub fn slots_used(&self) -> String {
        self.full_key("slots_used")
    }

    /// hash, `all` or `group:` and a group -> its limit. No expiry; after a flush the application sets the limits
    /// again.
    pub fn slot_limits(&self) -> String {
        self.full_key("slot_limits")
    }

    /// zset, group -> its turn, of groups that have both a waiting job and a free slot. A group that lacks one of the
    /// two is removed.
    pub fn slot_ring(&self) -> String {
        self.full_key("slot_ring")
    }

    /// hash `number`, `turn`: the last number assigned in a line and in the ring. No expiry.
    pub fn slot_numbers(&self) -> String {
        self.full_key("slot_numbers")
    }

    /// zset, parked job id -> its number: the line of a group, lowest first. A member is removed when the job leaves
    /// the line.
    pub fn slot_line(&self, group: &str) -> String {
        self.full_key(&format!("slot_line:{group}"))
    }

    /// zset, parked job id -> its number, of jobs that wait for this own name. A member moves to its group's line when
    /// the name is free.
    pub fn slot_wait(&self, own: &str) -> String {
        self.full_key(&format!("slot_wait:{own}"))
    }

    /// zset, holder -> end of its slot in ms, of the holders under this concurrency limit. Expires with the last slot.
    pub fn limit_slots(&self, limit: &str) -> String {
        self.full_key(&format!("slots:{limit}"))
    }

    /// string, ms: the time at which this rate limit has fully recovered. Expires 10 s later.
    pub fn limit_rate(&self, limit: &str) -> String {
        self.full_key(&format!("rate:{limit}"))
    }

    /// hash: the state of a circuit breaker. Expires an hour after the last reported call.
    pub fn breaker(&self, name: &str) -> String {
        self.full_key(&format!("breaker:{name}"))
    }

    /// string `run_id uuid`: proof that this Redis still has all jobs. No expiry; only a flush removes it.
    pub fn epoch(&self) -> String {
        self.full_key("epoch")
    }

    /// string `marker`, later `marker horizon`: the current rebuild, and the due time in ms up to which it has inserted
    /// all jobs. Removed when the rebuild finishes; expires an hour after its last progress.
    pub fn rebuild_marker(&self) -> String {
        self.full_key("rebuilding")
    }

    /// string, JSON `{attempt,response}`: the result of a task of apalis. Written only for a queue that keeps results;
    /// expires after the time that the queue sets.
    pub fn result(&self, job: &str) -> String {
        self.full_key(&format!("result:{job}"))
    }

    /// zset, `boot replica` -> last heartbeat in ms. A heartbeat removes each process that sent none for 60 s.
    pub fn workers(&self) -> String {
        self.full_key("workers")
    }

    /// hash, `boot replica` -> `up_ms JSON`; the JSON describes the process. Removed with the member of `workers`.
    pub fn worker_info(&self) -> String {
        self.full_key("worker_info")
    }

    /// hash, lateness bucket in ms -> number of jobs, and `max`, for one hour counted from 1970. Expires after 25 h.
    pub fn lateness_counts(&self, hour: u64) -> String {
        self.full_key(&format!("lateness:{hour}"))
    }

    /// pub/sub channel (sharded in a cluster), message = queue. Published when the queue's first due time is earlier
    /// than any worker may have planned for.
    pub fn wake_channel(&self) -> String {
        self.full_key("wake")
    }

    /// A key that never exists; the last key of each job script in a cluster. While a slot is being moved, its owner
    /// runs a command only if the owner has all keys of that command. This key makes the owner refuse the script.
    /// Otherwise the script would start and fail halfway, at the first key that has moved.
    pub fn never(&self) -> String {
        self.full_key("never")
    }

    fn fixed_keys(&self) -> [String; Self::FIXED] {
        [
            self.lease_table(),
            self.job_envelopes(),
            self.job_tries(),
            self.dead_records(),
            self.paused_queues(),
            self.epoch(),
            self.suspect_turn(),
        ]
    }

    /// Returns the KEYS of a script for these queues, in the order that `lib.lua` expects: the fixed ones, then five
    /// per queue.
    pub fn script_keys<'a>(&self, queues: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let mut keys = self.fixed_keys().to_vec();
        for queue in queues {
            keys.extend([
                self.due_set(queue),
                self.leased_set(queue),
                self.dead_set(queue),
                self.suspect_set(queue),
                self.parked_set(queue),
            ]);
        }
        keys
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self::new()
    }
}
