//! Every Redis key of the engine, with its type and lifetime.
//!
//! All keys of a shard carry one hash tag, so that one script may touch several queues atomically, in a Redis Cluster too.
//! Keys about slots are not among the KEYS of a script: `slots.lua` puts them together by the same names.
//! A job's id is in at most one of `due`, `suspects`, `parked`, `leased` and `dead` of its queue.

/// The keys of one shard.
#[derive(Debug, Clone)]
pub struct Keys {
    tag: String,
}

impl Keys {
    /// How many keys [`fixed_keys`](Self::fixed) has: the scripts find the queues' keys behind them.
    const FIXED: usize = 7;

    /// Shard 0: the only one, or the control shard.
    pub fn new() -> Self {
        Self::of_shard(0)
    }

    pub fn of_shard(shard: u16) -> Self {
        Self { tag: format!("{{dq:{shard}}}") }
    }

    fn full_key(&self, name: &str) -> String {
        [&self.tag, ":", name].concat()
    }

    /// Each take names five for each queue.
    fn queue_key(&self, set: &str, queue: &str) -> String {
        [&self.tag, ":", set, ":", queue].concat()
    }

    /// zset, job id -> due in ms: delayed and ready jobs alike. A member goes when the job is leased.
    pub fn due_set(&self, queue: &str) -> String {
        self.queue_key("due", queue)
    }

    /// zset, job id -> due in ms: jobs whose last two deliveries were lost, which run with nothing beside them. A member
    /// goes when the job is leased.
    pub fn suspect_set(&self, queue: &str) -> String {
        self.queue_key("suspects", queue)
    }

    /// zset, job id -> lease expiry in ms. A member goes when the lease is settled, released or rescued.
    pub fn leased_set(&self, queue: &str) -> String {
        self.queue_key("leased", queue)
    }

    /// zset, job id -> time of death in ms. A member stays until an operator requeues or discards it.
    pub fn dead_set(&self, queue: &str) -> String {
        self.queue_key("dead", queue)
    }

    /// zset, job id -> since when, in ms: jobs that wait in line for slots. A member goes when the job is handed its slots or
    /// cancelled.
    pub fn parked_set(&self, queue: &str) -> String {
        self.queue_key("parked", queue)
    }

    /// hash, leased job id -> `token due again`; `again` is `-` or the earliest due wanted while leased. Lives as long
    /// as the member of `leased`.
    pub fn lease_table(&self) -> String {
        self.full_key("leases")
    }

    /// hash, job id -> envelope `{"v":1,"slots":"group own hold_ms","payload":..}`, each only where the job has it; nothing for
    /// jobs with neither. Goes with the job.
    pub fn job_envelopes(&self) -> String {
        self.full_key("jobs")
    }

    /// hash, job id -> `failed lost`: jobs that failed or were lost, and `0 0` of those put off on purpose, by a snooze or
    /// an operator. Goes with the job.
    pub fn job_tries(&self) -> String {
        self.full_key("tries")
    }

    /// hash, dead job id -> JSON `{queue,error,failed,lost,due_ms,died_ms,payload}`, the payload being the envelope byte
    /// for byte. Lives as long as the member of the queue's dead zset.
    pub fn dead_records(&self) -> String {
        self.full_key("dead")
    }

    /// set of paused queues. No expiry.
    pub fn paused_queues(&self) -> String {
        self.full_key("paused")
    }

    /// hash `boot`, `until`: the one process that runs suspects at present, and until when in ms if it does not renew.
    /// Removed when its turn ends, expires a minute after the last renewal.
    pub fn suspect_turn(&self) -> String {
        self.full_key("suspect_turn")
    }

    /// hash, job id -> `queue group own hold_ms number since_ms lapses holder`; `holder` is `-` for a reservation. Lives as
    /// long as the member of `slot_ends`. The hash `parked` has the same fields for parked jobs; its last field is `-` for a
    /// job in its group's line, else the own name that the job waits for. Only `slots.lua` names that hash.
    pub fn slot_holds(&self) -> String {
        self.full_key("slot_holds")
    }

    /// zset, job id -> end of its slots in ms: jobs that hold slots or have them reserved. A member goes when the slots are
    /// freed or past their end.
    pub fn slot_ends(&self) -> String {
        self.full_key("slot_ends")
    }

    /// zset, due job id -> since when, in ms: jobs of a queue that have slots reserved, which are leased before all others. A
    /// member goes with the lease, or when the reservation ends.
    pub fn slot_reserved(&self, queue: &str) -> String {
        self.queue_key("slot_reserved", queue)
    }

    /// hash, own name -> the job that holds it; after a restore that knew of an older one, both. A field goes with the slots.
    pub fn slot_owns(&self) -> String {
        self.full_key("slot_owns")
    }

    /// hash, group -> its slots in use. A field goes with the last of them.
    pub fn slots_used(&self) -> String {
        self.full_key("slots_used")
    }

    /// hash, `all` or `group:` and a group -> how many at once. No expiry; the owner of the truth sets them again after a flush.
    pub fn slot_limits(&self) -> String {
        self.full_key("slot_limits")
    }

    /// zset, group -> its turn: groups that have both a waiting job and a free slot. A member goes when it lacks one.
    pub fn slot_ring(&self) -> String {
        self.full_key("slot_ring")
    }

    /// hash `number`, `turn`: the last place given in a line and in the ring. No expiry.
    pub fn slot_numbers(&self) -> String {
        self.full_key("slot_numbers")
    }

    /// zset, parked job id -> its number: the line of a group, the lowest first. A member goes when the job leaves the line.
    pub fn slot_line(&self, group: &str) -> String {
        self.full_key(&format!("slot_line:{group}"))
    }

    /// zset, parked job id -> its number: jobs that join their groups' lines when this own name is free. A member goes with
    /// that.
    pub fn slot_wait(&self, own: &str) -> String {
        self.full_key(&format!("slot_wait:{own}"))
    }

    /// zset, holder -> end of its slot in ms: who holds a slot of this concurrency limit. Expires with the last slot.
    pub fn limit_slots(&self, limit: &str) -> String {
        self.full_key(&format!("slots:{limit}"))
    }

    /// string, ms: when this rate limit has fully recovered. Expires 10 s later.
    pub fn limit_rate(&self, limit: &str) -> String {
        self.full_key(&format!("rate:{limit}"))
    }

    /// hash: how a circuit breaker stands. Expires an hour after the last call that it was told of.
    pub fn breaker(&self, name: &str) -> String {
        self.full_key(&format!("breaker:{name}"))
    }

    /// string `run_id uuid`: proof that this Redis still holds our data. No expiry; only a flush removes it.
    pub fn epoch(&self) -> String {
        self.full_key("epoch")
    }

    /// string `marker`, later `marker horizon`: the rebuild under way, and up to which due, in ms, all jobs are in. Removed when it
    /// finishes, expires an hour after it last got further.
    pub fn rebuild_marker(&self) -> String {
        self.full_key("rebuilding")
    }

    /// zset, `boot replica` -> last heartbeat in ms. A process not seen for 60 s is pruned by the next heartbeat.
    pub fn workers(&self) -> String {
        self.full_key("workers")
    }

    /// hash, `boot replica` -> `up_ms JSON`, the JSON being about it. Pruned together with `workers`.
    pub fn worker_info(&self) -> String {
        self.full_key("worker_info")
    }

    /// hash, lateness bucket in ms -> jobs, and `max`: the lateness of all jobs of one hour, counted from 1970. Expires
    /// after 25 h.
    pub fn lateness_counts(&self, hour: u64) -> String {
        self.full_key(&format!("lateness:{hour}"))
    }

    /// pub/sub channel, in a cluster a sharded one, message = queue: its head now is due earlier than any worker may have planned for.
    pub fn wake_channel(&self) -> String {
        self.full_key("wake")
    }

    /// A key that never exists, the last of a job script in a cluster. While a slot is being moved its owner performs a command only
    /// if it still has all keys that the command names; a script must not begin there, for it would end half done at the first key
    /// that has gone.
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

    /// The KEYS of a script about these queues, in the order `lib.lua` expects: the fixed ones, then five per queue.
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
