//! Handing back what a process held that is gone.

use std::{collections::HashMap, time::Duration};

use super::{HeldLease, LeaseToken, ReleaseVerdict, Store, StoreError, client::BATCH};
use crate::job::JobId;

/// Leases looked at in one call.
const PAGE: usize = 1000;

impl Store {
    /// Ends the leases that the process of this boot holds in these queues: the next take rescues their jobs, as it does when a lease
    /// expires. Returns how many.
    pub async fn end_leases_of(&self, boot: &str, queues: &[&'static str]) -> Result<usize, StoreError> {
        let mut ended = 0;
        for queue in queues {
            // Those that end move to the front of the set: none is passed over.
            for first in (0..).step_by(PAGE) {
                let (ids, held) = self.list_leases_of(boot, queue, first).await?;
                self.extend(&held, Duration::ZERO).await?;
                ended += held.len();
                if ids < PAGE {
                    break;
                }
            }
        }
        Ok(ended)
    }

    /// One page of the leases in a queue: how many there are, and those of the process.
    async fn list_leases_of(
        &self,
        boot: &str,
        queue: &'static str,
        first: usize,
    ) -> Result<(usize, Vec<HeldLease>), StoreError> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(self.keys().leased_set(queue)).arg(first).arg(first + PAGE - 1);
        let ids: Vec<String> = self.run_command("leases of a queue", &range).await?;
        if ids.is_empty() {
            return Ok((0, Vec::new()));
        }
        let mut read = redis::cmd("HMGET");
        read.arg(self.keys().lease_table()).arg(&ids);
        let leases: Vec<Option<String>> = self.run_command("leases of a queue", &read).await?;
        let of_process = |(id, lease): (&String, Option<String>)| {
            let lease = lease?;
            let (token, _) = lease.split_once(' ')?;
            let (holder, _) = token.rsplit_once(':')?;
            let id = JobId::parse(id.clone()).ok().filter(|_| holder == boot)?;
            Some(HeldLease { queue, id, token: LeaseToken::parse(token).of_shard(self.shard()) })
        };
        let held = ids.iter().zip(leases).filter_map(of_process).collect();
        Ok((ids.len(), held))
    }

    /// Frees the slots that were given to the process: with its takes, whose tokens begin with `boot`, or when it asked in its name.
    /// Returns how many.
    pub async fn free_slots_of(&self, boot: &str, name: &str) -> Result<usize, StoreError> {
        // As many as may be open at once; as slots.lua writes it, the holder comes last.
        let mut read = redis::cmd("HGETALL");
        read.arg(self.keys().slot_holds());
        let holds: HashMap<String, String> = self.run_command("slots that are held", &read).await?;
        let of_process = |(id, hold): (String, String)| {
            let holder = hold.rsplit(' ').next()?;
            let is_its = holder.rsplit_once(':').is_some_and(|(giver, _)| giver == boot)
                || holder.split_once('.').is_some_and(|(asker, _)| asker == name);
            is_its.then(|| (id, holder.to_owned()))
        };
        let held: Vec<(String, String)> = holds.into_iter().filter_map(of_process).collect();
        let mut freed = 0;
        for batch in held.chunks(BATCH) {
            let holders = batch.iter().map(|(id, holder)| (id.as_str(), holder.as_str()));
            let verdicts = self.release_held(holders).await?;
            freed += verdicts.iter().filter(|verdict| **verdict == ReleaseVerdict::Freed).count();
        }
        Ok(freed)
    }
}
